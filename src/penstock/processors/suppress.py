"""suppress: holds updates of a table back until a time limit or until their window closes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.errors import StreamsException
from penstock.processors.base import Forward, NodeContext, ValueGetter, ValueGetterSupplier
from penstock.record import Change, Headers, RecordContext
from penstock.stores.buffers.suppress import SuppressBuffer

#: Kafka's value for "no limit", which also appears in its error messages.
NO_LIMIT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Suppress:
    """Buffers the last update of each key and forwards it when its time has come.

    `wait_ms` is the time limit, or the grace period of the windows. With `until_window_closes` the
    time of an update is the end of its window instead of its timestamp, and tombstones are
    dropped, because no earlier result exists. A full buffer forwards its oldest updates early
    (`emit_early`) or fails the task.
    """

    buffer: str
    wait_ms: int
    until_window_closes: bool = False
    max_records: int = NO_LIMIT
    max_bytes: int = NO_LIMIT
    emit_early: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes an update in this task."""
        buffer: SuppressBuffer = node.store(self.buffer)
        put, evict_until, evict_over = buffer.put, buffer.evict_until, buffer.evict_over
        current, count, name = node.current, node.count, node.name
        wait, final, emit_early = self.wait_ms, self.until_window_closes, self.emit_early
        max_records, max_bytes = self.max_records, self.max_bytes
        limited = max_records < NO_LIMIT or max_bytes < NO_LIMIT
        seen = node.clock(f"{self.buffer}:stream-time")

        def emit(key: Any, change: Change, context: RecordContext) -> None:
            if final and change.new is None:
                return
            before = current.save()
            current.set_context(context)
            try:
                forward(key, change, context.timestamp, context.headers)
                count("emitted")
            finally:
                current.restore(before)

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            seen.time = max(seen.time, timestamp)
            put(
                key.window.end if final else timestamp, key, change,
                current.buffered_context(timestamp, headers),
            )
            evict_until(seen.time - wait, emit)
            if limited and buffer.is_over(max_records, max_bytes):
                if not emit_early:
                    raise StreamsException(
                        f"{name} buffer exceeded its max capacity. Currently "
                        f"[{buffer.num_records}/{max_records}] records and "
                        f"[{buffer.size_bytes}/{max_bytes}] bytes."
                    )
                evict_over(max_records, max_bytes, emit)

        return process


@dataclass(frozen=True, slots=True)
class SuppressedRows:
    """The suppressed table for a reader.

    A buffered row has the value from before the update, with the unknown timestamp -1. Any other
    row is that of the parent.
    """

    buffer: str
    parent: ValueGetterSupplier

    @property
    def store_names(self) -> tuple[str, ...]:
        """The stores that the reading node must be connected to."""
        return (self.buffer, *self.parent.store_names)

    def attach_getter(self, node: NodeContext) -> ValueGetter:
        """The getter for the reading node."""
        return _SuppressedGetter(node.store(self.buffer), self.parent.attach_getter(node))


class _SuppressedGetter:
    """Reads the buffer first, then the parent."""

    __slots__ = ("_parent", "_prior", "is_versioned")

    def __init__(self, buffer: SuppressBuffer, parent: ValueGetter) -> None:
        self.is_versioned = False
        self._prior = buffer.prior_value
        self._parent = parent.get

    def get(self, key: Any) -> tuple[Any, int] | None:
        """The (value, timestamp) of the row, or None."""
        buffered, value = self._prior(key)
        if not buffered:
            return self._parent(key)
        return None if value is None else (value, -1)

    def get_as_of(self, key: Any, timestamp: int) -> tuple[Any, int] | None:
        """Not supported: a suppressed table is not versioned."""
        raise TypeError("A suppressed table has no versions.")
