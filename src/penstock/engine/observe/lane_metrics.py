"""`LaneMetrics`: how the lanes of an instance spend their time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.continuous.messages import Durations, TimeSpent


class LaneMetrics:
    """The reports of all lanes in the last `seconds`."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._started = now
        self._polls = 0
        self._reports: deque[tuple[float, TimeSpent]] = deque()

    def add(self, spent: TimeSpent, now: float) -> None:
        """Add the report of a lane."""
        self._polls += spent.poll.number
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
