"""The replicated table in a database: SQLite or PostgreSQL."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Self

from penstock.extras import explain_missing_extra
from table_replication.topology import Customer

# Both databases accept these statements; PostgreSQL gets its own placeholders.
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS customers (
        id BIGINT PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL, city TEXT NOT NULL,
        writes BIGINT NOT NULL DEFAULT 1)""",
    """CREATE TABLE IF NOT EXISTS consumed (
        partition BIGINT PRIMARY KEY, next_offset BIGINT NOT NULL)""",
)
# A repeated write would be visible in the column `writes`.
_UPSERT = """INSERT INTO customers (id, name, email, city) VALUES (?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET name = excluded.name, email = excluded.email,
        city = excluded.city, writes = customers.writes + 1"""
_DELETE = "DELETE FROM customers WHERE id = ?"
_CONSUMED = """INSERT INTO consumed (partition, next_offset) VALUES (?, ?)
    ON CONFLICT (partition) DO UPDATE SET next_offset = excluded.next_offset"""


class RowChange(NamedTuple):
    """A record of the topic: the row with this id is now `row`, or is deleted (None)."""

    partition: int
    offset: int
    id: int
    row: Customer | None


class Replica(ABC):
    """The table in a database, and the offsets up to which it contains the topic.

    Invariant: `customers` contains exactly the changes before the offsets in `consumed`. Both
    change in one transaction, which no other writer can interleave. A change before these offsets
    is already applied, whether a restarted or a second writer brings it, and is skipped.
    """

    #: The first statement of a transaction. Until its end, other writers wait.
    _lock: ClassVar[str]

    def __init__(self, database: Any) -> None:
        self._database = database
        with self._transaction():
            for statement in _SCHEMA:
                self._execute(statement)

    @classmethod
    @abstractmethod
    def open(cls, address: str) -> Self:
        """Open a database."""

    def close(self) -> None:
        """Close the database. A transaction that is not committed is rolled back."""
        self._database.close()

    def positions(self) -> dict[int, int]:
        """The next offset of each partition."""
        return dict(self._execute("SELECT partition, next_offset FROM consumed"))

    def rows(self) -> list[tuple[Customer, int]]:
        """The customers by id, and how many times each row was written."""
        found = self._execute("SELECT id, name, email, city, writes FROM customers ORDER BY id")
        return [(Customer(*row), writes) for *row, writes in found]

    def apply(self, changes: Sequence[RowChange]) -> int:
        """Write a batch and its offsets in one transaction. Returns how many changes were new."""
        with self._transaction():
            positions = self.positions()
            new = [each for each in changes if each.offset >= positions.get(each.partition, 0)]
            for change in new:
                self._write(change)
            self._store_positions({each.partition: each.offset + 1 for each in new})
        return len(new)

    def _write(self, change: RowChange) -> None:
        row = change.row
        if row is None:
            self._execute(_DELETE, change.id)
        else:
            self._execute(_UPSERT, row.id, row.name, row.email, row.city)

    def _store_positions(self, positions: dict[int, int]) -> None:
        for position in positions.items():
            self._execute(_CONSUMED, *position)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """A block that commits at its end, or rolls back if it raises."""
        with self._block():
            self._execute(self._lock)
            yield

    @abstractmethod
    def _block(self) -> Any:
        """The database's own context manager for a transaction."""

    @abstractmethod
    def _execute(self, statement: str, *values: object) -> Iterable[Any]:
        """Execute a statement. Returns its rows."""


class SqliteReplica(Replica):
    """The table in a file of SQLite."""

    # Takes the write lock of the file at once.
    _lock = "BEGIN IMMEDIATE"

    @classmethod
    def open(cls, address: str) -> Self:
        # No implicit transactions.
        return cls(sqlite3.connect(address, isolation_level=None))

    def _block(self) -> Any:
        return self._database

    def _execute(self, statement: str, *values: object) -> Iterable[Any]:
        return self._database.execute(statement, values)


class PostgresReplica(Replica):
    """The table in a PostgreSQL database."""

    # Also protects CREATE TABLE IF NOT EXISTS, which fails if two sessions execute it together.
    _lock = "SELECT pg_advisory_xact_lock(hashtext('penstock table replication'))"

    @classmethod
    def open(cls, address: str) -> Self:
        with explain_missing_extra("examples"):
            import psycopg
        try:
            # No implicit transactions.
            database = psycopg.connect(address, autocommit=True)
        except psycopg.Error as error:
            # The message has no password.
            raise ConnectionError(f"PostgreSQL cannot be used: {error}") from None
        # Each statement sees what was committed before it, so the offsets that follow the lock are
        # those of the last writer. A stricter level would read them as of the start of the wait.
        database.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return cls(database)

    def _block(self) -> Any:
        return self._database.transaction()

    def _execute(self, statement: str, *values: object) -> Iterable[Any]:
        return self._database.execute(statement.replace("?", "%s"), values or None)


def open_replica(address: str) -> Replica:
    """Open a PostgreSQL database, `postgresql://...`, or a file of SQLite, or create the file."""
    is_postgres = address.startswith(("postgresql://", "postgres://"))
    return (PostgresReplica if is_postgres else SqliteReplica).open(address)
