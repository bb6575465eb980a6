"""The cache layer: writes stay in the record cache until it is flushed or has to make room.

Then, for each entry in the order of its last write and under the context of the record that wrote
it: the old value is read below if someone wants it, the new one is written below (and logged),
and the listener hears of it. A deletion of a row that is not below is forgotten, if there is a
listener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.record import Current, RecordContext
from penstock.stores.cache import Entry, RecordCache
from penstock.stores.layouts import Layout, Ranges, Span, selector
from penstock.stores.overlay import merged
from penstock.stores.rows import KeyRange, Row, Rows

#: Hears physical key, new and old stored value, and the context of the record that wrote it.
RowListener = Callable[[bytes, "bytes | None", "bytes | None", RecordContext], None]

#: More segments than this are not asked for one by one.
_MANY_SEGMENTS = 64


class CachedRows:
    """A store behind its part of the record cache; without a layout it is a key-value store.

    Only key-value stores keep what was read: the cache of windows and sessions holds writes.
    """

    def __init__(
        self, rows: Rows, cache: RecordCache, current: Current, layout: Layout | None
    ) -> None:
        self._rows = rows
        self._current = current
        self._layout = layout
        self._cache = cache.store(self._flush, 0 if layout is None else layout.cache_bytes)
        self._listener: RowListener | None = None
        self._send_old = False
        self._oldest = -1
        self._newest = -1
        if layout is None:
            self.get = self._get_and_keep
            self.put = self._put
        else:
            self.get = self._get
            self.put = self._put_timed

    get: Callable[[bytes], bytes | None]
    put: Callable[[bytes, bytes | None], None]

    def set_listener(self, listener: RowListener, send_old: bool) -> None:
        """Who hears of what leaves the cache, and whether with old values."""
        self._listener = listener
        self._send_old = send_old

    def remove(self, row: bytes) -> None:
        """Delete a session."""
        self.put(row, None)

    def scan(self, span: Any, reverse: bool) -> Iterator[Row]:
        """The rows below, with what is cached over them."""
        below = self._rows.scan(span, reverse)
        mine = self._cached(span, reverse)
        return merged(mine, below, reverse) if mine else below

    def flush(self) -> None:
        """Let all changes go."""
        self._cache.flush()

    def clear(self) -> None:
        """Forget the cache, changes included."""
        self._cache.clear()

    def _put(self, row: bytes, value: bytes | None) -> None:
        self._cache.put(row, value, self._current.context())

    def _put_timed(self, row: bytes, value: bytes | None) -> None:
        time = self._layout.time(row)  # type: ignore[union-attr]
        self._newest = max(self._newest, time)
        if self._oldest < 0 or time < self._oldest:
            self._oldest = time
        self._cache.put(row, value, self._current.context())

    def _get(self, row: bytes) -> bytes | None:
        entry = self._cache.get(row)
        return self._rows.get(row) if entry is None else entry.value

    def _get_and_keep(self, row: bytes) -> bytes | None:
        entry = self._cache.get(row)
        if entry is not None:
            return entry.value
        value = self._rows.get(row)
        if value is not None:
            self._cache.put(row, value, None)
        return value

    def _cached(
        self, span: KeyRange | Span, reverse: bool
    ) -> list[tuple[bytes, bytes | None]]:
        cache = self._cache
        if not len(cache):
            return []
        if isinstance(span, KeyRange):
            return cache.rows(span.start, span.end, reverse)
        layout = self._layout
        assert layout is not None
        ranges = self._ranges(layout, span)
        belongs = selector(layout, span)
        return [
            row
            for start, end in (reversed(ranges) if reverse else ranges)
            for row in cache.rows(start, end, reverse)
            if belongs(row[0])
        ]

    def _ranges(self, layout: Layout, span: Span) -> Ranges:
        # The cache does not know retention; a time far in the past would mean many segments.
        newest = self._newest
        if newest - max(self._oldest, span.time_from) > _MANY_SEGMENTS * 60_000:
            return [(None, None)]
        return layout.ranges(span, self._oldest, newest)

    def _flush(self, changes: list[tuple[bytes, Entry]]) -> None:
        current = self._current
        rows = self._rows
        for row, entry in changes:
            listener = self._listener
            new = entry.value
            context = entry.context
            assert context is not None
            old = None
            if listener is not None and (new is None or self._send_old):
                old = rows.get(row)
            if listener is not None and new is None and old is None:
                continue
            before = current.context()
            current.set_context(context)
            try:
                rows.put(row, new)
                if listener is not None:
                    listener(row, new, old if self._send_old else None, context)
            finally:
                current.set_context(before)
