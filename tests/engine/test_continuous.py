"""Continuous mode, with its lane in a thread of this process: results, restarts, mode switches."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Materialized,
    Processor,
    PunctuationType,
    Record,
    Serdes,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    StreamThreadExceptionResponse,
    Topology,
)
from penstock.engine.lifecycle import State
from penstock.errors import StreamsException
from penstock.log import Log, RecordColumns, open_log
from penstock.log.types import TopicPartition

TEXT, LONG = Serdes.string(), Serdes.long()
PARTITIONS = 3
DEADLINE_S = 60.0


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(str(tmp_path / "log.db")) as log:
        for topic in ("lines", "counts"):
            log.create_topic(topic, PARTITIONS)
        yield log


def word_count() -> Topology:
    """Two sub-topologies, joined by the repartition topic of the count."""
    builder = StreamsBuilder()
    (
        builder.stream("lines", key=TEXT, value=TEXT)
        .flat_map_values(lambda line: line.split())
        .group_by(lambda _, word: word)
        .count(store="words")
        .to_stream()
        .to("counts", key=TEXT, value=LONG)
    )
    return builder.build()


@pytest.fixture
def run(tmp_path: Path, log: Log) -> Callable[..., Any]:
    @contextmanager
    def start(topology: Topology, **settings: Any) -> Iterator[Streams]:
        settings = {"execution": "continuous", **settings}
        config = StreamsConfig(
            application_id="app", log=log.address, state_dir=str(tmp_path / "state"), **settings
        )
        with Streams(topology, config, master="inline") as streams:
            streams.run_until_caught_up(DEADLINE_S)
            yield streams

    return start


def write(log: Log, topic: str, *values: str, key: str | None = None) -> None:
    for number, value in enumerate(values):
        keys = [None if key is None else key.encode()]
        log.append(topic, number % PARTITIONS, RecordColumns(keys, [value.encode()]))


def read(log: Log, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    found = []
    for partition in range(log.topic(topic).partitions):
        for batch in log.read(topic, partition, 0):
            columns = batch.columns()
            found += list(zip(columns.keys, columns.values, strict=True))
    return found


def counts(log: Log) -> dict[str, int]:
    return {
        (key or b"").decode(): int.from_bytes(value or b"", "big")
        for key, value in read(log, "counts")
    }


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "The condition was not met in time."
        time.sleep(0.01)


def test_records_pass_through_repartition_topics(log: Log, run: Any) -> None:
    write(log, "lines", "a b", "a c", "a")
    with run(word_count()) as streams:
        assert counts(log) == {"a": 3, "b": 1, "c": 1}
        write(log, "lines", "c", "c")
        streams.run_until_caught_up(DEADLINE_S)
        assert counts(log) == {"a": 3, "b": 1, "c": 3}
        assert streams.state is State.RUNNING
        assert {task.task_id.subtopology for thread in streams.metadata_for_local_threads()
                for task in thread.active_tasks} == {0, 1}
    assert "app-words-repartition" in {topic.name for topic in log.topics()}


def test_consumed_repartition_records_are_deleted_without_further_commits(
    log: Log, run: Any
) -> None:
    write(log, "lines", "a b", "a c", "a")
    with run(word_count(), repartition_purge_interval_ms=1_000):
        at = [TopicPartition("app-words-repartition", each) for each in range(PARTITIONS)]
        assert any(bounds.end for bounds in log.offsets(at).values())
        wait_until(lambda: all(
            bounds.start == bounds.end for bounds in log.offsets(at).values()
        ))
    assert counts(log) == {"a": 3, "b": 1, "c": 1}


@pytest.mark.parametrize("delete_state", [False, True])
def test_restart_continues_from_the_committed_state(
    log: Log, run: Any, tmp_path: Path, delete_state: bool
) -> None:
    for expected in (1, 2, 3):
        write(log, "lines", "a b")
        with run(word_count()):
            assert counts(log) == {"a": expected, "b": expected}
        if delete_state:
            shutil.rmtree(tmp_path / "state")


def test_modes_can_be_changed_in_both_directions(log: Log, run: Any) -> None:
    for number, mode in enumerate(("batch", "continuous", "batch", "continuous"), 1):
        write(log, "lines", "a b", "a")
        with run(word_count(), execution=mode):
            assert counts(log) == {"a": 2 * number, "b": number}


def test_batch_mode_consumes_repartition_topics_first(log: Log, run: Any) -> None:
    write(log, "lines", "a b", "a")
    with run(word_count()):
        before = counts(log)
    # As a lane leaves it that has stopped between the two sub-topologies.
    topic = "app-words-repartition"
    where = next(
        partition for partition in range(PARTITIONS)
        if any(b"a" in batch.columns().keys for batch in log.read(topic, partition, 0))
    )
    log.append(topic, where, RecordColumns([b"a", b"a"], [b"a", b"a"]))
    write(log, "lines", "a")
    with run(word_count(), execution="batch"):
        assert counts(log) == {**before, "a": before["a"] + 3}
    bounds = log.offsets([TopicPartition(topic, where)])[TopicPartition(topic, where)]
    assert bounds.start == bounds.end, "the consumed records are deleted"
    with run(word_count()):
        assert counts(log) == {**before, "a": before["a"] + 3}


def test_rows_of_a_lane_equal_restored_rows(
    log: Log, run: Any, tmp_path: Path
) -> None:
    write(log, "lines", *(f"a w{n} w{n % 7}" for n in range(200)))
    stores = []
    for delete in (False, True):
        if delete:
            shutil.rmtree(tmp_path / "state")
        with run(word_count()):
            pass
        stores.append(_rows(tmp_path / "state" / "app"))
    assert stores[0] == stores[1]
    assert sum(map(len, stores[0].values())) == 201


def _rows(directory: Path) -> dict[str, dict[bytes, bytes]]:
    """Task -> the rows of its stores."""
    from penstock.stores.bytes.lmdb.environment import LmdbEnvironment

    found = {}
    for current in sorted(directory.glob("1_*/current")):
        environment = LmdbEnvironment.open(current.parent / current.read_text())
        with environment.reading(["rows/words"]) as transaction:
            rows = transaction.open("rows/words")
            assert rows is not None
            found[current.parent.name] = dict(rows.scan(None, None))
        environment.close()
    return found


class Broken(Exception):
    pass


def failing(fails: Callable[[], bool]) -> Topology:
    def check(value: str) -> str:
        if value == "bad" and fails():
            raise Broken
        return value

    builder = StreamsBuilder()
    builder.stream("lines", key=TEXT, value=TEXT).map_values(check).to(
        "counts", key=TEXT, value=TEXT
    )
    return builder.build()


#: A module-level switch: topologies are pickled, objects in them are copied.
FAILURES: list[int] = []


def fail_once() -> bool:
    FAILURES.append(1)
    return len(FAILURES) == 1


def fail_always() -> bool:
    return True


def test_failure_ends_the_application_and_commits_nothing_of_it(log: Log, run: Any) -> None:
    log.append("lines", 0, RecordColumns([None] * 2, [b"good", b"bad"]))
    with pytest.raises(Exception, match="Broken") as raised, run(failing(fail_always)):
        pass
    assert "topic=lines, partition=0, offset=1" in str(raised.value)
    assert read(log, "counts") == []


class Panic(BaseException):
    """As a native library raises it, or asyncio."""


def panicking() -> Topology:
    def panic(key: str, value: str) -> None:
        raise Panic("out of order")

    builder = StreamsBuilder()
    builder.stream("lines", key=TEXT, value=TEXT).foreach(panic)
    return builder.build()


def test_exception_that_is_no_error_ends_the_application_with_its_reason(
    log: Log, run: Any
) -> None:
    write(log, "lines", "a")
    with (
        pytest.raises(StreamsException, match="Task 0_0 failed: Panic: out of order") as raised,
        run(panicking()),
    ):
        pass
    assert "in panic" in raised.value.user_traceback


def test_replaced_thread_processes_the_records_again(
    log: Log, tmp_path: Path
) -> None:
    FAILURES.clear()
    log.append("lines", 0, RecordColumns([None] * 2, [b"good", b"bad"]))
    config = StreamsConfig(
        application_id="app", log=log.address, state_dir=str(tmp_path / "state"),
        execution="continuous",
    )
    streams = Streams(failing(fail_once), config, master="inline")
    streams.set_uncaught_exception_handler(
        lambda _: StreamThreadExceptionResponse.REPLACE_THREAD
    )
    with streams:
        streams.run_until_caught_up(DEADLINE_S)
        assert [value for _, value in read(log, "counts")] == [b"good", b"bad"]


def test_paused_application_processes_nothing(log: Log, run: Any) -> None:
    with run(word_count()) as streams:
        streams.pause()
        written = 0

        def is_paused() -> bool:
            # A lane may still process records until it receives the message.
            nonlocal written
            written += 1
            write(log, "lines", "a")
            return not streams.is_caught_up(0.5)

        wait_until(is_paused)
        assert counts(log).get("a", 0) == written - 1
        streams.resume()
        streams.run_until_caught_up(DEADLINE_S)
        assert counts(log) == {"a": written}


class Ticker(Processor[Any, Any, Any, Any]):
    """Counts records in memory and forwards the count at each tick of the wall clock."""

    def __init__(self) -> None:
        self.seen = 0

    def init(self, context: Any) -> None:
        self.context = context
        context.schedule(50, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def process(self, record: Record[Any, Any]) -> None:
        self.seen += 1

    def tick(self, now: int) -> None:
        if self.seen:
            self.context.forward(Record("seen", str(self.seen), now))


def test_wall_clock_punctuations_fire_without_input_and_processors_live_on(
    log: Log, run: Any
) -> None:
    builder = StreamsBuilder()
    builder.stream("lines", key=TEXT, value=TEXT).process(Ticker).to(
        "counts", key=TEXT, value=TEXT
    )
    log.append("lines", 0, RecordColumns([b"k"], [b"x"]))
    with run(builder.build()) as streams:
        log.append("lines", 0, RecordColumns([b"k"], [b"y"]))
        streams.run_until_caught_up(DEADLINE_S)
        wait_until(lambda: (b"seen", b"2") in read(log, "counts"))


class Committer(Processor[Any, Any, Any, Any]):
    """Forwards each record and requests a commit."""

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)
        self.context.commit()


def test_processor_can_request_a_commit(log: Log, run: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("lines", key=TEXT, value=TEXT).process(Committer).to(
        "counts", key=TEXT, value=TEXT
    )
    with run(builder.build(), commit_interval_ms=3_600_000) as streams:
        log.append("lines", 0, RecordColumns([b"k"], [b"x"]))
        streams.run_until_caught_up(DEADLINE_S)
        assert read(log, "counts") == [(b"k", b"x")]


def test_global_tables_follow_their_topics(log: Log, run: Any) -> None:
    log.create_topic("names", 1)
    builder = StreamsBuilder()
    names = builder.global_table("names", key=TEXT, value=TEXT)
    builder.stream("lines", key=TEXT, value=TEXT).left_join(
        names, lambda key, value: key, lambda value, name: f"{value} {name}"
    ).to("counts", key=TEXT, value=TEXT)
    with run(builder.build()) as streams:
        log.append("lines", 0, RecordColumns([b"k"], [b"1"]))
        streams.run_until_caught_up(DEADLINE_S)
        log.append("names", 0, RecordColumns([b"k"], [b"Kim"]))

        def joined() -> bool:
            log.append("lines", 0, RecordColumns([b"k"], [b"2"]))
            streams.run_until_caught_up(DEADLINE_S)
            return (b"k", b"2 Kim") in read(log, "counts")

        wait_until(joined)
        assert read(log, "counts")[0] == (b"k", b"1 None")


def test_store_without_changelog_survives_a_restart_on_the_same_host(
    log: Log, run: Any
) -> None:
    builder = StreamsBuilder()
    builder.stream("lines", key=TEXT, value=TEXT).group_by_key().count(
        store=Materialized("quiet", logging=False)
    ).to_stream().to("counts", key=TEXT, value=LONG)
    topology = builder.build()
    for expected in (1, 2):
        log.append("lines", 0, RecordColumns([b"k"], [b"x"]))
        with run(topology):
            assert counts(log) == {"k": expected}
    assert "app-quiet-changelog" not in {topic.name for topic in log.topics()}


def test_deleted_state_is_restored_while_the_application_runs(
    log: Log, run: Any, tmp_path: Path
) -> None:
    with run(word_count()) as streams:
        for expected in range(1, 4):
            write(log, "lines", "a", "a", "a")
            streams.run_until_caught_up(DEADLINE_S)
            assert counts(log) == {"a": 3 * expected}
            # A task may be creating its files again.
            shutil.rmtree(tmp_path / "state", ignore_errors=True)


def test_second_instance_takes_over(log: Log, run: Any, tmp_path: Path) -> None:
    taken = threading.Event()
    config = StreamsConfig(
        application_id="app", log=log.address, state_dir=str(tmp_path / "other"),
        execution="continuous",
    )
    second = Streams(word_count(), config, master="inline", on_standby=lambda _: taken.set())
    with run(word_count()):
        write(log, "lines", "a")
        second.start()
        assert taken.wait(DEADLINE_S)
    try:
        write(log, "lines", "a")
        second.run_until_caught_up(DEADLINE_S)
        assert counts(log) == {"a": 2}
    finally:
        second.close()
