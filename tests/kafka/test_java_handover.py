"""penstock and Kafka Streams for Java run one application in turn, with records in flight.

Both run the same topology under one application id, with the same changelog and repartition topics.
Some runs fail behind the repartitions, so that the next one finds unread records there. Windows
that one has filled are closed by the other. The topology also writes the stream time of each
record; the first records after each change are late, so their stream time is that of the other.

All results are compared with those of an application that ran without interruption.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka import java_programs
from kafka.cluster import clear
from kafka.comparison_input import KEYS, PARTITIONS, Row, Source, feed, recent_hour
from kafka.comparison_topologies import LONG, TUMBLING, WINDOWED, number, region
from penstock import (
    ContextualFixedKeyProcessor,
    EmitStrategy,
    FixedKeyRecord,
    Serdes,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    StreamsException,
    Topology,
)
from penstock.broker.cluster import ClusterStatus
from penstock.engine.plan.offset_metadata import OffsetMetadata
from penstock.log import Log, open_log
from penstock.log.types import TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TIMEOUT_S = 120.0
APPLICATION, REFERENCE = "handover", "reference"
OUTPUTS = ("windows", "closed", "times", "repartitioned-times")
REPARTITIONS = ("windowed", "timed")
#: Longer than a phase lasts, and than the grace of the windows.
PHASE_MS = 20_000
JAVA_SETTINGS = (
    "statestore.cache.max.bytes=0", "processing.guarantee=exactly_once_v2",
    "__emit.interval.ms.kstreams.windowed.aggregation__=0",
    # A failed application does not leave its group.
    "session.timeout.ms=6000", "heartbeat.interval.ms=1000",
)

#: While it is not empty, the steps behind the repartitions fail. Functions refer to this module.
FAILS: list[bool] = []


def checked(value: str) -> str:
    if FAILS:
        raise ValueError("This run ends here.")
    return value


class StreamTime(ContextualFixedKeyProcessor[str, str, str]):
    """Forwards the number of the record and the stream time."""

    def process(self, record: FixedKeyRecord[str, str]) -> None:
        time = self.context.current_stream_time_ms
        self.context.forward(record.with_value(f"{number(record.value)} at {time}"))


def topology(output: str) -> Topology:
    """As in Handover.java."""
    builder = StreamsBuilder()
    events: Any = builder.stream("events")
    (events.select_key(lambda key, value: region(value)).repartition(name="windowed")
        .map_values(checked).group_by_key().windowed_by(TUMBLING).count(store="tumbling")
        .to_stream().to(f"{output}-windows", key=WINDOWED, value=LONG))
    (events.group_by_key().windowed_by(TUMBLING).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        .count(store="final").to_stream().to(f"{output}-closed", key=WINDOWED, value=LONG))
    others: Any = builder.stream("others")
    others.process_values(StreamTime).to(f"{output}-times")
    (others.select_key(lambda key, value: region(value)).repartition(name="timed")
        .map_values(checked).process_values(StreamTime).to(f"{output}-repartitioned-times"))
    return builder.build()


def phases(count: int) -> Iterator[list[Row]]:
    """The input of each phase. The events are never late; the first others of a phase are."""
    source = Source(17, recent_hour())
    for phase in range(count):
        begin = phase * PHASE_MS
        yield [
            *source.stream("events", begin, 80),
            *(source.row("others", key, source.start + max(0, begin - 3_000)) for key in KEYS),
            *source.stream("others", begin, 60, late=0.2),
        ]


class Handover:
    """Runs the application with one of the two, and reads what they have written."""

    def __init__(
        self, broker: ClusterStatus, log: Log, class_path: str, directory: Path
    ) -> None:
        self._broker = broker
        self._log = log
        self._class_path = class_path
        self._directory = directory

    def penstock(self, execution: str, application: str = APPLICATION) -> None:
        config = StreamsConfig(
            application_id=application, log=self._broker.address, execution=execution,
            state_dir=str(self._directory / "penstock"), statestore_cache_max_bytes=0,
            default_key_serde=Serdes.string(), default_value_serde=Serdes.string(),
        )
        with Streams(topology(application), config, master="inline") as streams:
            streams.run_until_caught_up(timeout=TIMEOUT_S)

    def fail_penstock(self) -> None:
        FAILS.append(True)
        try:
            with pytest.raises(StreamsException, match="This run ends here"):
                self.penstock("continuous")
        finally:
            FAILS.clear()

    def java(self, *flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            java_programs.command(
                self._class_path, "RunStreams", self._broker.bootstrap_servers, APPLICATION,
                "handover", f"output={APPLICATION}", *JAVA_SETTINGS,
                f"state.dir={self._directory / 'java'}",
                flags=("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *flags),
            ),
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )

    def run_java(self) -> None:
        ran = self.java()
        assert ran.returncode == 0, ran.stderr[-4000:]

    def fail_java(self) -> None:
        ran = self.java("-Dhandover.fails=true")
        assert ran.returncode != 0
        assert "This run ends here" in ran.stderr, ran.stderr[-4000:]

    def in_flight(self) -> int:
        """The number of unread records in the repartition topics, and of transaction markers."""
        partitions = [
            TopicPartition(f"{APPLICATION}-{name}-repartition", number)
            for name in REPARTITIONS for number in range(PARTITIONS)
        ]
        committed = self._log.committed(APPLICATION, partitions)
        return sum(
            len(batch.columns().keys) for at in partitions
            for batch in self._log.read(*at, committed[at].offset if at in committed else 0)
        )

    def results(self, application: str) -> dict[str, dict[tuple[int, bytes], list[Any]]]:
        """Output -> (partition, key) -> the values and times, in order."""
        found: dict[str, dict[tuple[int, bytes], list[Any]]] = {}
        for output in OUTPUTS:
            rows = found.setdefault(output, {})
            for partition in range(PARTITIONS):
                for batch in self._log.read(f"{application}-{output}", partition, 0):
                    columns = batch.columns()
                    for key, value, time in zip(
                        columns.keys, columns.values, columns.timestamps, strict=True
                    ):
                        assert key is not None
                        rows.setdefault((partition, key), []).append((value, time))
        return found


@pytest.fixture
def log(penstock_broker: ClusterStatus) -> Iterator[Log]:
    with open_log(clear(penstock_broker.address)) as log:
        outputs = (f"{each}-{output}" for each in (APPLICATION, REFERENCE) for output in OUTPUTS)
        for topic in ("events", "others", *outputs):
            log.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        yield log


@pytest.fixture
def handover(
    penstock_broker: ClusterStatus, log: Log, java_class_path: str, tmp_path: Path
) -> Handover:
    return Handover(penstock_broker, log, java_class_path, tmp_path)


@pytest.mark.parametrize("execution", ["continuous", "batch"])
def test_application_is_handed_over_in_both_directions(
    handover: Handover, log: Log, execution: str
) -> None:
    first, second, third, fourth, fifth = phases(5)
    feed(log, first)
    handover.penstock(execution)
    feed(log, second)
    if execution == "continuous":
        handover.fail_penstock()
        assert handover.in_flight() > 0
    feed(log, third)
    handover.run_java()
    feed(log, fourth)
    handover.fail_java()
    assert handover.in_flight() > 0
    feed(log, fifth)
    handover.penstock(execution)
    assert handover.in_flight() == 0

    handover.penstock("batch", REFERENCE)
    expected = handover.results(REFERENCE)
    found = handover.results(APPLICATION)
    for output in OUTPUTS:
        assert found[output] == expected[output], output


def test_times_are_stored_as_kafka_streams_stores_them(handover: Handover, log: Log) -> None:
    """penstock resumes from the metadata of Java, and writes the same."""
    (rows,) = phases(1)
    feed(log, rows)
    handover.run_java()
    committed = log.committed(APPLICATION)
    by_java = {at: OffsetMetadata.decode(each.metadata) for at, each in committed.items()}
    assert all(
        by_java[TopicPartition("events", number)].close_times.keys() == {"final"}
        for number in range(PARTITIONS)
    )
    handover.penstock("continuous")
    for at, offset in log.committed(APPLICATION).items():
        # The client may return a few characters more than were committed.
        assert committed[at].metadata.startswith(by_java[at].encode()), at
        assert OffsetMetadata.decode(offset.metadata) == by_java[at], at
