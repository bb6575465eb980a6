"""Aggregations over fixed windows: tumbling, hopping, unlimited and the user's own.

A record is added to each of its open windows, in the order of their starts. A window is open
while its end is later than the node's stream time minus the grace period. Null keys are dropped
and do not advance the stream time; null values are passed to the aggregator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.errors import StoreSerdeException
from penstock.native import core
from penstock.processors.aggregates import Aggregator, Initializer, native_forms
from penstock.processors.base import Forward, NodeContext
from penstock.processors.emit_final import (
    ClosedRange,
    closed_window_emitter,
    never_emit,
    observed_time,
)
from penstock.processors.forwarding import window_writer
from penstock.processors.table_store import WindowGetter
from penstock.record import Headers
from penstock.windows import TimeWindows, Window, Windows


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """An aggregate per key and window; `emit_final` forwards it once, when the window closes."""

    store_name: str
    windows: Windows
    initializer: Initializer
    aggregator: Aggregator
    send_old: bool = False
    emit_final: bool = False

    def __post_init__(self) -> None:
        if self.emit_final and not isinstance(self.windows, TimeWindows):
            raise ValueError(
                "ON_WINDOW_CLOSE strategy is only supported for TimeWindows and SlidingWindows "
                f"for TimeWindowedKStream, not for {type(self.windows).__name__}."
            )

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        initializer, aggregator = self.initializer, self.aggregator
        drop = node.drop
        store = node.store(self.store_name)
        load = store.load
        write = window_writer(store, forward, self.send_old, self.emit_final)
        if store.is_caching and not self.emit_final:
            return self._attach_caching(store, node)
        emit_closed = self._emitter(node, store, forward)
        windows_of = windows_by_time(self.windows)
        grace = self.windows.grace_period_ms
        observed = observed_time(node)
        emit_final = self.emit_final

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null key")
                return
            stream_time = observed.time
            if timestamp > stream_time:
                observed.time = stream_time = timestamp
            close_time = stream_time - grace
            for window in windows_of(timestamp):
                start, end = window
                if end <= close_time:
                    drop("expired window")
                    continue
                row = load(key, start)
                result_timestamp = timestamp
                if row is None:
                    old = initializer()
                else:
                    old, old_timestamp = row
                    if old_timestamp > timestamp:
                        result_timestamp = old_timestamp
                new = aggregator(key, value, old)
                write(key, window, (new, old), result_timestamp, headers)
            if emit_final:
                emit_closed(close_time, headers)

        return process

    def _attach_caching(self, store: Any, node: NodeContext) -> Forward:
        """The variant for a cached store, which only updates the rows."""
        fold_row = store.fold_row(*native_forms(self.initializer, self.aggregator))
        drop = node.drop
        grace = self.windows.grace_period_ms
        observed = observed_time(node)
        interval = store.segment_interval_ms
        if core is not None and interval is not None and type(self.windows) is TimeWindows:
            windows = self.windows
            native: Forward = core.window_fold(
                drop, observed, (store.write_key, store.row_of, fold_row),
                (windows.size_ms, windows.advance_ms, grace, interval),
            )
            return native
        row_of = _row_maker(store)
        windows_of = windows_by_time(self.windows)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null key")
                return
            if timestamp > observed.time:
                observed.time = timestamp
            close_time = observed.time - grace
            for start, end in windows_of(timestamp):
                if end <= close_time:
                    drop("expired window")
                else:
                    fold_row(row_of(key, start), key, value, timestamp)

        return process

    def _emitter(
        self, node: NodeContext, store: Any, forward: Forward
    ) -> Callable[[int, Headers], None]:
        if not self.emit_final:
            return never_emit
        return closed_window_emitter(node, store, forward, _closed_windows(self.windows))

    def getter_supplier(self) -> WindowGetter:
        """How other nodes read this table."""
        return WindowGetter(self.store_name)


def windows_by_time(windows: Windows) -> Callable[[int], Iterable[Window]]:
    """Returns a function from a timestamp to its windows by start; it reuses the last result."""
    if type(windows) is not TimeWindows:
        windows_for = windows.windows_for
        return lambda timestamp: windows_for(timestamp).values()
    advance = windows.advance_ms
    reach = windows.size_ms - advance
    known_first = known_last = -1
    known: tuple[Window, ...] = ()

    def windows_of(timestamp: int) -> tuple[Window, ...]:
        nonlocal known, known_first, known_last
        last = timestamp - timestamp % advance
        first = timestamp - reach
        first = first - first % advance if first > 0 else 0
        if first != known_first or last != known_last:
            known = tuple(windows.windows_for(timestamp).values())
            known_first, known_last = first, last
        return known

    return windows_of


def _closed_windows(windows: Windows) -> ClosedRange:
    size = windows.size
    windows_for = windows.windows_for

    def closed(last_close_time: int, close_time: int) -> tuple[int, int] | None:
        last = close_time - size
        if last < 0:
            return None
        if last_close_time == -1:
            return 0, last
        # A window that ended at the last close time was already sent: its end is exclusive.
        first = max(0, last_close_time - size) + 1
        if windows_for(last) == windows_for(first - 1):
            return None
        return first, last

    return closed


def _row_maker(store: Any) -> Callable[[Any, int], bytes]:
    """Builds the row key of (key, start); its prefix and suffix are reused per window."""
    key_affixes, write_key, row_of = store.key_affixes, store.write_key, store.row_of
    if key_affixes(0) is None:
        made: Callable[[Any, int], bytes] = row_of
        return made
    known_start, before, behind = -1, b"", b""

    def make_row(key: Any, start: int) -> bytes:
        nonlocal known_start, before, behind
        if start != known_start:
            before, behind = key_affixes(start)
            known_start = start
        try:
            raw: bytes = write_key(key)
        except StoreSerdeException:
            raise
        except Exception:
            row: bytes = row_of(key, start)
            return row
        return before + raw + behind

    return make_row
