"""The cache layer: writes stay in the record cache until it is flushed or has to make room.

Then, for each entry in the order of its last write and under the context of the record that wrote
it: the old value is read below if someone wants it, the new one is written below (and logged),
and the listener hears of it. A deletion of a row that is not below is forgotten, if there is a
listener.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.native import core
from penstock.record import Current
from penstock.stores.bytes.key_schema import KeySchema, Ranges, WindowRange, selector
from penstock.stores.bytes.overlay import merged
from penstock.stores.bytes.rows import KeyRange, Row, Rows
from penstock.stores.cache.record_cache import CacheEntry, RecordCache

#: Hears physical key, new and old stored value, and the entry that was let go.
RowListener = Callable[[bytes, "bytes | None", "bytes | None", CacheEntry], None]

#: More segments than this are not asked for one by one.
_MANY_SEGMENTS = 64


class CacheLayer:
    """A store behind its part of the record cache; without a layout it is a key-value store.

    Only key-value stores keep what was read: the cache of windows and sessions holds writes.
    """

    def __init__(
        self, rows: Rows, cache: RecordCache, current: Current, layout: KeySchema | None
    ) -> None:
        self.below = rows
        self.current = current
        self.layout = layout
        self.cache = (
            cache.store(self._flush, 0) if layout is None
            else cache.store(self._flush, layout.cache_bytes, layout.time_at)
        )
        self._listener: RowListener | None = None
        self._send_old = False
        self.get = self._get_and_keep if layout is None else self._get

    get: Callable[[bytes], bytes | None]

    def put(self, row: bytes, value: bytes | None) -> None:
        """Write an entry on behalf of the current record; None deletes the row."""
        self.cache.put(row, value, 0 if value is None else len(value), self.current)

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
        self, span: KeyRange | WindowRange, reverse: bool
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

    def _ranges(self, layout: KeySchema, span: WindowRange) -> Ranges:
        # The cache does not know retention; a time far in the past would mean many segments.
        oldest, newest = self.cache.oldest, self.cache.newest
        if newest - max(oldest, span.time_from) > _MANY_SEGMENTS * 60_000:
            return [(None, None)]
        return layout.ranges(span, oldest, newest)

    def _flush(self, changes: list[CacheEntry]) -> None:
        """Write all changes below and tell of each, under the record that wrote it."""
        before = self.current.saved()
        put_all = getattr(self.below, "put_all", None)
        rows = None if put_all is None or self._send_old else self._stored_rows(changes)
        try:
            if put_all is None or rows is None:
                self._flush_one_by_one(changes)
                return
            # Nobody asks what was there before, so the order of writing and telling is free.
            put_all(*rows)
            if self._listener is not None:
                self._tell(changes, self._listener)
        finally:
            self.current.restore(before)

    def _stored_rows(self, changes: list[CacheEntry]) -> tuple[list[bytes], list[bytes]] | None:
        """The names and stored values of changes; None if one is a deletion."""
        if core is not None:
            rows: tuple[list[bytes], list[bytes]] | None = core.stored_rows(self.cache, changes)
            return rows
        values: list[bytes] = []
        for entry in changes:
            stored = self.cache.stored(entry)
            if stored is None:
                return None
            values.append(stored)
        return [entry.name for entry in changes], values

    def _tell(self, changes: list[CacheEntry], listener: RowListener) -> None:
        """Tell of each change, without old values."""
        current = self.current
        if core is not None:
            core.tell_changes(changes, current, listener)
            return
        for entry in changes:
            current.rows, current.at, current.sent = entry.rows, entry.at, entry.sent
            current.timestamp, current.headers = entry.timestamp, entry.headers
            listener(entry.name, entry.value, None, entry)

    def _flush_one_by_one(self, changes: list[CacheEntry]) -> None:
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
