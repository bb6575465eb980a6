"""Aggregations over sessions: windows that grow with their records and merge when they touch.

A new record is merged with every session of its key within the gap: starting from the initial
value, the merger adds each session, then the aggregator adds the record. The merged sessions are
removed and forwarded as deletions before the new one. Null keys are dropped; null values are
passed to the aggregator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.processors.aggregates import Aggregator, Initializer, Merger
from penstock.processors.base import Forward, NodeContext
from penstock.processors.emit_final import (
    EmitClosed,
    closed_session_emitter,
    never_emit,
    observed_time,
)
from penstock.processors.forwarding import change_of
from penstock.processors.table_store import SessionGetter
from penstock.record import NO_HEADERS, Headers
from penstock.windows import SessionWindow, SessionWindows, Windowed


@dataclass(frozen=True, slots=True)
class SessionAggregate:
    """An aggregate per session; `emit_final` forwards it once, when the session closes.

    The timestamp of a result is the end of its session. Immediate updates have no headers. Closed
    sessions have the headers of the record that closed them. Updates from a cache have no headers
    if the store keeps headers, otherwise those of the record that wrote the session.
    """

    store_name: str
    windows: SessionWindows
    initializer: Initializer
    aggregator: Aggregator
    merger: Merger
    send_old: bool = False
    emit_final: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        initializer, aggregator, merger = self.initializer, self.aggregator, self.merger
        drop = node.drop
        store = node.store(self.store_name)
        find_sessions, put, remove = store.find_sessions, store.put, store.remove
        send = self._sender(store, forward)
        emit_closed = self._emitter(node, store, forward)
        gap = self.windows.gap_ms
        closed_after = gap + self.windows.grace_ms
        observed = observed_time(node)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null key")
                return
            stream_time = observed.time
            if timestamp > stream_time:
                observed.time = stream_time = timestamp
            close_time = stream_time - closed_after
            merged = list(find_sessions(key, timestamp - gap, timestamp + gap))
            start = end = timestamp
            aggregate = initializer()
            for session, existing in merged:
                aggregate = merger(key, aggregate, existing)
                session_start, session_end = session.window
                start = min(start, session_start)
                end = max(end, session_end)
            if end < close_time:
                drop("expired window")
            else:
                # A session of exactly this timestamp is overwritten, not removed.
                if start != timestamp or end != timestamp:
                    for session, existing in merged:
                        remove(session)
                        send(session, None, existing)
                aggregate = aggregator(key, value, aggregate)
                result = Windowed(key, SessionWindow(start, end))
                put(result, aggregate)
                send(result, aggregate, None)
            emit_closed(close_time, headers)

        return process

    def _sender(self, store: Any, forward: Forward) -> Callable[[Any, Any, Any], None]:
        """Forwards an update (session, new, old), unless the cache or the emitter does it."""
        send_old = self.send_old
        has_headers = store.has_headers

        def flushed(session: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
            sent = NO_HEADERS if has_headers else headers
            forward(session, change_of((new, old, True)), session.window.end, sent)

        def send(session: Any, new: Any, old: Any) -> None:
            sent_old = old if send_old else None
            forward(session, change_of((new, sent_old, True)), session.window.end, NO_HEADERS)

        def send_later(session: Any, new: Any, old: Any) -> None:
            pass

        if self.emit_final or store.set_flush_listener(flushed, send_old):
            return send_later
        return send

    def _emitter(self, node: NodeContext, store: Any, forward: Forward) -> EmitClosed:
        if not self.emit_final:
            return never_emit
        return closed_session_emitter(node, store, forward, _closed_sessions)

    def getter_supplier(self) -> SessionGetter:
        """How other nodes read this table."""
        return SessionGetter(self.store_name)


def _closed_sessions(last_close_time: int, close_time: int) -> tuple[int, int] | None:
    first, last = max(0, last_close_time), close_time - 1
    return (first, last) if last >= first else None
