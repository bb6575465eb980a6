"""`LaneShares`: divides the slots of a SparkContext among the continuous applications in it.

Lanes never free their slots. Without shares, the first application would take all of them, and the
next one would wait forever.
"""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from pyspark import SparkContext


class LaneShares:
    """The continuous applications of each context, in the order of their start. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: WeakKeyDictionary[SparkContext, list[object]] = WeakKeyDictionary()

    def join(self, context: SparkContext, user: object) -> None:
        """Add an application."""
        with self._lock:
            self._users.setdefault(context, []).append(user)

    def leave(self, context: SparkContext, user: object) -> None:
        """Remove an application. May be repeated."""
        with self._lock:
            users = self._users.get(context, [])
            if user in users:
                users.remove(user)

    def share(self, context: SparkContext, user: object, slots: int) -> int:
        """Return how many of the slots an application may use: at least one."""
        with self._lock:
            users = self._users.get(context, [])
            if user not in users:
                return slots
            each, more = divmod(slots, len(users))
            return max(1, each + (users.index(user) < more))
