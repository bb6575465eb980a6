"""Runs the table replication example: a writer fails inside a transaction, and another resumes."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from showcase import Input, Showcase, main, send

from penstock import Streams
from penstock.log import open_log
from table_replication.source import Source
from table_replication.topology import CUSTOMERS, build
from table_replication.writer import Replica, replicate

SEED = 26
BATCH_SIZE = 3


class WriterFailure(Exception):
    """The failure that the demo provokes."""


class FailingReplica(Replica):
    """Fails inside its second transaction, after the rows and before the offsets are written."""

    _transactions = 0

    def _store_positions(self, positions: dict[int, int]) -> None:
        self._transactions += 1
        if self._transactions == 2:
            raise WriterFailure
        super()._store_positions(positions)


def started_source() -> tuple[Source, list[Input]]:
    """The source, and the rows that it has when the replication starts."""
    source = Source(SEED)
    return source, list(source.snapshot(6))


def inputs() -> list[Input]:
    """The initial snapshot."""
    return started_source()[1]


def show(streams: Streams, folder: Path) -> None:
    """Replicate with a failure, and change the source meanwhile."""
    log_address, database = streams.config.log, folder / "customers.db"
    print("\n== the first writer fails inside its second transaction")
    written = fail(log_address, database)
    print(f"  {written} changes written; the second batch is rolled back")

    source, _ = started_source()
    with open_log(log_address) as log:
        events = send(log, source.change(8))
    streams.run_until_caught_up()
    print(f"\n== {events} more events; the second writer resumes at the offsets in the database")
    replica = Replica.open(database)
    print(f"  {sum(replicate(log_address, replica, batch_size=BATCH_SIZE))} changes written")

    print("\n== table customers in SQLite")
    rows = replica.rows()
    replica.close()
    for row, writes in rows:
        print(f"  {row.id}  {row.name:14}  {row.email:23}  {row.city:6}  writes: {writes}")
    is_equal = [row for row, _ in rows] == list(source.rows.values())
    print(f"  The table {'equals' if is_equal else 'DIFFERS FROM'} the source.")


def fail(log_address: str, database: Path) -> int:
    """Run a writer that fails. Returns how many changes it has written before."""
    replica = FailingReplica.open(database)
    written = 0
    try:
        for count in replicate(log_address, replica, batch_size=BATCH_SIZE):
            written += count
    except WriterFailure:
        replica.close()
        return written
    raise AssertionError("The writer has not failed.")


TABLE_REPLICATION_DEMO = Showcase(
    "table-replication", "table replication: change events of customers into SQLite", build,
    inputs, other_topics=(CUSTOMERS,), show=show,
)

if __name__ == "__main__":
    sys.exit(main(TABLE_REPLICATION_DEMO))
