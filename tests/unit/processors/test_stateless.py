from __future__ import annotations

from typing import Any

import pytest
from tests.unit.processors.fakes import FakeNode, Sent

from penstock.processors.stateless import (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    Foreach,
    Map,
    MapValues,
    PassThrough,
    Peek,
    Print,
    SelectKey,
)
from penstock.record import Headers

HEADERS = Headers([("h", b"1")])


def test_filter_keeps_accepted_records() -> None:
    run = FakeNode().attach(Filter(lambda key, value: value > 1))
    assert run("k", 1, 5) == []
    assert run("k", 2, 5, HEADERS) == [Sent("k", 2, 5, HEADERS)]


def test_filter_not_keeps_rejected_records_and_accepts_any_truth_value() -> None:
    run = FakeNode().attach(Filter(lambda key, value: value, negate=True))
    assert run("k", [1]) == []
    assert run("k", []) == [Sent("k", [], 0)]


def test_map_returns_a_new_pair_with_the_same_timestamp_and_headers() -> None:
    run = FakeNode().attach(Map(lambda key, value: (value, key)))
    assert run(None, "v", 7, HEADERS) == [Sent("v", None, 7, HEADERS)]


def test_map_rejects_null() -> None:
    run = FakeNode().attach(Map(lambda key, value: None))
    with pytest.raises(TypeError, match="returned null which is not allowed"):
        run("k", "v")


@pytest.mark.parametrize("result", [5, (1, 2, 3)])
def test_map_rejects_non_pairs_and_names_the_node(result: Any) -> None:
    run = FakeNode().attach(Map(lambda key, value: result))
    with pytest.raises(TypeError, match="'node' must return pairs"):
        run("k", "v")


def test_errors_of_the_mapper_are_raised_unchanged() -> None:
    def broken(key: Any, value: Any) -> Any:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        FakeNode().attach(Map(broken))("k", "v")


def test_select_key_keeps_the_value() -> None:
    assert FakeNode().attach(SelectKey(lambda k, v: v + 1))("k", 1, 3) == [Sent(2, 1, 3)]


def test_map_values_with_and_without_key() -> None:
    assert FakeNode().attach(MapValues(lambda v: v * 2))("k", 2) == [Sent("k", 4, 0)]
    assert FakeNode().attach(MapValues(lambda k, v: k + v, True))("k", "v") == [
        Sent("k", "kv", 0)
    ]


def test_flat_map_sends_each_pair_in_order() -> None:
    run = FakeNode().attach(FlatMap(lambda k, v: [(k, i) for i in range(v)]))
    assert run("k", 2, 9) == [Sent("k", 0, 9), Sent("k", 1, 9)]
    assert run("k", 0) == []


def test_flat_map_rejects_null_and_null_pairs() -> None:
    for result in (None, [None]):
        with pytest.raises(TypeError, match="returned null"):
            FakeNode().attach(FlatMap(lambda k, v, result=result: result))("k", "v")


def test_flat_map_values_forwards_each_value_and_rejects_null() -> None:
    assert FakeNode().attach(FlatMapValues(list))("k", "ab") == [
        Sent("k", "a", 0), Sent("k", "b", 0)
    ]
    assert FakeNode().attach(FlatMapValues(lambda k, v: [k], with_key=True))("k", "ab") == [
        Sent("k", "k", 0)
    ]
    with pytest.raises(TypeError, match="instead of an iterable"):
        FakeNode().attach(FlatMapValues(lambda v: None))("k", "v")


def test_peek_forwards_and_foreach_does_not() -> None:
    seen: list[Any] = []
    assert FakeNode().attach(Peek(lambda k, v: seen.append((k, v))))("k", 1) == [Sent("k", 1, 0)]
    assert FakeNode().attach(Foreach(lambda k, v: seen.append((k, v))))("k", 2) == []
    assert seen == [("k", 1), ("k", 2)]


def test_print_writes_null_for_none() -> None:
    node = FakeNode()
    node.attach(Print("label"))("k", None)
    node.attach(Print("other", lambda k, v: f"{k}={v}"))("k", 1)
    assert node.printed == ["[label]: k, null", "[other]: k=1"]


def test_branch_sends_to_the_first_match_only() -> None:
    node = FakeNode()
    run = node.attach(Branch((lambda k, v: v > 10, lambda k, v: v > 5), ("a", "b")))
    for value in (20, 7, 1):
        run("k", value)
    assert [(child, sent.value) for child, sent in node.sent_to] == [("a", 20), ("b", 7)]


def test_branch_sends_the_rest_to_the_default() -> None:
    node = FakeNode()
    node.attach(Branch((lambda k, v: False,), ("a", "rest")))("k", 1)
    assert node.sent_to == [("rest", Sent("k", 1, 0))]


def test_pass_through_adds_no_call() -> None:
    node = FakeNode()
    forward = node.forward
    assert PassThrough().attach(node, forward) is forward
