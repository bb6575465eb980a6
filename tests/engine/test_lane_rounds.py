"""How long a lane processes, and how long it waits: driven step by step in this thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.lane_driver import Driver, open_driver
from penstock import Processor, ProcessorContext, PunctuationType, Record, StreamsBuilder, Topology
from penstock.engine.continuous import lane as lane_module
from penstock.engine.continuous import queue_limits
from penstock.engine.continuous.messages import Committed, Grant, Pause, Resume, Running
from penstock.engine.plan.batch_plan import TaskPlan
from penstock.log import Log, RecordColumns, open_log
from penstock.record import TaskId
from penstock.task import chunk_size
from penstock.task.queue import CHUNK

#: The values that `note` was called with. The application is pickled, so functions refer to it by
#: the name of this module.
noted: list[str] = []
#: Called by `note`.
on_note: list[Callable[[], object]] = []


def note(key: object, value: str) -> None:
    noted.append(value)
    for each in on_note:
        each()


def noting() -> Topology:
    builder = StreamsBuilder()
    builder.stream("words").foreach(note)
    return builder.build()


@pytest.fixture(autouse=True)
def _forget() -> None:
    noted.clear()
    on_note.clear()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log.db") as log:
        for topic in ("words", "others", "out"):
            log.create_topic(topic)
        yield log


@contextmanager
def running(
    log: Log, directory: Path, topology: Topology, *topics: str, **settings: object
) -> Iterator[Driver]:
    """A lane that runs the task of a topology without stores."""
    lease = log.take_lease("words")
    with open_driver(log, lease, directory / "state", topology, **settings) as driver:
        (task_id,) = driver.lane._worker.bundle.graph.tasks
        driver.send(Grant(TaskPlan(task_id), {(topic, 0): 0 for topic in topics}))
        driver.receive(Running)
        driver.receive(Committed)
        yield driver


def append(log: Log, topic: str, number: int, timestamp: int = 0) -> None:
    log.append(topic, 0, RecordColumns([b"k"] * number, [b"v"] * number, [timestamp] * number))


def test_round_with_slow_records_is_short(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lane looks at messages, schedules and commits between two rounds."""
    monkeypatch.setattr(lane_module, "LONGEST_ROUND_S", 0.0)
    on_note.append(lambda: time.sleep(0.02))
    append(log, "words", 500)
    with running(log, tmp_path, noting(), "words") as driver:
        driver.run_until(lambda: noted)
        # The first rounds measure the cost of a record.
        for _ in range(5):
            before = len(noted)
            driver.lane.step(0.001)
            assert len(noted) - before <= 32
        for _ in range(5):
            before = len(noted)
            driver.lane.step(0.001)
            assert len(noted) - before <= 2


def test_message_of_the_driver_ends_a_round(log: Log, tmp_path: Path) -> None:
    with running(log, tmp_path, noting(), "words") as driver:
        def pause() -> None:
            if len(noted) == 100:
                driver.send(Pause())
                while not driver.lane._driver.has_messages:
                    time.sleep(0.001)

        on_note.append(pause)
        append(log, "words", 50_000)
        driver.run_until(lambda: driver.lane._is_paused)
        assert len(noted) <= 100 + 2 * CHUNK
        driver.send(Resume())
        driver.run_until(lambda: len(noted) == 50_000)


def test_waiting_records_of_a_slow_task_are_bounded(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_module, "LONGEST_ROUND_S", 0.0)
    on_note.append(lambda: time.sleep(0.001))
    for _ in range(10):
        append(log, "words", lane_module.POLL_RECORDS)
    with running(log, tmp_path, noting(), "words") as driver:
        (task,) = driver.lane._tasks.values()
        for _ in range(10):
            driver.lane.step(0.001)
        (source,) = task.offsets
        assert 0 < task.queued(source) <= 2 * lane_module.POLL_RECORDS


def test_memory_of_waiting_records_is_bounded(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand large records may take more memory than a worker has."""
    monkeypatch.setattr(lane_module, "LONGEST_ROUND_S", 0.0)
    monkeypatch.setattr(queue_limits, "MOST_BYTES", 1 << 20)
    on_note.append(lambda: time.sleep(0.001))
    for _ in range(200):
        log.append("words", 0, RecordColumns([b"k"] * 2, [b"v" * 50_000] * 2))
    with running(log, tmp_path, noting(), "words") as driver:
        (task,) = driver.lane._tasks.values()
        (source,) = task.offsets
        most = 0

        def is_done() -> bool:
            nonlocal most
            most = max(most, task.queued(source))
            return len(noted) == 400

        driver.run_until(is_done)
        # One poll more: it returns up to 4 MiB, although the file has only some kilobytes.
        assert 0 < most <= 6 * (1 << 20) // 50_000


def test_tasks_of_a_lane_share_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records of the first task may take each round as a whole."""
    monkeypatch.setattr(lane_module, "LONGEST_ROUND_S", 0.05)
    monkeypatch.setattr(chunk_size, "TARGET_S", 0.001)
    on_note.append(lambda: time.sleep(0.001))
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("words", 3)
        for partition in range(3):
            records = RecordColumns([b"k"] * 2_000, [b"%d" % partition] * 2_000)
            log.append("words", partition, records)
        lease = log.take_lease("words")
        with open_driver(log, lease, tmp_path / "state", noting()) as driver:
            for partition in range(3):
                task_id = TaskId(0, partition)
                driver.send(Grant(TaskPlan(task_id), {("words", partition): 0}))
            driver.run_until(lambda: len(noted) >= 600)
    shares = [noted.count(str(partition)) for partition in range(3)]
    assert min(shares) > max(shares) / 3, shares


def test_lane_waits_for_records_after_the_end_of_max_task_idle(log: Log, tmp_path: Path) -> None:
    """The deadline of the empty topic has passed, and stays until it has records."""
    builder = StreamsBuilder()
    builder.stream("words").merge(builder.stream("others")).to("out")
    with running(
        log, tmp_path, builder.build(), "words", "others", max_task_idle_ms=1
    ) as driver:
        append(log, "words", 1)
        driver.run_until(lambda: log.offsets([("out", 0)])["out", 0].end == 1)
        driver.lane.step(0.001)
        assert driver.lane._poll_seconds() == pytest.approx(lane_module.LONGEST_POLL_S, abs=0.1)
        append(log, "words", 1)
        driver.run_until(lambda: log.offsets([("out", 0)])["out", 0].end == 2)


def test_record_does_not_wait_for_a_topic_that_was_idle_before(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka Streams: `max.task.idle.ms` counts from the time at which a topic runs empty."""
    clock = [1_000_000]
    monkeypatch.setattr(lane_module, "wall_clock_ms", lambda: clock[0])
    builder = StreamsBuilder()
    builder.stream("words").merge(builder.stream("others")).to("out")

    def is_processed() -> bool:
        for _ in range(100):
            driver.lane.step(0.001)
        return log.offsets([("out", 0)])["out", 0].end == 1

    with running(
        log, tmp_path, builder.build(), "words", "others", max_task_idle_ms=1_000
    ) as driver:
        assert not is_processed()
        clock[0] += 900
        append(log, "words", 1)
        assert not is_processed()
        clock[0] += 100
        assert is_processed()


class Ticks(Processor[str, str]):
    def init(self, context: ProcessorContext) -> None:
        context.schedule(1, PunctuationType.WALL_CLOCK_TIME, lambda timestamp: None)

    def process(self, record: Record[str, str]) -> None:
        pass


def with_punctuation() -> Topology:
    builder = StreamsBuilder()
    builder.stream("words").process(Ticks)
    return builder.build()


def with_global_table() -> Topology:
    builder = StreamsBuilder()
    table = builder.global_table("others")
    builder.stream("words").join(table, lambda key, value: key, lambda *both: str(both)).to("out")
    return builder.build()


@pytest.mark.parametrize("topology", [with_punctuation, with_global_table])
def test_paused_lane_waits(log: Log, tmp_path: Path, topology: object) -> None:
    """Schedules and global tables that are due wait until it is resumed."""
    assert callable(topology)
    append(log, "others", 1)
    with running(log, tmp_path, topology(), "words") as driver:
        driver.send(Pause())
        driver.run_until(lambda: driver.lane._is_paused and not driver.lane._needs_commit())
        due = time.monotonic() + 2 * lane_module.GLOBAL_INTERVAL_S
        driver.run_until(lambda: time.monotonic() > due)
        assert driver.lane._poll_seconds() == lane_module.LONGEST_POLL_S


def test_paused_lane_with_queued_records_waits(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_module, "LONGEST_ROUND_S", 0.0)
    on_note.append(lambda: time.sleep(0.001))
    append(log, "words", 1_000)
    with running(log, tmp_path, noting(), "words") as driver:
        driver.run_until(lambda: driver.lane._has_progressed and driver.lane._has_queued())
        driver.send(Pause())
        driver.run_until(lambda: driver.lane._is_paused and not driver.lane._needs_commit())
        assert driver.lane._has_queued()
        assert driver.lane._poll_seconds() == lane_module.LONGEST_POLL_S
