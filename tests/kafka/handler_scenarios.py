"""Bad records for Kafka Streams and for penstock: topologies, input, and how each is run.

The topologies are those of tests/kafka/java/Handlers.java. An application has the topics ID-rates,
ID-calls, ID-dead and ID, its output. A scenario has rows of ID-rates from before the start of the
application, and later ones. After each of the two, the application looks rows up.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kafka import java_programs
from penstock import (
    JoinWindows,
    ProcessingFailedException,
    Processor,
    Record,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StateRestoreListener,
    Stores,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
)
from penstock.broker.cluster import ClusterStatus
from penstock.log import Log, RecordColumns
from penstock.log.types import TopicPartition

TIMEOUT_S = 120.0
STORE = "rates"
#: The partition of `rates` with all rows. The other one is empty.
PARTITION = 1
GARBAGE = b"garbage"
CONTINUE = "org.apache.kafka.streams.errors.LogAndContinueExceptionHandler"
CONTINUE_PROCESSING = "org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler"
SETTINGS = {
    "deserialization": {"deserialization.exception.handler": CONTINUE},
    "processing": {"processing.exception.handler": CONTINUE_PROCESSING},
    "enabled": {
        "processing.exception.handler": CONTINUE_PROCESSING,
        "processing.exception.handler.global.enabled": "true",
    },
    "default": {},
}

#: Key and value of a row; a timestamp is added.
Row = tuple[bytes | None, bytes | None]


class Outcome(NamedTuple):
    """The end of an application."""

    #: The exceptions that stopped it, outermost first; empty if it continues.
    failure: str
    outputs: list[str]
    dead_letters: int
    dropped: int
    #: (partition, store, start, end, records)
    restored: set[tuple[int, str, int, int, int]]

    @property
    def has_stopped(self) -> bool:
        return bool(self.failure)


@dataclass(frozen=True)
class Scenario:
    """Rows of `rates`, and the settings of the application."""

    topology: str
    settings: str = "default"
    before: tuple[Row, ...] = ()
    later: tuple[Row, ...] = ()
    dead_letters: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)

    def properties(self, application: str) -> dict[str, str]:
        queue = {"errors.dead.letter.queue.topic.name": f"{application}-dead"}
        return {**SETTINGS[self.settings], **self.extra, **(queue if self.dead_letters else {})}


def rate(key: str, value: int) -> Row:
    return key.encode(), value.to_bytes(8, "big")


def create_topics(log: Log, application: str, rates: int = 2, calls: int = 1) -> None:
    """Create the topics of an application, with so many partitions of `rates` and `calls`."""
    for topic, partitions in (
        (application, 1), (f"{application}-rates", rates), (f"{application}-calls", calls),
        (f"{application}-dead", 1),
    ):
        log.create_topic(topic, partitions)


def append(
    log: Log, topic: str, partition: int, *rows: Row, times: Sequence[int] | None = None
) -> None:
    keys, all_values = zip(*rows, strict=True)
    log.append(
        topic, partition,
        RecordColumns(list(keys), list(all_values), None if times is None else list(times)),
    )


class DroppedLine(NamedTuple):
    """A line of a log about a record that a node did not use, or used out of order."""

    reason: str
    #: The topic without the application.
    topic: str
    partition: int
    offset: int


_JAVA_LINE = re.compile(
    r" WARN org\.apache\.kafka\.streams\.kstream\.internals\.\S+ - (.+?) "
    r"topic=\[(.+?)\] partition=\[(\d+)\] offset=\[(\d+)\]"
)
_OUR_LINE = re.compile(r"(.+) \(topic '(.+?)', partition (\d+), offset (\d+); task .*\)\.")
_REASONS = ("null", "expired window", "out-of-order")


def dropped_lines(found: list[tuple[str, ...]], application: str) -> list[DroppedLine]:
    """Return the lines of one application: texts, topics, partitions and offsets."""
    return sorted(
        DroppedLine(
            next(each for each in _REASONS if each in text), topic.removeprefix(application),
            int(partition), int(offset),
        )
        for text, topic, partition, offset in found if topic.startswith(application)
    )


def logged_lines(messages: list[str], application: str) -> list[DroppedLine]:
    """Return the lines that penstock has logged about dropped records."""
    matches = [match.groups() for line in messages if (match := _OUR_LINE.fullmatch(line))]
    return dropped_lines(matches, application)


def values(log: Log, topic: str) -> list[bytes | None]:
    return [value for batch in log.read(topic, 0, 0) for value in batch.columns().values]


def look_up(log: Log, application: str, *keys: str) -> None:
    append(log, f"{application}-calls", 0, *((b"caller", key.encode()) for key in keys))


# ---- Kafka Streams ---------------------------------------------------------------------------


class Java:
    """The process that runs applications with Kafka Streams."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def dropped_lines(self, application: str) -> list[DroppedLine]:
        """Return the WARN lines about dropped records of an application."""
        text = self._log.read_text(encoding="utf-8")
        return dropped_lines(_JAVA_LINE.findall(text), application)

    def order(self, *words: str) -> dict[str, Any]:
        """Send a command and return the response."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"RunHandlers ended at: {words}"
        found: dict[str, Any] = json.loads(line)
        return found

    def run(self, log: Log, name: str, scenario: Scenario) -> Outcome:
        application = f"java-{name}"
        create_topics(log, application)
        response = {}
        for number, (phase, rows) in enumerate(phases(scenario)):
            append(log, f"{application}-rates", PARTITION, *rows)
            if number == 0:
                settings = [f"{key}={text}" for key, text in
                            scenario.properties(application).items()]
                self.order("start", application, scenario.topology, *settings)
            response = self.order("await", application, phase)
            if not response["failure"]:
                look_up(log, application, *lookups(scenario))
                response = self.order("await", application, phase)
            if response["failure"]:
                break
        self.order("close", application)
        return Outcome(
            response["failure"], texts(log, application), len(values(log, f"{application}-dead")),
            response["dropped"], {tuple(each[1:]) for each in response["restored"]},
        )


@contextmanager
def java(class_path: str, broker: ClusterStatus, directory: Path) -> Iterator[Java]:
    command = java_programs.command(
        class_path, "RunHandlers", broker.bootstrap_servers, "commit.interval.ms=50",
        "statestore.cache.max.bytes=0", f"state.dir={directory / 'java-state'}",
        flags=(
            "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.streams.kstream.internals=warn",
        ),
    )
    log = directory / "java.log"
    with open(log, "w", encoding="utf-8") as errors, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
    ) as process:
        watch = threading.Timer(4 * TIMEOUT_S, process.kill)
        watch.start()
        try:
            yield Java(process, log)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(TIMEOUT_S) == 0
        finally:
            watch.cancel()
            process.kill()


# ---- penstock --------------------------------------------------------------------------------


class Inverse(Processor[str, int]):
    """Stores 100 divided by the value."""

    def process(self, record: Record[str, int]) -> None:
        self.context.get_state_store(STORE).put(record.key, 100 // record.value)


class LookUp(Processor[str, str]):
    """Forwards the row whose key is the value."""

    def process(self, record: Record[str, str]) -> None:
        row = self.context.get_state_store(STORE).get(record.value)
        self.context.forward(record.with_value(f"{record.value}={'null' if row is None else row}"))


def global_table(builder: StreamsBuilder, output: str) -> None:
    rates = builder.global_table(
        f"{output}-rates", key=Serdes.string(), value=Serdes.long(), store=STORE
    )
    builder.stream(f"{output}-calls").left_join(
        rates, lambda key, value: value,
        lambda value, rate: f"{value}={'null' if rate is None else rate}",
    ).to(output)


def global_store(builder: StreamsBuilder, output: str) -> None:
    store = Stores.key_value_store_builder(
        Stores.persistent_key_value_store(STORE), Serdes.string(), Serdes.long()
    )
    builder.add_global_store(
        store, f"{output}-rates", Inverse, key=Serdes.string(), value=Serdes.long()
    )
    builder.stream(f"{output}-calls").process(LookUp).to(output)


def dropped_records(builder: StreamsBuilder, output: str) -> None:
    rates: Any = builder.table(f"{output}-rates")
    calls: Any = builder.stream(f"{output}-calls")
    calls.group_by_key().count()
    calls.group_by_key().windowed_by(TimeWindows.of(10, grace=0)).count()
    calls.join(rates, lambda value, rate: f"{value}={rate}").to(output)


def dropped_everywhere(builder: StreamsBuilder, output: str) -> None:
    dropped_records(builder, output)
    calls: Any = builder.stream(f"{output}-calls")
    calls.group_by_key().reduce(lambda first, second: second)
    calls.group_by_key().windowed_by(SlidingWindows.of(10)).count()
    calls.group_by_key().windowed_by(SessionWindows.of(10)).count()
    calls.join(calls, lambda first, second: first, JoinWindows.of(10))
    calls.to_table()
    calls.group_by(lambda key, value: None).count()


TOPOLOGIES: dict[str, Callable[[StreamsBuilder, str], None]] = {
    "global_table": global_table, "global_store": global_store,
    "dropped_records": dropped_records, "dropped_everywhere": dropped_everywhere,
}


class RestoreLog(StateRestoreListener):
    """Records the restores that have ended."""

    def __init__(self) -> None:
        self._running: dict[TopicPartition, tuple[int, int]] = {}
        self.ended: set[tuple[int, str, int, int, int]] = set()

    def on_restore_start(
        self, partition: TopicPartition, store: str, starting_offset: int, ending_offset: int
    ) -> None:
        self._running[partition] = (starting_offset, ending_offset)

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        self.ended.add((partition.partition, store, *self._running.pop(partition), total))


def penstock_streams(
    broker: ClusterStatus, directory: Path, application: str, topology: str,
    properties: Mapping[str, str],
) -> Streams:
    config = StreamsConfig.from_properties(
        properties, application_id=application, log=broker.address,
        state_dir=str(directory / "penstock-state"), statestore_cache_max_bytes=0,
        default_key_serde=Serdes.string(), default_value_serde=Serdes.string(),
        # A batch sees all earlier records of global topics, a lane those of 100 ms ago.
        execution="batch",
    )
    builder = StreamsBuilder()
    TOPOLOGIES[topology](builder, application)
    return Streams(builder.build(), config, master="inline")


def run_penstock(
    log: Log, broker: ClusterStatus, directory: Path, name: str, scenario: Scenario
) -> Outcome:
    application = f"penstock-{name}"
    create_topics(log, application)
    streams = penstock_streams(
        broker, directory, application, scenario.topology, scenario.properties(application)
    )
    listener = RestoreLog()
    streams.set_global_state_restore_listener(listener)
    failure = ""
    try:
        for _, rows in phases(scenario):
            append(log, f"{application}-rates", PARTITION, *rows)
            look_up(log, application, *lookups(scenario))
            streams.run_until_caught_up(timeout=TIMEOUT_S)
    except ProcessingFailedException as error:
        failure = f"{error}\n{error.__cause__!r}"
    dropped = sum(
        int(value) for metric, value in streams.metrics().items()
        if metric.name == "dropped-records-total"
    )
    streams.close(TIMEOUT_S)
    return Outcome(
        failure, texts(log, application), len(values(log, f"{application}-dead")), dropped,
        listener.ended,
    )


# ---- both ------------------------------------------------------------------------------------


def phases(scenario: Scenario) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows of each phase, and the key of its last one."""
    for phase, rows in (("first-end", scenario.before), ("second-end", scenario.later)):
        yield phase, [*rows, rate(phase, 100)]


def lookups(scenario: Scenario) -> list[str]:
    """The keys of all rows but the bad ones."""
    good = {
        key.decode() for key, value in (*scenario.before, *scenario.later)
        if key is not None and value not in {GARBAGE, bytes(8)}
    }
    return [*sorted(good), "first-end"]


def texts(log: Log, topic: str) -> list[str]:
    return [(value or b"").decode() for value in values(log, topic)]
