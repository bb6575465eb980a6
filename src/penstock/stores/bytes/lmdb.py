"""Rows on disk: LMDB, where many processes read while one writes.

An `Environment` is one LMDB file; each named database in it holds the rows of one inner store.
Commits are not synced to the disk: they survive the end of a process, not that of the host.

LMDB's own rules, which are kept here and nowhere else: a process opens a file once and does not
use it after a fork; handles of databases are opened in short transactions of their own, one at a
time; the map changes its size only while the process has no transaction. A process that was
forked while a file was open cannot use that file at all.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from penstock.errors import ProcessorStateException, TaskCorruptedException
from penstock.stores.bytes.long_keys import (
    BUCKET_SIZE,
    LONGEST,
    ROW,
    ROWS_END,
    bucket_of,
    entries,
    find,
    joined,
    lower_bound,
    upper_bound,
)

T = TypeVar("T")
R = TypeVar("R", bound="LmdbRows")

#: Address space, not memory and not disk: the file grows with what is in it.
MAP_SIZE = 16 << 30
_MAX_DATABASES = 512
_MAX_READERS = 1024
_PATIENCE_S = 60.0
_CHUNK = 256
#: Counts the rows in buckets beyond one each, and less itself; stands behind all rows.
_SURPLUS = ROWS_END + b"surplus"

_DAMAGED = (
    lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError, lmdb.PanicError,
    lmdb.VersionMismatchError, lmdb.IncompatibleError, lmdb.BadDbiError,
)

_open: dict[Path, Environment] = {}
#: What was open when the process was forked. It is the parent's: to close it here would take away
#: the parent's place among the readers.
_inherited: dict[Path, Environment] = {}
_opening = threading.Lock()
_process = os.getpid()


class LmdbRows:
    """The rows of one database as one transaction sees them; satisfies `BytesStore` for reading."""

    __slots__ = ("_database", "_transaction", "get")

    #: The value of a key, None if there is none.
    get: Callable[[bytes], bytes | None]

    def __init__(self, transaction: lmdb.Transaction[bytes], database: Any) -> None:
        self._transaction = transaction
        self._database = database
        fetch = transaction.get

        def get(key: bytes) -> bytes | None:
            if len(key) <= LONGEST:
                return fetch(ROW + key, None, database)
            data = fetch(bucket_of(key), None, database)
            return None if data is None else find(data, key)

        self.get = get

    def scan(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows with start <= key < end in order of their keys, or in the opposite order."""
        for stored, value in self._stored(lower_bound(start), upper_bound(end), reverse):
            if len(stored) < BUCKET_SIZE:
                yield stored[1:], value
                continue
            inside = [
                row for row in entries(stored, value)
                if (start is None or row[0] >= start) and (end is None or row[0] < end)
            ]
            yield from reversed(inside) if reverse else inside

    def _stored(
        self, low: bytes, high: bytes, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows of the database itself with low <= stored key < high."""
        cursor = self._transaction.cursor(self._database)
        if reverse:
            found = cursor.prev() if cursor.set_range(high) else cursor.last()
            if found:
                for row in cursor.iterprev():
                    if row[0] < low:
                        return
                    yield row
        elif cursor.set_range(low):
            for row in cursor.iternext():
                if row[0] >= high:
                    return
                yield row

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Not for a reader."""
        raise ProcessorStateException("These rows belong to a snapshot, which cannot be written.")

    def drop_below(self, key: bytes) -> None:
        """Not for a reader."""
        self.write(())

    def count(self) -> int:
        """How many rows there are."""
        count: int = self._transaction.stat(self._database)["entries"]
        surplus = self._transaction.get(_SURPLUS, None, self._database)
        return count if surplus is None else count + int.from_bytes(surplus, "big", signed=True)

    def close(self) -> None:
        """Nothing is held open: the transaction is someone else's."""


class WritableLmdbRows(LmdbRows):
    """The same in a transaction that writes; satisfies `BytesStore`."""

    __slots__ = ()

    def scan(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows of a range; rows written while it is read may or may not be seen."""
        # A cursor does not outlive what is written beside it, so rows are taken in chunks.
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
        """Apply changes in the order given; None deletes."""
        final = dict(changes)
        keys = sorted(final)
        if not keys:
            return
        if max(map(len, keys)) > LONGEST:
            self._write_long([key for key in keys if len(key) > LONGEST], final)
            keys = [key for key in keys if len(key) <= LONGEST]
        puts = [(ROW + key, value) for key in keys if (value := final[key]) is not None]
        database = self._database
        if len(puts) < len(keys):
            delete = self._transaction.delete
            for key in keys:
                if final[key] is None:
                    delete(ROW + key, b"", database)
        self._transaction.cursor(database).putmulti(puts)

    def empty(self) -> None:
        """Forget every row."""
        self._transaction.drop(self._database, False)

    def drop_below(self, key: bytes) -> None:
        """Forget every row whose key is smaller."""
        # Deleting one after the other is cheap: two million rows a second were measured, a fifth
        # of what writing them has cost. Segments in databases of their own would gain nothing.
        high = ROW + key[:LONGEST]
        cursor = self._transaction.cursor(self._database)
        delete, current = cursor.delete, cursor.key
        lost = 0
        found = cursor.first()
        while found and (stored := current()) < high:
            if len(stored) == BUCKET_SIZE:
                lost += sum(1 for _ in entries(stored, cursor.value())) - 1
            found = delete()
        if lost:
            self._add_surplus(-lost)
        if len(key) > LONGEST:
            inside = [row for row, _ in self.scan(key[:LONGEST], key)]
            self.write((row, None) for row in inside)

    def _write_long(self, keys: list[bytes], final: dict[bytes, bytes | None]) -> None:
        by_bucket: dict[bytes, list[bytes]] = {}
        for key in keys:
            by_bucket.setdefault(bucket_of(key), []).append(key)
        transaction, database = self._transaction, self._database
        gained = 0
        for bucket, inside in by_bucket.items():
            data = transaction.get(bucket, None, database)
            rows = {} if data is None else dict(entries(bucket, data))
            gained -= max(0, len(rows) - 1)
            for key in inside:
                value = final[key]
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value
            gained += max(0, len(rows) - 1)
            if rows:
                transaction.put(bucket, joined(rows), db=database)
            else:
                transaction.delete(bucket, b"", database)
        if gained:
            self._add_surplus(gained)

    def _add_surplus(self, rows: int) -> None:
        stored = self._transaction.get(_SURPLUS, None, self._database)
        # The count itself is a row of the database, too.
        before = -1 if stored is None else int.from_bytes(stored, "big", signed=True)
        self._transaction.put(
            _SURPLUS, (before + rows).to_bytes(8, "big", signed=True), db=self._database
        )


class EnvironmentClosed(ProcessorStateException):
    """The file was closed, by another thread; it may be opened again."""


class Transaction:
    """One consistent view of all databases of an environment, for reading or for writing."""

    def __init__(self, raw: lmdb.Transaction[bytes], databases: dict[str, Any]) -> None:
        self._raw = raw
        self._databases = databases

    def rows(self, name: str) -> LmdbRows | None:
        """The rows of a database; None if there is no such database."""
        return self.rows_of_kind(LmdbRows, name)

    def rows_of_kind(self, kind: type[R], name: str) -> R | None:
        """The same, as another kind of rows."""
        database = self._databases.get(name)
        return None if database is None else kind(self._raw, database)

    def writable(self, name: str) -> WritableLmdbRows:
        """The rows of a database that was named when the transaction began."""
        return WritableLmdbRows(self._raw, self._databases[name])


class Environment:
    """One LMDB file as this process uses it. Made by `Environment.open` only.

    `_users` counts who has opened and not yet closed it; the file is closed after the last one.
    `_active` counts the transactions that the process has open; the map is resized, and the file
    closed, only while there are none. `_databases` holds the handles that are open; it is replaced,
    not changed, so that a transaction keeps those that it can use.
    """

    def __init__(self, path: Path, map_size: int, create: bool) -> None:
        self.path = path
        self._process = os.getpid()
        self._gate = threading.Condition()
        self._users = 1
        self._active = 0
        self._closed = False
        self._handles = threading.Lock()
        self._databases: dict[str, Any] = {}
        with translated(path):
            self._raw = _opened(path, map_size, create)
            try:
                self._check_size()
                self._raw.reader_check()
            except BaseException:
                self._raw.close()
                raise

    @staticmethod
    def open(path: Path, *, create: bool = False, map_size: int = MAP_SIZE) -> Environment:
        """The environment in a directory, the same object for the whole process.

        Whoever opens it closes it, too. `FileNotFoundError` if there is none and it is not to be
        created, or if it is deleted meanwhile.
        """
        # One file has one name here, however it was asked for.
        path = Path(os.path.realpath(path))
        global _process  # noqa: PLW0603  (a fork makes another process of this module)
        with _opening:
            if os.getpid() != _process:
                _inherited.update(_open)
                _open.clear()
                _process = os.getpid()
            if path in _inherited:
                _inherited[path]._check_usable()
            known = _open.get(path)
            if known is None or not known._joined():
                if create:
                    path.mkdir(parents=True, exist_ok=True)
                elif not (path / "data.mdb").exists():
                    raise FileNotFoundError(f"There is no LMDB file in '{path}'.")
                known = _open[path] = Environment(path, map_size, create)
            return known

    @contextmanager
    def reading(self, databases: Iterable[str] = ()) -> Iterator[Transaction]:
        """What is committed right now, in these databases and all that were opened before."""
        self.prepare(databases)
        raw = self._begin(write=False)
        try:
            with translated(self.path):
                yield Transaction(raw, self._databases)
        finally:
            raw.abort()
            self._end()

    def write(self, databases: Iterable[str], work: Callable[[Transaction], T]) -> T:
        """Let `work` write, with these databases made if need be; committed when it returns.

        It is called again from the beginning if the map was full, and nothing has happened if it
        raises.
        """
        while True:
            try:
                with self.writing(databases) as transaction:
                    return work(transaction)
            except lmdb.MapFullError:
                self._resize(self._raw.info()["map_size"] * 4)

    @contextmanager
    def writing(self, databases: Iterable[str]) -> Iterator[Transaction]:
        """A transaction, committed at the end of the block unless it raises.

        A block cannot be run again: what might fill the map goes through `write`.
        """
        self.prepare(databases)
        raw = self._begin(write=True)
        try:
            with translated(self.path):
                yield Transaction(raw, self._databases)
                raw.commit()
        finally:
            raw.abort()
            self._end()

    def prepare(self, databases: Iterable[str]) -> None:
        """Open the handles of databases, which are made if need be."""
        known = self._databases
        missing = [name for name in databases if name not in known]
        if not missing:
            return
        # Under a lock: two transactions of a process must not open handles at once. In one that
        # writes, so that it may have to wait for another writer: the handles that one that reads
        # opens are closed with it.
        with self._handles:
            raw = self._begin(write=True)
            try:
                with translated(self.path):
                    opened = {name: self._raw.open_db(name.encode(), txn=raw) for name in missing}
                    raw.commit()
                self._databases = known | opened
            finally:
                raw.abort()
                self._end()

    def sync(self) -> None:
        """Bring everything that is committed to the disk."""
        with translated(self.path):
            self._raw.sync(True)

    def close(self) -> None:
        """Use it no longer.

        The file is closed when nobody in this process does, and its transactions have ended.
        """
        with self._gate:
            self._users = max(0, self._users - 1)
            self._close_if_idle()

    def _begin(self, *, write: bool) -> lmdb.Transaction[bytes]:
        while True:
            with self._gate:
                self._check_usable()
                self._active += 1
            try:
                with translated(self.path):
                    return self._raw.begin(write=write)
            except lmdb.MapResizedError:
                self._end()
                self._resize(0)
            except lmdb.ReadersFullError:
                self._end()
                if not self._raw.reader_check():
                    raise ProcessorStateException(
                        f"Too many readers of the replica in '{self.path}': {_MAX_READERS}. "
                        "Close iterators and queries that are not used any more."
                    ) from None
            except BaseException:
                self._end()
                raise

    def _end(self) -> None:
        with self._gate:
            self._active -= 1
            self._gate.notify_all()
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._users == 0 and self._active == 0 and self._process == os.getpid():
            self._closed = True
            self._raw.close()

    def _joined(self) -> bool:
        """One more user; False if the file is closed. If it was only about to be, it stays open."""
        with self._gate:
            if not self._closed:
                self._users += 1
            return not self._closed

    def _resize(self, size: int) -> None:
        """Make the map larger; 0: as large as another process has made it."""
        with self._gate:
            if not self._gate.wait_for(lambda: self._active == 0, _PATIENCE_S):
                raise ProcessorStateException(
                    f"The replica in '{self.path}' cannot grow: it has been read for more than "
                    f"{_PATIENCE_S:.0f} s. Close iterators and queries that are not used any more."
                )
            self._check_usable()
            if size == 0 or size > self._raw.info()["map_size"]:
                with translated(self.path):
                    self._raw.set_mapsize(size)

    def _check_usable(self) -> None:
        if self._process != os.getpid():
            raise ProcessorStateException(
                f"The replica in '{self.path}' was open when this process was forked. "
                "LMDB allows no use of it here: start a new process instead."
            )
        if self._users == 0:
            raise EnvironmentClosed(f"The replica in '{self.path}' is closed.")

    def _check_size(self) -> None:
        """A file that is shorter than it says would end the process when it is read."""
        said = (self._raw.info()["last_pgno"] + 1) * self._raw.stat()["psize"]
        there = (self.path / "data.mdb").stat().st_size
        if there < said:
            raise TaskCorruptedException(
                f"The replica in '{self.path}' is cut off: {there} bytes of {said}."
            )


def _opened(path: Path, map_size: int, create: bool) -> lmdb.Environment:
    try:
        return lmdb.open(
            str(path), map_size=map_size, max_dbs=_MAX_DATABASES, max_readers=_MAX_READERS,
            sync=False, metasync=False, create=create,
        )
    except lmdb.Error as error:
        if error.code == errno.ENOENT:
            raise FileNotFoundError(f"The LMDB file in '{path}' was deleted.") from error
        raise


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """LMDB's errors in penstock's words; a full map and a map that has grown are its own affair."""
    try:
        yield
    except _DAMAGED as error:
        raise TaskCorruptedException(f"The replica in '{path}' is damaged: {error}.") from error
    except (lmdb.MapFullError, lmdb.MapResizedError, lmdb.ReadersFullError):
        raise
    except lmdb.Error as error:
        raise ProcessorStateException(
            f"The replica in '{path}' cannot be used: {error}. "
            "If the disk is full, make room; if files are missing, start the application again."
        ) from error
