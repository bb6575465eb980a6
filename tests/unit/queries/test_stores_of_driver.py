"""`TopologyTestDriver.store`: read-only stores over one or several partitions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import (
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    StreamsBuilder,
    ValueAndTimestamp,
    VersionedRecord,
    Windowed,
)
from penstock.errors import StoreSerdeException, UnknownStateStoreException
from penstock.queries import (
    KeyQuery,
    Position,
    QueryableStoreTypes,
    ReadOnlyKeyValueStore,
    ReadOnlyWindowStore,
    StateQueryRequest,
    StoreQueryParameters,
)
from penstock.testing import TopologyTestDriver
from penstock.windows import Window
from unit.queries.kinds_of_stores import EVENTS, TOPICS, all_kinds


@pytest.fixture(params=[None, 3], ids=["one partition", "three partitions"])
def driver(request: pytest.FixtureRequest) -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(all_kinds(), partitions=request.param) as driver:
        inputs = {topic: driver.create_input_topic(topic, str, str) for topic in TOPICS}
        for topic, key, value, timestamp in EVENTS:
            inputs[topic].pipe_input(key, value, timestamp=timestamp)
        yield driver


def test_key_value_store_is_read_like_a_mapping(driver: TopologyTestDriver) -> None:
    counts = driver.store("counts")
    assert counts["tea"] == 3
    assert counts.get("coffee") is None
    assert "milk" in counts
    assert "coffee" not in counts
    assert sorted(counts) == ["milk", "tea"]
    assert sorted(counts.all()) == sorted(counts.reverse_all()) == [("milk", 1), ("tea", 3)]
    assert list(counts.range("a", "n")) == list(counts.reverse_range("a", "n")) == [("milk", 1)]
    assert list(counts.prefix_scan("te")) == [("tea", 3)]
    assert counts.approximate_num_entries == 2
    with pytest.raises(KeyError, match="coffee"):
        _ = counts["coffee"]
    with pytest.raises(TypeError, match="None"):
        counts.get(None)


def test_type_decides_whether_values_have_timestamps(driver: TopologyTestDriver) -> None:
    timestamped = driver.store("counts", QueryableStoreTypes.timestamped_key_value_store())
    assert timestamped["tea"] == ValueAndTimestamp(3, 31_000)
    windows = driver.store("windows", QueryableStoreTypes.timestamped_window_store())
    assert windows.fetch("ann", 0) == ValueAndTimestamp(2, 2_000)
    plain = driver.store("plain", ReadOnlyKeyValueStore[str, str])
    assert plain["ann"] == "tea"


def test_window_store_is_read_by_key_and_time(driver: TopologyTestDriver) -> None:
    windows = driver.store("windows", ReadOnlyWindowStore[str, int])
    epoch = datetime.fromtimestamp(0, UTC)
    assert windows.fetch("ann", epoch) == 2
    assert windows.fetch("eve", 0) is None
    later = epoch + timedelta(minutes=1)
    assert list(windows.fetch("ann", epoch, later)) == [(0, 2)]
    assert list(windows.backward_fetch("ann", 0, 60_000)) == [(0, 2)]
    in_bob = Windowed("bob", Window(0, 10_000))
    assert list(windows.fetch("b", "c", 0, 60_000)) == [(in_bob, 1)]
    starts = sorted(key.window.start for key, _ in windows.fetch_all(0, 60_000))
    assert starts == [0, 0, 30_000]
    assert sorted(windows.all()) == sorted(windows.backward_all())
    assert sorted(windows) == sorted(key for key, _ in windows.backward_fetch_all(0, 60_000))


def test_session_store_is_read_by_key_and_session(driver: TopologyTestDriver) -> None:
    sessions = driver.store("sessions")
    ann = Windowed("ann", Window(1_000, 2_000))
    assert list(sessions.fetch("ann")) == list(sessions.backward_fetch("ann")) == [(ann, 2)]
    assert sessions.fetch_session("ann", 1_000, 2_000) == 2
    assert list(sessions.fetch("a", "b")) == [(ann, 2)]
    assert list(sessions.find_sessions("ann", 0, 5_000)) == [(ann, 2)]
    assert list(sessions.backward_find_sessions("a", "b", 0, 5_000)) == [(ann, 2)]
    assert ann in list(sessions)


def test_versioned_store_is_read_as_of_a_time(driver: TopologyTestDriver) -> None:
    prices = driver.store("prices")
    assert prices["tea"] == "4"
    assert prices.get("tea", as_of=1_500) == VersionedRecord("3", 1_000, 2_000)
    assert prices.get("tea", as_of=datetime.fromtimestamp(2, UTC)).value == "4"
    assert prices.get("tea", as_of=0) is None
    assert [each.value for each in prices.versions("tea", reverse=True)] == ["4", "3"]
    assert "coffee" not in prices


def test_global_store_is_read_like_the_others(driver: TopologyTestDriver) -> None:
    assert driver.store("names")["1"] == "one"


def test_partition_selects_a_part_of_the_store(driver: TopologyTestDriver) -> None:
    count = driver._store_queries.source.stores["counts"].partitions
    parts = [dict(driver.store("counts", partition=each).all()) for each in range(count)]
    assert {key: value for part in parts for key, value in part.items()} == {"milk": 1, "tea": 3}
    with pytest.raises(InvalidStateStorePartitionException, match="partition 7 for store counts"):
        driver.store("counts", partition=7)


def test_parameters_of_java_programs_are_accepted(driver: TopologyTestDriver) -> None:
    kind = QueryableStoreTypes.key_value_store()
    parameters = StoreQueryParameters.from_name_and_type("counts", kind).enable_stale_stores()
    assert driver.store(parameters)["tea"] == 3
    assert driver.store(parameters.with_partition(0)).name == "counts"


def test_parameters_are_not_mixed_with_other_arguments(driver: TopologyTestDriver) -> None:
    kind = QueryableStoreTypes.key_value_store()
    parameters: Any = StoreQueryParameters.from_name_and_type("counts", kind)
    for other in ({"partition": 1}, {"type": kind}, {"stale": True}):
        with pytest.raises(TypeError, match=r"alone\. Set the partition with with_partition\(\)"):
            driver.store(parameters, **other)


def test_unknown_store_is_reported_with_the_stores_that_exist(driver: TopologyTestDriver) -> None:
    with pytest.raises(UnknownStateStoreException) as raised:
        driver.store("count")
    assert str(raised.value) == (
        "Cannot get state store count because no such store is registered in the topology. Did you "
        "mean 'counts'? Stores: 'counts', 'names', 'plain', 'prices', 'sessions', 'windows'."
    )


def test_wrong_type_is_reported_with_the_kind_of_the_store(driver: TopologyTestDriver) -> None:
    with pytest.raises(InvalidStateStoreException, match="it is a timestamped key value store"):
        driver.store("counts", QueryableStoreTypes.session_store())
    with pytest.raises(InvalidStateStoreException, match="it is a key value store"):
        driver.store("plain", QueryableStoreTypes.timestamped_key_value_store())
    with pytest.raises(InvalidStateStoreException, match="it is a versioned key value store"):
        driver.store("prices", QueryableStoreTypes.key_value_store())
    with pytest.raises(InvalidStateStoreException, match="as ReadOnlyWindowStore"):
        driver.store("counts", ReadOnlyWindowStore[str, int])
    with pytest.raises(TypeError, match="type must be a QueryableStoreType"):
        driver.store("counts", dict)


def test_queries_see_only_what_is_committed() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).group_by_key().count(store="counts")
    with TopologyTestDriver(builder.build(), auto_commit=False) as driver:
        counts = driver.store("counts")
        source = driver.create_input_topic("in", str, str)
        source.pipe_input("a", "x")
        assert counts.get("a") is None
        driver.commit()
        assert counts.get("a") == 1
        source.pipe_input("a", "x")
        driver.crash()
        assert counts.get("a") == 1
        driver.commit()
        assert counts.get("a") == 2


def test_key_in_the_partition_of_another_partitioner_is_found() -> None:
    builder = StreamsBuilder()
    builder.table("in", key=str, value=str, store="table")
    with TopologyTestDriver(builder.build(), partitions=3) as driver:
        for partition in range(3):
            driver.pipe("in", b"k%d" % partition, b"v", 0, partition=(partition + 1) % 3)
            driver.pipe("in", b"j%d" % partition, b"v", 0, partition=partition)
        table = driver.store("table")
        assert all(table[f"{name}{number}"] == "v" for name in "kj" for number in range(3))
        assert table.get("none") is None


def test_times_of_sessions_may_be_datetimes(driver: TopologyTestDriver) -> None:
    sessions = driver.store("sessions")
    ann = Windowed("ann", Window(1_000, 2_000))
    start, end = (datetime.fromtimestamp(seconds, UTC) for seconds in (1, 2))
    later = datetime.fromtimestamp(3, UTC)
    assert sessions.fetch_session("ann", start, end) == 2
    assert list(sessions.find_sessions("ann", end, start)) == [(ann, 2)]
    assert list(sessions.find_sessions("ann", later, later)) == []
    assert list(sessions.backward_find_sessions("a", "b", end, start)) == [(ann, 2)]


def test_windowed_stores_contain_windowed_keys_only(driver: TopologyTestDriver) -> None:
    windows, sessions = driver.store("windows"), driver.store("sessions")
    assert Windowed("ann", Window(0, 10_000)) in windows
    assert Windowed("ann", Window(10_000, 20_000)) not in windows
    assert Windowed("ann", Window(1_000, 2_000)) in sessions
    assert Windowed("ann", Window(1_000, 1_500)) not in sessions
    with pytest.raises(TypeError, match=r"'ann' is not one. Use fetch\(key, time_from, time_to\)"):
        assert "ann" in windows
    with pytest.raises(TypeError, match=r"Use fetch\(key\) for a key without its window"):
        assert "ann" in sessions


def test_versioned_store_is_not_iterable(driver: TopologyTestDriver) -> None:
    with pytest.raises(TypeError, match=r"'prices' cannot be iterated.*Use get\(key\)"):
        list(driver.store("prices"))


def test_wrong_arguments_say_what_to_pass(driver: TopologyTestDriver) -> None:
    given: Any = None
    with pytest.raises(TypeError, match="name of a store or StoreQueryParameters, not None"):
        driver.store(given)
    given = "counts"
    with pytest.raises(TypeError, match="takes a StateQueryRequest, not 'counts'"):
        driver.query(given)
    with pytest.raises(TypeError, match=r"such as KeyQuery.with_key\(key\), not 'counts'"):
        StateQueryRequest.in_store("counts").with_query(given)
    given = 1
    with pytest.raises(TypeError, match="takes the name of a store, not 1"):
        StateQueryRequest.in_store(given)
    request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("tea"))
    with pytest.raises(TypeError, match=r"numbers of partitions such as \[0, 2\], not 1"):
        request.with_partitions(given)
    for given in (["0"], "0", [True]):
        with pytest.raises(TypeError, match=r"numbers of partitions such as \[0, 2\], not "):
            request.with_partitions(given)
    for given in ("0", True):
        with pytest.raises(TypeError, match=f"number of a partition such as 0, not {given!r}"):
            driver.store("counts", partition=given)
    given = QueryableStoreTypes.window_store
    with pytest.raises(TypeError, match=r"Call it: QueryableStoreTypes.window_store\(\)"):
        driver.store("windows", given)
    given = 5
    with pytest.raises(TypeError, match=r"a serde such as Serdes.string\(\), .* not 5"):
        driver.store("counts").prefix_scan("t", given)
    given = Position.empty_position()
    with pytest.raises(TypeError, match=r"such as PositionBound.at\(position\), not Position"):
        request.with_position_bound(given)
    given = 1
    with pytest.raises(StoreSerdeException, match=r"a key of type int .* Use a key of the serde's"):
        driver.store("counts").get(given)
