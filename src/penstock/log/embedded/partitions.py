"""The table `partitions`."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from penstock.log.embedded.checksums import PARTITIONS, Damage
from penstock.log.types import PartitionOffsets

#: The columns of the table. The checksum is the last.
PARTITION_COLUMNS = (
    "topic_id", "partition", "start", '"end"', "tombstones_removed_to", "cleaned_to", "checksum",
)
_SELECT = (
    f"SELECT {', '.join(PARTITION_COLUMNS)} FROM partitions WHERE topic_id = ? AND partition = ?"
)


class PartitionKey(NamedTuple):
    """The key of a partition in the tables."""

    topic_id: int
    partition: int


class PartitionRow(NamedTuple):
    """A row of the table `partitions`, without its checksum."""

    topic_id: int
    partition: int
    start: int = 0
    end: int = 0
    tombstones_removed_to: int = 0
    #: Compaction has seen every record below.
    cleaned_to: int = 0

    @property
    def offsets(self) -> PartitionOffsets:
        """The offsets that the contract defines."""
        return PartitionOffsets(self.start, self.end, self.tombstones_removed_to)


def topic_name(db: sqlite3.Connection, topic_id: int) -> str:
    """Return the name of a topic for an error. It may be damaged itself."""
    row = db.execute("SELECT name FROM topics WHERE id = ?", (topic_id,)).fetchone()
    return f"topic {topic_id}" if row is None else str(row[0])


def check_partition(
    db: sqlite3.Connection, key: PartitionKey, row: tuple[int, ...]
) -> PartitionRow:
    """Return a row without its checksum, or raise `Damage`."""
    if not PARTITIONS.matches(row):
        topic = topic_name(db, key.topic_id)
        raise Damage(
            f"The start and end of '{topic}' [{key.partition}] are damaged",
            topic=topic, partition=key.partition,
        )
    return PartitionRow._make(row[:-1])


def read_partition(db: sqlite3.Connection, topic_id: int, partition: int) -> PartitionRow | None:
    """Return the row of a partition; None if its topic does not exist."""
    row = db.execute(_SELECT, (topic_id, partition)).fetchone()
    if row is not None:
        return check_partition(db, PartitionKey(topic_id, partition), row)
    if db.execute("SELECT 1 FROM topics WHERE id = ?", (topic_id,)).fetchone() is None:
        return None
    topic = topic_name(db, topic_id)
    raise Damage(
        f"The row of '{topic}' [{partition}] is missing", topic=topic, partition=partition
    )


def write_partition(db: sqlite3.Connection, row: PartitionRow) -> None:
    """Insert or replace the row of a partition, inside a write transaction."""
    db.execute(
        "INSERT OR REPLACE INTO partitions VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, PARTITIONS.of(row))
    )
