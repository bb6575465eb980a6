"""`SampleWindow` and `CountWindow`: the samples of the last minute, and their total."""

from __future__ import annotations

from collections import deque


class SampleWindow:
    """The samples of the last `seconds`, and the total of all.

    A lane adds a hundred samples per second, and metrics are read every second. So nothing is
    computed from all samples.
    """

    def __init__(self, seconds: float, now: float) -> None:
        self.total = 0.0
        self._seconds = seconds
        self._started = now
        self._samples: deque[tuple[float, float]] = deque()
        self._sum = 0.0
        #: The samples that are larger than all later ones. The first is the largest of all.
        self._largest: deque[tuple[float, float]] = deque()

    def add(self, amount: float, now: float) -> None:
        """Add a sample."""
        self.total += amount
        self._sum += amount
        self._samples.append((now, amount))
        self._keep_largest(now, amount)
        self._expire(now)

    def rate(self, now: float) -> float:
        """Return the sum of the samples per second."""
        self._expire(now)
        return self._sum / max(min(self._seconds, now - self._started), 1e-3)

    def samples_per_second(self, now: float) -> float:
        """Return the number of samples per second."""
        self._expire(now)
        return len(self._samples) / max(min(self._seconds, now - self._started), 1e-3)

    def average(self, now: float) -> float:
        """Return the average of the samples, NaN if there are none."""
        self._expire(now)
        return self._sum / len(self._samples) if self._samples else float("nan")

    def maximum(self, now: float) -> float:
        """Return the largest sample, NaN if there are none."""
        self._expire(now)
        return self._largest[0][1] if self._largest else float("nan")

    def _keep_largest(self, time: float, amount: float) -> None:
        largest = self._largest
        while largest and largest[-1][1] <= amount:
            largest.pop()
        largest.append((time, amount))

    def _expire(self, now: float) -> None:
        samples, largest = self._samples, self._largest
        while samples and samples[0][0] <= now - self._seconds:
            self._sum -= samples.popleft()[1]
        while largest and largest[0][0] <= now - self._seconds:
            largest.popleft()
        if not samples:
            self._sum = 0.0


class CountWindow(SampleWindow):
    """The sum of counts. Those of one second are one sample: lanes commit a hundred times."""

    def add(self, amount: float, now: float) -> None:
        """Add a count."""
        if not self._samples or int(self._samples[-1][0]) != int(now):
            super().add(amount, now)
            return
        second, earlier = self._samples[-1]
        self._samples[-1] = (second, earlier + amount)
        self._keep_largest(second, earlier + amount)
        self.total += amount
        self._sum += amount
