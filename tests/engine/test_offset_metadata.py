"""Times that Kafka Streams for Java has committed with its offsets, in both execution modes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    EmitStrategy,
    Processor,
    Record,
    Serdes,
    Stores,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
)
from penstock.engine.plan.offset_metadata import OffsetMetadata
from penstock.log import Log, RecordColumns, open_log
from penstock.log.types import CommittedOffset, TopicPartition

TEXT, LONG = Serdes.string(), Serdes.long()
IN = TopicPartition("in", 0)
REPARTITION = TopicPartition("app-by-value-repartition", 0)
DEADLINE_S = 60.0

pytestmark = pytest.mark.parametrize("execution", ["batch", "continuous"])


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(str(tmp_path / "log.db")) as log:
        for topic in ("in", "out"):
            log.create_topic(topic, 1)
        yield log


@pytest.fixture
def run(tmp_path: Path, log: Log, execution: str) -> Callable[[Topology], None]:
    def start(topology: Topology) -> None:
        config = StreamsConfig(
            application_id="app", log=log.address, state_dir=str(tmp_path / "state"),
            execution=execution, default_key_serde=TEXT, default_value_serde=TEXT,
        )
        with Streams(topology, config, master="inline") as streams:
            streams.run_until_caught_up(DEADLINE_S)

    return start


class StreamTime(Processor[str, str, str, str]):
    """Forwards the stream time instead of the value."""

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(str(self.context.current_stream_time_ms)))


def stream_times(repartitioned: bool = False) -> Topology:
    builder = StreamsBuilder()
    stream: Any = builder.stream("in")
    if repartitioned:
        stream = stream.select_key(lambda key, value: value).repartition(name="by-value")
    stream.process(StreamTime).to("out")
    return builder.build()


def write(log: Log, *times: int) -> None:
    log.append("in", 0, RecordColumns([b"k"] * len(times), [b"v"] * len(times), list(times)))


def commit(log: Log, at: TopicPartition, offset: int, metadata: OffsetMetadata) -> None:
    """As Kafka Streams for Java does it."""
    log.commit_offsets("app", {at: CommittedOffset(offset, metadata.encode())})


def read(log: Log) -> list[bytes]:
    return [value for batch in log.read("out", 0, 0) for value in batch.columns().values if value]


def metadata_of(log: Log, at: TopicPartition) -> OffsetMetadata:
    return OffsetMetadata.decode(log.committed("app")[at].metadata)


def test_offsets_are_committed_with_partition_times(log: Log, run: Any) -> None:
    write(log, 3_000, 2_000)
    run(stream_times())
    assert metadata_of(log, IN) == OffsetMetadata(3_000)
    write(log, 1_000)
    run(stream_times())
    assert metadata_of(log, IN) == OffsetMetadata(3_000)


def test_stream_time_of_an_application_of_kafka_streams_is_resumed(log: Log, run: Any) -> None:
    write(log, 5_000)
    commit(log, IN, 1, OffsetMetadata(5_000))
    write(log, 2_000)
    run(stream_times())
    assert read(log) == [b"5000"]
    assert metadata_of(log, IN) == OffsetMetadata(5_000)


def test_stream_time_is_later_if_kafka_streams_has_run_in_between(log: Log, run: Any) -> None:
    write(log, 1_000)
    run(stream_times())
    write(log, 5_000)
    end = log.offsets([IN])[IN].end
    commit(log, IN, end, OffsetMetadata(5_000))
    write(log, 2_000)
    run(stream_times())
    assert read(log) == [b"1000", b"5000"]


def test_stream_time_behind_a_repartition_is_resumed(log: Log, run: Any) -> None:
    """In batch mode, too, which reads the repartition topic only if it has unread records."""
    log.create_topic(REPARTITION.topic, 1)
    commit(log, REPARTITION, 0, OffsetMetadata(5_000))
    write(log, 2_000)
    run(stream_times(repartitioned=True))
    assert read(log) == [b"5000"]


class LatePut(Processor[str, str, str, str]):
    """Writes each record to a window store, and forwards what the store holds then."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.windows: Any = context.get_state_store("windows")

    def process(self, record: Record[str, str]) -> None:
        self.windows.put(record.key, record.value, record.timestamp)
        found = self.windows.fetch(record.key, record.timestamp)
        self.context.forward(record.with_value(str(found)))


def test_rows_of_kafka_streams_advance_the_time_of_a_window_store(log: Log, run: Any) -> None:
    """The store drops a window that is expired since, as it does in Kafka Streams."""
    builder = StreamsBuilder()
    builder.add_state_store(Stores.window_store_builder(
        Stores.persistent_window_store("windows", 60_000, 1_000), TEXT, TEXT
    ))
    stream: Any = builder.stream("in")
    stream.process(LatePut, "windows").to("out")
    topology = builder.build()
    write(log, 100_000)
    run(topology)
    time = 1_000_000
    row_key = b"k" + time.to_bytes(8, "big") + bytes(4)
    log.append("app-windows-changelog", 0, RecordColumns([row_key], [b"new"], [time]))
    write(log, 100_000, time)
    run(topology)
    assert read(log) == [b"v", b"None", b"v"]


def test_windows_that_kafka_streams_has_emitted_are_not_emitted_again(log: Log, run: Any) -> None:
    builder = StreamsBuilder()
    stream: Any = builder.stream("in")
    (stream.group_by_key().windowed_by(TimeWindows.of(1_000))
        .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="closed").to_stream()
        .map(lambda window, count: (window.key, str(window.window.start)))
        .to("out"))
    topology = builder.build()
    write(log, 500, 1_500)
    run(topology)
    assert read(log) == [b"0"]
    assert metadata_of(log, IN) == OffsetMetadata(1_500, {"closed": 1_500})
    # The window from 1000 to 2000 is emitted by Kafka Streams.
    commit(log, IN, log.committed("app")[IN].offset, OffsetMetadata(2_500, {"closed": 2_500}))
    write(log, 3_500)
    run(topology)
    assert read(log) == [b"0"]
    write(log, 4_500)
    run(topology)
    assert read(log) == [b"0", b"3000"]
