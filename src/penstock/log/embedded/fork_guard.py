"""Nobody has the file open while the process forks.

SQLite remembers in memory which locks the process holds. A child has the memory, but not the locks:
any connection of it would work without them, and could destroy the file. So before a fork all
connections of the process are closed, and both sides open new ones when they need them.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable


class ForkGuard:
    """Counts who is using connections; can be shut, when nobody is inside."""

    def __init__(
        self, close_connections: Callable[[], None], in_child: Callable[[], None]
    ) -> None:
        self._close_connections = close_connections
        self._in_child = in_child
        self._changed = threading.Condition()
        self._inside = 0
        self._shut = False
        self._mine = threading.local()
        _ALL.add(self)

    def __enter__(self) -> None:
        depth = getattr(self._mine, "depth", 0)
        if depth == 0:
            with self._changed:
                while self._shut:
                    self._changed.wait()
                self._inside += 1
        self._mine.depth = depth + 1

    def __exit__(self, *error: object) -> None:
        self._mine.depth -= 1
        if self._mine.depth == 0:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def shut(self) -> None:
        """Wait until all have left, let nobody in, and close the connections."""
        with self._changed:
            while self._shut or self._inside:
                self._changed.wait()
            self._shut = True
        self._close_connections()

    def open(self) -> None:
        """Let them in again."""
        with self._changed:
            self._shut = False
            self._changed.notify_all()

    def start_over(self) -> None:
        """In the child: other threads, which may have waited here, do not exist."""
        self._changed = threading.Condition()
        self._shut = False
        self._in_child()


_ALL: weakref.WeakSet[ForkGuard] = weakref.WeakSet()
#: Held from before a fork until after it, by the thread that forks.
_FORKING = threading.Lock()
_SHUT: list[ForkGuard] = []


def _before_fork() -> None:
    _FORKING.acquire()
    for gate in list(_ALL):
        gate.shut()
        _SHUT.append(gate)


def _after_in_parent() -> None:
    while _SHUT:
        _SHUT.pop().open()
    _FORKING.release()


def _after_in_child() -> None:
    while _SHUT:
        _SHUT.pop().start_over()
    _FORKING.release()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
