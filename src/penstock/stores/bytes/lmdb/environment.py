"""LMDB environments: opens files and runs transactions.

An `LmdbEnvironment` is one LMDB file. Each named database in it holds the rows of one bytes store.
Commits are not synced to disk: they survive the end of a process, but not a crash of the host.

This module enforces the rules of LMDB. A process opens a file once. A forked process does not use a
file that its parent had open. Database handles are opened in short transactions, one at a time. The
map is resized only while the process has no transaction. Where the address space of the process is
limited, maps start small.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import lmdb

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

from penstock.errors import ProcessorStateException, TaskCorruptedException
from penstock.stores.bytes.lmdb.rows import LmdbBytesStore, WritableLmdbBytesStore

T = TypeVar("T")
S = TypeVar("S", bound=LmdbBytesStore)

#: Address space, not memory or disk: the file grows with its content.
MAP_SIZE = 16 << 30
#: The size where address space is limited. A process maps several files.
LIMITED_MAP_SIZE = 8 << 20
_MAX_DATABASES = 512
_MAX_READERS = 1024
_RESIZE_TIMEOUT_S = 60.0

_CORRUPT = (
    lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError, lmdb.PanicError,
    lmdb.VersionMismatchError, lmdb.IncompatibleError, lmdb.BadDbiError,
)

#: The open environments of this process.
_open: dict[Path, LmdbEnvironment] = {}
#: The environments that were open at the fork. They belong to the parent: closing them here would
#: release the parent's reader slots.
_inherited: dict[Path, LmdbEnvironment] = {}
_opening = threading.Lock()
_process = os.getpid()
#: The id of this process, also after a fork.
_process_id = os.getpid()


def _forked() -> None:
    global _process_id  # noqa: PLW0603  (a call of os.getpid() for every read would be too slow)
    _process_id = os.getpid()
    for environment in _open.values():
        environment._keep_for_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def process_id() -> int:
    """Return the id of this process, faster than `os.getpid`."""
    return _process_id


class EnvironmentClosed(ProcessorStateException):
    """Another thread has closed the environment. It can be opened again."""


class LmdbTransaction:
    """One consistent view of all databases of an environment, for reading or for writing."""

    def __init__(self, raw: lmdb.Transaction[bytes], databases: dict[str, Any]) -> None:
        self._raw = raw
        self._databases = databases

    def open(self, database: str) -> LmdbBytesStore | None:
        """The rows of a database, for reading; None if it does not exist."""
        return self.open_as(LmdbBytesStore, database)

    def open_as(self, kind: type[S], database: str) -> S | None:
        """The rows of a database as a subclass of `LmdbBytesStore`; None if it does not exist."""
        handle = self._databases.get(database)
        return None if handle is None else kind(self._raw, handle)

    def open_writable(self, database: str) -> WritableLmdbBytesStore:
        """The rows of a database that was prepared for the transaction, for writing."""
        return WritableLmdbBytesStore(self._raw, self._databases[database])


class LmdbEnvironment:
    """One LMDB file, as this process uses it. Only `LmdbEnvironment.open` creates it.

    `_users` counts the callers that have opened and not closed it; the last one closes the file.
    `_active` counts the open transactions of the process. The map is resized and the file is closed
    only while it is 0. `_databases` holds the open handles. It is replaced and never changed, so a
    transaction keeps the handles that it can use.
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
        #: Reader -> its lock, which it holds while it has a transaction. `_gate` protects it.
        self._readers: dict[object, threading.Lock] = {}
        with _translated(path):
            self._raw = _open_file(path, map_size, create)
            try:
                self._check_size()
                self._raw.reader_check()
            except BaseException:
                self._raw.close()
                raise

    @staticmethod
    def open(path: Path, *, create: bool = False, map_size: int = MAP_SIZE) -> LmdbEnvironment:
        """Open the environment in a directory. All callers in the process share one object.

        Every caller must close it. The map is smaller than `map_size` if the address space of the
        process is limited. Raises `FileNotFoundError` if it does not exist and `create` is
        False, or if it is deleted while it is opened.
        """
        # The same file must have the same path, whatever path the caller uses.
        path = Path(os.path.realpath(path))
        global _process  # noqa: PLW0603  (detects that this module runs in a forked process)
        with _opening:
            if os.getpid() != _process:
                _inherited.update(_open)
                _open.clear()
                _process = os.getpid()
            if path in _inherited:
                _inherited[path]._check_usable()
            known = _open.get(path)
            if known is None or not known._add_user():
                if create:
                    path.mkdir(parents=True, exist_ok=True)
                elif not (path / "data.mdb").exists():
                    raise FileNotFoundError(f"There is no LMDB file in '{path}'.")
                size = map_size if _address_space() is None else min(map_size, LIMITED_MAP_SIZE)
                known = _open[path] = LmdbEnvironment(path, size, create)
            return known

    @contextmanager
    def reading(self, databases: Iterable[str] = ()) -> Iterator[LmdbTransaction]:
        """A read transaction on these databases and all databases that were opened before."""
        self.prepare(databases)
        raw = self._begin(write=False)
        try:
            with _translated(self.path):
                yield LmdbTransaction(raw, self._databases)
        finally:
            raw.abort()
            self._end()

    def write(self, databases: Iterable[str], work: Callable[[LmdbTransaction], T]) -> T:
        """Run `work` in a write transaction and commit. Creates missing databases.

        If the map is full, it is enlarged and `work` runs again. If `work` raises, nothing is
        written.
        """
        while True:
            try:
                with self.writing(databases) as transaction:
                    return work(transaction)
            except lmdb.MapFullError:
                growth = 4 if _address_space() is None else 2
                self._resize(self._raw.info()["map_size"] * growth)

    @contextmanager
    def writing(self, databases: Iterable[str]) -> Iterator[LmdbTransaction]:
        """A write transaction, committed at the end of the block unless the block raises.

        A block cannot run again, so use `write` for writes that may fill the map.
        """
        self.prepare(databases)
        raw = self._begin(write=True)
        try:
            with _translated(self.path):
                yield LmdbTransaction(raw, self._databases)
                raw.commit()
        finally:
            raw.abort()
            self._end()

    def prepare(self, databases: Iterable[str]) -> None:
        """Open the handles of databases. Creates missing databases."""
        known = self._databases
        missing = [name for name in databases if name not in known]
        if not missing:
            return
        # The lock keeps two transactions of the process from opening handles at the same time. A
        # read transaction would close its handles when it ends, so this needs a write transaction,
        # which may have to wait for another writer.
        with self._handles:
            raw = self._begin(write=True)
            try:
                with _translated(self.path):
                    opened = {name: self._raw.open_db(name.encode(), txn=raw) for name in missing}
                    raw.commit()
                self._databases = known | opened
            finally:
                raw.abort()
                self._end()

    # ---- readers (`LmdbReader`) --------------------------------------------------------------

    def add_reader(self, reader: object) -> tuple[Callable[[], Any], threading.Lock]:
        """Return the function that starts a read transaction, and the lock to hold for it.

        The reader takes over one use of the environment.
        """
        with self._gate:
            self._check_usable()
            lock = self._readers[reader] = threading.Lock()
            return self._raw.begin, lock

    def remove_reader(self, reader: object) -> None:
        """Forget a reader and give up its use of the environment."""
        with self._gate:
            self._readers.pop(reader, None)
        if self._process == os.getpid():
            self.close()

    def handle(self, database: str) -> Any:
        """Return the handle of a database that was prepared; None if it was not."""
        return self._databases.get(database)

    def handles(self, error: BaseException) -> bool:
        """Return whether a read that could not start may be retried. Raises a translated error."""
        with _translated(self.path):
            if isinstance(error, lmdb.MapResizedError):
                self._resize(self._adopted_size())
                return True
            if isinstance(error, lmdb.ReadersFullError):
                if self._raw.reader_check():
                    return True
                raise _too_many_readers(self.path) from None
            raise error

    def sync(self) -> None:
        """Sync all commits to disk."""
        with _translated(self.path):
            self._raw.sync(True)

    def close(self) -> None:
        """Give up one use. The file closes when it has no users and no transactions."""
        with self._gate:
            self._users = max(0, self._users - 1)
            self._close_if_idle()

    def _begin(self, *, write: bool) -> lmdb.Transaction[bytes]:
        while True:
            with self._gate:
                self._check_usable()
                self._active += 1
            try:
                with _translated(self.path):
                    return self._raw.begin(write=write)
            except lmdb.MapResizedError:
                self._end()
                self._resize(self._adopted_size())
            except lmdb.ReadersFullError:
                self._end()
                if not self._raw.reader_check():
                    raise _too_many_readers(self.path) from None
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

    def _add_user(self) -> bool:
        """Count one more user; False if the file is closed."""
        with self._gate:
            if not self._closed:
                self._users += 1
            return not self._closed

    def _adopted_size(self) -> int:
        """The size of the map after another process has enlarged the file."""
        if _address_space() is None:
            # LMDB takes the map size of the other process.
            return 0
        return 2 * (self.path / "data.mdb").stat().st_size

    def _resize(self, size: int) -> None:
        """Enlarge the map; 0 adopts the size that another process has set."""
        with self._gate:
            if not self._gate.wait_for(lambda: self._active == 0, _RESIZE_TIMEOUT_S):
                raise _open_too_long(self.path)
            self._check_usable()
            with self._readers_stopped():
                if size == 0 or size > self._raw.info()["map_size"]:
                    _check_address_space(self.path, size)
                    with _translated(self.path):
                        self._raw.set_mapsize(size)

    @contextmanager
    def _readers_stopped(self) -> Iterator[None]:
        """Wait until no reader has a transaction, and let none start."""
        with ExitStack() as stack:
            for lock in self._readers.values():
                if not lock.acquire(timeout=_RESIZE_TIMEOUT_S):
                    raise _open_too_long(self.path)
                stack.callback(lock.release)
            yield

    def _keep_for_parent(self) -> None:
        """Keep the file open until the end of this process, a fork of the one that has opened it.

        At its release, the spare transaction would free the reader slot that the parent may use at
        that moment: a writer could then overwrite the snapshot of the parent.
        """
        import ctypes  # noqa: PLC0415  (most processes never fork)

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._raw))

    def _check_usable(self) -> None:
        if self._process != os.getpid():
            raise ProcessorStateException(
                f"The replica in '{self.path}' was open when this process was forked. "
                "LMDB does not allow a forked process to use it. Start a new process instead."
            )
        if self._users == 0:
            raise EnvironmentClosed(f"The replica in '{self.path}' is closed.")

    def _check_size(self) -> None:
        """Refuse a truncated file: reading past its end would kill the process."""
        expected = (self._raw.info()["last_pgno"] + 1) * self._raw.stat()["psize"]
        actual = (self.path / "data.mdb").stat().st_size
        if actual < expected:
            raise TaskCorruptedException(
                f"The replica in '{self.path}' is truncated: {actual} of {expected} bytes."
            )


def _open_file(path: Path, map_size: int, create: bool) -> lmdb.Environment:
    # With a spare transaction, LMDB does not allocate and clear the state of all databases for each
    # read. A spare one holds no snapshot.
    try:
        return lmdb.open(
            str(path), map_size=map_size, max_dbs=_MAX_DATABASES, max_readers=_MAX_READERS,
            sync=False, metasync=False, create=create, max_spare_txns=1,
        )
    except lmdb.Error as error:
        if error.code == errno.ENOENT:
            raise FileNotFoundError(f"The LMDB file in '{path}' was deleted.") from error
        raise


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Translate LMDB errors into penstock's, except those that this module handles."""
    try:
        yield
    except _CORRUPT as error:
        raise TaskCorruptedException(f"The replica in '{path}' is corrupt: {error}.") from error
    except (lmdb.MapFullError, lmdb.MapResizedError, lmdb.ReadersFullError):
        raise
    except lmdb.MemoryError as error:
        raise _out_of_address_space(path) from error
    except lmdb.Error as error:
        raise ProcessorStateException(
            f"The replica in '{path}' cannot be used: {error}. "
            "If the disk is full, free some space. If files are missing, restart the application."
        ) from error


def _too_many_readers(path: Path) -> ProcessorStateException:
    return ProcessorStateException(
        f"The replica in '{path}' has too many readers: {_MAX_READERS}. "
        "Close iterators and queries that are no longer used."
    )


def _open_too_long(path: Path) -> ProcessorStateException:
    return ProcessorStateException(
        f"The replica in '{path}' cannot grow. A read has been open for more than "
        f"{_RESIZE_TIMEOUT_S:.0f} s. Close iterators and queries that are no longer used."
    )


def _address_space() -> int | None:
    """The limit of the process's address space (RLIMIT_AS) in bytes; None if there is none."""
    if resource is None:
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _check_address_space(path: Path, size: int) -> None:
    """Raise if a map of this size does not fit. LMDB would lose the map that it has."""
    if size and _address_space() is not None:
        try:
            mmap.mmap(-1, size, prot=mmap.PROT_READ).close()
        except OSError as error:
            raise _out_of_address_space(path) from error


def _out_of_address_space(path: Path) -> ProcessorStateException:
    limit = _address_space()
    if limit is None:
        return ProcessorStateException(
            f"The replica in '{path}' cannot be mapped: the host is out of memory. Give it more "
            "memory, or run fewer tasks on it."
        )
    return ProcessorStateException(
        f"The replica in '{path}' does not fit into the address space of the process, which is "
        f"limited to {limit >> 20} MiB (RLIMIT_AS). In Spark's workers spark.executor.pyspark."
        "memory sets this limit. Increase it by the size of the stores, or remove it: it counts "
        "mapped files, which are not memory."
    )
