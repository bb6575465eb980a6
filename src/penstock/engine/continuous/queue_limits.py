"""`QueueLimits`: stops reading partitions whose records wait in a lane."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.engine.continuous.lane_task import LaneTask
from penstock.log.base import TailReader
from penstock.log.types import TopicPartition

#: A partition is not read while more of its records are queued.
MOST_RECORDS = 10_000
#: The queued records of all partitions should take at most so many bytes. A partition may always
#: have its share, or the least share if there are many partitions.
MOST_BYTES = 64 << 20
LEAST_SHARE_BYTES = 1 << 20


class QueueLimits:
    """Pauses the partitions of which much is queued: their records take long, or wait for those of
    other partitions. A partition without records is never paused, so a task can always continue."""

    def __init__(self, tail: TailReader) -> None:
        self._tail = tail
        self._full: set[TopicPartition] = set()

    def __bool__(self) -> bool:
        """Whether any partition is paused."""
        return bool(self._full)

    def apply(self, tasks: Iterable[LaneTask]) -> None:
        """Pause and resume the partitions of these tasks. Called between two polls."""
        queues = [(at, task) for task in tasks for at in task.offsets]
        share = max(LEAST_SHARE_BYTES, MOST_BYTES // max(1, len(queues)))
        full = {
            at for at, task in queues
            if task.queued(at) > MOST_RECORDS or task.queued_bytes(at) > share
        }
        if full != self._full:
            self._tail.pause(full - self._full)
            self._tail.resume(self._full - full)
            self._full = full

    def forget(self) -> None:
        """Note that all partitions were resumed."""
        self._full = set()
