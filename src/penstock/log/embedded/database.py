"""Connections to the file, its read and write transactions, and its errors in words."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from penstock.log.embedded import schema
from penstock.log.embedded.fork_guard import ForkGuard
from penstock.log.embedded.options import EmbeddedOptions
from penstock.log.errors import (
    LogBusy,
    LogDamaged,
    LogError,
    LogFull,
    LogReadOnly,
    LogUnavailable,
    NotALog,
)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.005
#: SQLite takes a shorter file for a new one.
_SHORTEST_FILE_BYTES = 512
#: From this size of the WAL on, it is copied into the file; tried again when it grew by so much.
_CHECKPOINT_BYTES = 16 * 1024 * 1024
_CHECKPOINT_AGAIN_BYTES = 4 * 1024 * 1024


class Database:
    """One process's way to the file.

    Writers of this process take turns at one connection. Readers borrow connections from a pool,
    each for a moment: nothing keeps a snapshot open, which would keep the WAL from being reused.

    The file itself is never opened but by SQLite: closing it would release SQLite's locks.
    """

    def __init__(self, path: str, options: EmbeddedOptions) -> None:
        self.path = path
        self.options = options
        #: Set by commits of this process and by `wake`; cleared by whoever waits.
        self.changed = threading.Event()
        self.closed = False
        self._turn = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._readers: deque[sqlite3.Connection] = deque()
        self._watcher: sqlite3.Connection | None = None
        self._seen_version: int | None = None
        #: The size of the WAL when this process last tried a checkpoint.
        self._wal_tried = 0
        self._gate = ForkGuard(self._close_connections, self._in_child)
        self._open_file()

    # Opening

    def _open_file(self) -> None:
        path = Path(self.path)
        if not path.parent.is_dir():
            raise LogUnavailable(
                f"No directory '{path.parent}' for the log '{self.path}'. Make it first."
            )
        if path.is_dir():
            raise NotALog(f"'{self.path}' is a directory. Give the path of a file.")
        if not path.exists() and (self.options.read_only or not self.options.create):
            raise LogUnavailable(f"No log at '{self.path}'.")
        if path.exists() and 0 < path.stat().st_size < _SHORTEST_FILE_BYTES:
            raise self._not_a_log()
        with self._gate, self.translated():
            db = self._connect()
            try:
                if schema.is_empty(db):
                    if self.options.read_only or not self.options.create:
                        raise NotALog(f"'{self.path}' is empty.")
                    self._create(db)
                schema.check(db, self.path)
            except BaseException:
                db.close()
                raise
            self._readers.append(db)
        self.has_changed()

    def _create(self, db: sqlite3.Connection) -> None:
        """Several processes may do this at once; one of them makes the tables."""
        schema.prepare(db)
        deadline = time.monotonic() + self.options.busy_timeout_ms / 1000
        pause = _FIRST_PAUSE
        # Another process that changes the mode is met with an error, not with waiting.
        while True:
            try:
                db.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
            pause = _sleep(pause)
        self._begin(db)
        try:
            if schema.is_empty(db):
                schema.create(db)
            db.execute("COMMIT")
        except BaseException:
            _roll_back(db)
            raise

    def _connect(self) -> sqlite3.Connection:
        if self.closed:
            raise LogUnavailable(f"The log '{self.path}' is closed.")
        options = self.options
        mode = "ro" if options.read_only else "rwc" if options.create else "rw"
        db = sqlite3.connect(
            f"file:{quote(self.path)}?mode={mode}", uri=True, isolation_level=None,
            check_same_thread=False, timeout=options.busy_timeout_ms / 1000, cached_statements=64,
        )
        try:
            db.execute(f"PRAGMA synchronous = {options.synchronous}")
            # See `_checkpoint`. The limit lets the size of the WAL tell how much is in it.
            db.execute("PRAGMA wal_autocheckpoint = 0")
            db.execute("PRAGMA journal_size_limit = 0")
        except BaseException:
            db.close()
            raise
        return db

    # Transactions

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection to read with. One statement sees one snapshot."""
        with self._gate, self.translated():
            try:
                db = self._readers.pop()
            except IndexError:
                db = self._connect()
            try:
                yield db
            finally:
                if self.closed:
                    db.close()
                else:
                    self._readers.append(db)

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection whose statements all see the same snapshot."""
        with self.reading() as db:
            db.execute("BEGIN")
            try:
                yield db
            finally:
                _roll_back(db)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: committed at the end of the block, undone if it raises."""
        if self.options.read_only:
            raise LogReadOnly(f"The log '{self.path}' was opened for reading only.")
        with self._gate:
            if not self._turn.acquire(timeout=self.options.busy_timeout_ms / 1000):
                raise self._busy()
            try:
                with self.translated():
                    db = self._writer or self._connect_writer()
                    self._begin(db)
                    try:
                        yield db
                        db.execute("COMMIT")
                    except BaseException:
                        _roll_back(db)
                        raise
                self.changed.set()
                self._maybe_checkpoint(db)
            finally:
                self._turn.release()

    def _connect_writer(self) -> sqlite3.Connection:
        db = self._writer = self._connect()
        db.execute("PRAGMA busy_timeout = 0")
        if self.options.max_file_bytes is not None:
            page = db.execute("PRAGMA page_size").fetchone()[0]
            db.execute(f"PRAGMA max_page_count = {max(1, self.options.max_file_bytes // page)}")
        return db

    def _begin(self, db: sqlite3.Connection) -> None:
        """Become the only writer. SQLite's own waiting sleeps for up to 100 ms; this does not."""
        deadline = time.monotonic() + self.options.busy_timeout_ms / 1000
        pause = _FIRST_PAUSE
        while True:
            try:
                db.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error):
                    raise
            if time.monotonic() > deadline:
                raise self._busy()
            pause = _sleep(pause)

    def _maybe_checkpoint(self, db: sqlite3.Connection) -> None:
        size = _size(f"{self.path}-wal")
        if size < self._wal_tried:
            self._wal_tried = 0
        if size >= max(_CHECKPOINT_BYTES, self._wal_tried + _CHECKPOINT_AGAIN_BYTES):
            self._wal_tried = size
            # The commit is done; what goes wrong here, a later one will meet and tell.
            with suppress(sqlite3.Error, LogError):
                self._checkpoint(db)

    def _checkpoint(self, db: sqlite3.Connection) -> None:
        """Copy the WAL into the file, while nobody can write.

        SQLite would do it after the commit, while others write; before version 3.51.3 that can, in
        rare cases, lose commits (the WAL-reset bug). It cannot while the WAL is not begun anew,
        which only a writer does: so one connection is the writer and another makes the checkpoint.
        """
        self._begin(db)
        try:
            with self.reading() as other:
                other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        finally:
            _roll_back(db)

    def _busy(self) -> LogBusy:
        return LogBusy(
            f"Other writers held the log '{self.path}' for {self.options.busy_timeout_ms} ms. "
            "Nothing was written; try again."
        )

    def _not_a_log(self) -> NotALog:
        return NotALog(f"'{self.path}' is not a penstock log. Give another path.")

    def free_pages(self, least_share: float) -> None:
        """Give unused space back to the file system if it is more than this share of the file."""
        while True:
            with self.reading() as db:
                pages = db.execute("PRAGMA page_count").fetchone()[0]
                unused = db.execute("PRAGMA freelist_count").fetchone()[0]
            if unused <= max(256, pages * least_share):
                return
            with self.writing() as db:
                db.execute("PRAGMA incremental_vacuum(256)").fetchall()

    # Waiting

    def has_changed(self) -> bool:
        """Whether any process has committed since this was last asked, or since the opening."""
        with self._gate, self.translated():
            if self._watcher is None:
                self._watcher = self._connect()
            # The number changes with the commits of other connections, and this one never writes.
            version = int(self._watcher.execute("PRAGMA data_version").fetchone()[0])
        changed = version != self._seen_version
        self._seen_version = version
        return changed

    def close(self) -> None:
        """Close all connections that are not in use; the others are closed when given back."""
        if self.closed:
            return
        self.closed = True
        self.changed.set()
        with self._gate, self._turn:
            self._close_connections()

    def _in_child(self) -> None:
        # Threads of the parent may have been in the middle of it.
        self.changed = threading.Event()

    def _close_connections(self) -> None:
        """Close those that are not in use; new ones are made when they are needed."""
        for db in (self._writer, self._watcher):
            if db is not None:
                db.close()
        self._writer = self._watcher = self._seen_version = None
        # One by one: a reader that another thread takes meanwhile is in use, and SQLite crashes.
        with suppress(IndexError):
            while True:
                self._readers.pop().close()

    # Errors

    @contextmanager
    def translated(self) -> Iterator[None]:
        """SQLite's errors as those of a log."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._in_words(error) from error

    def _in_words(self, error: sqlite3.Error) -> LogError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        path = self.path
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return self._busy()
        if code == sqlite3.SQLITE_READONLY:
            return LogReadOnly(f"The log '{path}' cannot be written. Check who may write the file.")
        if code == sqlite3.SQLITE_FULL:
            return LogFull(
                f"No room in the log '{path}': the disk or its own limit is full. "
                "Nothing was written; make room or shorten the retention."
            )
        if code == sqlite3.SQLITE_NOTADB:
            return self._not_a_log()
        if code == sqlite3.SQLITE_CORRUPT:
            return LogDamaged(f"The log '{path}' is damaged: {error}.")
        if code == sqlite3.SQLITE_CANTOPEN:
            return LogUnavailable(f"The log '{path}' cannot be opened. Check who may read it.")
        return LogUnavailable(f"The log '{path}' cannot be used: {error}.")


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in {
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED,
    }


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _sleep(pause: float) -> float:
    # Not all at the same moment, or the same one would win again and again.
    time.sleep(pause * (0.5 + random.random()))
    return min(2 * pause, _LONGEST_PAUSE)


def _roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK")
