"""Closes all connections to the file while the process forks.

SQLite keeps the locks of a process in memory. A forked child inherits the memory but not the locks;
its connections would work without locks and could destroy the file. Therefore all connections are
closed before a fork, and both processes open new ones when they need them.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable


class ForkGuard:
    """Counts the threads that use connections. `shut` waits until there are none."""

    def __init__(
        self, close_connections: Callable[[], None], reset_in_child: Callable[[], None]
    ) -> None:
        self._close_connections = close_connections
        self._reset_in_child = reset_in_child
        self._changed = threading.Condition()
        self._inside = 0
        self._shut = False
        #: The nesting depth of this thread.
        self._local = threading.local()
        _GUARDS.add(self)

    def __enter__(self) -> None:
        depth = getattr(self._local, "depth", 0)
        if depth == 0:
            with self._changed:
                while self._shut:
                    self._changed.wait()
                self._inside += 1
        self._local.depth = depth + 1

    def __exit__(self, *error: object) -> None:
        self._local.depth -= 1
        if self._local.depth == 0:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def shut(self) -> None:
        """Wait until no thread uses a connection, block new ones, and close the connections."""
        with self._changed:
            while self._shut or self._inside:
                self._changed.wait()
            self._shut = True
        self._close_connections()

    def open(self) -> None:
        """Admit threads again."""
        with self._changed:
            self._shut = False
            self._changed.notify_all()

    def reset(self) -> None:
        """Open the guard in a child. Threads that waited in the parent do not exist here."""
        self._changed = threading.Condition()
        self._shut = False
        self._reset_in_child()


_GUARDS: weakref.WeakSet[ForkGuard] = weakref.WeakSet()
#: Held by the forking thread from before the fork until after it.
_FORKING = threading.Lock()
_SHUT: list[ForkGuard] = []


def _before_fork() -> None:
    _FORKING.acquire()
    for guard in list(_GUARDS):
        guard.shut()
        _SHUT.append(guard)


def _after_in_parent() -> None:
    while _SHUT:
        _SHUT.pop().open()
    _FORKING.release()


def _after_in_child() -> None:
    while _SHUT:
        _SHUT.pop().reset()
    _FORKING.release()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
