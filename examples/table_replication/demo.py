"""Runs the table replication example: a writer fails inside a transaction, and another resumes.

    python examples/table_replication/demo.py [--database ...] [--log ...] [--master ...]
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from showcase import Input, Showcase, argument_parser, send, start

from penstock import Streams
from penstock.errors import StreamsException
from penstock.log import open_log
from table_replication.replica import PostgresReplica, Replica, open_replica
from table_replication.source import Source
from table_replication.topology import CUSTOMERS, build
from table_replication.writer import replicate

SEED = 26
BATCH_SIZE = 3


class WriterFailure(Exception):
    """The failure that the demo provokes."""


def fail_in_second_transaction(replica: Replica) -> None:
    """Let a replica fail after the rows and before the offsets of a batch are written."""
    store_positions, numbers = replica._store_positions, itertools.count(1)

    def failing(positions: dict[int, int]) -> None:
        if next(numbers) == 2:
            raise WriterFailure
        store_positions(positions)

    replica._store_positions = failing


def started_source() -> tuple[Source, list[Input]]:
    """The source, and the rows that it has when the replication starts."""
    source = Source(SEED)
    return source, list(source.snapshot(6))


def inputs() -> list[Input]:
    """The initial snapshot."""
    return started_source()[1]


def show(streams: Streams, folder: Path, *, database: str | None) -> None:
    """Replicate with a failure, and change the source meanwhile."""
    log_address, database = streams.config.log, database or str(folder / "customers.db")
    print("\n== the first writer fails inside its second transaction")
    written = fail(log_address, database)
    print(f"  {written} changes written; the second batch is rolled back")

    source, _ = started_source()
    with open_log(log_address) as log:
        events = send(log, source.change(8))
    streams.run_until_caught_up()
    print(f"\n== {events} more events; the second writer resumes at the offsets in the database")
    replica = open_replica(database)
    print(f"  {sum(replicate(log_address, replica, batch_size=BATCH_SIZE))} changes written")

    kind = "PostgreSQL" if isinstance(replica, PostgresReplica) else "SQLite"
    print(f"\n== table customers in {kind}")
    rows = replica.rows()
    replica.close()
    for row, writes in rows:
        print(f"  {row.id}  {row.name:14}  {row.email:23}  {row.city:6}  writes: {writes}")
    is_equal = [row for row, _ in rows] == list(source.rows.values())
    print(f"  The table {'equals' if is_equal else 'DIFFERS FROM'} the source.")


def fail(log_address: str, database: str) -> int:
    """Run a writer that fails. Returns how many changes it has written before."""
    replica = open_replica(database)
    fail_in_second_transaction(replica)
    written = 0
    try:
        for count in replicate(log_address, replica, batch_size=BATCH_SIZE):
            written += count
    except WriterFailure:
        replica.close()
        return written
    raise AssertionError("The writer has not failed.")


def check_unused(database: str) -> None:
    """Exit if the database has the rows of another topic. They are never deleted."""
    replica = open_replica(database)
    try:
        if replica.positions() or replica.rows():
            raise SystemExit(
                "The database has rows of another topic in 'customers' or 'consumed'. Use another "
                "database. Only if they are of an earlier demo, delete both tables:\n"
                "  DROP TABLE customers, consumed;"
            )
    finally:
        replica.close()


TABLE_REPLICATION_DEMO = Showcase(
    "table-replication", "table replication: change events of customers into a database", build,
    inputs, other_topics=(CUSTOMERS,),
)


def main() -> int:
    """Run the example from the command line."""
    parser = argument_parser(TABLE_REPLICATION_DEMO)
    parser.add_argument(
        "--database", metavar="FILE|postgresql://...",
        help="the database to write to (default: a temporary file of SQLite)",
    )
    chosen = parser.parse_args()
    try:
        if chosen.database is not None:
            check_unused(chosen.database)
    except (ConnectionError, StreamsException) as error:
        raise SystemExit(str(error)) from None
    return start(
        replace(TABLE_REPLICATION_DEMO, show=partial(show, database=chosen.database)), chosen
    )


if __name__ == "__main__":
    sys.exit(main())
