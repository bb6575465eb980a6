"""`IdleWait`: how long a task waits for partitions without records (max.task.idle.ms, M3)."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.task.queue import RecordQueue
from penstock.topology.java_order import hash_order_of_partitions

Partition = tuple[str, int]


class IdleWait:
    """Decides whether a task processes records although some of its queues are empty.

    It waits for one empty queue after the other, in Kafka's order of partitions.
    """

    def __init__(self, queues: Mapping[Partition, RecordQueue], idle_ms: int) -> None:
        """`queues`: those of the task, which may still get more."""
        self._queues = queues
        self._idle_ms = idle_ms
        self._order: list[Partition] = []
        #: Empty partition -> when the task stops waiting for it.
        self._deadlines: dict[Partition, int] = {}

    def is_over(self, wall: int) -> bool:
        """Whether a record may be processed now."""
        if self._idle_ms <= 0:
            return True
        if len(self._order) != len(self._queues):
            self._order = hash_order_of_partitions(self._queues)
        for partition in self._order:
            if self._queues[partition].has_head:
                self._deadlines.pop(partition, None)
            elif wall < self._deadlines.setdefault(partition, wall + self._idle_ms):
                return False
        return True
