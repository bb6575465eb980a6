"""The cache layer: writes stay in the record cache until a flush or an eviction.

A flush handles the changed entries in the order of their last write, each under the context of the
record that wrote it: it reads the old value from the layer below if a listener needs it, writes the
new value below (which logs it), and calls the listener. If there is a listener, the deletion of a
row that does not exist below is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.native import core
from penstock.record import CurrentRecord
from penstock.stores.bytes.key_schema import ByteRanges, KeySchema, WindowRange, row_filter
from penstock.stores.bytes.overlay import merge_scans
from penstock.stores.bytes.rows import KeyRange, Row, RowLayer
from penstock.stores.cache.record_cache import CacheEntry, RecordCache

#: Receives the row key, the new and the old stored value, and the entry of a flushed change.
RowListener = Callable[[bytes, "bytes | None", "bytes | None", CacheEntry], None]

#: With more segments than this, a scan reads the whole cache instead of one range per segment.
_MAX_SEGMENTS = 64


class CacheLayer:
    """A `RowLayer` over the store's part of the record cache.

    `key_schema` is None for key-value stores. Only they cache rows that were read; window and
    session stores cache only writes.
    """

    def __init__(
        self, below: RowLayer, cache: RecordCache, current: CurrentRecord,
        key_schema: KeySchema | None,
    ) -> None:
        self.below = below
        self.current = current
        self.key_schema = key_schema
        self.cache = (
            cache.store(self._flush, 0) if key_schema is None
            else cache.store(self._flush, key_schema.cache_key_overhead, key_schema.time_at)
        )
        self._listener: RowListener | None = None
        self._send_old = False
        self.get = self._get_and_keep if key_schema is None else self._get

    get: Callable[[bytes], bytes | None]

    def put(self, row_key: bytes, value: bytes | None) -> None:
        """Write an entry on behalf of the current record; None deletes the row."""
        self.cache.put(row_key, value, 0 if value is None else len(value), self.current)

    def set_listener(self, listener: RowListener, send_old: bool) -> None:
        """Set the listener for flushed changes, and whether it needs old values."""
        self._listener = listener
        self._send_old = send_old

    def remove(self, row_key: bytes) -> None:
        """Delete the row of a session."""
        self.put(row_key, None)

    def scan(self, bounds: Any, reverse: bool) -> Iterator[Row]:
        """The rows of the layer below, with the cached rows over them."""
        below = self.below.scan(bounds, reverse)
        cached = self._cached_rows(bounds, reverse)
        return merge_scans(cached, below, reverse) if cached else below

    def flush(self) -> None:
        """Flush all changes."""
        self.cache.flush()

    def clear(self) -> None:
        """Discard all entries, changes included."""
        self.cache.clear()

    def _get(self, row_key: bytes) -> bytes | None:
        entry = self.cache.get(row_key)
        return self.below.get(row_key) if entry is None else self.cache.stored(entry)

    def _get_and_keep(self, row_key: bytes) -> bytes | None:
        entry = self.cache.get(row_key)
        if entry is not None:
            return self.cache.stored(entry)
        value = self.below.get(row_key)
        if value is not None:
            self.cache.keep(row_key, value)
        return value

    def _cached_rows(
        self, bounds: KeyRange | WindowRange, reverse: bool
    ) -> list[tuple[bytes, bytes | None]]:
        cache = self.cache
        if not len(cache):
            return []
        if isinstance(bounds, KeyRange):
            return cache.rows(bounds.start, bounds.end, reverse)
        key_schema = self.key_schema
        assert key_schema is not None
        ranges = self._ranges(key_schema, bounds)
        matches = row_filter(key_schema, bounds)
        return [
            row
            for start, end in (reversed(ranges) if reverse else ranges)
            for row in cache.rows(start, end, reverse)
            if matches(row[0])
        ]

    def _ranges(self, key_schema: KeySchema, bounds: WindowRange) -> ByteRanges:
        # The cache ignores retention, so an old time would mean many segments.
        oldest, newest = self.cache.oldest, self.cache.newest
        if newest - max(oldest, bounds.time_from) > _MAX_SEGMENTS * 60_000:
            return [(None, None)]
        return key_schema.ranges(bounds, oldest, newest)

    def _flush(self, changes: list[CacheEntry]) -> None:
        """Write all changes below and call the listener for each."""
        before = self.current.save()
        put_all = getattr(self.below, "put_all", None)
        rows = None if put_all is None or self._send_old else self._stored_rows(changes)
        try:
            if put_all is None or rows is None:
                self._flush_one_by_one(changes)
                return
            # No listener needs old values, so all rows can be written before it is called.
            put_all(*rows)
            if self._listener is not None:
                self._notify(changes, self._listener)
        finally:
            self.current.restore(before)

    def _stored_rows(self, changes: list[CacheEntry]) -> tuple[list[bytes], list[bytes]] | None:
        """The row keys and stored values of changes; None if one is a deletion."""
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

    def _notify(self, changes: list[CacheEntry], listener: RowListener) -> None:
        """Call the listener for each change, without old values."""
        current = self.current
        if core is not None:
            core.tell_changes(changes, current, listener)
            return
        for entry in changes:
            current.rows, current.at, current.sent = entry.rows, entry.at, entry.sent
            current.timestamp, current.headers = entry.timestamp, entry.headers
            listener(entry.name, entry.value, None, entry)

    def _flush_one_by_one(self, changes: list[CacheEntry]) -> None:
        current, below = self.current, self.below
        put, get, stored = below.put, below.get, self.cache.stored
        listener, send_old = self._listener, self._send_old
        for entry in changes:
            row_key, new = entry.name, stored(entry)
            old = None
            if listener is not None and (new is None or send_old):
                old = get(row_key)
                if new is None and old is None:
                    continue
            current.rows, current.at, current.sent = entry.rows, entry.at, entry.sent
            current.timestamp, current.headers = entry.timestamp, entry.headers
            put(row_key, new)
            if listener is not None:
                listener(row_key, new, old if send_old else None, entry)
