"""The wall clock.

All code that needs the time of day calls `wall_clock_ms`, or takes a `Clock` as an argument where
tests control the time. Timeouts and durations use `time.monotonic`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

#: Returns the time in epoch milliseconds.
Clock: TypeAlias = Callable[[], int]


def wall_clock_ms() -> int:
    """Return the current time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
