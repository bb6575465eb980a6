"""`RestoreMetrics`: how far the stores of tasks are restored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NamedTuple


class _Range(NamedTuple):
    """The offsets of a restore, and its position."""

    start: int
    position: int
    end: int


class RestoreMetrics:
    """The last or current restore of each task. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Task -> changelog partition and store -> its restore.
        self._tasks: dict[str, dict[object, _Range]] = {}

    def update(self, task: str, store: object, start: int, position: int, end: int) -> None:
        """The restore of a store has reached a position. `store` identifies it in the task."""
        with self._lock:
            stores = self._tasks.setdefault(task, {})
            if store not in stores and all(each.position >= each.end for each in stores.values()):
                # Another restore of the task.
                stores.clear()
            stores[store] = _Range(start, min(position, end), end)

    def complete(self, task: str) -> None:
        """All stores of a task are restored."""
        with self._lock:
            stores = self._tasks.get(task, {})
            stores |= {name: each._replace(position=each.end) for name, each in stores.items()}

    def stop(self, task: str) -> None:
        """The restore of a task does not continue."""
        with self._lock:
            self._tasks.pop(task, None)

    def values(self) -> Iterator[tuple[str, int, float]]:
        """Yield each task, its remaining offsets, and the share that is restored, up to 1."""
        with self._lock:
            tasks = {task: list(stores.values()) for task, stores in self._tasks.items()}
        for task, stores in tasks.items():
            total = sum(each.end - each.start for each in stores)
            remaining = sum(each.end - each.position for each in stores)
            yield task, remaining, 1.0 - remaining / total if total else 1.0
