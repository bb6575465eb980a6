"""Rewriting of stored batches, while other processes may do the same.

The new batch is made without the lock. Under the lock the batches are looked up again: if they are
not the ones that were read, nothing is written and the caller starts over.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from penstock.log.embedded.batch_codec import BATCH_RECORDS, EncodedBatch
from penstock.log.embedded.batch_rows import (
    SELECT_BATCHES,
    BatchRow,
    insert_batch,
    insert_blob,
)
from penstock.log.embedded.partitions import PartitionKey

#: The most that one transaction reads and replaces.
GROUP_BATCHES = 512
GROUP_BYTES = 1024 * 1024


def find_group(
    db: sqlite3.Connection, key: PartitionKey, position: int, end: int
) -> list[BatchRow]:
    """Return batches that begin in the range, as many as one transaction may replace."""
    rows: list[BatchRow] = []
    records = size = 0
    cursor = db.execute(
        f"{SELECT_BATCHES} AND base_offset >= ? AND base_offset < ? ORDER BY base_offset LIMIT ?",
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


def are_unchanged(db: sqlite3.Connection, key: PartitionKey, rows: Sequence[BatchRow]) -> bool:
    """Return whether these are still all the batches from the first to the last of them."""
    found = db.execute(
        f"{SELECT_BATCHES} AND base_offset >= ? AND base_offset <= ? ORDER BY base_offset",
        (*key, rows[0].base, rows[-1].base),
    ).fetchall()
    return found == list(rows)


def insert(
    db: sqlite3.Connection, key: PartitionKey, span: tuple[int, int], batch: EncodedBatch | None,
    delete_horizon: int | None = None,
) -> None:
    """Insert a batch that covers the offsets of the span. Delete the replaced rows first."""
    if batch is None:
        insert_batch(db, key, span, None)
    else:
        blob_id = insert_blob(db, batch)
        insert_batch(db, key, span, batch.info, blob_id, delete_horizon=delete_horizon)


def delete_rows(db: sqlite3.Connection, key: PartitionKey, rows: Sequence[BatchRow]) -> None:
    """Delete the rows of batches. Call `delete_blobs` afterwards, and after any insert."""
    db.executemany(
        "DELETE FROM batches WHERE topic_id = ? AND partition = ? AND base_offset = ?",
        [(*key, row.base) for row in rows],
    )


def delete_blobs(db: sqlite3.Connection, rows: Sequence[BatchRow]) -> None:
    """Delete the bytes of batches whose rows are deleted."""
    db.executemany("DELETE FROM blobs WHERE id = ?", [(row.blob_id,) for row in rows])
