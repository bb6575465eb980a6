"""`StandbyMetrics`: how a standby keeps the stores of tasks up to date."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.engine.observe.sample_windows import CountWindow

if TYPE_CHECKING:
    from penstock.record import TaskId


class StandbyMetrics:
    """The updates of each standby task. Any thread may call it."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._started = clock()
        self._lock = threading.Lock()
        self._updates: dict[str, CountWindow] = {}
        #: Task -> the offsets of its changelogs that are not applied, of tasks that are followed.
        self._lag: dict[str, int] = {}

    def set_lag(self, task_id: TaskId, offsets: int) -> None:
        """The changelogs of a task have so many offsets that are not applied yet."""
        with self._lock:
            self._lag[str(task_id)] = offsets

    def add(self, task_id: TaskId, records: int) -> None:
        """Records were applied to the stores of a task."""
        with self._lock:
            window = self._updates.setdefault(
                str(task_id), CountWindow(self._seconds, self._started)
            )
            window.add(records, self._clock())

    def stop(self) -> None:
        """No task is followed any more."""
        with self._lock:
            self._lag.clear()

    @property
    def tasks(self) -> int:
        """The number of tasks that are followed."""
        return len(self._lag)

    def values(self) -> Iterator[tuple[str, str, float]]:
        """Yield task, name and value of each metric."""
        with self._lock:
            now = self._clock()
            for task, window in self._updates.items():
                yield task, "update-total", int(window.total)
                yield task, "update-rate", window.rate(now)
            for task, offsets in self._lag.items():
                yield task, "standby-lag", offsets
