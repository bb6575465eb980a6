"""Counts the records that each node of a task processes.

Native functions count their calls themselves, in C. Functions in Python add to a counter. Others
are called by a function that counts.
"""

from __future__ import annotations

from typing import Any, Protocol

from penstock.native import core
from penstock.processors.base import CallCounter, Forward
from penstock.record import Headers


class HasCalls(Protocol):
    """A counter, or a native function."""

    @property
    def calls(self) -> int:
        """How many calls there were so far."""
        ...


class NodeCalls:
    """The counters of all nodes of a task. A node has one for each function that calls it."""

    def __init__(self) -> None:
        self._counters: dict[str, list[HasCalls]] = {}
        #: Node -> its records until the last call of `take`.
        self._taken: dict[str, int] = {}

    def add(self, node: str, counter: HasCalls) -> None:
        """Add a counter of a node."""
        self._counters.setdefault(node, []).append(counter)

    def counted(self, node: str, process: Forward, counter: CallCounter | None = None) -> Forward:
        """A function that calls `process`, or `process` itself, and counts the records of a node.

        `counter`: only this node uses `process`, which adds to the counter if penstock runs in pure
        Python.
        """
        if core is None:
            if counter is not None:
                self.add(node, counter)
                return process
            counter = CallCounter()
            self.add(node, counter)
            return _counted(process, counter)
        counts = counter is not None and hasattr(process, "calls")
        native: Any = process if counts else core.counted(process)
        self.add(node, native)
        function: Forward = native
        return function

    def take(self) -> dict[str, int]:
        """Return node -> the records since the last call. The first call returns all nodes."""
        found = {}
        for node, counters in self._counters.items():
            calls = sum(counter.calls for counter in counters)
            before = self._taken.get(node)
            if calls != before:
                found[node] = calls - (before or 0)
                self._taken[node] = calls
        return found


def _counted(process: Forward, counter: CallCounter) -> Forward:
    def counted(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        counter.calls += 1
        process(key, value, timestamp, headers)

    return counted
