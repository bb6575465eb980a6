"""`ChunkSize`: how many records a task processes between two looks at the clock."""

from __future__ import annotations

from time import perf_counter

from penstock.task.queue import CHUNK

#: A chunk should take at most so long. A slow record may take longer.
TARGET_S = 0.010
#: The size of the first chunk. Later ones grow by this factor at most.
_FIRST, _GROWTH = 16, 8


class ChunkSize:
    """Follows the measured cost of the records: functions of users may take any time."""

    def __init__(self) -> None:
        self.records = _FIRST
        self._taken = 0
        self._began = 0.0

    def begin(self, taken: int) -> int:
        """Return the size of the next chunk. `taken`: the records that were processed before."""
        self._taken, self._began = taken, perf_counter()
        return self.records

    def end(self, taken: int) -> None:
        """Measure the chunk. `taken`: the records that are processed now."""
        spent = max(perf_counter() - self._began, 1e-9)
        fitting = int((taken - self._taken) * TARGET_S / spent)
        self.records = max(1, min(fitting, self.records * _GROWTH, CHUNK))
