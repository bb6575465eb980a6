"""Measures the time that each node of a task needs, if the recording level is DEBUG or TRACE."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from penstock.processors.base import Forward
from penstock.record import Headers
from penstock.task.meters import Meters


class NodeTimer:
    """Measures the calls of the nodes of one task. A node calls its children: they are left out.

    Invariant: `_children` is the time of the measured calls that the current one has made.
    """

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._children = 0.0

    def timed(self, node: str, process: Forward) -> Forward:
        """The function of a node that measures its own time, or `process` itself at INFO."""
        if not self._meters.records("node-latency"):
            return process
        meter = self._meters.meter("node-latency", node)

        def timed(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            before, self._children = self._children, 0.0
            started = perf_counter()
            try:
                process(key, value, timestamp, headers)
            finally:
                elapsed = perf_counter() - started
                meter.record((elapsed - self._children) * 1000)
                self._children = before + elapsed

        return timed

    def punctuate(self, node: str, call: Callable[[], None]) -> None:
        """Call a punctuator of a node. The nodes to which it forwards are left out, too."""
        if not self._meters.records("node-punctuate"):
            call()
            return
        before, self._children = self._children, 0.0
        started = perf_counter()
        try:
            call()
        finally:
            elapsed = perf_counter() - started
            self._meters.meter("node-punctuate", node).record((elapsed - self._children) * 1000)
            self._children = before + elapsed
