from __future__ import annotations

from typing import Any

import pytest
from tests.unit.processors.fakes import (
    FakeNode,
    FakeTimestampedStore,
    FakeVersionedStore,
    Sent,
    new_only,
)

from penstock.errors import StreamsException
from penstock.processors.aggregates import (
    StreamAggregate,
    StreamReduce,
    TableAggregate,
    TableReduce,
    aggregator_of_reducer,
    count_down,
    count_up,
    merger_of_aggregator,
    zero,
)
from penstock.processors.table_store import StoreGetter
from penstock.record import Change, Headers

HEADERS = Headers([("h", b"1")])
COUNT = StreamAggregate("s", zero, count_up)


def node() -> FakeNode:
    return FakeNode(s=FakeTimestampedStore())


def test_count_sends_the_largest_time_and_the_headers_of_the_record() -> None:
    run = node().attach(COUNT)
    assert run("k", "v", 10, HEADERS) == [Sent("k", new_only(1), 10, HEADERS)]
    assert run("k", "v", 5) == [Sent("k", new_only(2), 10)]


@pytest.mark.parametrize("operator", [COUNT, StreamReduce("s", max)])
@pytest.mark.parametrize("record", [(None, 1), ("k", None)])
def test_null_keys_and_values_are_dropped_and_counted(operator: Any, record: Any) -> None:
    fake = node()
    assert fake.attach(operator)(*record) == []
    assert fake.dropped == ["null key or value"]


def test_first_old_value_of_an_aggregate_is_the_initial_value() -> None:
    run = node().attach(StreamAggregate("s", zero, count_up, send_old=True))
    assert run("k", "v") == [Sent("k", Change(1, 0), 0)]
    assert run("k", "v") == [Sent("k", Change(2, 1), 0)]


def test_aggregator_that_returns_none_deletes_and_restarts() -> None:
    fake = node()
    run = fake.attach(StreamAggregate("s", zero, lambda k, v, a: None if v < 0 else a + v))
    run("k", 5, 10)
    assert run("k", -1, 3) == [Sent("k", new_only(None), 10)]
    assert fake.stores["s"].rows == {}
    assert run("k", 2, 4) == [Sent("k", new_only(2), 4)]


def test_reduce_takes_the_first_value_and_has_no_old_value_for_it() -> None:
    run = node().attach(StreamReduce("s", lambda a, b: a + b, send_old=True))
    assert run("k", "a", 9) == [Sent("k", Change("a", None), 9)]
    assert run("k", "b", 3) == [Sent("k", Change("ab", "a"), 9)]


def test_cached_aggregate_leaves_forwarding_to_the_cache() -> None:
    fake = FakeNode(s=FakeTimestampedStore(caches=True))
    run = fake.attach(COUNT)
    assert run("k", "v", 1) == []
    assert fake.stores["s"].rows == {"k": (1, 1)}
    assert fake.stores["s"].send_old_values is False


def test_aggregate_in_a_versioned_store() -> None:
    run = FakeNode(s=FakeVersionedStore(refuse_before=3)).attach(COUNT)
    assert run("k", "v", 1) == []
    assert run("k", "v", 5) == [Sent("k", new_only(1), 5)]
    assert run("k", "v", 4) == [Sent("k", new_only(2), 5)]


def table_sum(send_old: bool = False) -> TableAggregate:
    return TableAggregate(
        "s", zero, lambda k, v, a: a + v, lambda k, v, a: a - v, send_old=send_old
    )


def test_table_aggregate_subtracts_the_old_and_adds_the_new_value() -> None:
    run = node().attach(table_sum(send_old=True))
    assert run("k", Change(5, None), 10) == [Sent("k", Change(5, None), 10)]
    assert run("k", Change(7, 5), 4) == [Sent("k", Change(7, 5), 10)]
    assert run("k", Change(None, 7), 20) == [Sent("k", Change(0, 7), 20)]


def test_subtracting_from_a_missing_group_sends_a_tombstone() -> None:
    run = node().attach(table_sum())
    assert run("k", Change(None, 3), 8) == [Sent("k", new_only(None), 8)]


def test_first_row_of_a_group_is_not_subtracted() -> None:
    run = node().attach(table_sum())
    assert run("k", Change(4, 3)) == [Sent("k", new_only(4), 0)]


def test_table_count_that_comes_down_to_zero_stays() -> None:
    run = node().attach(TableAggregate("s", zero, count_up, count_down))
    run("k", Change("a", None))
    assert run("k", Change(None, "a")) == [Sent("k", new_only(0), 0)]


def test_unchanged_aggregate_gets_the_timestamp_of_the_record() -> None:
    run = node().attach(table_sum())
    run("k", Change(5, None), 10)
    assert run("k", Change(None, None), 3) == [Sent("k", new_only(5), 3)]


def test_subtractor_that_returns_none_restarts_with_the_initial_value() -> None:
    run = node().attach(TableAggregate("s", lambda: 100, lambda k, v, a: a + v, lambda *_: None))
    run("k", Change(1, None), 10)
    assert run("k", Change(2, 1), 4) == [Sent("k", new_only(102), 10)]
    assert run("k", Change(None, 2), 4) == [Sent("k", new_only(None), 10)]


def test_table_reduce_starts_with_the_first_value() -> None:
    fake = node()
    run = fake.attach(TableReduce("s", lambda a, b: a + b, lambda a, b: a - b, send_old=True))
    assert run("k", Change(5, 9), 10) == [Sent("k", Change(5, None), 10)]
    assert run("k", Change(7, 5), 4) == [Sent("k", Change(7, 5), 10)]
    assert run("k", Change(1, None), 4) == [Sent("k", Change(8, 7), 10)]
    assert run("k", Change(None, 1), 12) == [Sent("k", Change(7, 8), 12)]


@pytest.mark.parametrize(
    ("operator", "kind"), [(table_sum(), "aggregate"), (TableReduce("s", max, min), "reduce")]
)
def test_table_aggregations_reject_a_null_key(operator: Any, kind: str) -> None:
    with pytest.raises(StreamsException, match=f"KTable {kind} operator with state s"):
        node().attach(operator)(None, Change(1, None))


def test_every_aggregate_is_read_through_its_store() -> None:
    for operator in (COUNT, StreamReduce("s", max), table_sum(), TableReduce("s", max, min)):
        assert operator.getter_supplier() == StoreGetter("s")


def test_reduce_as_an_aggregator_and_as_a_merger() -> None:
    aggregator = aggregator_of_reducer(lambda a, b: a + b)
    assert aggregator("k", "x", None) == "x"
    assert aggregator("k", "y", "x") == "xy"
    assert merger_of_aggregator(aggregator)("k", None, "b") == "b"
    assert merger_of_aggregator(aggregator)("k", "a", "b") == "ab"
