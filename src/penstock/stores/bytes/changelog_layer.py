"""The changelog layer: writes to the rows and appends every write to the changelog.

A write is logged after it was made, even if the rows refused it as expired: Kafka Streams logs such
writes too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

from penstock.native import core
from penstock.record import NO_HEADERS
from penstock.stores.api.store import StoreContext
from penstock.stores.bytes.key_schema import KeySchema
from penstock.stores.bytes.rows import LruRows, PutAll, Row, RowLayer
from penstock.stores.bytes.value_formats import TIMESTAMPED, ValueFormat

#: Converts a row key into the key of a changelog record.
_ToChangelogKey = Callable[[bytes], bytes]


class ChangelogLayer:
    """A `RowLayer` that logs every write. `key_schema` is None for key-value stores."""

    def __init__(
        self, rows: RowLayer, store: str, context: StoreContext, value_format: ValueFormat,
        key_schema: KeySchema | None,
    ) -> None:
        changelog_key = None if key_schema is None else key_schema.changelog_key
        self.get = rows.get
        self._rows = rows
        self._context = context
        self._store = store
        self.put = self._put_function(rows, value_format, changelog_key)
        self._log_deletion = self._log_deletion_function(value_format, changelog_key)
        self.put_all = self._put_all_function(rows, value_format, key_schema)

    get: Callable[[bytes], bytes | None]
    put: Callable[[bytes, bytes | None], None]

    def remove(self, row_key: bytes) -> None:
        """Delete the row of a session and log the deletion."""
        self._rows.remove(row_key)
        self._log_deletion(row_key)

    def scan(self, bounds: Any, reverse: bool) -> Iterator[Row]:
        """The rows within the bounds."""
        return self._rows.scan(bounds, reverse)

    def log_evictions(self, rows: LruRows) -> None:
        """Log a deletion for every row that an LRU map evicts."""
        rows.on_evict = self._log_eviction

    def _put_function(
        self, rows: RowLayer, value_format: ValueFormat, changelog_key: _ToChangelogKey | None
    ) -> Callable[[bytes, bytes | None], None]:
        write = rows.put
        log_change = self._context.log_change
        current = self._context.current
        store = self._store
        to_changelog = value_format.to_changelog

        def put(row_key: bytes, stored: bytes | None) -> None:
            write(row_key, stored)
            log_change(store, row_key, *to_changelog(stored, current))

        if changelog_key is None:
            return put

        def put_windowed(row_key: bytes, stored: bytes | None) -> None:
            write(row_key, stored)
            log_change(store, changelog_key(row_key), *to_changelog(stored, current))

        return put_windowed

    def _put_all_function(
        self, rows: RowLayer, value_format: ValueFormat, key_schema: KeySchema | None
    ) -> PutAll | None:
        """`put_all`, if the stored bytes alone determine the changelog records; else None."""
        write_all: PutAll | None = getattr(rows, "put_all", None)
        log_changes = getattr(self._context, "log_changes", None)
        if write_all is None or log_changes is None or value_format is not TIMESTAMPED:
            return None
        store = self._store
        timestamp_of = Struct(">q").unpack_from
        cut = 0 if key_schema is None else key_schema.changelog_cut

        if core is not None and cut is not None:
            changes_of = core.timestamped_changes

            def put_all_natively(row_keys: list[bytes], values: list[bytes]) -> None:
                write_all(row_keys, values)
                log_changes(store, changes_of(store, row_keys, values, cut, NO_HEADERS))

            return put_all_natively

        def put_all(row_keys: list[bytes], values: list[bytes]) -> None:
            write_all(row_keys, values)
            keys = row_keys if key_schema is None else map(key_schema.changelog_key, row_keys)
            log_changes(store, [
                (store, key, value[8:], timestamp_of(value)[0], NO_HEADERS)
                for key, value in zip(keys, values, strict=True)
            ])

        return put_all

    def _log_deletion_function(
        self, value_format: ValueFormat, changelog_key: _ToChangelogKey | None
    ) -> Callable[[bytes], None]:
        log_change = self._context.log_change
        current = self._context.current
        store = self._store
        to_changelog = value_format.to_changelog

        def log_deletion(row_key: bytes) -> None:
            key = row_key if changelog_key is None else changelog_key(row_key)
            _, timestamp, headers = to_changelog(None, current)
            log_change(store, key, None, timestamp, headers)

        return log_deletion

    def _log_eviction(self, row_key: bytes) -> None:
        context = self._context
        context.log_change(self._store, row_key, None, context.current.timestamp, NO_HEADERS)
