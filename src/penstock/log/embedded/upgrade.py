"""Files in format 1, which has no checksums.

A writer converts the file when it opens it: all rows get checksums, and offsets that compaction has
removed get empty batches. Blobs stay as they are, without a checksum, until they are rewritten.
A reader that may not write sees the tables of format 1 through views.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.log.embedded import checksums, schema, totals
from penstock.log.embedded.checksums import Damage, RowChecksum

#: Table -> its columns in format 1, in order.
_COLUMNS = {
    "topics": ("id", "name", "partitions", "config"),
    "partitions": (
        "topic_id", "partition", "start", '"end"', "tombstones_removed_to", "cleaned_to",
    ),
    "batches": (
        "topic_id", "partition", "base_offset", "last_offset", "records", "bytes",
        "min_timestamp", "max_timestamp", "append_time", "delete_horizon", "blob_id",
    ),
    "aside": ("blob_id", "token", "created_ms", "facts"),
    "group_offsets": (
        "group_name", "topic_id", "partition", '"offset"', "metadata", "committed_ms",
    ),
    "leases": ("name", "epoch", "beat", "held", "holder"),
}
_TEXTS = frozenset({"name", "config", "token", "facts", "group_name", "metadata", "holder"})
_NULLABLE = frozenset({"append_time", "delete_horizon"})
_CHECKSUMS: dict[str, RowChecksum] = {
    "topics": checksums.TOPICS, "partitions": checksums.PARTITIONS, "batches": checksums.BATCHES,
    "aside": checksums.ASIDE, "group_offsets": checksums.GROUP_OFFSETS,
    "leases": checksums.LEASES,
}
_TOTALS_VIEW = """
CREATE TEMP VIEW totals AS
SELECT 'meta' AS name, meta_checksum(name, value) AS total FROM main.meta
UNION ALL SELECT 'last topic id', seq FROM main.sqlite_sequence WHERE name = 'topics'
UNION ALL SELECT 'topics', coalesce(sum(checksum), 0) FROM topics
UNION ALL SELECT 'group:' || group_name, sum(checksum) FROM group_offsets GROUP BY group_name
"""

_Row = Sequence[Any]


def convert(db: sqlite3.Connection) -> None:
    """Convert a file from format 1 to format 2, inside a write transaction."""
    rows = {
        table: db.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
        for table, columns in _COLUMNS.items()
    }
    for table, of_table in rows.items():
        for row in of_table:
            _check(table, row)
    last_topic_id = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'topics'").fetchone()
    for table in _COLUMNS:
        db.execute(f"DROP TABLE {table}")
    for table in ("totals", *_COLUMNS):
        db.execute(schema.TABLES[table])
    found = {table: [_with_checksum(table, row) for row in rows[table]] for table in _COLUMNS}
    found["batches"] += map(_empty_batch, _gaps(found["partitions"], found["batches"]))
    for table, columns in found.items():
        _insert(db, table, columns)
    if last_topic_id is not None:
        db.execute("DELETE FROM sqlite_sequence WHERE name = 'topics'")
        db.execute("INSERT INTO sqlite_sequence VALUES ('topics', ?)", last_topic_id)
        totals.add_to_total(db, totals.LAST_TOPIC_ID, *last_topic_id)
    schema.write_id_total(db)
    for row in found["topics"]:
        totals.add_to_total(db, totals.TOPICS, row[-1])
    for row in found["group_offsets"]:
        totals.add_to_total(db, totals.group_total(row[0]), row[-1])
    schema.write_version(db)


def _with_checksum(table: str, row: _Row) -> tuple[Any, ...]:
    values = (*row, None) if table == "batches" else tuple(row)
    return (*values, _CHECKSUMS[table].of(values))


def _check(table: str, row: _Row) -> None:
    """Raise `Damage` for a row that cannot be right. After this, checksums vouch for it."""
    for name, value in zip(_COLUMNS[table], row, strict=True):
        expected: tuple[type, ...] = (str,) if name in _TEXTS else (int,)
        if name in _NULLABLE:
            expected = (int, type(None))
        if not isinstance(value, expected) or (isinstance(value, int) and value < 0):
            raise Damage(f"The column {name} of the table '{table}' is damaged")
    if table == "topics":
        try:
            json.loads(row[-1])
        except ValueError:
            raise Damage(f"The settings of topic '{row[1]}' are damaged") from None


def _insert(db: sqlite3.Connection, table: str, rows: Sequence[_Row]) -> None:
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def _gaps(partitions: Sequence[_Row], batches: Sequence[_Row]) -> Iterator[tuple[int, ...]]:
    """Yield topic id, partition, first and last offset of the ranges without a batch."""
    by_partition: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for topic_id, partition, base, last, *_ in sorted(batches, key=lambda row: tuple(row[:3])):
        by_partition.setdefault((topic_id, partition), []).append((base, last))
    for topic_id, partition, start, end, *_ in partitions:
        position = start
        for base, last in [*by_partition.get((topic_id, partition), ()), (end, end)]:
            if base > position:
                yield topic_id, partition, position, base - 1
            position = max(position, last + 1)


def _empty_batch(span: tuple[int, ...]) -> tuple[Any, ...]:
    return _with_checksum("batches", (*span, 0, 0, -1, -1, None, None, 0))


def create_views(db: sqlite3.Connection) -> None:
    """Make the tables of a file in format 1 look like those of format 2, on one connection."""
    db.create_function("meta_checksum", 2, lambda *row: checksums.META.of(row))
    for table, columns in _COLUMNS.items():
        values = [*columns, "NULL"] if table == "batches" else columns
        names = [*columns, "data_checksum"] if table == "batches" else columns
        db.create_function(
            f"{table}_checksum", len(values), lambda *row, table=table: _CHECKSUMS[table].of(row)
        )
        db.execute(
            f"CREATE TEMP VIEW {table} ({', '.join(names)}, checksum) AS "
            f"SELECT {', '.join(values)}, {table}_checksum({', '.join(values)}) FROM main.{table}"
        )
    db.execute(_TOTALS_VIEW)
