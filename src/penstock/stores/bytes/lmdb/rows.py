"""A `BytesStore` over one LMDB database in a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import lmdb

from penstock.errors import ProcessorStateException
from penstock.native import core
from penstock.stores.bytes.lmdb.long_keys import (
    BUCKET_KEY_SIZE,
    END,
    MAX_KEY_SIZE,
    PREFIX,
    bucket_key,
    decode_bucket,
    encode_bucket,
    find_in_bucket,
    lower_bound,
    upper_bound,
)

_CHUNK = 256
#: The key of a counter behind all rows: the rows in buckets beyond one each, minus 1 for itself.
_SURPLUS = END + b"surplus"


class LmdbBytesStore:
    """The rows of one database in a read transaction. Satisfies `BytesStore` for reading."""

    __slots__ = ("_database", "_transaction", "get")

    #: The value of a key; None if the key does not exist.
    get: Callable[[bytes], bytes | None]

    def __init__(self, transaction: lmdb.Transaction[bytes], database: Any) -> None:
        self._transaction = transaction
        self._database = database
        fetch = transaction.get

        def get(key: bytes) -> bytes | None:
            if len(key) <= MAX_KEY_SIZE:
                return fetch(PREFIX + key, None, database)
            data = fetch(bucket_key(key), None, database)
            return None if data is None else find_in_bucket(data, key)

        self.get = get

    def scan(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows with start <= key < end, in ascending or descending order of their keys."""
        for stored, value in self._scan_stored(lower_bound(start), upper_bound(end), reverse):
            if len(stored) < BUCKET_KEY_SIZE:
                yield stored[1:], value
                continue
            rows = [
                row for row in decode_bucket(stored, value)
                if (start is None or row[0] >= start) and (end is None or row[0] < end)
            ]
            yield from reversed(rows) if reverse else rows

    def _scan_stored(
        self, low: bytes, high: bytes, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """The entries of the database with low <= stored key < high."""
        cursor = self._transaction.cursor(self._database)
        if reverse:
            found = cursor.prev() if cursor.set_range(high) else cursor.last()
            if found:
                for entry in cursor.iterprev():
                    if entry[0] < low:
                        return
                    yield entry
        elif cursor.set_range(low):
            for entry in cursor.iternext():
                if entry[0] >= high:
                    return
                yield entry

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Always fails: a snapshot is read-only."""
        raise ProcessorStateException("These rows belong to a snapshot, which is read-only.")

    def drop_below(self, key: bytes) -> None:
        """Always fails: a snapshot is read-only."""
        self.write(())

    def count(self) -> int:
        """The number of rows."""
        count: int = self._transaction.stat(self._database)["entries"]
        surplus = self._transaction.get(_SURPLUS, None, self._database)
        return count if surplus is None else count + int.from_bytes(surplus, "big", signed=True)

    def close(self) -> None:
        """Nothing to close: the caller owns the transaction."""


class WritableLmdbBytesStore(LmdbBytesStore):
    """The rows of one database in a write transaction. Satisfies `BytesStore`."""

    __slots__ = ()

    def scan(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows of a range. Rows written during the scan may or may not be included."""
        # Writes invalidate a cursor, so rows are read in chunks.
        while True:
            rows = list(islice(super().scan(start, end, reverse), _CHUNK))
            yield from rows
            if len(rows) < _CHUNK:
                return
            if reverse:
                end = rows[-1][0]
            else:
                start = rows[-1][0] + b"\x00"

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply changes in order; None deletes a row."""
        puts, deletions = self._sort(changes)
        database = self._database
        delete = self._transaction.delete
        for key in deletions:
            delete(key, b"", database)
        self._transaction.cursor(database).putmulti(puts)

    def _sort(
        self, changes: Iterable[tuple[bytes, bytes | None]]
    ) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        """Return the entries to put and the stored keys to delete. Writes rows with long keys."""
        if core is not None:
            changes = list(changes)
            found = core.sorted_changes(changes, PREFIX, MAX_KEY_SIZE)
            if found is not None:
                return found
        final = dict(changes)
        keys = sorted(key for key in final if len(key) <= MAX_KEY_SIZE)
        if len(keys) < len(final):
            self._write_long([key for key in final if len(key) > MAX_KEY_SIZE], final)
        puts = [(PREFIX + key, value) for key in keys if (value := final[key]) is not None]
        return puts, [PREFIX + key for key in keys if final[key] is None]

    def clear(self) -> None:
        """Delete all rows."""
        self._transaction.drop(self._database, False)

    def drop_below(self, key: bytes) -> None:
        """Delete all rows with smaller keys."""
        # Deleting row by row is cheap: two million rows per second, a fifth of the cost of writing
        # them. One database per segment would gain nothing.
        high = PREFIX + key[:MAX_KEY_SIZE]
        cursor = self._transaction.cursor(self._database)
        delete, current = cursor.delete, cursor.key
        surplus = 0
        found = cursor.first()
        while found and (stored := current()) < high:
            if len(stored) == BUCKET_KEY_SIZE:
                surplus += sum(1 for _ in decode_bucket(stored, cursor.value())) - 1
            found = delete()
        if surplus:
            self._add_surplus(-surplus)
        if len(key) > MAX_KEY_SIZE:
            expired = [row_key for row_key, _ in self.scan(key[:MAX_KEY_SIZE], key)]
            self.write((row_key, None) for row_key in expired)

    def _write_long(self, keys: list[bytes], final: dict[bytes, bytes | None]) -> None:
        by_bucket: dict[bytes, list[bytes]] = {}
        for key in keys:
            by_bucket.setdefault(bucket_key(key), []).append(key)
        transaction, database = self._transaction, self._database
        surplus = 0
        for bucket, changed in by_bucket.items():
            data = transaction.get(bucket, None, database)
            rows = {} if data is None else dict(decode_bucket(bucket, data))
            surplus -= max(0, len(rows) - 1)
            for key in changed:
                value = final[key]
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value
            surplus += max(0, len(rows) - 1)
            if rows:
                transaction.put(bucket, encode_bucket(rows), db=database)
            else:
                transaction.delete(bucket, b"", database)
        if surplus:
            self._add_surplus(surplus)

    def _add_surplus(self, rows: int) -> None:
        stored = self._transaction.get(_SURPLUS, None, self._database)
        # The counter is an entry of the database itself.
        before = -1 if stored is None else int.from_bytes(stored, "big", signed=True)
        self._transaction.put(
            _SURPLUS, (before + rows).to_bytes(8, "big", signed=True), db=self._database
        )
