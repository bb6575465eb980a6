"""`Setbacks`: when lost lanes are a failure, and when a task is retried."""

from __future__ import annotations

import logging

import pytest

from penstock.engine.continuous.setbacks import (
    FIRST_PAUSE_S,
    LAST_PAUSE_S,
    LONG_RUN_S,
    MAX_LOST_LANES,
    Setbacks,
)
from penstock.engine.plan.task_records import TaskRecord
from penstock.engine.worker.outcome import TaskOutcome
from penstock.record import TaskId

TASK, OTHER = TaskId(0, 0), TaskId(0, 1)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def setbacks(clock: Clock) -> Setbacks:
    return Setbacks("app", 60_000, clock)


def commit(task_id: TaskId, records: int) -> list[TaskOutcome]:
    return [TaskOutcome(task_id, TaskRecord(1, 1), records_consumed=records)]


def lose(setbacks: Setbacks, number: int, *tasks: TaskId) -> None:
    for _ in range(number):
        assert setbacks.lane_lost(tasks) is None


def test_lanes_without_a_task_are_a_failure_unless_one_commits(setbacks: Setbacks) -> None:
    lose(setbacks, MAX_LOST_LANES)
    setbacks.committed(commit(TASK, 0))
    lose(setbacks, MAX_LOST_LANES)
    failure = setbacks.lane_lost(())
    assert f"{MAX_LOST_LANES + 1} lanes of application 'app'" in str(failure)
    assert "in succession without a commit" in str(failure)


def test_task_that_ends_every_lane_is_a_failure_while_others_make_progress(
    setbacks: Setbacks, clock: Clock,
) -> None:
    for _ in range(MAX_LOST_LANES):
        assert setbacks.lane_lost((TASK, OTHER)) is None
        # The first commit after a grant has no records.
        setbacks.committed(commit(TASK, 0) + commit(OTHER, 5))
        clock.now += 6
    failure = setbacks.lane_lost((TASK, OTHER))
    assert f"{MAX_LOST_LANES + 1} lanes" in str(failure)
    assert "before they had processed a record of these tasks: 0_0." in str(failure)


def test_task_without_records_is_no_failure_before_the_task_timeout(
    setbacks: Setbacks, clock: Clock
) -> None:
    """Many lanes are lost in a short time, for example with their hosts."""
    for _ in range(3 * MAX_LOST_LANES):
        assert setbacks.lane_lost((TASK, OTHER)) is None
        setbacks.committed(commit(OTHER, 5))
        clock.now += 1
    setbacks.committed(commit(TASK, 1))
    clock.now += 60
    assert setbacks.lane_lost((TASK, OTHER)) is None


def test_task_that_processes_records_is_no_failure(setbacks: Setbacks) -> None:
    for _ in range(3):
        lose(setbacks, MAX_LOST_LANES, TASK)
        setbacks.committed(commit(TASK, 1))


def test_idle_task_is_no_failure_if_its_lanes_have_run_for_long(
    setbacks: Setbacks, clock: Clock
) -> None:
    for _ in range(3 * MAX_LOST_LANES):
        setbacks.task_started(TASK)
        setbacks.committed(commit(TASK, 0))
        clock.now += LONG_RUN_S
        assert setbacks.lane_lost((TASK,)) is None


def test_long_restores_do_not_count_as_long_runs(setbacks: Setbacks, clock: Clock) -> None:
    for _ in range(MAX_LOST_LANES):
        clock.now += LONG_RUN_S
        assert setbacks.lane_lost((TASK,)) is None
        setbacks.committed(commit(OTHER, 1))
    assert setbacks.lane_lost((TASK,)) is not None


def test_retried_task_waits_longer_each_time_until_its_timeout(
    setbacks: Setbacks, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    error, pause = ValueError("not yet"), FIRST_PAUSE_S
    assert setbacks.may_run(TASK)
    began = clock.now
    with caplog.at_level(logging.WARNING):
        while setbacks.retry(TASK, error):
            assert setbacks.may_run(OTHER)
            clock.now += pause * 0.99
            assert not setbacks.may_run(TASK)
            clock.now += pause * 0.02
            assert setbacks.may_run(TASK)
            setbacks.committed(commit(TASK, 0) + commit(OTHER, 1))
            pause = min(2 * pause, LAST_PAUSE_S)
    assert 60 <= clock.now - began < 60 + 1.1 * LAST_PAUSE_S
    assert caplog.messages[0] == "Task 0_0 is retried: not yet"


def test_progress_of_the_task_ends_its_retries(setbacks: Setbacks, clock: Clock) -> None:
    assert setbacks.retry(TASK, ValueError())
    setbacks.committed(commit(TASK, 1))
    assert setbacks.may_run(TASK)
    clock.now += 61
    assert setbacks.retry(TASK, ValueError())
