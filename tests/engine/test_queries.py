"""Queries of a running application, in both execution modes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.instances import PATIENCE_S, CreateStreams, until
from penstock import State, Streams, StreamsBuilder, ValueAndTimestamp, VersionedRecord, Windowed
from penstock.errors import (
    InvalidStateStoreException,
    StateStoreMigratedException,
    StreamsNotStartedException,
    StreamsStoppedException,
    UnknownStateStoreException,
)
from penstock.log import Log, RecordColumns, open_log
from penstock.log.types import TopicPartition
from penstock.partitioning import partition_of
from penstock.queries import (
    FailureReason,
    KeyQuery,
    Position,
    PositionBound,
    QueryableStoreTypes,
    ReadOnlyKeyValueStore,
    StateQueryRequest,
    WindowKeyQuery,
)
from penstock.stores.replica.generations import Generations
from penstock.windows import Window
from unit.queries.kinds_of_stores import EVENTS, TOPICS, all_kinds
from unit.queries.totals import TopQuery, TotalsType, totals_topology

MODES = ["batch", "continuous"]
KEY = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("tea"))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = open_log(tmp_path / "log.db")
    for topic in TOPICS:
        log.create_topic(topic, 3, {"retention.ms": "-1"})
    yield log
    log.close()


def send(log: Log, *events: tuple[str, str, str, int]) -> None:
    for topic, key, value, timestamp in events:
        records = RecordColumns([key.encode()], [value.encode()], [timestamp])
        log.append(topic, partition_of(key.encode(), 3), records)


@pytest.fixture(params=MODES)
def streams(
    request: pytest.FixtureRequest, create_streams: CreateStreams, log: Log
) -> Streams:
    send(log, *EVENTS)
    created = create_streams(all_kinds(), execution=request.param)
    created.run_until_caught_up(PATIENCE_S)
    return created


def test_all_kinds_of_stores_return_committed_data(streams: Streams) -> None:
    assert streams.store("counts")["tea"] == 3
    assert sorted(streams.store("counts").all()) == [("milk", 1), ("tea", 3)]
    assert streams.store("counts").approximate_num_entries == 2
    timestamped = streams.store("counts", QueryableStoreTypes.timestamped_key_value_store())
    assert timestamped["tea"] == ValueAndTimestamp(3, 31_000)
    assert streams.store("plain", ReadOnlyKeyValueStore[str, str])["ann"] == "tea"
    assert list(streams.store("windows").fetch("ann", 0, 60_000)) == [(0, 2)]
    ann = Windowed("ann", Window(1_000, 2_000))
    assert list(streams.store("sessions").fetch("ann")) == [(ann, 2)]
    assert streams.store("prices").get("tea", as_of=1_500) == VersionedRecord("3", 1_000, 2_000)
    assert streams.store("names")["1"] == "one"


def test_store_shows_every_commit(streams: Streams, log: Log) -> None:
    counts = streams.store("counts")
    for number in range(4, 9):
        send(log, ("words", "ann", "tea", 40_000))
        streams.run_until_caught_up(PATIENCE_S)
        assert counts["tea"] == number
        result = streams.query(KEY).only_partition_result
        assert result is not None
        assert result.result == number


def test_bound_is_met_once_the_input_is_committed(streams: Streams, log: Log) -> None:
    request = StateQueryRequest.in_store("windows").with_query(
        WindowKeyQuery.with_key_and_window_start_range("ann", 0, 60_000)
    )
    number = partition_of(b"ann", 3)
    end = log.offsets([TopicPartition("words", number)])[TopicPartition("words", number)].end
    result = streams.query(request)
    assert result.position.partition_positions("words")[number] == end - 1
    bound = PositionBound.at(Position.from_map({"words": {number: end}}))
    early = streams.query(request.with_position_bound(bound)).partition_results
    assert early[number].failure_reason is FailureReason.NOT_UP_TO_BOUND
    assert [each.is_success for at, each in early.items() if at != number] == [True, True]
    send(log, ("words", "ann", "tea", 2_000))
    streams.run_until_caught_up(PATIENCE_S)
    late = streams.query(request.with_position_bound(bound)).partition_results
    assert list(late[number].result) == [(0, ValueAndTimestamp(3, 2_000))]


def test_bound_before_a_repartition_is_compared_with_all_its_partitions(
    create_streams: CreateStreams, log: Log
) -> None:
    """In continuous mode the position of the store is one of the repartition topic, as in Kafka."""
    streams = create_streams(all_kinds(), execution="batch")
    streams.run_until_caught_up(PATIENCE_S)
    number = partition_of(b"ann", 3)
    bound = PositionBound.at(Position.from_map({"words": {number: 0}}))
    request = KEY.with_position_bound(bound)
    early = streams.query(request).partition_results.values()
    assert {each.failure_reason for each in early} == {FailureReason.NOT_UP_TO_BOUND}
    send(log, ("words", "ann", "tea", 2_000))
    streams.run_until_caught_up(PATIENCE_S)
    found = streams.query(request).only_partition_result
    assert found is not None
    assert found.result == 1


def test_global_store_shows_new_records_without_a_batch(streams: Streams, log: Log) -> None:
    names = streams.store("names")
    send(log, ("names", "2", "two", 200))
    until(lambda: names.get("2") == "two")


def test_iterator_keeps_its_snapshot_while_the_application_continues(
    streams: Streams, log: Log
) -> None:
    counts = streams.store("counts", partition=partition_of(b"tea", 3))
    with counts.all() as rows:
        first = next(rows)
        send(log, ("words", "ann", "tea", 40_000))
        streams.run_until_caught_up(PATIENCE_S)
        assert dict([first, *rows])["tea"] == 3
    assert counts["tea"] == 4


def test_states_of_the_application_have_their_exceptions(
    create_streams: CreateStreams, log: Log
) -> None:
    streams = create_streams(all_kinds())
    with pytest.raises(StreamsNotStartedException, match="has not been started"):
        streams.store("counts")
    with pytest.raises(StreamsNotStartedException, match="has not been started"):
        streams.query(KEY)
    streams.run_until_caught_up(PATIENCE_S)
    counts = streams.store("counts")
    assert counts.get("tea") is None
    with pytest.raises(UnknownStateStoreException, match="Stores: 'counts', 'names', 'plain'"):
        streams.store("nothing")
    streams.close()
    for query in (lambda: streams.store("counts"), lambda: streams.query(KEY), counts.all):
        with pytest.raises(StreamsStoppedException, match="has been stopped"):
            query()


@pytest.mark.parametrize("mode", MODES)
def test_standby_serves_stale_queries_only(
    create_streams: CreateStreams, log: Log, tmp_path: Path, mode: str
) -> None:
    send(log, *EVENTS)
    active = create_streams(all_kinds(), execution=mode)
    active.run_until_caught_up(PATIENCE_S)
    standby = create_streams(all_kinds(), execution=mode, state_dir=tmp_path / "other")
    standby.start()
    until(lambda: standby.waits_for)
    with pytest.raises(StateStoreMigratedException, match=r"It is run by .* with stale=True"):
        standby.store("counts")
    assert standby.store("counts", stale=True)["tea"] == 3
    assert standby.store("names", stale=True)["1"] == "one"
    found = standby.query(KEY).only_partition_result
    assert found is not None
    assert found.result == 3
    required = standby.query(KEY.require_active()).partition_results
    assert {each.failure_reason for each in required.values()} == {FailureReason.NOT_ACTIVE}
    stale = standby.store("counts", stale=True)
    active.close()
    send(log, ("words", "ann", "tea", 40_000))
    standby.run_until_caught_up(PATIENCE_S)
    assert stale["tea"] == 4
    assert standby.store("counts")["tea"] == 4
    assert standby.query(KEY.require_active()).only_partition_result is not None


def test_fenced_instance_refuses_queries(create_streams: CreateStreams, log: Log) -> None:
    streams = create_streams(all_kinds())
    send(log, *EVENTS)
    streams.run_until_caught_up(PATIENCE_S)
    counts = streams.store("counts")
    assert counts["tea"] == 3
    lease = log.take_lease("app", holder="a thief")

    def is_refused() -> bool:
        try:
            counts.get("tea")
        except InvalidStateStoreException:
            return True
        return False

    until(is_refused)
    # A query looks at the lease itself. The stream thread may find out later.
    until(lambda: streams.state is not State.RUNNING)
    with pytest.raises(StateStoreMigratedException):
        counts.get("tea")
    assert streams.store("counts", stale=True)["tea"] == 3
    lease.release()
    until(lambda: streams.state is State.RUNNING and not is_refused())
    assert counts["tea"] == 3


@pytest.mark.parametrize("mode", MODES)
def test_custom_store_is_queried_at_its_last_commit(
    create_streams: CreateStreams, log: Log, tmp_path: Path, mode: str
) -> None:
    send(log, ("words", "ann", "tea", 1), ("words", "bob", "tea", 2), ("words", "ann", "rum", 3))
    active = create_streams(totals_topology(), execution=mode)
    active.run_until_caught_up(PATIENCE_S)
    totals = active.store("totals", TotalsType())
    assert (totals["tea"], totals["rum"], totals["milk"]) == (2, 1, 0)
    send(log, ("words", "ann", "rum", 4))
    until(lambda: totals["rum"] == 2)
    top = StateQueryRequest.in_store("totals").with_query(TopQuery(1))
    results = active.query(top).partition_results
    assert [("rum", 2)] in [each.result for each in results.values()]
    standby = create_streams(totals_topology(), execution=mode, state_dir=tmp_path / "other")
    standby.start()
    until(lambda: standby.waits_for)
    assert standby.store("totals", TotalsType(), stale=True)["tea"] == 2
    bound = PositionBound.at(active.query(top).position)
    results = standby.query(top.with_position_bound(bound)).partition_results
    assert [("rum", 2)] in [each.result for each in results.values()]


def test_value_of_a_key_never_goes_back(
    create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    builder = StreamsBuilder()
    builder.stream("words", key=str, value=str).group_by_key().count(store="counts")
    # A lane keeps its files open.
    streams = create_streams(builder.build(), execution="batch")
    streams.run_until_caught_up(PATIENCE_S)
    counts = streams.store("counts")
    replica = Generations(tmp_path / "state" / "app" / f"0_{partition_of(b'ann', 3)}")
    last = 0
    for number in range(1, 40):
        send(log, ("words", "ann", "tea", 1_000))
        if number % 10 == 0:
            # The rows are lost, and restored from the changelog.
            replica.replace(replica.current())
        found = counts.get("ann") or 0
        assert found >= last
        last = found
    streams.run_until_caught_up(PATIENCE_S)
    assert counts["ann"] == 39
