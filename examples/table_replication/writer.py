"""Writes the table of customers to SQLite or PostgreSQL, exactly once.

    python examples/table_replication/writer.py --log PATH|kafka://HOST:PORT --database FILE
    python examples/table_replication/writer.py --log ... --database postgresql://USER@HOST/NAME

Rows and consumed offsets are in one database and change in one transaction. A writer that fails
leaves both at the end of the last complete batch, and the next writer resumes there. Offsets are
not committed to a consumer group: the database alone knows them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

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
from penstock.errors import StreamsException
from table_replication.replica import Replica, RowChange, open_replica
from table_replication.topology import CUSTOMERS, Customer, CustomerKey

_key_serde, _value_serde = Serdes.of(CustomerKey), Serdes.of(Customer)


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
    parser = argparse.ArgumentParser(description="write the table of customers to a database")
    parser.add_argument("--log", metavar="PATH|kafka://HOST:PORT", required=True)
    parser.add_argument("--database", metavar="FILE|postgresql://...", required=True)
    chosen = parser.parse_args(arguments)
    try:
        replica = open_replica(chosen.database)
    except (ConnectionError, StreamsException) as error:
        print(error, file=sys.stderr)
        return 1
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
