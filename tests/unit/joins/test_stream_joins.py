from __future__ import annotations

from typing import Any

import pytest
from tests.unit.joins.fakes import FakeNode, JoinWindowStore, KeyValues, Sink

from penstock.processors.outer_join_store import OuterJoinShared
from penstock.processors.stream_joins import StreamJoinWindow, StreamSelfJoin, StreamStreamJoin
from penstock.record import NO_HEADERS, Headers
from penstock.serdes.builtin import Serdes

STRING = Serdes.string()


def pair(left: Any, right: Any) -> str:
    return f"{left}/{right}"


class Join:
    """Both sides of a join, as the task wires them."""

    def __init__(self, kind: str, *, before: int, after: int, grace: int = 0) -> None:
        retention = before + after + grace
        self.waiting = KeyValues()
        self.node = FakeNode(
            L=JoinWindowStore(retention), R=JoinWindowStore(retention), O=self.waiting
        )
        self.out = Sink()
        shared = None if kind == "inner" else OuterJoinShared("O", STRING, STRING, STRING)
        self.left, self.right = (
            StreamJoinWindow(own).attach(
                self.node,
                StreamStreamJoin(
                    side, other, pair, before, after, grace, outer=outer, shared=shared
                ).attach(self.node, self.out),
            )
            for side, own, other, outer in (
                ("left", "L", "R", kind != "inner"), ("right", "R", "L", kind == "outer"),
            )
        )

    def l(self, value: Any, ts: int, key: Any = "k", headers: Headers = NO_HEADERS) -> list[Any]:  # noqa: E743
        self.left(key, value, ts, headers)
        return [(v, t) for _, v, t in self.out.take()]

    def r(self, value: Any, ts: int, key: Any = "k", headers: Headers = NO_HEADERS) -> list[Any]:
        self.right(key, value, ts, headers)
        return [(v, t) for _, v, t in self.out.take()]


def test_partners_within_reach_join_at_the_later_time():
    join = Join("inner", before=10, after=5)
    assert join.l("a", 100) == []
    assert join.r("x", 105) == [("a/x", 105)]
    assert join.r("late", 106) == []
    assert join.r("early", 90) == [("a/early", 100)]
    assert join.node.counters["matched"] == 2


@pytest.mark.parametrize(("key", "value"), [(None, "v"), ("k", None), (None, None)])
def test_inner_join_drops_null_keys_and_values(key, value):
    join = Join("inner", before=10, after=10)
    assert join.l(value, 1, key=key) == []
    assert len(join.node.dropped) == 1


def test_outer_side_forwards_null_keys_at_once_and_drops_null_values():
    join = Join("left", before=10, after=10)
    assert join.l("v", 1, key=None) == [("v/None", 1)]
    assert join.l(None, 1) == []
    assert join.r("v", 1, key=None) == []
    assert len(join.node.dropped) == 2


def test_unmatched_left_is_emitted_before_the_record_that_closes_its_window():
    join = Join("left", before=10, after=10, grace=5)
    assert join.l("a", 100) == []
    assert join.l("b", 115, key="q") == []
    assert join.r("x", 116, key="q") == [("a/None", 100), ("b/x", 116)]
    assert join.node.counters["unmatched-left"] == 1


def test_match_removes_all_waiting_values_of_key_and_time():
    join = Join("left", before=10, after=10)
    join.l("a", 100)
    join.l("b", 100)
    assert join.r("x", 100) == [("a/x", 100), ("b/x", 100)]
    assert join.waiting.rows == {}
    assert join.l("z", 500, key="q") == []


def test_order_is_time_then_right_before_left_then_key():
    join = Join("outer", before=10, after=10)
    for value, ts, key in (("b", 100, "b"), ("a", 100, "a"), ("c", 99, "c")):
        join.l(value, ts, key=key)
    join.r("x", 100, key="x")
    assert join.l("end", 200, key="end") == [
        ("c/None", 99), ("None/x", 100), ("a/None", 100), ("b/None", 100),
    ]


def test_late_record_is_emitted_at_once():
    join = Join("left", before=10, after=10)
    join.r("x", 200, key="q")
    assert join.l("a", 100) == [("a/None", 100)]
    assert join.node.counters["late"] == 1


def test_unmatched_results_have_the_headers_of_the_arriving_record():
    join = Join("left", before=10, after=10)
    join.l("a", 100, headers=Headers((("own", b""),)))
    arriving = Headers((("arriving", b""),))
    join.left("q", "b", 200, arriving)
    assert join.out.headers == [arriving]


def test_waiting_records_are_stored_in_kafkas_format():
    join = Join("left", before=10, after=10)
    join.l("a", 1)
    join.l("bc", 1)
    (entry,) = join.waiting.rows.items()
    assert entry == (
        bytes(7) + b"\x01\x01k",
        b"\x01\x00\x00\x00\x02\x00\x00\x00\x02\x01a\x00\x00\x00\x03\x01bc",
    )


def test_results_do_not_depend_on_batch_boundaries():
    join = Join("left", before=10, after=10)
    join.l("a", 100)
    again = Join("left", before=10, after=10)
    again.node.clocks.update(join.node.clocks)
    again.waiting.rows.update(join.waiting.rows)
    for name, clock in join.node.clocks.items():
        again.node.clock(name).time = clock.time
    fresh = StreamStreamJoin(
        "right", "L", pair, 10, 10, 0, shared=OuterJoinShared("O", STRING, STRING, STRING)
    ).attach(again.node, again.out)
    fresh("q", "x", 121, NO_HEADERS)
    assert again.out.take() == [("k", "a/None", 100)]


def test_failing_joiner_keeps_its_record_waiting():
    def joiner(left: Any, right: Any) -> str:
        if left == "bad":
            raise RuntimeError("boom")
        return pair(left, right)

    waiting = KeyValues()
    node = FakeNode(R=JoinWindowStore(), O=waiting)
    out = Sink()
    shared = OuterJoinShared("O", STRING, STRING, STRING)
    left = StreamStreamJoin(
        "left", "R", joiner, 10, 10, 0, outer=True, shared=shared
    ).attach(node, out)
    for value, ts in (("a", 1), ("b", 2), ("bad", 3)):
        left("k", value, ts, NO_HEADERS)
    with pytest.raises(RuntimeError):
        left("q", "c", 100, NO_HEADERS)
    assert [value for _, value, _ in out.take()] == ["a/None", "b/None"]
    assert [key[7] for key in sorted(waiting.rows)] == [2, 3]


def test_self_join_joins_itself_in_time_order():
    node = FakeNode(S=JoinWindowStore())
    out = Sink()
    process = StreamJoinWindow("S").attach(
        node, StreamSelfJoin("S", pair, 10, 10, 20).attach(node, out)
    )
    process("k", "1", 10, NO_HEADERS)
    assert out.take() == [("k", "1/1", 10)]
    process("k", "2", 15, NO_HEADERS)
    assert out.take() == [("k", "2/1", 15), ("k", "1/2", 15), ("k", "2/2", 15)]
    process("k", "0", 5, NO_HEADERS)
    assert [value for _, value, _ in out.take()] == ["0/1", "0/2", "0/0", "1/0", "2/0"]
