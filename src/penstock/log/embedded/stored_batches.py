"""Rewriting of stored batches, while other processes may do the same.

The new batch is made without the lock. Under the lock the batches are looked up again: if they are
not the ones that were read, nothing is written and the caller starts over.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from penstock.log.embedded.appends import insert_blob
from penstock.log.embedded.batch_codec import (
    BATCH_RECORDS,
    EncodedBatch,
    add_read_columns,
    decode,
)

#: The most that one transaction reads and replaces.
GROUP_BATCHES = 512
GROUP_BYTES = 1024 * 1024


class PartitionKey(NamedTuple):
    """The key of a partition in the tables."""

    topic_id: int
    partition: int


class BatchRow(NamedTuple):
    """The part of a row of the table `batches` that rewriting needs."""

    base: int
    last: int
    records: int
    bytes: int
    append_time: int | None
    delete_horizon: int | None
    blob_id: int


_SELECT = """
SELECT base_offset, last_offset, records, bytes, append_time, delete_horizon, blob_id
FROM batches WHERE topic_id = ? AND partition = ?
"""


def find_group(
    db: sqlite3.Connection, key: PartitionKey, position: int, end: int
) -> list[BatchRow]:
    """Return batches that begin in the range, as many as one transaction may replace."""
    rows: list[BatchRow] = []
    records = size = 0
    cursor = db.execute(
        f"{_SELECT} AND base_offset >= ? AND base_offset < ? ORDER BY base_offset LIMIT ?",
        (*key, position, end, GROUP_BATCHES),
    )
    for row in map(BatchRow._make, cursor):
        records += row.records
        size += row.bytes
        if rows and (records > BATCH_RECORDS or size > GROUP_BYTES):
            break
        rows.append(row)
    cursor.close()
    return rows


def load(db: sqlite3.Connection, row: BatchRow) -> pa.RecordBatch:
    """Return the records of a batch with the columns of `COLUMNS`."""
    layout, data = db.execute(
        "SELECT layout, data FROM blobs WHERE id = ?", (row.blob_id,)
    ).fetchone()
    return add_read_columns(decode(data, layout), layout, row.base, row.append_time)


def are_unchanged(db: sqlite3.Connection, key: PartitionKey, rows: Sequence[BatchRow]) -> bool:
    """Return whether these are still all the batches from the first to the last of them."""
    found = db.execute(
        f"{_SELECT} AND base_offset >= ? AND base_offset <= ? ORDER BY base_offset",
        (*key, rows[0].base, rows[-1].base),
    ).fetchall()
    return [BatchRow._make(row) for row in found] == list(rows)


def insert(
    db: sqlite3.Connection, key: PartitionKey, span: tuple[int, int], batch: EncodedBatch,
    delete_horizon: int | None,
) -> None:
    """Insert a batch that covers the offsets of the span. Delete the replaced rows first."""
    info = batch.info
    db.execute(
        "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?)",
        (*key, *span, info.records, info.bytes, info.min_timestamp, info.max_timestamp,
         delete_horizon, insert_blob(db, batch)),
    )


def delete_rows(db: sqlite3.Connection, key: PartitionKey, rows: Sequence[BatchRow]) -> None:
    """Delete the rows of batches. Call `delete_blobs` afterwards, and after any insert."""
    db.executemany(
        "DELETE FROM batches WHERE topic_id = ? AND partition = ? AND base_offset = ?",
        [(*key, row.base) for row in rows],
    )


def delete_blobs(db: sqlite3.Connection, rows: Sequence[BatchRow]) -> None:
    """Delete the bytes of batches whose rows are deleted."""
    db.executemany("DELETE FROM blobs WHERE id = ?", [(row.blob_id,) for row in rows])
