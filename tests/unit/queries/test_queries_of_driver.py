"""`TopologyTestDriver.query`: which store supports which query, and its result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock import (
    Processor,
    Record,
    Stores,
    StreamsBuilder,
    ValueAndTimestamp,
    VersionedRecord,
    Windowed,
)
from penstock.errors import (
    SerializationException,
    StateStoreMigratedException,
    StateStoreNotAvailableException,
    StreamsRebalancingException,
    UnknownStateStoreException,
)
from penstock.queries import (
    FailureReason,
    KeyQuery,
    MultiVersionedKeyQuery,
    Position,
    PositionBound,
    Query,
    QueryResult,
    RangeQuery,
    StateQueryRequest,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from penstock.stores.bytes.store import InMemoryBytesStore
from penstock.testing import TopologyTestDriver
from penstock.windows import Window
from unit.queries.kinds_of_stores import EVENTS, TOPICS, all_kinds

KEY = KeyQuery.with_key("tea")
RANGE = RangeQuery.with_no_bounds()
TIMESTAMPED_KEY = TimestampedKeyQuery.with_key("tea").skip_cache()
TIMESTAMPED_RANGE = TimestampedRangeQuery.with_range("n", None)
VERSIONED_KEY = VersionedKeyQuery.with_key("tea").as_of(1_500)
MULTI_VERSIONED = MultiVersionedKeyQuery.with_key("tea")
WINDOW_KEY = WindowKeyQuery.with_key_and_window_start_range("ann", 0, 60_000)
WINDOW_STARTS = WindowRangeQuery.with_window_start_range(0, 10_000)
SESSIONS = WindowRangeQuery.with_key("ann")

ALL: list[Query[Any]] = [
    KEY, RANGE, TIMESTAMPED_KEY, TIMESTAMPED_RANGE, VERSIONED_KEY, MULTI_VERSIONED, WINDOW_KEY,
    WINDOW_STARTS, SESSIONS,
]
ANN = Windowed("ann", Window(0, 10_000))
BOB = Windowed("bob", Window(0, 10_000))
#: Store -> the queries that it supports, and the results.
RESULTS: dict[str, list[tuple[Query[Any], Any]]] = {
    "plain": [
        (KeyQuery.with_key("ann"), "tea"),
        (RangeQuery.with_upper_bound("b"), [("ann", "tea")]),
    ],
    "counts": [
        (KEY, 3), (RANGE, [("milk", 1), ("tea", 3)]),
        (RANGE.with_descending_keys(), [("tea", 3), ("milk", 1)]),
        (RangeQuery.with_lower_bound("n").with_ascending_keys(), [("tea", 3)]),
        (TIMESTAMPED_KEY, ValueAndTimestamp(3, 31_000)),
        (TIMESTAMPED_RANGE, [("tea", ValueAndTimestamp(3, 31_000))]),
        (KeyQuery.with_key("coffee"), None),
    ],
    "prices": [
        (VERSIONED_KEY, VersionedRecord("3", 1_000, 2_000)),
        (VersionedKeyQuery.with_key("tea"), VersionedRecord("4", 2_000)),
        (MULTI_VERSIONED, [VersionedRecord("4", 2_000), VersionedRecord("3", 1_000, 2_000)]),
        (
            MULTI_VERSIONED.to_time(1_500).with_ascending_timestamps(),
            [VersionedRecord("3", 1_000, 2_000)],
        ),
        (
            MULTI_VERSIONED.from_time(2_000).with_descending_timestamps(),
            [VersionedRecord("4", 2_000)],
        ),
    ],
    "windows": [
        (WINDOW_KEY, [(0, ValueAndTimestamp(2, 2_000))]),
        (WINDOW_STARTS, [(ANN, ValueAndTimestamp(2, 2_000)), (BOB, ValueAndTimestamp(1, 1_500))]),
    ],
    "sessions": [(SESSIONS, [(Windowed("ann", Window(1_000, 2_000)), 2)])],
}


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(all_kinds()) as driver:
        inputs = {topic: driver.create_input_topic(topic, str, str) for topic in TOPICS}
        for topic, key, value, timestamp in EVENTS:
            inputs[topic].pipe_input(key, value, timestamp=timestamp)
        yield driver


def run(driver: TopologyTestDriver, store: str, query: Query[Any]) -> QueryResult[Any]:
    result = driver.query(StateQueryRequest.in_store(store).with_query(query))
    assert list(result.partition_results) == [0]
    return result.partition_results[0]


@pytest.mark.parametrize(
    ("store", "query", "expected"),
    [(store, query, expected) for store, each in RESULTS.items() for query, expected in each],
)
def test_store_supports_its_queries(
    driver: TopologyTestDriver, store: str, query: Query[Any], expected: Any
) -> None:
    result = run(driver, store, query).result
    assert (list(result) if isinstance(expected, list) else result) == expected


@pytest.mark.parametrize(
    ("store", "query"),
    [
        (store, query) for store, supported in RESULTS.items() for query in ALL
        if type(query) not in {type(each) for each, _ in supported}
        and not (store == "prices" and isinstance(query, KeyQuery | RangeQuery))
    ],
)
def test_store_refuses_other_queries(
    driver: TopologyTestDriver, store: str, query: Query[Any]
) -> None:
    result = run(driver, store, query)
    assert result.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE
    assert "doesn't know how to execute the given query" in result.failure_message


def test_window_range_query_depends_on_the_kind_of_store(driver: TopologyTestDriver) -> None:
    by_key = run(driver, "windows", SESSIONS)
    assert by_key.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE
    assert "WindowStores only supports" in by_key.failure_message
    by_start = run(driver, "sessions", WINDOW_STARTS)
    assert by_start.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE
    assert "SessionStores only support" in by_start.failure_message


@pytest.mark.parametrize("query", [KEY, RANGE])
def test_versioned_store_raises_for_queries_of_key_value_stores(
    driver: TopologyTestDriver, query: Query[Any]
) -> None:
    with pytest.raises(NotImplementedError, match="Versioned stores do not support"):
        run(driver, "prices", query)


def test_versions_of_a_reversed_range_are_refused(driver: TopologyTestDriver) -> None:
    with pytest.raises(ValueError, match="must be smaller than"):
        run(driver, "prices", MULTI_VERSIONED.from_time(2).to_time(1))


def test_global_store_supports_no_query(driver: TopologyTestDriver) -> None:
    result = driver.query(StateQueryRequest.in_store("names").with_query(KEY))
    assert result.partition_results == {}
    assert result.global_result is not None
    assert result.global_result.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE


def test_global_store_has_no_partitions(driver: TopologyTestDriver) -> None:
    request = StateQueryRequest.in_store("names").with_query(KEY).with_partitions([0, 5])
    result = driver.query(request)
    assert result.global_result is not None
    assert {at: each.failure_reason for at, each in result.partition_results.items()} == {
        0: FailureReason.NOT_PRESENT, 5: FailureReason.NOT_PRESENT
    }


def test_missing_partition_is_not_present(driver: TopologyTestDriver) -> None:
    request = StateQueryRequest.in_store("counts").with_query(KEY).with_partitions([0, 5])
    results = driver.query(request).partition_results
    assert results[0].result == 3
    assert results[5].failure_reason is FailureReason.NOT_PRESENT
    assert set(driver.query(request.with_all_partitions()).partition_results) == {0}


class BrokenRows(InMemoryBytesStore):
    """Rows that cannot be read."""

    def get(self, key: bytes) -> bytes | None:
        raise OSError("the disk is gone")


def test_exception_of_a_store_is_the_result_of_its_partition() -> None:
    builder = StreamsBuilder()
    broken = Stores.in_memory_key_value_store("broken").with_rows(lambda name: BrokenRows())
    builder.add_state_store(Stores.key_value_store_builder(broken, str, str))
    builder.stream("words", key=str, value=str).process(Ignore, "broken")
    with TopologyTestDriver(builder.build()) as driver:
        result = run(driver, "broken", KEY)
        assert result.failure_reason is FailureReason.STORE_EXCEPTION
        assert "broken" in result.failure_message
        assert "OSError: the disk is gone" in result.failure_message
        assert result.position is not None
        with pytest.raises(SerializationException):
            run(driver, "broken", KeyQuery.with_key(1))


class Ignore(Processor[str, str, None, None]):
    """Does nothing."""

    def process(self, record: Record[str, str]) -> None:
        pass


@pytest.mark.parametrize(("error", "reason"), [
    (StateStoreMigratedException("moved"), FailureReason.NOT_ACTIVE),
    (StateStoreNotAvailableException("closed"), FailureReason.STORE_EXCEPTION),
    (StreamsRebalancingException("restoring"), FailureReason.NOT_PRESENT),
])
@pytest.mark.parametrize("at", ["reader", "acquire"])
def test_partition_that_is_lost_during_a_query_is_a_failure(
    driver: TopologyTestDriver, error: Exception, reason: FailureReason, at: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    request = StateQueryRequest.in_store("counts").with_query(KEY).require_active()
    source = driver._store_queries.source
    broken = source if at == "reader" else type(source.reader("counts", 0, stale=False))
    monkeypatch.setattr(broken, at, fail)
    result = driver.query(request).partition_results[0]
    assert (result.failure_reason, result.failure_message) == (reason, str(error))


def test_unknown_store_raises(driver: TopologyTestDriver) -> None:
    with pytest.raises(UnknownStateStoreException, match="state store nothing"):
        driver.query(StateQueryRequest.in_store("nothing").with_query(KEY))


def test_bound_is_met_once_the_input_is_processed(driver: TopologyTestDriver) -> None:
    request = StateQueryRequest.in_store("windows").with_query(WINDOW_KEY)
    result = driver.query(request)
    assert result.position.partition_positions("words") == {0: 3}
    met = request.with_position_bound(PositionBound.at(Position.from_map({"words": {0: 3}})))
    assert driver.query(met).partition_results[0].is_success
    early = request.with_position_bound(PositionBound.at(Position.from_map({"words": {0: 4}})))
    refused = driver.query(early).partition_results[0]
    assert refused.failure_reason is FailureReason.NOT_UP_TO_BOUND
    assert "For store partition 0, the current position" in refused.failure_message
    # As in Kafka Streams, the active task responds without a look at the bound.
    assert driver.query(early.require_active()).partition_results[0].is_success
    driver.create_input_topic("words", str, str).pipe_input("zoe", "tea", timestamp=40_000)
    assert driver.query(early).partition_results[0].is_success


@pytest.mark.parametrize(("query", "reason"), [
    (WINDOW_KEY, FailureReason.NOT_UP_TO_BOUND), (VERSIONED_KEY, FailureReason.NOT_UP_TO_BOUND),
    (TIMESTAMPED_KEY, FailureReason.UNKNOWN_QUERY_TYPE),
    (TIMESTAMPED_RANGE, FailureReason.UNKNOWN_QUERY_TYPE),
    (Query(), FailureReason.UNKNOWN_QUERY_TYPE),
])
def test_bound_is_checked_before_a_known_query_is_refused(
    driver: TopologyTestDriver, query: Query[Any], reason: FailureReason
) -> None:
    request = StateQueryRequest.in_store("plain").with_query(query)
    bound = PositionBound.at(Position.from_map({"words": {0: 4}}))
    early = driver.query(request.with_position_bound(bound)).partition_results[0]
    assert early.failure_reason is reason
    refused = driver.query(request).partition_results[0]
    assert refused.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE


@pytest.mark.parametrize("kind", [RangeQuery, TimestampedRangeQuery])
def test_bound_of_a_range_must_not_be_none(kind: type[RangeQuery[str, str]]) -> None:
    with pytest.raises(TypeError, match="the lower bound should not be null"):
        kind.with_lower_bound(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the upper bound should not be null"):
        kind.with_upper_bound(None)  # type: ignore[arg-type]


def test_execution_info_is_collected_on_request(driver: TopologyTestDriver) -> None:
    request = StateQueryRequest.in_store("counts").with_query(KEY)
    assert driver.query(request).partition_results[0].execution_info == []
    (line,) = driver.query(request.enable_execution_info()).partition_results[0].execution_info
    assert line.startswith("Handled in timestamped_key_value store 'counts' in ")
