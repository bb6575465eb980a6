"""The restore listener is called for global stores: at every start, for each partition."""

from __future__ import annotations

from typing import Any

import pytest

from engine.instances import PATIENCE_S, TEXT, CreateStreams, send
from penstock import StateRestoreListener, StreamsBuilder, Topology
from penstock.engine.observe.restore import RestoreNotifier
from penstock.engine.worker.outcome import RestoredStore
from penstock.log import Log, RecordColumns, TopicPartition

ZERO, ONE = TopicPartition("names", 0), TopicPartition("names", 1)
MODES = pytest.mark.parametrize("execution", ["batch", "continuous"])


class RecordingListener(StateRestoreListener):
    """Records all calls by partition."""

    def __init__(self) -> None:
        self.calls: dict[TopicPartition, list[tuple[Any, ...]]] = {}

    def _add(self, what: str, partition: TopicPartition, *arguments: Any) -> None:
        self.calls.setdefault(partition, []).append((what, *arguments))

    def on_restore_start(self, partition: TopicPartition, *arguments: Any) -> None:
        self._add("start", partition, *arguments)

    def on_batch_restored(self, partition: TopicPartition, *arguments: Any) -> None:
        self._add("batch", partition, *arguments)

    def on_restore_end(self, partition: TopicPartition, *arguments: Any) -> None:
        self._add("end", partition, *arguments)


def topology() -> Topology:
    builder = StreamsBuilder()
    names = builder.global_table("names", key=TEXT, value=TEXT, store="all-names")
    builder.stream("in").join(names, lambda key, value: value, lambda a, b: b).to("out")
    return builder.build()


def append(log: Log, partition: int, *keys: str) -> None:
    raw = [key.encode() for key in keys]
    log.append("names", partition, RecordColumns(raw, raw))


def start(create_streams: CreateStreams, **settings: Any) -> dict[Any, list[tuple[Any, ...]]]:
    """Run an instance and return the calls of its listener."""
    listener = RecordingListener()
    streams = create_streams(topology(), **settings)
    streams.set_global_state_restore_listener(listener)
    with streams:
        streams.run_until_caught_up(PATIENCE_S)
    return listener.calls


def assert_restored(
    calls: list[tuple[Any, ...]], start: int, end: int, records: int
) -> None:
    first, *batches, last = calls
    assert first == ("start", "all-names", start, end)
    assert last == ("end", "all-names", records)
    assert sum(batch[-1] for batch in batches) == records
    assert all(batch[:2] == ("batch", "all-names") for batch in batches)
    assert not batches or batches[-1][2] == end


@pytest.fixture
def names(log: Log) -> Log:
    log.create_topic("names", 2)
    append(log, 0, "a", "b", "c")
    return log


@MODES
def test_listener_receives_every_partition_of_a_global_store(
    create_streams: CreateStreams, names: Log, execution: str
) -> None:
    calls = start(create_streams, execution=execution)
    assert_restored(calls[ZERO], 0, 3, 3)
    assert_restored(calls[ONE], 0, 0, 0)
    # As in Kafka Streams, each start restores from the position of the rows.
    append(names, 0, "d")
    calls = start(create_streams, execution=execution)
    assert_restored(calls[ZERO], 3, 4, 1)
    assert_restored(calls[ONE], 0, 0, 0)


@MODES
def test_later_records_of_a_global_topic_are_not_a_restore(
    create_streams: CreateStreams, names: Log, execution: str
) -> None:
    listener = RecordingListener()
    streams = create_streams(topology(), execution=execution)
    streams.set_global_state_restore_listener(listener)
    with streams:
        streams.run_until_caught_up(PATIENCE_S)
        before = {at: list(calls) for at, calls in listener.calls.items()}
        append(names, 0, "d")
        send(names, "d")
        streams.run_until_caught_up(PATIENCE_S)
    assert listener.calls == before


@MODES
def test_skipped_records_are_not_counted_as_restored(
    create_streams: CreateStreams, names: Log, execution: str
) -> None:
    names.append("names", 1, RecordColumns([b"x", None], [b"x", b"null key"]))
    calls = start(create_streams, execution=execution)
    assert calls[ONE][0] == ("start", "all-names", 0, 2)
    assert calls[ONE][-1] == ("end", "all-names", 1)


def test_restore_on_several_hosts_is_reported_once() -> None:
    listener = RecordingListener()
    restored = RestoredStore("all-names", *ZERO, 0, 3, 3)
    RestoreNotifier(listener).completed([restored, restored])
    assert [what for what, *_ in listener.calls[ZERO]] == ["start", "batch", "end"]
