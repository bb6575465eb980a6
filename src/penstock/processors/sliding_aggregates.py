"""Aggregations over sliding windows: one window for each set of records within the difference.

Only windows with different sets of records exist. A record at time t creates its left window
[t - d, t] and, if a later record is close enough, its right window [t + 1, t + 1 + d]. It also
creates the right window of the previous record, and is added to every window that contains it.
Records earlier than d share the window [0, d], because no window starts before the epoch.

Invariant: the stored timestamp of a window is that of its latest record, so the windows alone
show which records existed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import StreamsException
from penstock.processors.aggregates import Aggregator, Initializer
from penstock.processors.base import Forward, NodeContext
from penstock.processors.emit_final import (
    ClosedRange,
    closed_window_emitter,
    never_emit,
    observed_time,
)
from penstock.processors.forwarding import WriteWindow, window_writer
from penstock.processors.table_store import Row, WindowGetter
from penstock.record import Headers
from penstock.windows import SlidingWindows, Window


@dataclass(frozen=True, slots=True)
class SlidingAggregate:
    """An aggregate per key and sliding window. Null keys and null values are dropped."""

    store_name: str
    windows: SlidingWindows
    initializer: Initializer
    aggregator: Aggregator
    send_old: bool = False
    emit_final: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        drop = node.drop
        store = node.store(self.store_name)
        difference = self.windows.time_difference_ms
        grace = self.windows.grace_ms
        observed = observed_time(node)
        write = window_writer(store, forward, self.send_old, self.emit_final)
        updates = _WindowUpdates(difference, self.initializer, self.aggregator, write, drop)
        emit_closed = (
            closed_window_emitter(node, store, forward, _closed_windows(difference))
            if self.emit_final
            else never_emit
        )

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop("null key or value")
                return
            stream_time = observed.time
            if timestamp > stream_time:
                observed.time = stream_time = timestamp
            close_time = stream_time - grace
            if timestamp + difference < close_time:
                drop("expired window")
                return
            record = _Arrival(key, value, timestamp, headers, close_time)
            if timestamp < difference:
                # As in Kafka Streams, a record this early emits no closed windows.
                _process_early(record, updates, store)
                return
            _process(record, updates, store)
            emit_closed(close_time, headers)

        return process

    def getter_supplier(self) -> WindowGetter:
        """How other nodes read this table."""
        return WindowGetter(self.store_name)


@dataclass(slots=True)
class _Arrival:
    """One record and the windows found for it."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers
    close_time: int
    #: The starts of the windows found.
    starts: set[int] = field(default_factory=set)
    #: The timestamp of the previous record, if it is close enough to matter.
    previous: int | None = None
    #: The content of the right window of this record, if it must be created.
    right: Row | None = None
    right_exists: bool = False


class _WindowUpdates:
    """The operations on a window, bound to the operator's functions."""

    __slots__ = ("_aggregator", "_drop", "_write", "difference", "initializer")

    def __init__(
        self,
        difference: int,
        initializer: Initializer,
        aggregator: Aggregator,
        write: WriteWindow,
        drop: Callable[[str], None],
    ) -> None:
        self.difference = difference
        self.initializer = initializer
        self._aggregator = aggregator
        self._write = write
        self._drop = drop

    def update(self, record: _Arrival, window: Window, old: Any, old_timestamp: int) -> None:
        """Add the record to a window with the aggregate `old`, unless the window is closed."""
        if window.end < record.close_time:
            self._drop("expired window")
            return
        new = self._aggregator(record.key, record.value, old)
        timestamp = record.timestamp
        if old is not None and old_timestamp > timestamp:
            timestamp = old_timestamp
        self._write(record.key, window, (new, old), timestamp, record.headers)

    def start_with(self, record: _Arrival, start: int) -> None:
        """Create a window that contains only this record."""
        old = self.initializer()
        self.update(record, self.window(start), old, record.timestamp)

    def window(self, start: int) -> Window:
        """The window with this start."""
        if self.difference == 0:
            raise ValueError(
                "Window endMs must be greater than window startMs. "
                "Sliding windows need a time difference of at least 1 ms."
            )
        return Window(start, start + self.difference)

    def make_right(self, record: _Arrival) -> None:
        """Create the right window of the record, if it contains a later record and is missing.

        Its content is that of an overlapping window before this record, closed or not.
        """
        if record.right_exists or record.right is None:
            return
        value, timestamp = record.right
        if timestamp > record.timestamp:
            window = self.window(record.timestamp + 1)
            self._write(record.key, window, (value, None), timestamp, record.headers)


def _process(record: _Arrival, updates: _WindowUpdates, store: Any) -> None:
    """Process a record whose left window starts at or after the epoch."""
    timestamp, difference = record.timestamp, updates.difference
    left_exists = False
    left: Any = None
    for windowed, row in _windows_before(store, record, difference):
        window, value, latest = windowed.window, row[0], row[1]
        record.starts.add(window.start)
        end = window.start + difference
        if window.start == timestamp + 1:
            record.right_exists = True
        elif end > timestamp:
            if record.right is None:
                record.right = (value, latest)
            updates.update(record, window, value, latest)
        elif end == timestamp:
            left_exists = True
            updates.update(record, window, value, latest)
            if latest >= timestamp:
                # Another record with this timestamp has already created all windows.
                return
            record.previous = latest
        else:
            left = value
            record.previous = latest
    previous = record.previous
    if previous is not None:
        start = previous + 1
        if start not in record.starts and start + difference >= timestamp:
            updates.start_with(record, start)
    if not left_exists:
        start = timestamp - difference
        if previous is not None and start <= previous:
            updates.update(record, updates.window(start), left, timestamp)
        else:
            updates.start_with(record, start)
    updates.make_right(record)


def _windows_before(store: Any, record: _Arrival, difference: int) -> list[Any]:
    """The windows that affect a record, latest first: (Windowed, (value, timestamp)).

    The last one is the first window without the record. The list is read before any write.
    """
    timestamp, key = record.timestamp, record.key
    found = []
    earliest = max(0, timestamp - 2 * difference)
    # One past the record's timestamp, to include its right window.
    with store.backward_fetch(key, key, earliest, timestamp + 1) as windows:
        for windowed, row in windows:
            found.append((windowed, row))
            if windowed.window.start + difference < timestamp:
                break
    return found


def _process_early(record: _Arrival, updates: _WindowUpdates, store: Any) -> None:
    """Process a record before the first whole window; it belongs to [0, difference]."""
    timestamp, key = record.timestamp, record.key
    if timestamp < 0:
        raise StreamsException(
            f"A record for sliding windows has a negative timestamp: {timestamp}."
        )
    combined: tuple[Window, Any, int] | None = None
    for windowed, row in list(store.fetch(key, key, 0, timestamp + 1)):
        window, value, latest = windowed.window, row[0], row[1]
        start = window.start
        record.starts.add(start)
        if start == 0:
            combined = (window, value, latest)
            if latest < timestamp:
                record.previous = latest
        elif start <= timestamp:
            record.right = (value, latest)
            updates.update(record, window, value, latest)
        else:
            record.right_exists = True
    if record.right is None and combined is not None and combined[2] > timestamp:
        record.right = combined[1:]
    updates.make_right(record)
    if record.previous is not None and record.previous + 1 not in record.starts:
        updates.start_with(record, record.previous + 1)
    if combined is None:
        updates.start_with(record, 0)
    else:
        updates.update(record, *combined)


def _closed_windows(difference: int) -> ClosedRange:
    def closed(last_close_time: int, close_time: int) -> tuple[int, int] | None:
        # The end of a sliding window is inclusive: it closes if it ends before the close time.
        last = close_time - difference - 1
        if last < 0:
            return None
        first = 0 if last_close_time == -1 else max(0, last_close_time - difference)
        return first, last

    return closed
