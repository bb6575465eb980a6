"""Writes the table of customers to SQLite, exactly once.

    python examples/table_replication/writer.py --log PATH|kafka://HOST:PORT --database FILE

Rows and consumed offsets are in one database and change in one transaction. A writer that fails
leaves both at the end of the last complete batch, and the next writer resumes there. Offsets are
not committed to a consumer group: the database alone knows them.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from penstock import Serdes
from penstock.clients import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from table_replication.topology import CUSTOMERS, Customer, CustomerKey

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS customers (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL, city TEXT NOT NULL,
        writes INTEGER NOT NULL DEFAULT 1)""",
    """CREATE TABLE IF NOT EXISTS consumed (
        partition INTEGER PRIMARY KEY, next_offset INTEGER NOT NULL)""",
)
# A repeated write would be visible in the column `writes`.
_UPSERT = """INSERT INTO customers (id, name, email, city) VALUES (?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        name = excluded.name, email = excluded.email, city = excluded.city, writes = writes + 1"""
_DELETE = "DELETE FROM customers WHERE id = ?"
_CONSUMED = """INSERT INTO consumed (partition, next_offset) VALUES (?, ?)
    ON CONFLICT (partition) DO UPDATE SET next_offset = excluded.next_offset"""

_key_serde, _value_serde = Serdes.of(CustomerKey), Serdes.of(Customer)


class RowChange(NamedTuple):
    """A record of the topic: the row with this id is now `row`, or is deleted (None)."""

    partition: int
    offset: int
    id: int
    row: Customer | None


class Replica:
    """The table in SQLite, and the offsets up to which it contains the topic.

    Invariant: `customers` contains exactly the changes before the offsets in `consumed`. Both
    change in one transaction, under the write lock of the database. A change before these offsets
    is already applied, whether a restarted or a second writer brings it, and is skipped.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        # No implicit transactions: `apply` starts its own.
        database.isolation_level = None
        self._database = database
        for statement in _SCHEMA:
            database.execute(statement)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open or create a database file."""
        return cls(sqlite3.connect(path))

    def close(self) -> None:
        """Close the database. A transaction that is not committed is rolled back."""
        self._database.close()

    def positions(self) -> dict[int, int]:
        """The next offset of each partition."""
        return dict(self._database.execute("SELECT partition, next_offset FROM consumed"))

    def rows(self) -> list[tuple[Customer, int]]:
        """The customers by id, and how many times each row was written."""
        found = self._database.execute(
            "SELECT id, name, email, city, writes FROM customers ORDER BY id"
        )
        return [(Customer(*row), writes) for *row, writes in found]

    def apply(self, changes: Sequence[RowChange]) -> int:
        """Write a batch and its offsets in one transaction. Returns how many changes were new."""
        # The block commits, or rolls back if it raises.
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            positions = self.positions()
            new = [each for each in changes if each.offset >= positions.get(each.partition, 0)]
            for change in new:
                self._write(change)
            self._store_positions({each.partition: each.offset + 1 for each in new})
        return len(new)

    def _write(self, change: RowChange) -> None:
        row = change.row
        if row is None:
            self._database.execute(_DELETE, (change.id,))
        else:
            self._database.execute(_UPSERT, (row.id, row.name, row.email, row.city))

    def _store_positions(self, positions: dict[int, int]) -> None:
        for position in positions.items():
            self._database.execute(_CONSUMED, position)


def replicate(
    log: str, replica: Replica, *, batch_size: int = 500, follow: bool = False
) -> Iterator[int]:
    """Write the topic batch by batch, from the offsets in the database on.

    Yields the number of new changes after each transaction. Ends at the end of the topic, unless
    it has to `follow` it.
    """
    settings = {
        "log": log, "group.id": "customers-replica", "enable.auto.commit": False,
        # Only committed records: an aborted transaction of the application is never visible.
        "isolation.level": "read_committed",
        # A position that retention has removed is an error. Skipping it would lose changes.
        "auto.offset.reset": "error",
        "enable.partition.eof": True, "max.poll.records": batch_size,
    }
    with Consumer(settings) as consumer:
        positions = replica.positions()
        partitions = consumer.list_topics(CUSTOMERS).topics[CUSTOMERS].partitions
        consumer.assign([
            TopicPartition(CUSTOMERS, partition, positions.get(partition, OFFSET_BEGINNING))
            for partition in partitions
        ])
        at_end: set[int] = set()
        while follow or len(at_end) < len(partitions):
            changes = []
            for message in consumer.consume(timeout=1.0):
                if _is_end(message):
                    at_end.add(message.partition())
                else:
                    at_end.discard(message.partition())
                    changes.append(_row_change(message))
            if changes:
                yield replica.apply(changes)


def _is_end(message: Message) -> bool:
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    return error is not None


def _row_change(message: Message) -> RowChange:
    value = message.value()
    row = None if value is None else _value_serde.deserialize(value)
    key = _key_serde.deserialize(message.key())
    return RowChange(message.partition(), message.offset(), key.id, row)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replicate until the program is interrupted."""
    parser = argparse.ArgumentParser(description="write the table of customers to SQLite")
    parser.add_argument("--log", metavar="PATH|kafka://HOST:PORT", required=True)
    parser.add_argument("--database", metavar="FILE", required=True)
    chosen = parser.parse_args(arguments)
    replica = Replica.open(chosen.database)
    try:
        for count in replicate(chosen.log, replica, follow=True):
            print(f"{count} changes written", flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        replica.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
