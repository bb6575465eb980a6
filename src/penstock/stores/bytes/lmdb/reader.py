"""`LmdbReader`: repeated short read transactions on an environment, for queries.

A transaction sees the last commit. It is cheap: about a tenth of a microsecond. Between
transactions a reader holds no snapshot, so it does not keep old pages from being reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.errors import ProcessorStateException
from penstock.native import core
from penstock.stores.bytes.lmdb.environment import (
    LmdbEnvironment,
    LmdbTransaction,
    process_id,
)
from penstock.stores.bytes.lmdb.long_keys import MAX_KEY_SIZE, PREFIX, bucket_key, find_in_bucket
from penstock.stores.bytes.lmdb.rows import LmdbBytesStore
from penstock.stores.bytes.store import InMemoryBytesStore


class LmdbReader:
    """One reader of an environment. One caller uses it at a time.

    Invariants:
    - The lock is held while a transaction is open. The environment takes the locks of all readers
      before it changes its map.
    - The reader counts as a user of the environment, so the file stays open until `close`.
    """

    __slots__ = (
        "_environment", "_process", "begin_transaction", "lock", "transaction",
    )

    def __init__(self, environment: LmdbEnvironment) -> None:
        """The reader takes over one use of the environment, which `close` gives up."""
        self._environment = environment
        self._process = process_id()
        self.begin_transaction, self.lock = environment.add_reader(self)
        #: The open transaction; None between `begin` and `end`.
        self.transaction: Any = None

    def begin(self) -> int:
        """Start a transaction. Returns its number, which grows with every commit of the file."""
        if self._process != process_id():
            raise ProcessorStateException(
                "This replica was open when the process was forked. LMDB does not allow a forked "
                "process to use it. Start a new process instead."
            )
        self.lock.acquire()
        try:
            transaction = self.transaction = self.begin_transaction()
        except BaseException as error:
            self.lock.release()
            if not self._environment.handles(error):
                raise
            return self.begin()
        number: int = transaction.id()
        return number

    def end(self) -> None:
        """End the transaction."""
        transaction, self.transaction = self.transaction, None
        try:
            transaction.abort()
        finally:
            self.lock.release()

    def open(self, database: str) -> ReaderRows | InMemoryBytesStore:
        """The rows of a database. They are valid in all transactions of this reader."""
        handle = self._environment.handle(database)
        return InMemoryBytesStore() if handle is None else ReaderRows(self, handle)

    def databases(self, *names: str) -> LmdbTransaction:
        """The current transaction, with these databases."""
        handles = {name: self._environment.handle(name) for name in names}
        return LmdbTransaction(self.transaction, handles)

    def close(self) -> None:
        """Give up the use of the environment. No transaction is open."""
        self._environment.remove_reader(self)


class ReaderRows:
    """The rows of a database in the current transaction of a reader. Satisfies `BytesStore`."""

    __slots__ = ("_handle", "_reader", "get")

    #: The value of a key; None if the key does not exist.
    get: Callable[[bytes], bytes | None]

    def __init__(self, reader: LmdbReader, handle: Any) -> None:
        self._reader = reader
        self._handle = handle

        def get(key: bytes) -> bytes | None:
            fetch = reader.transaction.get
            if len(key) <= MAX_KEY_SIZE:
                value: bytes | None = fetch(PREFIX + key, None, handle)
                return value
            data = fetch(bucket_key(key), None, handle)
            return None if data is None else find_in_bucket(data, key)

        self.get = (
            get if core is None else core.snapshot_get(reader, handle, PREFIX, MAX_KEY_SIZE, get)
        )

    def scan(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows with start <= key < end, in ascending or descending order of their keys."""
        return self._current().scan(start, end, reverse)

    def write(self, changes: Any) -> None:
        """Always fails: queries only read."""
        self._current().write(changes)

    def drop_below(self, key: bytes) -> None:
        """Nothing to do: a reader does not delete expired rows."""

    def count(self) -> int:
        """The number of rows."""
        return self._current().count()

    def close(self) -> None:
        """Nothing to close: the reader belongs to the caller."""

    def _current(self) -> LmdbBytesStore:
        return LmdbBytesStore(self._reader.transaction, self._handle)
