"""The changelog layer: what is written to a store is also appended to its changelog topic.

A write is logged after it was made, whether or not the store took it: Kafka Streams logs writes
that its store refuses as expired, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

from penstock.native import core
from penstock.record import NO_HEADERS
from penstock.stores.api.store import StoreContext
from penstock.stores.bytes.key_schema import KeySchema
from penstock.stores.bytes.rows import LruRows, PutAll, Row, Rows
from penstock.stores.bytes.value_formats import TIMESTAMPED, ValueFormat


class ChangelogLayer:
    """A store whose writes go to its changelog."""

    def __init__(
        self, rows: Rows, store: str, context: StoreContext, value_format: ValueFormat,
        layout: KeySchema | None,
    ) -> None:
        changelog_key = None if layout is None else layout.changelog_key
        self.get = rows.get
        self._rows = rows
        self._context = context
        self._store = store
        self.put = self._logging_put(rows, value_format, changelog_key)
        self._log_deletion = self._deletion_logger(value_format, changelog_key)
        self.put_all = self._logging_put_all(rows, value_format, layout)

    get: Callable[[bytes], bytes | None]
    put: Callable[[bytes, bytes | None], None]

    def remove(self, row: bytes) -> None:
        """Delete a session and log the deletion."""
        self._rows.remove(row)
        self._log_deletion(row)

    def scan(self, span: Any, reverse: bool) -> Iterator[Row]:
        """The rows of a span."""
        return self._rows.scan(span, reverse)

    def watch_evictions(self, rows: LruRows) -> None:
        """Log a deletion for every key that the store lets go by itself."""
        rows.on_evict = self._log_eviction

    def _logging_put(
        self, rows: Rows, value_format: ValueFormat, changelog_key: Callable[[bytes], bytes] | None
    ) -> Callable[[bytes, bytes | None], None]:
        write = rows.put
        log_change = self._context.log_change
        current = self._context.current
        store = self._store
        to_log = value_format.to_log

        def put(row: bytes, stored: bytes | None) -> None:
            write(row, stored)
            log_change(store, row, *to_log(stored, current))

        def put_keyed(row: bytes, stored: bytes | None) -> None:
            write(row, stored)
            log_change(store, changelog_key(row), *to_log(stored, current))  # type: ignore[misc]

        return put if changelog_key is None else put_keyed

    def _logging_put_all(
        self, rows: Rows, value_format: ValueFormat, layout: KeySchema | None
    ) -> PutAll | None:
        """Many rows at once, if their changelog records can be told from their bytes alone."""
        write_all: PutAll | None = getattr(rows, "put_all", None)
        log_changes = getattr(self._context, "log_changes", None)
        if write_all is None or log_changes is None or value_format is not TIMESTAMPED:
            return None
        store = self._store
        time_of = Struct(">q").unpack_from
        cut = 0 if layout is None else layout.changelog_cut

        if core is not None and cut is not None:
            changes_of = core.timestamped_changes

            def put_all_natively(rows: list[bytes], values: list[bytes]) -> None:
                write_all(rows, values)
                log_changes(store, changes_of(store, rows, values, cut, NO_HEADERS))

            return put_all_natively

        def put_all(rows: list[bytes], values: list[bytes]) -> None:
            write_all(rows, values)
            keys = rows if layout is None else map(layout.changelog_key, rows)
            log_changes(store, [
                (store, key, value[8:], time_of(value)[0], NO_HEADERS)
                for key, value in zip(keys, values, strict=True)
            ])

        return put_all

    def _deletion_logger(
        self, value_format: ValueFormat, changelog_key: Callable[[bytes], bytes] | None
    ) -> Callable[[bytes], None]:
        log_change = self._context.log_change
        current = self._context.current
        store = self._store
        to_log = value_format.to_log

        def log_deletion(row: bytes) -> None:
            key = row if changelog_key is None else changelog_key(row)
            _, timestamp, headers = to_log(None, current)
            log_change(store, key, None, timestamp, headers)

        return log_deletion

    def _log_eviction(self, row: bytes) -> None:
        context = self._context
        context.log_change(self._store, row, None, context.current.timestamp, NO_HEADERS)
