"""`LaneMetrics`: how the lanes of an instance spend their time, and how they get their tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.engine.observe.sample_windows import SampleWindow

if TYPE_CHECKING:
    from penstock.engine.continuous.messages import Durations, TimeSpent


class LaneMetrics:
    """The reports of all lanes in the last `seconds`."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._started = now
        self._polls = 0
        self._blocked_s = 0.0
        self._reports: deque[tuple[float, TimeSpent]] = deque()
        #: How many lanes have ended unexpectedly.
        self.lost = 0
        #: Task -> when a lane was asked to run it, or to give it up.
        self._granted: dict[str, float] = {}
        self._released: dict[str, float] = {}
        #: How long lanes took for that, in milliseconds.
        self._assigning, self._revoking = (SampleWindow(seconds, now) for _ in range(2))

    def task_granted(self, task: str, now: float) -> None:
        """A lane is asked to run a task."""
        self._granted[task] = now

    def task_started(self, task: str, now: float) -> None:
        """A lane runs a task."""
        self._assigning.add((now - self._granted.pop(task, now)) * 1000, now)

    def task_released(self, task: str, now: float) -> None:
        """A lane is asked to give up a task."""
        self._released[task] = now

    def task_stopped(self, task: str, now: float) -> None:
        """No lane runs a task."""
        self._granted.pop(task, None)
        released = self._released.pop(task, None)
        if released is not None:
            self._revoking.add((now - released) * 1000, now)

    def add(self, spent: TimeSpent, now: float) -> None:
        """Add the report of a lane."""
        self._polls += spent.poll.number
        self._blocked_s += spent.poll.total_s + spent.commit.total_s
        self._reports.append((now, spent))
        self._expire(now)

    def values(self, now: float, punctuating: float) -> Iterator[tuple[str, float]]:
        """Yield the metrics of polls and of processing, and the shares of the steps of the loop.

        `punctuating`: the seconds that all lanes spend on punctuators in a second.
        """
        self._expire(now)
        reports = [spent for _, spent in self._reports]
        polls = [spent.poll for spent in reports]
        number = sum(poll.number for poll in polls)
        yield "poll-total", self._polls
        yield "blocked-time-ns-total", round(self._blocked_s * 1e9)
        seconds = max(min(self._seconds, now - self._started), 1e-3)
        yield "poll-rate", number / seconds
        yield "poll-records-avg", _divide(sum(spent.records for spent in reports), number)
        yield "poll-records-max", max((each.most_records for each in reports), default=float("nan"))
        yield from _latencies("poll", polls)
        yield from _latencies("process", [spent.process for spent in reports])
        elapsed_s = sum(spent.elapsed_s for spent in reports)
        for step in ("poll", "process", "commit"):
            spent_s = sum(getattr(spent, step).total_s for spent in reports)
            yield f"{step}-ratio", _divide(spent_s, elapsed_s)
        yield "punctuate-ratio", _divide(punctuating * seconds, elapsed_s)
        for step, window in (("assigned", self._assigning), ("revoked", self._revoking)):
            yield f"tasks-{step}-latency-avg", window.average(now)
            yield f"tasks-{step}-latency-max", window.maximum(now)

    def _expire(self, now: float) -> None:
        while self._reports and self._reports[0][0] <= now - self._seconds:
            self._reports.popleft()


def _latencies(step: str, durations: Sequence[Durations]) -> Iterator[tuple[str, float]]:
    """Yield the metrics of the durations of a step, in milliseconds."""
    total_s = sum(each.total_s for each in durations)
    yield f"{step}-latency-avg", _divide(total_s * 1000, sum(each.number for each in durations))
    longest_s = max((each.longest_s for each in durations), default=float("nan"))
    yield f"{step}-latency-max", longest_s * 1000


def _divide(amount: float, number: float) -> float:
    return amount / number if number else float("nan")
