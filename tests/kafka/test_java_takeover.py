"""Kafka Streams for Java reads the topics of penstock, and continues its applications."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from kafka import java_programs
from kafka.cluster import clear
from kafka.comparison_input import PARTITIONS, Row, Source, feed, recent_hour
from kafka.comparison_topologies import TOPOLOGIES, region
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig
from penstock.broker.cluster import ClusterStatus
from penstock.log import Log, open_log

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TIMEOUT_S = 120.0
COUNTS, WINDOWS, SESSIONS = "count_by_region", "tumbling_windows", "session_windows_by_region"
WINDOW_MS, HALF = 2_000, 120
GAP_MS = 400


class Line(NamedTuple):
    """A record as `ReadTopic` prints it."""

    partition: int
    #: The partition that Java's producer chooses for the key.
    java_partition: int
    key: str
    start: int
    end: int
    #: None: a tombstone.
    value: int | None
    time: int


class Java:
    """Runs the Java programs, each in its own process, and returns their output."""

    def __init__(self, class_path: str, broker: ClusterStatus, directory: Path) -> None:
        self._class_path = class_path
        self._broker = broker
        self._directory = directory

    def run(self, main: str, *arguments: str) -> list[str]:
        ran = subprocess.run(
            java_programs.command(
                self._class_path, main, self._broker.bootstrap_servers, *arguments,
                flags=("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            ),
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )
        assert ran.returncode == 0, ran.stderr[-4000:]
        return ran.stdout.splitlines()

    def read(self, kinds: Mapping[str, str]) -> dict[str, list[Line]]:
        """Read topics. `kinds` tells how to deserialize the keys of each."""
        pairs = [part for topic, kind in kinds.items() for part in (kind, topic)]
        found: dict[str, list[Line]] = {topic: [] for topic in kinds}
        for line in self.run("ReadTopic", *pairs):
            topic, partition, java_partition, key, *rest = line.split()
            start, end, value, time = (None if part == "null" else int(part) for part in rest)
            found[topic].append(
                Line(int(partition), int(java_partition), key, start, end, value, time)
            )
        return found

    def table(self, topic: str) -> dict[str, tuple[int, int]]:
        state = str(self._directory / "table")
        rows = [line.split() for line in self.run("ReadTable", topic, state)]
        return {key: (int(value), int(time)) for key, value, time in rows}

    def take_over(self, name: str) -> dict[str, int]:
        """Run a topology until it has caught up, with penstock's application id and output."""
        (output,) = self.run(
            "RunStreams", name, name, f"output={name}", "statestore.cache.max.bytes=0",
            "processing.guarantee=exactly_once_v2", f"state.dir={self._directory / 'state'}",
        )
        report: dict[str, int] = json.loads(output)
        return report


@pytest.fixture(scope="module")
def events() -> list[Row]:
    """Records ordered by time, none of them late."""
    return list(Source(11, recent_hour()).stream("events", 0, 240))


@pytest.fixture(scope="module", params=["batch", "continuous"])
def execution(request: pytest.FixtureRequest) -> str:
    mode: str = request.param
    return mode


@pytest.fixture(scope="module")
def log(penstock_broker: ClusterStatus, execution: str) -> Iterator[Log]:
    with open_log(clear(penstock_broker.address)) as log:
        for topic in ("events", COUNTS, WINDOWS, SESSIONS):
            log.create_topic(topic, PARTITIONS)
        yield log


@pytest.fixture(scope="module")
def java(
    penstock_broker: ClusterStatus, java_class_path: str, log: Log, events: list[Row],
    execution: str, tmp_path_factory: pytest.TempPathFactory,
) -> Java:
    """Process the first half of the events in each application of penstock."""
    directory = tmp_path_factory.mktemp("reads")
    feed(log, events[:HALF])
    for name in (COUNTS, WINDOWS, SESSIONS):
        builder = StreamsBuilder()
        TOPOLOGIES[name](builder, name)
        config = StreamsConfig(
            application_id=name, log=penstock_broker.address, state_dir=str(directory / "penstock"),
            default_key_serde=Serdes.string(), default_value_serde=Serdes.string(),
            statestore_cache_max_bytes=0, execution=execution,
        )
        with Streams(builder.build(), config, master="inline") as streams:
            streams.run_until_caught_up(timeout=TIMEOUT_S)
    return Java(java_class_path, penstock_broker, directory)


#: Topics and the kinds of their keys.
OUTPUTS = {COUNTS: "plain", WINDOWS: "time-windows", SESSIONS: "session-windows"}
WINDOW_CHANGELOG = f"{WINDOWS}-tumbling-changelog"
SESSION_CHANGELOG = f"{SESSIONS}-sessions-changelog"
CHANGELOGS = {WINDOW_CHANGELOG: "changelog-windows", SESSION_CHANGELOG: "session-windows"}


class JavaView(NamedTuple):
    """The topics as Java reads them: the changelog of the count as a table, others as lines."""

    table: dict[str, tuple[int, int]]
    lines: dict[str, list[Line]]


@pytest.fixture(scope="module")
def before(java: Java) -> JavaView:
    """The topics before Java takes over."""
    return JavaView(
        java.table(f"{COUNTS}-counts-changelog"), java.read({**OUTPUTS, **CHANGELOGS})
    )


@pytest.fixture(scope="module")
def after(java: Java, before: JavaView, log: Log, events: list[Row]) -> JavaView:
    """The topics after Java has processed the second half, with the same application ids."""
    feed(log, events[HALF:])
    for name in (COUNTS, WINDOWS, SESSIONS):
        assert java.take_over(name)["records"] >= len(events)
    return JavaView(java.table(f"{COUNTS}-counts-changelog"), java.read(OUTPUTS))


# ---- expected results ------------------------------------------------------------------------


def value_of(row: Row) -> str:
    assert isinstance(row.value, str)
    return row.value


def counted(events: Iterable[Row]) -> dict[str, tuple[int, int]]:
    """Return the number of events of each region, and the time of the last one."""
    found: dict[str, tuple[int, int]] = {}
    for row in events:
        count, _ = found.get(region(value_of(row)), (0, 0))
        found[region(value_of(row))] = count + 1, row.time
    return found


def windowed(events: Iterable[Row]) -> Counter[tuple[str, int, int]]:
    """Return the number of events of each key and window."""
    starts = ((row.key, row.time - row.time % WINDOW_MS) for row in events)
    return Counter((key, start, start + WINDOW_MS) for key, start in starts)


def sessions(events: Iterable[Row]) -> dict[tuple[str, int, int], int]:
    """Return the number of events of each region and session."""
    found: dict[str, list[list[int]]] = {}
    for row in events:
        of_region = found.setdefault(region(value_of(row)), [])
        if of_region and row.time - of_region[-1][-1] <= GAP_MS:
            of_region[-1].append(row.time)
        else:
            of_region.append([row.time])
    return {
        (name, times[0], times[-1]): len(times)
        for name, of_region in found.items() for times in of_region
    }


def last(lines: Iterable[Line]) -> dict[tuple[str, int, int], int]:
    """Return the last value of each key and window, without tombstones."""
    rows = {(line.key, line.start, line.end): line.value for line in lines}
    return {key: value for key, value in rows.items() if value is not None}


def assert_java_partitions(lines: list[Line]) -> None:
    assert lines
    assert [line.partition for line in lines] == [line.java_partition for line in lines]


# ---- tests -----------------------------------------------------------------------------------


def test_java_reads_the_changelog_of_a_count_as_a_table(
    before: JavaView, events: list[Row]
) -> None:
    assert before.table == counted(events[:HALF])


def test_counts_are_in_the_partitions_of_java(before: JavaView, events: list[Row]) -> None:
    assert_java_partitions(before.lines[COUNTS])
    assert len(before.lines[COUNTS]) == HALF
    assert last(before.lines[COUNTS]) == {
        (key, 0, 0): count for key, (count, _) in counted(events[:HALF]).items()
    }


def test_java_reads_the_keys_of_time_windows(before: JavaView, events: list[Row]) -> None:
    assert_java_partitions(before.lines[WINDOWS])
    assert last(before.lines[WINDOWS]) == windowed(events[:HALF])


def test_java_reads_the_keys_of_sessions(before: JavaView, events: list[Row]) -> None:
    assert_java_partitions(before.lines[SESSIONS])
    assert any(line.value is None for line in before.lines[SESSIONS])
    assert last(before.lines[SESSIONS]) == sessions(events[:HALF])


def test_java_reads_the_changelogs_of_windows_and_sessions(
    before: JavaView, events: list[Row]
) -> None:
    assert_java_partitions(before.lines[WINDOW_CHANGELOG])
    assert last(before.lines[WINDOW_CHANGELOG]) == windowed(events[:HALF])
    assert_java_partitions(before.lines[SESSION_CHANGELOG])
    assert last(before.lines[SESSION_CHANGELOG]) == sessions(events[:HALF])


def test_java_continues_a_store_of_penstock(after: JavaView, events: list[Row]) -> None:
    lines = after.lines[COUNTS]
    assert len(lines) == len(events)
    assert last(lines) == {(key, 0, 0): count for key, (count, _) in counted(events).items()}
    assert after.table == counted(events)


def test_java_continues_windows_of_penstock(after: JavaView, events: list[Row]) -> None:
    lines = after.lines[WINDOWS]
    assert len(lines) == len(events)
    assert last(lines) == windowed(events)


def test_java_continues_sessions_of_penstock(after: JavaView, events: list[Row]) -> None:
    assert last(after.lines[SESSIONS]) == sessions(events)
