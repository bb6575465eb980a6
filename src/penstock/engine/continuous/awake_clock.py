"""`AwakeClock`: measures the silence of others by the time in which this process ran.

A process may be suspended for a while: its container is paused, its virtual machine moves, its
machine is overloaded. It receives no messages meanwhile, so this time does not show that others are
silent.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class AwakeClock:
    """Monotonic seconds, without those in which nothing called `tick`.

    One thread calls `tick` in short intervals. Between two ticks the clock advances by at most
    `longest_s`. Any thread may read it.
    """

    def __init__(self, longest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._longest_s = longest_s
        self._clock = clock
        #: The time of the last tick: on this clock, and on the other one.
        self._ticked = (0.0, clock())

    def tick(self) -> None:
        """Note that this process runs."""
        now = self._clock()
        self._ticked = (self._at(now), now)

    def now(self) -> float:
        """Return the seconds in which this process ran."""
        return self._at(self._clock())

    def _at(self, now: float) -> float:
        awake, ticked_at = self._ticked
        return awake + min(now - ticked_at, self._longest_s)
