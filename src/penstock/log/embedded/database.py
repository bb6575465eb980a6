"""Connections to the file, read and write transactions, and error translation."""

from __future__ import annotations

import os
import random
import shlex
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from penstock.log.embedded import schema, upgrade
from penstock.log.embedded.checksums import Damage
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

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0002, 0.005
#: SQLite treats a shorter file as a new one.
_SHORTEST_FILE_BYTES = 512
#: A checkpoint copies the WAL into the file once it has this size. Retried after this growth.
_CHECKPOINT_BYTES = 16 * 1024 * 1024
_CHECKPOINT_RETRY_BYTES = 4 * 1024 * 1024
#: Statements violate a constraint only if a table is damaged.
_DAMAGE_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CONSTRAINT})
#: Python's error for text that is not UTF-8. It has no code.
_NOT_TEXT = "Could not decode to UTF-8"


class Database:
    """The connections of one process to the file.

    Writers of this process share one connection, one at a time. Readers borrow connections from a
    pool, each for a short time: an open snapshot would prevent reuse of the WAL.

    Only SQLite opens the file: closing another descriptor of it would release SQLite's locks.
    """

    def __init__(self, path: str, options: EmbeddedOptions) -> None:
        self.path = path
        self.options = options
        #: Set by commits of this process and by `Log.wake`; cleared by `Log.wait_for_change`.
        self.changed = threading.Event()
        self.closed = False
        #: The format version. Below the current one, the file cannot be written.
        self.format = schema.FORMAT_VERSION
        self._write_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._readers: deque[sqlite3.Connection] = deque()
        self._watcher: sqlite3.Connection | None = None
        self._seen_version: int | None = None
        #: The size of the WAL at the last checkpoint attempt of this process.
        self._checkpoint_size = 0
        self._guard = ForkGuard(self._close_connections, self._reset_in_child)
        self._open_file()

    # Opening

    def _open_file(self) -> None:
        path = Path(self.path)
        if not path.parent.is_dir():
            raise LogUnavailable(
                f"The directory '{path.parent}' of the log '{self.path}' does not exist. Create it."
            )
        if path.is_dir():
            raise NotALog(f"'{self.path}' is a directory. Use the path of a file.")
        if not path.exists() and (self.options.read_only or not self.options.create):
            raise LogUnavailable(f"The log '{self.path}' does not exist.")
        if path.exists() and 0 < path.stat().st_size < _SHORTEST_FILE_BYTES:
            raise self._not_a_log()
        with self._guard, self.translate_errors():
            db = self._connect()
            try:
                if schema.is_empty(db):
                    if self.options.read_only or not self.options.create:
                        raise NotALog(f"'{self.path}' is empty.")
                    self._create(db)
                schema.check(db, self.path)
                if schema.version_of(db) < schema.FORMAT_VERSION:
                    self._upgrade(db)
            except BaseException:
                db.close()
                raise
            self._readers.append(db)
        self.has_changed()

    def _create(self, db: sqlite3.Connection) -> None:
        """Create the tables. Several processes may try this at once; one of them succeeds."""
        schema.prepare(db)
        deadline = time.monotonic() + self.options.busy_timeout_ms / 1000
        pause = _FIRST_PAUSE_S
        # SQLite does not wait for another process that changes the mode: it raises.
        while True:
            try:
                db.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
            pause = _sleep(pause)
        with self._transaction(db):
            if schema.is_empty(db):
                schema.create(db)

    def _upgrade(self, db: sqlite3.Connection) -> None:
        """Convert a file in an older format. A file that cannot be written stays as it is."""
        try:
            if not self.options.read_only:
                with self._transaction(db):
                    if schema.version_of(db) < schema.FORMAT_VERSION:
                        upgrade.convert(db)
                return
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_READONLY:
                raise
        self.format = schema.version_of(db)
        upgrade.create_views(db)

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
            # See `_checkpoint`. With this limit the size of the WAL shows how much is in it.
            db.execute("PRAGMA wal_autocheckpoint = 0")
            db.execute("PRAGMA journal_size_limit = 0")
            if self.format < schema.FORMAT_VERSION:
                upgrade.create_views(db)
        except BaseException:
            db.close()
            raise
        return db

    # Transactions

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Borrow a connection for reading. Each statement sees its own snapshot."""
        with self._guard, self.translate_errors():
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
        """Borrow a connection whose statements all see the same snapshot."""
        with self.reading() as db:
            db.execute("BEGIN")
            try:
                yield db
            finally:
                _roll_back(db)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run a write transaction: commit at the end of the block, roll back if it raises."""
        if self.options.read_only:
            raise LogReadOnly(f"The log '{self.path}' is opened read-only.")
        with self._guard:
            if not self._write_lock.acquire(timeout=self.options.busy_timeout_ms / 1000):
                raise self._busy()
            try:
                with self.translate_errors():
                    db = self._writer or self._connect_writer()
                    with self._transaction(db):
                        yield db
                self.changed.set()
                self._maybe_checkpoint(db)
            finally:
                self._write_lock.release()

    @contextmanager
    def _transaction(self, db: sqlite3.Connection) -> Iterator[None]:
        self._begin(db)
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            _roll_back(db)
            raise

    def _connect_writer(self) -> sqlite3.Connection:
        db = self._writer = self._connect()
        db.execute("PRAGMA busy_timeout = 0")
        if self.options.max_file_bytes is not None:
            page = db.execute("PRAGMA page_size").fetchone()[0]
            db.execute(f"PRAGMA max_page_count = {max(1, self.options.max_file_bytes // page)}")
        return db

    def _begin(self, db: sqlite3.Connection) -> None:
        """Become the only writer. Polls, because SQLite's busy handler sleeps up to 100 ms."""
        deadline = time.monotonic() + self.options.busy_timeout_ms / 1000
        pause = _FIRST_PAUSE_S
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
        if size < self._checkpoint_size:
            self._checkpoint_size = 0
        if size >= max(_CHECKPOINT_BYTES, self._checkpoint_size + _CHECKPOINT_RETRY_BYTES):
            self._checkpoint_size = size
            # The transaction is committed. A persistent error will fail a later one.
            with suppress(sqlite3.Error, LogError):
                self._checkpoint(db)

    def _checkpoint(self, db: sqlite3.Connection) -> None:
        """Copy the WAL into the file while no process can write.

        SQLite's automatic checkpoint runs after the commit, while other processes write. Before
        version 3.51.3 it can, in rare cases, lose commits (the WAL-reset bug). Only a writer resets
        the WAL, so one connection holds the write lock while another makes the checkpoint.
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
            "Nothing was written. Try again."
        )

    def _not_a_log(self) -> NotALog:
        return NotALog(f"'{self.path}' is not a penstock log. Use another path.")

    def free_pages(self, max_share: float) -> None:
        """Return unused space beyond this share of the file to the file system."""
        while True:
            with self.reading() as db:
                pages = db.execute("PRAGMA page_count").fetchone()[0]
                unused = db.execute("PRAGMA freelist_count").fetchone()[0]
            if unused <= max(256, pages * max_share):
                return
            with self.writing() as db:
                db.execute("PRAGMA incremental_vacuum(256)").fetchall()

    # Changes

    def has_changed(self) -> bool:
        """Return whether any process has committed since the last call, or since the opening."""
        with self._guard, self.translate_errors():
            if self._watcher is None:
                self._watcher = self._connect()
            # data_version changes with commits of other connections; this one never writes.
            version = int(self._watcher.execute("PRAGMA data_version").fetchone()[0])
        changed = version != self._seen_version
        self._seen_version = version
        return changed

    def close(self) -> None:
        """Close all idle connections. The others are closed when they are returned."""
        if self.closed:
            return
        self.closed = True
        self.changed.set()
        with self._guard, self._write_lock:
            self._close_connections()

    def _reset_in_child(self) -> None:
        # A thread of the parent may have held its lock.
        self.changed = threading.Event()

    def _close_connections(self) -> None:
        """Close the idle connections. New ones are opened on demand."""
        for db in (self._writer, self._watcher):
            if db is not None:
                db.close()
        self._writer = self._watcher = self._seen_version = None
        # Pop one by one: SQLite crashes if a connection is closed that another thread has borrowed.
        with suppress(IndexError):
            while True:
                self._readers.pop().close()

    # Errors

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise errors of SQLite, and damage, as errors of the log."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._translate(error) from error
        except UnicodeDecodeError as error:
            # A message of SQLite quotes damaged text.
            raise self.damaged(Damage("SQLite found damage", "a text is not UTF-8")) from error
        except Damage as damage:
            raise self.damaged(damage) from None

    def damaged(self, damage: Damage) -> LogDamaged:
        """Return the error for damage, with advice."""
        log = f"--log {shlex.quote(self.path)}"
        advice = (
            f"`penstock topics verify {log}` lists all damage.\n"
            "Restore the file from a backup, or give up the damaged records with "
            f"`penstock topics verify --drop-damaged {log}`."
        )
        if damage.partition is None:
            advice = (
                "These are not records, so they cannot be given up.\n"
                "Restore the file from a backup. If only the offsets of a group are damaged, "
                f"delete the group: `penstock groups delete GROUP {log}`."
            )
        return LogDamaged(
            f"{damage.fact} in the log '{self.path}'.\n{advice}",
            topic=damage.topic, partition=damage.partition, offsets=damage.offsets,
        )

    def _translate(self, error: sqlite3.Error) -> LogError:
        code = _code(error)
        path = self.path
        if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return self._busy()
        if code == sqlite3.SQLITE_READONLY:
            return LogReadOnly(
                f"The log '{path}' cannot be written. Check the permissions of the file."
            )
        if code == sqlite3.SQLITE_FULL:
            return LogFull(
                f"The log '{path}' is full: the disk, or max_file_bytes, has no room left. "
                "Nothing was written. Free some space or shorten the retention."
            )
        if code == sqlite3.SQLITE_NOTADB:
            return self._not_a_log()
        if is_damage(error):
            return self.damaged(Damage("SQLite found damage", damage_text(error)))
        if code == sqlite3.SQLITE_CANTOPEN:
            return LogUnavailable(
                f"The log '{path}' cannot be opened. Check the permissions of the file."
            )
        return LogUnavailable(f"The log '{path}' cannot be used: {error}.")


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether only a damaged file causes this error."""
    return _code(error) in _DAMAGE_CODES or str(error).startswith(_NOT_TEXT)


def damage_text(error: sqlite3.Error) -> str:
    """Return the message of the error, without the data that Python adds."""
    return "a text is not UTF-8" if str(error).startswith(_NOT_TEXT) else str(error)


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _sleep(pause: float) -> float:
    # Random, so that waiting writers do not retry at the same moment.
    time.sleep(pause * (0.5 + random.random()))
    return min(2 * pause, _LONGEST_PAUSE_S)


def _roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK")
