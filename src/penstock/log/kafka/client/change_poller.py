"""Waiting for something new.

Kafka tells nobody that something was committed, so the ends of partitions are asked for: often at
first, for who waits for an answer, then more seldom. Asked are the partitions that this handle was
asked about before (`Log.offsets`, `Log.read`); while there are none, those of all topics.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.topic_metadata import TopicMetadataCache
from penstock.log.types import TopicPartition

_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.025
#: How often topics that were added are looked for, while all are watched.
_LOOK_S = 1.0

Ends = Callable[[Iterable[TopicPartition]], dict[TopicPartition, int]]


class ChangePoller:
    """What one handle has seen of the ends of partitions. One thread waits at a time."""

    def __init__(self, connection: Connection, topics: TopicMetadataCache, ends: Ends) -> None:
        self._connection = connection
        self._topics = topics
        self._ends = ends
        self._lock = threading.Lock()
        self._followed: set[TopicPartition] = set()
        self._all: list[TopicPartition] = []
        self._looked_at = float("-inf")
        self._seen: dict[TopicPartition, int] = {}

    def follow(self, partitions: Iterable[TopicPartition]) -> None:
        """Wait for these from now on."""
        with self._lock:
            self._followed.update(partitions)

    def wait(self, timeout: float) -> bool:
        """See `Log.wait_for_change`."""
        deadline = time.monotonic() + timeout
        pause = _FIRST_PAUSE
        changed = self._connection.changed
        while True:
            # Own commits set the event; it is cleared first, so that none is overlooked.
            woken = changed.is_set()
            changed.clear()
            if self._has_changed() or woken:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            changed.wait(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def _has_changed(self) -> bool:
        with self._lock:
            followed = list(self._followed)
        ends = self._ends(followed or self._everything())
        has_changed = ends != self._seen
        self._seen = ends
        # What was deleted is not asked about again.
        if followed and len(ends) < len(followed):
            with self._lock:
                self._followed.intersection_update(ends)
        return has_changed

    def _everything(self) -> list[TopicPartition]:
        if time.monotonic() - self._looked_at > _LOOK_S:
            self._all = self._topics.partitions()
            self._looked_at = time.monotonic()
        return self._all
