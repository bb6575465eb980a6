"""Waits for new records.

Kafka does not notify clients of commits, so the poller asks for the ends of partitions: often at
first, for callers that expect a change soon, then less often. It asks for the partitions that this
handle has read or asked for (`Log.offsets`, `Log.read`); if there are none, for all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.topic_metadata import TopicMetadataCache
from penstock.log.types import TopicPartition

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.025
#: How often to look for new topics while all partitions are watched.
_TOPICS_S = 1.0

#: Returns the ends of the partitions that exist.
Ends = Callable[[Iterable[TopicPartition]], dict[TopicPartition, int]]


class ChangePoller:
    """The partition ends that one handle has seen. One thread waits at a time."""

    def __init__(self, connection: Connection, topics: TopicMetadataCache, ends: Ends) -> None:
        self._connection = connection
        self._topics = topics
        self._ends = ends
        self._lock = threading.Lock()
        self._watched: set[TopicPartition] = set()
        self._all: list[TopicPartition] = []
        self._listed_at = float("-inf")
        self._seen: dict[TopicPartition, int] = {}

    def watch(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to watch."""
        with self._lock:
            self._watched.update(partitions)

    def wait(self, timeout: float) -> bool:
        """See `Log.wait_for_change`."""
        deadline = time.monotonic() + timeout
        pause = _FIRST_PAUSE_S
        changed = self._connection.changed
        while True:
            # Commits of this process set the event. Clear it first, so that none is missed.
            woken = changed.is_set()
            changed.clear()
            if self._has_changed() or woken:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            changed.wait(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)

    def _has_changed(self) -> bool:
        with self._lock:
            watched = list(self._watched)
        ends = self._ends(watched or self._all_partitions())
        has_changed = ends != self._seen
        self._seen = ends
        # Stop watching deleted partitions.
        if watched and len(ends) < len(watched):
            with self._lock:
                self._watched.intersection_update(ends)
        return has_changed

    def _all_partitions(self) -> list[TopicPartition]:
        if time.monotonic() - self._listed_at > _TOPICS_S:
            self._all = self._topics.partitions()
            self._listed_at = time.monotonic()
        return self._all
