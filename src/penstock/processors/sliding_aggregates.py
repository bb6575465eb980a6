"""Aggregations over sliding windows: one window for each set of records within the difference.

Only windows that differ in their records exist. A record at t makes its left window [t - d, t]
and, if a later record is near enough, its right window [t + 1, t + 1 + d]; it also makes the right
window of the record before it, and goes into every window that it falls in. Windows would begin
before the epoch for records earlier than d: those share the one window [0, d] instead.

Invariant that all of this rests on: the timestamp in the store of a window is that of its latest
record, so the windows alone tell which records there were.
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
    """An aggregate for each key and sliding window. Null keys and null values are dropped."""

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
        steps = _Steps(difference, self.initializer, self.aggregator, write, drop)
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
                # As in Kafka Streams, nothing is emitted on close by so early a record.
                _process_early(record, steps, store)
                return
            _process(record, steps, store)
            emit_closed(close_time, headers)

        return process

    def getter_supplier(self) -> WindowGetter:
        """How others read this table."""
        return WindowGetter(self.store_name)


@dataclass(slots=True)
class _Arrival:
    """One record on its way through its windows, and what was found there."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers
    close_time: int
    #: The starts of the windows found.
    starts: set[int] = field(default_factory=set)
    #: The time of the record before this one, if it is near enough to matter.
    previous: int | None = None
    #: What the right window of this record will hold, if it has to be made.
    right: Row | None = None
    right_exists: bool = False


class _Steps:
    """What can be done to a window, with everything bound that does not change by record."""

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
        """Put the record into a window that held `old`, unless the window is closed."""
        if window.end < record.close_time:
            self._drop("expired window")
            return
        new = self._aggregator(record.key, record.value, old)
        timestamp = record.timestamp
        if old is not None and old_timestamp > timestamp:
            timestamp = old_timestamp
        self._write(record.key, window, (new, old), timestamp, record.headers)

    def start_with(self, record: _Arrival, start: int) -> None:
        """Make a window that holds this record alone."""
        old = self.initializer()
        self.update(record, self.window(start), old, record.timestamp)

    def window(self, start: int) -> Window:
        """The window that begins then."""
        if self.difference == 0:
            raise ValueError(
                "Window endMs must be greater than window startMs. "
                "Sliding windows need a time difference of at least 1 ms."
            )
        return Window(start, start + self.difference)

    def make_right(self, record: _Arrival) -> None:
        """Make the record's right window, if a later record is in it and it is not there yet.

        It holds what an overlapping window held before this record; closed or not.
        """
        if record.right_exists or record.right is None:
            return
        value, timestamp = record.right
        if timestamp > record.timestamp:
            window = self.window(record.timestamp + 1)
            self._write(record.key, window, (value, None), timestamp, record.headers)


def _process(record: _Arrival, steps: _Steps, store: Any) -> None:
    """A record whose left window does not reach before the epoch."""
    timestamp, difference = record.timestamp, steps.difference
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
            steps.update(record, window, value, latest)
        elif end == timestamp:
            left_exists = True
            steps.update(record, window, value, latest)
            if latest >= timestamp:
                # Another record of this very time has made all the windows there can be.
                return
            record.previous = latest
        else:
            left = value
            record.previous = latest
    previous = record.previous
    if previous is not None:
        start = previous + 1
        if start not in record.starts and start + difference >= timestamp:
            steps.start_with(record, start)
    if not left_exists:
        start = timestamp - difference
        if previous is not None and start <= previous:
            steps.update(record, steps.window(start), left, timestamp)
        else:
            steps.start_with(record, start)
    steps.make_right(record)


def _windows_before(store: Any, record: _Arrival, difference: int) -> list[Any]:
    """The windows that matter to a record, latest first: (Windowed, (value, timestamp)).

    They end with the first one that the record is not in. Taken before anything is written.
    """
    timestamp, key = record.timestamp, record.key
    found = []
    earliest = max(0, timestamp - 2 * difference)
    # One past the record's time, to see its right window too.
    with store.backward_fetch(key, key, earliest, timestamp + 1) as windows:
        for windowed, row in windows:
            found.append((windowed, row))
            if windowed.window.start + difference < timestamp:
                break
    return found


def _process_early(record: _Arrival, steps: _Steps, store: Any) -> None:
    """A record before the first whole window; it belongs to the window [0, difference]."""
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
            steps.update(record, window, value, latest)
        else:
            record.right_exists = True
    if record.right is None and combined is not None and combined[2] > timestamp:
        record.right = combined[1:]
    steps.make_right(record)
    if record.previous is not None and record.previous + 1 not in record.starts:
        steps.start_with(record, record.previous + 1)
    if combined is None:
        steps.start_with(record, 0)
    else:
        steps.update(record, *combined)


def _closed_windows(difference: int) -> ClosedRange:
    def closed(last_close_time: int, close_time: int) -> tuple[int, int] | None:
        # The end of a sliding window is inclusive: closed are those that end before close time.
        last = close_time - difference - 1
        if last < 0:
            return None
        first = 0 if last_close_time == -1 else max(0, last_close_time - difference)
        return first, last

    return closed
