"""Queries of custom stores: types and queries of the user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock import InvalidStateStoreException, InvalidStateStorePartitionException
from penstock.queries import (
    FailureReason,
    KeyQuery,
    Position,
    PositionBound,
    QueryableStoreType,
    StateQueryRequest,
    StateStoreProvider,
)
from penstock.testing import TopologyTestDriver
from unit.queries.totals import TopQuery, TotalsType, totals_topology

TOP = StateQueryRequest.in_store("totals").with_query(TopQuery(1))


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(totals_topology(), partitions=2) as driver:
        words = driver.create_input_topic("words", str, str)
        for key, word in (("ann", "tea"), ("gil", "tea"), ("gil", "milk"), ("ann", "tea")):
            words.pipe_input(key, word)
        yield driver


class ValuesType(QueryableStoreType[list[Any]]):
    """All values of a key-value store."""

    def accepts(self, kind: str) -> bool:
        return kind == "timestamped_key_value"

    def create(self, provider: StateStoreProvider) -> list[Any]:
        values = []
        for partition in provider.partitions:
            with provider.open(partition) as store:
                values += [found.value for _, found in store.all()]
        return values


def test_type_of_the_user_shows_a_custom_store(driver: TopologyTestDriver) -> None:
    totals = driver.store("totals", TotalsType())
    assert (totals["tea"], totals["milk"], totals["rum"]) == (3, 1, 0)
    driver.create_input_topic("words", str, str).pipe_input("dora", "milk")
    assert totals["milk"] == 2


def test_type_of_the_user_shows_other_stores(driver: TopologyTestDriver) -> None:
    assert sorted(driver.store("latest", ValuesType())) == ["milk", "tea"]


def test_provider_names_the_partitions_that_are_available(driver: TopologyTestDriver) -> None:
    class Provided(QueryableStoreType[StateStoreProvider]):
        def accepts(self, kind: str) -> bool:
            return True

        def create(self, provider: StateStoreProvider) -> StateStoreProvider:
            return provider

    provider = driver.store("totals", Provided(), partition=1)
    assert (provider.name, provider.kind, provider.partitions) == ("totals", "custom", [1])
    with pytest.raises(
        InvalidStateStorePartitionException, match=r"Partition 0 of store totals .* Partitions: 1\."
    ), provider.open(0):
        pass


def test_custom_store_needs_a_type_that_accepts_it(driver: TopologyTestDriver) -> None:
    with pytest.raises(
        InvalidStateStoreException, match=r"custom store\. Query it from Python, with a subclass"
    ):
        driver.store("totals")
    with pytest.raises(InvalidStateStoreException, match="it is a custom store"):
        driver.store("totals", ValuesType())
    forgotten: Any = TotalsType
    with pytest.raises(TypeError, match=r"Create an object of it: TotalsType\(\)"):
        driver.store("totals", forgotten)


def test_custom_store_runs_queries_of_the_user(driver: TopologyTestDriver) -> None:
    results = driver.query(TOP.enable_execution_info()).partition_results
    assert {number: each.result for number, each in results.items()} == {
        0: [("tea", 2)], 1: [("tea", 1)]
    }
    for each in results.values():
        assert each.execution_info[0].endswith("words")
        assert "Handled in custom store 'totals'" in each.execution_info[1]
        assert each.position is not None
        assert each.position.topics == {"words"}


def test_bound_is_checked_before_the_custom_store_is_asked(driver: TopologyTestDriver) -> None:
    bound = PositionBound.at(Position.from_map({"words": {0: 1_000, 1: 1_000}}))
    results = driver.query(TOP.with_position_bound(bound)).partition_results
    assert {each.failure_reason for each in results.values()} == {FailureReason.NOT_UP_TO_BOUND}


def test_custom_store_refuses_unknown_queries(driver: TopologyTestDriver) -> None:
    request = StateQueryRequest.in_store("totals").with_query(KeyQuery.with_key("tea"))
    results = driver.query(request).partition_results
    assert {each.failure_reason for each in results.values()} == {FailureReason.UNKNOWN_QUERY_TYPE}
    other = StateQueryRequest.in_store("latest").with_query(TopQuery(1))
    results = driver.query(other).partition_results
    assert {each.failure_reason for each in results.values()} == {FailureReason.UNKNOWN_QUERY_TYPE}


def test_query_of_a_custom_store_must_return_a_result(driver: TopologyTestDriver) -> None:
    request = StateQueryRequest.in_store("totals").with_query(TopQuery(0))
    with pytest.raises(TypeError, match=r"Totals.query\(\) must return a QueryResult such as"):
        driver.query(request)
