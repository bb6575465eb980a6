from __future__ import annotations

import random
from typing import Any

import pytest
from tests.unit.processors.fakes import FakeNode, FakeWindowStore, Sent

from penstock.processors.aggregates import aggregator_of_reducer, no_initial_value
from penstock.processors.sliding_aggregates import SlidingAggregate
from penstock.processors.table_store import WindowGetter
from penstock.record import Change, Headers
from penstock.windows import SlidingWindows, Window, Windowed

HEADERS = Headers([("h", b"1")])


def attach(difference: int, grace: int = 1000, **options: Any) -> tuple[FakeNode, Any]:
    node = FakeNode(s=FakeWindowStore(difference))
    windows = SlidingWindows(difference, grace)
    concat = SlidingAggregate("s", windows, str, lambda k, v, a: a + v, **options)
    return node, node.attach(concat)


def windowed(start: int, end: int) -> Windowed[str]:
    return Windowed("k", Window(start, end))


def contents(node: FakeNode) -> dict[int, str]:
    return {start: row.value for (start, _), row in node.stores["s"].rows.items()}


def test_first_record_makes_its_left_window() -> None:
    _, run = attach(10)
    assert run("k", "a", 50, HEADERS) == [
        Sent(windowed(40, 50), Change("a", None), 50, HEADERS)
    ]


def test_second_record_makes_the_right_window_of_the_first() -> None:
    _, run = attach(10, send_old=True)
    run("k", "a", 50)
    assert run("k", "b", 55) == [
        Sent(windowed(51, 61), Change("b", ""), 55),
        Sent(windowed(45, 55), Change("ab", "a"), 55),
    ]


def test_out_of_order_record_makes_its_own_right_window() -> None:
    _, run = attach(10, send_old=True)
    run("k", "b", 55)
    assert run("k", "a", 50) == [
        Sent(windowed(45, 55), Change("ba", "b"), 55),
        Sent(windowed(40, 50), Change("a", ""), 50),
        Sent(windowed(51, 61), Change("b", None), 55),
    ]


def test_record_with_an_equal_timestamp_updates_existing_windows() -> None:
    _, run = attach(10)
    run("k", "a", 50)
    assert run("k", "b", 50) == [Sent(windowed(40, 50), Change("ab", None), 50)]


def test_window_that_is_right_of_one_and_left_of_the_next_is_sent_twice() -> None:
    _, run = attach(10)
    run("k", "a", 48)
    run("k", "b", 50)
    assert run("k", "c", 61) == [Sent(windowed(51, 61), Change("c", None), 61)] * 2


def test_early_records_share_the_first_window() -> None:
    _, run = attach(10)
    assert run("k", "a", 3) == [Sent(windowed(0, 10), Change("a", None), 3)]
    assert run("k", "b", 6) == [
        Sent(windowed(4, 14), Change("b", None), 6),
        Sent(windowed(0, 10), Change("ab", None), 6),
    ]
    assert run("k", "c", 1) == [
        Sent(windowed(2, 12), Change("ab", None), 6),
        Sent(windowed(0, 10), Change("abc", None), 6),
    ]


def test_late_records_and_closed_windows_are_dropped_and_counted() -> None:
    node, run = attach(10, grace=0)
    run("k", "a", 100)
    assert run("k", "b", 89) == []
    assert node.dropped == ["expired window"]
    # At 95 the left window has closed, the windows that reach to 100 have not.
    assert [sent.key for sent in run("k", "c", 95)] == [windowed(90, 100), windowed(96, 106)]
    assert len(node.dropped) == 2


def test_null_keys_and_values_are_dropped() -> None:
    node, run = attach(10)
    assert run(None, "a", 5) == run("k", None, 5) == []
    assert node.dropped == ["null key or value"] * 2


def test_difference_of_zero_fails_on_the_first_record() -> None:
    _, run = attach(0)
    with pytest.raises(ValueError, match="endMs must be greater"):
        run("k", "a", 5)


def test_closed_windows_are_emitted_once_they_lie_behind() -> None:
    node, run = attach(10, grace=0, emit_final=True)
    run("k", "a", 50)
    assert run("k", "b", 51, HEADERS) == [
        Sent(windowed(40, 50), Change("a", None), 50, HEADERS)
    ]
    assert run("k", "c", 100) == [
        Sent(windowed(41, 51), Change("ab", None), 51),
        Sent(windowed(51, 61), Change("b", None), 51),
    ]
    assert node.counts["emitted-records"] == 3


def test_early_record_emits_nothing() -> None:
    _, run = attach(100, grace=0, emit_final=True)
    run("k", "a", 0)
    assert run("k", "b", 99) == []


def test_reduce_over_sliding_windows_has_no_initial_value() -> None:
    node = FakeNode(s=FakeWindowStore(10))
    windows = SlidingWindows(10, 0)
    add = aggregator_of_reducer(lambda a, b: a + b)
    operator = SlidingAggregate("s", windows, no_initial_value, add, send_old=True)
    run = node.attach(operator)
    assert run("k", "a", 50) == [Sent(windowed(40, 50), Change("a", None), 50)]
    assert operator.getter_supplier() == WindowGetter("s")


@pytest.mark.parametrize("seed", range(30))
def test_windows_contain_the_records_of_their_definition(seed: int) -> None:
    """Each stored window contains exactly the records within it, and the left window (or the first
    window) of every record exists."""
    rng = random.Random(seed)
    difference = rng.randint(1, 12)
    node, run = attach(difference, grace=10_000)
    records: list[tuple[int, str]] = []
    for number in range(40):
        timestamp, name = rng.randint(0, 60), chr(65 + number)
        run("k", name, timestamp)
        records.append((timestamp, name))
        held = contents(node)
        for start, value in held.items():
            inside = {name for time, name in records if start <= time <= start + difference}
            assert set(value) == inside
            assert len(value) == len(inside)
        for time, _ in records:
            assert max(0, time - difference) in held
            after = [other for other, _ in records if time < other <= time + 1 + difference]
            assert not after or time + 1 in held
