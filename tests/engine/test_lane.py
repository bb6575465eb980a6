"""A lane, driven step by step over its connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.lane_driver import TASK, Driver, open_driver
from penstock.engine.continuous import lane_commit
from penstock.engine.continuous import restorer as restorer_module
from penstock.engine.continuous.messages import (
    Committed,
    Ended,
    Grant,
    Hello,
    Pause,
    Release,
    Released,
    Resume,
    Running,
)
from penstock.engine.plan.batch_plan import TaskPlan
from penstock.log import Log, RecordColumns, open_log
from penstock.log.base import Transaction
from penstock.record import TaskId


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("words")
        yield log


@pytest.fixture
def driver(log: Log, tmp_path: Path) -> Iterator[Driver]:
    with open_driver(log, log.take_lease("words"), tmp_path / "state") as driver:
        yield driver


def test_task_that_is_released_during_its_restore_is_never_run(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the lane would run it beside the lane that gets it next."""
    is_restoring, may_restore = threading.Event(), threading.Event()
    restore = restorer_module.restore_replica

    def wait_and_restore(*arguments: Any) -> Any:
        is_restoring.set()
        may_restore.wait()
        return restore(*arguments)

    monkeypatch.setattr(restorer_module, "restore_replica", wait_and_restore)
    grant = Grant(TaskPlan(TASK, positions={"counts": 0}), {("words", 0): 0})
    driver.send(grant)
    driver.run_until(is_restoring.is_set)
    driver.send(Release(TASK))
    driver.send(Pause())
    driver.run_until(lambda: driver.lane._is_paused)
    assert not any(isinstance(each, Running | Released) for each in driver.messages()), (
        "the task is released while its replica is in use"
    )
    may_restore.set()
    assert driver.receive(Running, Released) == Released(TASK)
    assert TASK not in driver.lane._tasks

    # It can be granted again.
    driver.send(grant)
    running = driver.receive(Running, Released)
    assert isinstance(running, Running)
    assert running.task_id == TASK


def test_lane_introduces_itself_with_the_replicas_of_its_host(driver: Driver) -> None:
    def introduction() -> Hello:
        driver.lane.say_hello()
        (hello,) = [each for each in driver.messages() if isinstance(each, Hello)]
        return hello

    assert introduction().replicas == {}
    before = time.time_ns() // 1_000_000
    driver.send(Grant(TaskPlan(TASK, positions={"counts": 0}), {("words", 0): 0}))
    driver.receive(Committed)
    ((task_id, changed_ms),) = introduction().replicas.items()
    assert task_id == TASK
    assert before - 1_000 <= changed_ms <= time.time_ns() // 1_000_000


def test_lines_that_are_being_sent_are_not_overtaken(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of the heartbeats sends lines, too."""
    lane = driver.lane
    is_sending, may_send = threading.Event(), threading.Event()
    monkeypatch.setattr(lane._capture, "take_lines", lambda end_line: ("line",))
    monkeypatch.setattr(lane._driver, "send", lambda message: (is_sending.set(), may_send.wait()))
    heartbeat = threading.Thread(target=lane._send_lines)
    heartbeat.start()
    try:
        assert is_sending.wait(60)
        assert not lane._sending_lines.acquire(blocking=False), "another thread must wait"
    finally:
        may_send.set()
        heartbeat.join()


@pytest.mark.parametrize(("limit", "transactions"), [(1_000, 1), (1, 2)])
def test_tasks_that_write_to_many_partitions_share_no_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, transactions: int
) -> None:
    """A log ends transactions that take too long, and needs time for each partition."""
    monkeypatch.setattr(lane_commit, "MANY_PARTITIONS", limit)
    tasks = [TaskId(0, number) for number in range(2)]
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("words", 2)
        for task_id in tasks:
            log.append("words", task_id.partition, RecordColumns([b"tea"], [b"x"]))
        with open_driver(log, log.take_lease("words"), tmp_path / "state") as driver:
            for task_id in tasks:
                driver.send(Grant(
                    TaskPlan(task_id, positions={"counts": 0}), {("words", task_id.partition): 0}
                ))
            # The lane is paused until it has both tasks, so that it commits them together.
            driver.send(Pause())
            for _ in tasks:
                driver.receive(Running)
            # The commits of the grants: one or two.
            driver.run_until(lambda: not driver.lane._needs_commit())
            list(driver.messages())
            begun = []
            writer = driver.lane._writer
            assert writer is not None
            begin = writer.transaction

            def count() -> Transaction:
                begun.append(1)
                return begin()

            monkeypatch.setattr(writer, "transaction", count)
            driver.send(Resume())
            committed = driver.receive(Committed)
            assert len(committed.outcomes) == 2
            assert len(begun) == transactions
            found = log.committed("words", [("words", 0), ("words", 1)])
            assert {each.offset for each in found.values()} == {1}


def test_last_message_is_sent_although_a_resource_cannot_be_closed(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the signs of life of a lane without tasks would never end."""
    def fail() -> None:
        raise ValueError("cannot be closed")

    with open_driver(log, log.take_lease("words"), tmp_path / "state") as driver:
        lane = driver.lane
        close, lane._tail.close = lane._tail.close, fail  # type: ignore[method-assign]
        lane.close(Ended(reason="it was asked"))
        close()
        received: list[object] = []
        with pytest.raises(EOFError):
            received.extend(driver.messages())
        assert received[-1] == Ended(reason="it was asked")
    assert "cannot be closed" in caplog.text
