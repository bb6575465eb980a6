"""Emitting on window close: results are sent once, when no record can change them any more.

The closed windows are read back from the store after a record was put, so what the store's
retention has dropped by then is never sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import StreamsException
from penstock.processors.base import Clock, Forward, NodeContext
from penstock.processors.forwarding import change_of
from penstock.record import Headers

#: Sends the windows that have closed: close time of the windows, headers of the record at hand.
EmitClosed = Callable[[int, Headers], None]

#: The first and the last time to look for closed windows at, both inclusive, from the close time
#: of the last emission (-1: none yet) and the present one. None: nothing can have closed.
ClosedRange = Callable[[int, int], tuple[int, int] | None]


def observed_time(node: NodeContext) -> Clock:
    """The node's own stream time: the largest timestamp of the records it has taken."""
    return node.clock(f"{node.name}/observed-stream-time")


def closed_window_emitter(
    node: NodeContext, store: Any, forward: Forward, closed_range: ClosedRange
) -> EmitClosed:
    """For time and sliding windows; results keep the time in the store.

    A store that keeps none answers -1, which no record may have.
    """
    fetch_all = store.fetch_all

    def send(first: int, last: int, headers: Headers) -> int:
        sent = 0
        for windowed, (value, timestamp) in fetch_all(first, last):
            if timestamp < 0:
                raise StreamsException(
                    f"{node.name}: the result of {windowed} has no timestamp, for store "
                    f"'{store.name}' keeps none. Emit on close needs a store with timestamps."
                )
            forward(windowed, change_of((value, None, True)), timestamp, headers)
            sent += 1
        return sent

    return _emitter(node, closed_range, send)


def closed_session_emitter(
    node: NodeContext, store: Any, forward: Forward, closed_range: ClosedRange
) -> EmitClosed:
    """For sessions; results have the time of the session's end."""
    find_sessions = store.find_sessions

    def send(first: int, last: int, headers: Headers) -> int:
        sent = 0
        for windowed, value in find_sessions(first, last):
            forward(windowed, change_of((value, None, True)), windowed.window.end, headers)
            sent += 1
        return sent

    return _emitter(node, closed_range, send)


def never_emit(close_time: int, headers: Headers) -> None:
    """In place of an emitter where updates are sent as they happen."""


def _emitter(
    node: NodeContext, closed_range: ClosedRange, send: Callable[[int, int, Headers], int]
) -> EmitClosed:
    emitted = node.clock(f"{node.name}/emitted-close-time")
    count = node.count

    def emit(close_time: int, headers: Headers) -> None:
        last_close_time = emitted.time
        if last_close_time != -1 and last_close_time >= close_time:
            return
        closed = closed_range(last_close_time, close_time)
        if closed is not None:
            count("emitted-records", send(*closed, headers))
            emitted.time = close_time

    return emit
