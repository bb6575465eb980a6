"""LoopTimes: the durations of the steps of a lane's loop."""

from __future__ import annotations

import pytest

from penstock.engine.continuous.loop_times import LoopTimes
from penstock.engine.continuous.messages import Durations, TimeSpent


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_durations_are_reported_about_once_a_second() -> None:
    clock = Clock()
    times = LoopTimes(clock)
    for seconds, records in ((0.25, 7), (0.5, 3)):
        with times.poll:
            clock.now += seconds
        times.add_records(records)
    assert times.take() is None
    with times.process:
        clock.now += 0.25
    assert times.take() == TimeSpent(
        1.0, Durations(2, 0.75, 0.5), Durations(1, 0.25, 0.25), Durations(), 10, 7
    )
    assert times.take() is None
    clock.now += 1.0
    assert times.take() == TimeSpent(1.0, Durations(), Durations(), Durations(), 0, 0)


def test_failed_step_is_measured() -> None:
    clock = Clock()
    times = LoopTimes(clock)

    def fail() -> None:
        clock.now += 2.0
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), times.commit:
        fail()
    spent = times.take()
    assert spent is not None
    assert spent.commit == Durations(1, 2.0, 2.0)
