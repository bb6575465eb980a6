"""Kafka Streams for Java reads what penstock has written, and goes on where penstock stopped."""

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
from kafka.oracle_input import PARTITIONS, Row, Source, feed, recent_hour
from kafka.oracle_topologies import TOPOLOGIES, region
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig
from penstock.broker.cluster import ClusterStatus
from penstock.log import Log, open_log

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PATIENCE_S = 120.0
COUNTS, WINDOWS, SESSIONS = "count_by_region", "tumbling_windows", "session_windows_by_region"
WINDOW_MS, HALF = 2_000, 120
GAP_MS = 400


class Line(NamedTuple):
    """What `ReadTopic` prints of a record."""

    partition: int
    #: Where Java's producer would have put the key.
    java_partition: int
    key: str
    start: int
    end: int
    #: None: the row is no more.
    value: int | None
    time: int


class Java:
    """Runs the programs, each in a process of its own, and answers the lines they print."""

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
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )
        assert ran.returncode == 0, ran.stderr[-4000:]
        return ran.stdout.splitlines()

    def read(self, kinds: Mapping[str, str]) -> dict[str, list[Line]]:
        """The records of topics; those of windows need to be said to be so."""
        pairs = [part for topic, kind in kinds.items() for part in (kind, topic)]
        found: dict[str, list[Line]] = {topic: [] for topic in kinds}
        for line in self.run("ReadTopic", *pairs):
            topic, at, right, key, *rest = line.split()
            start, end, value, time = (None if part == "null" else int(part) for part in rest)
            found[topic].append(Line(int(at), int(right), key, start, end, value, time))
        return found

    def table(self, topic: str) -> dict[str, tuple[int, int]]:
        state = str(self._directory / "table")
        rows = [line.split() for line in self.run("ReadTable", topic, state)]
        return {key: (int(value), int(time)) for key, value, time in rows}

    def take_over(self, name: str) -> dict[str, int]:
        """Run a topology to its end, under penstock's application id and into its output."""
        (told,) = self.run(
            "RunStreams", name, name, f"output={name}", "statestore.cache.max.bytes=0",
            "processing.guarantee=exactly_once_v2", f"state.dir={self._directory / 'state'}",
        )
        answer: dict[str, int] = json.loads(told)
        return answer


@pytest.fixture(scope="module")
def events() -> list[Row]:
    """Records in the order of time; none of them is late."""
    return list(Source(11, recent_hour()).stream("events", 0, 240))


@pytest.fixture(scope="module")
def log(penstock_broker: ClusterStatus) -> Iterator[Log]:
    with open_log(clear(penstock_broker.address)) as log:
        for topic in ("events", COUNTS, WINDOWS, SESSIONS):
            log.create_topic(topic, PARTITIONS)
        yield log


@pytest.fixture(scope="module")
def java(
    penstock_broker: ClusterStatus, java_class_path: str, log: Log, events: list[Row],
    tmp_path_factory: pytest.TempPathFactory,
) -> Java:
    """After penstock has processed the first half of the events in each application."""
    directory = tmp_path_factory.mktemp("reads")
    feed(log, events[:HALF])
    for name in (COUNTS, WINDOWS, SESSIONS):
        builder = StreamsBuilder()
        TOPOLOGIES[name](builder, name)
        config = StreamsConfig(
            application_id=name, log=penstock_broker.address, state_dir=str(directory / "mine"),
            default_key_serde=Serdes.string(), default_value_serde=Serdes.string(),
            statestore_cache_max_bytes=0,
        )
        with Streams(builder.build(), config, master="inline") as streams:
            streams.run_until_caught_up(timeout=PATIENCE_S)
    return Java(java_class_path, penstock_broker, directory)


#: Topics and how Java is to read them.
OUTPUTS = {COUNTS: "plain", WINDOWS: "time-windows", SESSIONS: "session-windows"}
WINDOW_CHANGELOG = f"{WINDOWS}-tumbling-changelog"
SESSION_CHANGELOG = f"{SESSIONS}-sessions-changelog"
CHANGELOGS = {WINDOW_CHANGELOG: "changelog-windows", SESSION_CHANGELOG: "session-windows"}


class Readings(NamedTuple):
    """What Java has read: the changelog of the count as a table, and lines of topics."""

    table: dict[str, tuple[int, int]]
    lines: dict[str, list[Line]]


@pytest.fixture(scope="module")
def readings(java: Java) -> Readings:
    """Before Java has taken over."""
    return Readings(
        java.table(f"{COUNTS}-counts-changelog"), java.read({**OUTPUTS, **CHANGELOGS})
    )


@pytest.fixture(scope="module")
def taken_over(java: Java, readings: Readings, log: Log, events: list[Row]) -> Readings:
    """After Java has processed the second half, under the same application ids."""
    feed(log, events[HALF:])
    for name in (COUNTS, WINDOWS, SESSIONS):
        assert java.take_over(name)["records"] >= len(events)
    return Readings(java.table(f"{COUNTS}-counts-changelog"), java.read(OUTPUTS))


# ---- what must be there ----------------------------------------------------------------------


def text(row: Row) -> str:
    assert isinstance(row.value, str)
    return row.value


def counted(events: Iterable[Row]) -> dict[str, tuple[int, int]]:
    """How many events each region has, and the time of the last one."""
    found: dict[str, tuple[int, int]] = {}
    for row in events:
        count, _ = found.get(region(text(row)), (0, 0))
        found[region(text(row))] = count + 1, row.time
    return found


def windowed(events: Iterable[Row]) -> Counter[tuple[str, int, int]]:
    """How many events each key has in each window."""
    starts = ((row.key, row.time - row.time % WINDOW_MS) for row in events)
    return Counter((key, start, start + WINDOW_MS) for key, start in starts)


def sessions(events: Iterable[Row]) -> dict[tuple[str, int, int], int]:
    """How many events each region has in each session."""
    found: dict[str, list[list[int]]] = {}
    for row in events:
        mine = found.setdefault(region(text(row)), [])
        if mine and row.time - mine[-1][-1] <= GAP_MS:
            mine[-1].append(row.time)
        else:
            mine.append([row.time])
    return {
        (name, times[0], times[-1]): len(times)
        for name, mine in found.items() for times in mine
    }


def last(lines: Iterable[Line]) -> dict[tuple[str, int, int], int]:
    """The last value of each key and window; without those that are no more."""
    rows = {(line.key, line.start, line.end): line.value for line in lines}
    return {key: value for key, value in rows.items() if value is not None}


def assert_in_place(lines: list[Line]) -> None:
    assert lines
    assert [line.partition for line in lines] == [line.java_partition for line in lines]


# ---- tests -----------------------------------------------------------------------------------


def test_the_changelog_of_a_count_is_a_table_in_java(
    readings: Readings, events: list[Row]
) -> None:
    assert readings.table == counted(events[:HALF])


def test_counts_are_where_java_would_have_put_them(readings: Readings, events: list[Row]) -> None:
    assert_in_place(readings.lines[COUNTS])
    assert len(readings.lines[COUNTS]) == HALF
    assert last(readings.lines[COUNTS]) == {
        (key, 0, 0): count for key, (count, _) in counted(events[:HALF]).items()
    }


def test_java_reads_the_keys_of_time_windows(readings: Readings, events: list[Row]) -> None:
    assert_in_place(readings.lines[WINDOWS])
    assert last(readings.lines[WINDOWS]) == windowed(events[:HALF])


def test_java_reads_the_keys_of_sessions(readings: Readings, events: list[Row]) -> None:
    assert_in_place(readings.lines[SESSIONS])
    assert any(line.value is None for line in readings.lines[SESSIONS])
    assert last(readings.lines[SESSIONS]) == sessions(events[:HALF])


def test_java_reads_the_changelogs_of_windows_and_sessions(
    readings: Readings, events: list[Row]
) -> None:
    assert_in_place(readings.lines[WINDOW_CHANGELOG])
    assert last(readings.lines[WINDOW_CHANGELOG]) == windowed(events[:HALF])
    assert_in_place(readings.lines[SESSION_CHANGELOG])
    assert last(readings.lines[SESSION_CHANGELOG]) == sessions(events[:HALF])


def test_java_goes_on_with_a_store_of_penstock(taken_over: Readings, events: list[Row]) -> None:
    lines = taken_over.lines[COUNTS]
    assert len(lines) == len(events)
    assert last(lines) == {(key, 0, 0): count for key, (count, _) in counted(events).items()}
    assert taken_over.table == counted(events)


def test_java_goes_on_with_windows_of_penstock(taken_over: Readings, events: list[Row]) -> None:
    lines = taken_over.lines[WINDOWS]
    assert len(lines) == len(events)
    assert last(lines) == windowed(events)


def test_java_goes_on_with_sessions_of_penstock(taken_over: Readings, events: list[Row]) -> None:
    assert last(taken_over.lines[SESSIONS]) == sessions(events)
