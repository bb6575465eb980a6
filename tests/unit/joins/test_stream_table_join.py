from __future__ import annotations

from typing import Any

import pytest
from tests.unit.joins.fakes import FakeNode, FakeStoreContext, Sink, Table

from penstock.processors.stream_table_join import StreamGlobalTableJoin, StreamTableJoin
from penstock.record import NO_HEADERS, Headers
from penstock.serdes.builtin import Serdes
from penstock.stores.buffers.join_grace import JoinGraceBuffer, JoinGraceBufferBuilder


def pair(left: Any, right: Any) -> str:
    return f"{left}/{right}"


@pytest.mark.parametrize("left", [False, True])
def test_only_the_stream_triggers_and_keeps_its_time(left):
    node, out = FakeNode(), Sink()
    process = StreamTableJoin(Table({"a": ("row", 99)}), pair, left).attach(node, out)
    process("a", "x", 5, NO_HEADERS)
    process("b", "y", 6, NO_HEADERS)
    assert out == [("a", "x/row", 5), *([("b", "y/None", 6)] if left else [])]
    assert node.counters == {"matched": 1, "unmatched-left": 1}


def test_null_keys_are_dropped_unless_left_and_null_values_always():
    for left, dropped in ((False, 3), (True, 2)):
        node, out = FakeNode(), Sink()
        process = StreamTableJoin(Table({}), pair, left).attach(node, out)
        for key, value in ((None, "v"), ("k", None), (None, None)):
            process(key, value, 1, NO_HEADERS)
        assert len(node.dropped) == dropped
        assert len(out) == int(left)


def test_global_table_is_read_by_the_selected_key():
    node, out = FakeNode(), Sink()
    join = StreamGlobalTableJoin(
        Table({"A": ("row", 1)}), lambda key, value: value and value.upper(),
        lambda key, left, right: f"{key}:{left}/{right}", left=True, with_key=True,
    )
    process = join.attach(node, out)
    process("k", "a", 1, NO_HEADERS)
    process(None, "", 2, NO_HEADERS)
    process("k", None, 3, NO_HEADERS)
    assert out == [("k", "k:a/row", 1), (None, "None:/None", 2)]
    assert len(node.dropped) == 1


def buffered(left: bool = False, grace: int = 10) -> tuple[Any, Sink, FakeNode, FakeStoreContext]:
    buffer = JoinGraceBufferBuilder("B", grace, Serdes.string(), Serdes.string()).build()
    context = FakeStoreContext()
    buffer.init(context)
    node, out = FakeNode(B=buffer), Sink()
    versions = Table({"k": [(0, "v0"), (20, "v20")]}, is_versioned=True)
    return (
        StreamTableJoin(versions, pair, left, grace_ms=grace, buffer="B").attach(node, out),
        out, node, context,
    )


def test_with_grace_records_wait_and_join_as_of_their_time():
    process, out, node, context = buffered()
    for value, ts in (("b", 20), ("a", 15), ("c", 24)):
        node.at(ts)
        process("k", value, ts, Headers((("n", value.encode()),)))
    assert out == []
    node.at(30)
    process("k", "d", 30, NO_HEADERS)
    assert out == [("k", "a/v0", 15), ("k", "b/v20", 20)]
    assert out.headers[0] == Headers((("n", b"a"),))
    assert node.current.timestamp == 30
    assert [value is None for _, value, _, _ in context.log] == [False] * 4 + [True] * 2


def test_late_record_joins_at_once():
    process, out, node, _ = buffered()
    process("k", "a", 30, NO_HEADERS)
    process("k", "late", 19, NO_HEADERS)
    assert out == [("k", "late/v0", 19)]
    assert node.counters["late"] == 1


def test_with_grace_a_null_key_fails():
    process, *_ = buffered(left=True)
    with pytest.raises(TypeError, match="null key"):
        process(None, "a", 30, NO_HEADERS)


def test_grace_needs_a_versioned_table():
    with pytest.raises(ValueError, match="must be versioned"):
        StreamTableJoin(Table({}), pair, grace_ms=1, buffer="B").attach(FakeNode(B=None), Sink())


def test_grace_buffer_is_restored_from_its_changelog():
    process, _, node, context = buffered()
    for value, ts in (("a", 15), ("b", 15), ("c", 25)):
        node.at(ts)
        process("k", value, ts, NO_HEADERS)
    first: JoinGraceBuffer = node.stores["B"]
    again = JoinGraceBufferBuilder("B", 10, Serdes.string(), Serdes.string()).build()
    again.init(FakeStoreContext())
    for record in context.log:
        again.restore(*record)
    again.set_clocks(first.clocks())
    assert again.num_records == first.num_records == 1
    seen: list[Any] = []
    again.put("k", "d", node.current.context()._replace(timestamp=40))
    again.evict(lambda key, value, ctx: seen.append((key, value, ctx.timestamp)))
    assert seen == [("k", "c", 25)]
