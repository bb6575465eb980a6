"""`LoopTimes`: measures how a lane spends its time."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.engine.continuous.messages import Durations, TimeSpent

#: How often a lane reports its times.
REPORT_INTERVAL_S = 1.0

Clock = Callable[[], float]


class StepTimer:
    """Adds up the durations of a step. A context manager for each run of the step."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_at = 0.0
        self._durations = Durations()

    def __enter__(self) -> None:
        self._began_at = self._clock()

    def __exit__(self, *_: object) -> None:
        seconds = self._clock() - self._began_at
        number, total_s, longest_s = self._durations
        self._durations = Durations(number + 1, total_s + seconds, max(longest_s, seconds))

    def take(self) -> Durations:
        """Return the durations since the last call."""
        taken, self._durations = self._durations, Durations()
        return taken


class LoopTimes:
    """The durations of the steps of a lane's loop."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._reported_at = clock()
        self.poll, self.process, self.commit = (StepTimer(clock) for _ in range(3))
        self._records = self._most_records = 0

    def add_records(self, polled: int) -> None:
        """Count the records of a poll."""
        self._records += polled
        self._most_records = max(self._most_records, polled)

    def take(self) -> TimeSpent | None:
        """Return the times since the last report. None if no report is due."""
        elapsed_s = self._clock() - self._reported_at
        if elapsed_s < REPORT_INTERVAL_S:
            return None
        spent = TimeSpent(
            elapsed_s, self.poll.take(), self.process.take(), self.commit.take(),
            self._records, self._most_records,
        )
        self._reported_at += elapsed_s
        self._records = self._most_records = 0
        return spent
