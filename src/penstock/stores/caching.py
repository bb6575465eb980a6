"""The cache layer: writes stay in the record cache until it is flushed or has to make room.

Then, for each entry in the order of its last write and under the context of the record that wrote
it: the old value is read below if someone wants it, the new one is written below (and logged),
and the listener hears of it. A deletion of a row that is not below is forgotten, if there is a
listener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.record import Current
from penstock.stores.cache import UNKNOWN, Entry, RecordCache
from penstock.stores.layouts import Layout, Ranges, Span, selector
from penstock.stores.overlay import merged
from penstock.stores.rows import KeyRange, Row, Rows

#: Hears physical key, new and old stored value, and the entry that was let go.
RowListener = Callable[[bytes, "bytes | None", "bytes | None", Entry], None]

#: More segments than this are not asked for one by one.
_MANY_SEGMENTS = 64


class CachedRows:
    """A store behind its part of the record cache; without a layout it is a key-value store.

    Only key-value stores keep what was read: the cache of windows and sessions holds writes.
    """

    def __init__(
        self, rows: Rows, cache: RecordCache, current: Current, layout: Layout | None
    ) -> None:
        self.below = rows
        self.current = current
        self.layout = layout
        self.cache = cache.store(self._flush, 0 if layout is None else layout.cache_bytes)
        self._listener: RowListener | None = None
        self._send_old = False
        self._oldest = -1
        self._newest = -1
        if layout is None:
            self.get = self._get_and_keep
            self.put = self._put
            self.put_typed = self.cache.put
        else:
            self.get = self._get
            self.put = self._put_timed
            self.put_typed = self._put_typed_timed

    get: Callable[[bytes], bytes | None]
    put: Callable[[bytes, bytes | None], None]
    #: The same with a typed value: row, stored or `PENDING`, its size, current, typed, timestamp.
    put_typed: Callable[[bytes, Any, int, Current, Any, int], None]

    def set_listener(self, listener: RowListener, send_old: bool) -> None:
        """Who hears of what leaves the cache, and whether with old values."""
        self._listener = listener
        self._send_old = send_old

    def remove(self, row: bytes) -> None:
        """Delete a session."""
        self.put(row, None)

    def scan(self, span: Any, reverse: bool) -> Iterator[Row]:
        """The rows below, with what is cached over them."""
        below = self.below.scan(span, reverse)
        mine = self._cached(span, reverse)
        return merged(mine, below, reverse) if mine else below

    def flush(self) -> None:
        """Let all changes go."""
        self.cache.flush()

    def clear(self) -> None:
        """Forget the cache, changes included."""
        self.cache.clear()

    def _put(self, row: bytes, value: bytes | None) -> None:
        self.cache.put(row, value, 0 if value is None else len(value), self.current)

    def _put_timed(self, row: bytes, value: bytes | None) -> None:
        size = 0 if value is None else len(value)
        self._put_typed_timed(row, value, size, self.current, UNKNOWN, -1)

    def _put_typed_timed(
        self, row: bytes, value: Any, size: int, current: Current, typed: Any, timestamp: int
    ) -> None:
        time = self.layout.time(row)  # type: ignore[union-attr]
        if time > self._newest:
            self._newest = time
        if self._oldest < 0 or time < self._oldest:
            self._oldest = time
        self.cache.put(row, value, size, current, typed, timestamp)

    def _get(self, row: bytes) -> bytes | None:
        entry = self.cache.get(row)
        return self.below.get(row) if entry is None else self.cache.stored(entry)

    def _get_and_keep(self, row: bytes) -> bytes | None:
        entry = self.cache.get(row)
        if entry is not None:
            return self.cache.stored(entry)
        value = self.below.get(row)
        if value is not None:
            self.cache.keep(row, value)
        return value

    def _cached(
        self, span: KeyRange | Span, reverse: bool
    ) -> list[tuple[bytes, bytes | None]]:
        cache = self.cache
        if not len(cache):
            return []
        if isinstance(span, KeyRange):
            return cache.rows(span.start, span.end, reverse)
        layout = self.layout
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

    def _flush(self, changes: list[Entry]) -> None:
        """Write all changes below and tell of each, under the record that wrote it."""
        before = self.current.saved()
        put_all = getattr(self.below, "put_all", None)
        try:
            if (
                put_all is None or self._send_old
                or any(entry.value is None for entry in changes)
            ):
                self._flush_one_by_one(changes)
                return
            # Nobody asks what was there before, so the order of writing and telling is free.
            stored, listener, current = self.cache.stored, self._listener, self.current
            put_all([entry.name for entry in changes], [stored(entry) for entry in changes])
            if listener is None:
                return
            for entry in changes:
                current.rows, current.at, current.sent = entry.rows, entry.at, entry.sent
                current.timestamp, current.headers = entry.timestamp, entry.headers
                listener(entry.name, entry.value, None, entry)
        finally:
            self.current.restore(before)

    def _flush_one_by_one(self, changes: list[Entry]) -> None:
        current, rows = self.current, self.below
        put, get, stored = rows.put, rows.get, self.cache.stored
        listener, send_old = self._listener, self._send_old
        for entry in changes:
            row, new = entry.name, stored(entry)
            old = None
            if listener is not None and (new is None or send_old):
                old = get(row)
                if new is None and old is None:
                    continue
            current.rows, current.at, current.sent = entry.rows, entry.at, entry.sent
            current.timestamp, current.headers = entry.timestamp, entry.headers
            put(row, new)
            if listener is not None:
                listener(row, new, old if send_old else None, entry)
