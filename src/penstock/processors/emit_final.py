"""Emit on window close: a result is forwarded once, when no record can change it.

Closed windows are read from the store after each write, so windows that the store has already
expired are never forwarded.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from penstock.errors import StreamsException
from penstock.processors.base import Clock, Forward, NodeContext
from penstock.processors.forwarding import change_of
from penstock.record import Headers

#: Forwards the closed windows: close time of the windows, headers of the current record.
EmitClosed = Callable[[int, Headers], None]

#: Returns the inclusive time range in which to look for closed windows, from the close time of
#: the last emission (-1 for none) and the current one, or None if no window can have closed.
ClosedRange = Callable[[int, int], tuple[int, int] | None]


def observed_time(node: NodeContext) -> Clock:
    """The stream time of the node: the largest timestamp of its records."""
    return node.clock(f"{node.name}/observed-stream-time")


def closed_window_emitter(
    node: NodeContext, store: Any, forward: Forward, closed_range: ClosedRange
) -> EmitClosed:
    """The emitter for time and sliding windows; results have the timestamp of the store.

    A store without timestamps returns -1, which no record may have.
    """
    fetch_all = store.fetch_all

    def send(first: int, last: int, headers: Headers) -> int:
        sent = 0
        for windowed, (value, timestamp) in fetch_all(first, last):
            if timestamp < 0:
                raise StreamsException(
                    f"{node.name}: the result of {windowed} has no timestamp. Store "
                    f"'{store.name}' keeps none. Emit on close needs a store with timestamps."
                )
            forward(windowed, change_of((value, None, True)), timestamp, headers)
            sent += 1
        return sent

    return _emitter(node, closed_range, send)


def closed_session_emitter(
    node: NodeContext, store: Any, forward: Forward, closed_range: ClosedRange
) -> EmitClosed:
    """The emitter for sessions; the timestamp of a result is the end of its session."""
    find_sessions = store.find_sessions

    def send(first: int, last: int, headers: Headers) -> int:
        sent = 0
        for windowed, value in find_sessions(first, last):
            forward(windowed, change_of((value, None, True)), windowed.window.end, headers)
            sent += 1
        return sent

    return _emitter(node, closed_range, send)


def never_emit(close_time: int, headers: Headers) -> None:
    """The emitter of operators that forward every update."""


def close_clock(node: str) -> str:
    """The name of the clock with the close time of the last emission of a node."""
    return f"{node}/emitted-close-time"


def _emitter(
    node: NodeContext, closed_range: ClosedRange, send: Callable[[int, int, Headers], int]
) -> EmitClosed:
    emitted = node.clock(close_clock(node.name))
    count = node.count
    record = node.recorder("final-emit-latency")

    def emit(close_time: int, headers: Headers) -> None:
        last_close_time = emitted.time
        if last_close_time != -1 and last_close_time >= close_time:
            return
        closed = closed_range(last_close_time, close_time)
        if closed is not None:
            started = perf_counter()
            count("emitted-records", send(*closed, headers))
            if record is not None:
                record((perf_counter() - started) * 1000)
            emitted.time = close_time

    return emit
