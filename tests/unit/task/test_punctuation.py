"""The schedules of a task and their states between batches."""

from __future__ import annotations

from penstock.processors.api import PunctuationType
from penstock.task.punctuation import Schedule, Schedules


def ignore(now: int) -> None:
    pass


def cancel(schedule: Schedule, now: int) -> None:
    schedule.cancel()


def test_cancelled_schedule_of_init_stays_cancelled_in_the_next_batch() -> None:
    schedules = Schedules(PunctuationType.STREAM_TIME)
    schedules.add("node", 1, 10, ignore, 0, None).cancel()
    schedules.restore_order()
    schedules.fire(0, cancel)
    again = Schedules(PunctuationType.STREAM_TIME, schedules.states())
    assert again.add("node", 1, 10, ignore, 0, None).cancelled


def test_state_does_not_grow_with_schedules_for_single_records() -> None:
    schedules = Schedules(PunctuationType.STREAM_TIME)
    schedules.restore_order()
    for number in range(1, 1_001):
        schedules.add("node", number, 10, ignore, 0, None)
        schedules.fire(0, cancel)
    schedules.add("node", 1_001, 10, ignore, 0, None)
    assert [state.number for state in schedules.states()] == [1_001]
