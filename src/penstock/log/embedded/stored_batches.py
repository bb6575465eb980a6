"""Stored batches that are read to be stored again, while others may do the same.

What is to be written is made without the lock. Under the lock, the batches are looked up again: if
they are not those that were read, nothing is written and the caller starts over.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from penstock.log.embedded.appends import insert_blob
from penstock.log.embedded.arrow import BATCH_RECORDS, Chunk, as_read, decode

#: How much is read, and replaced in one transaction.
GROUP_BATCHES = 512
GROUP_BYTES = 1024 * 1024


class Place(NamedTuple):
    """A partition, as the tables know it."""

    topic_id: int
    partition: int


class Batch(NamedTuple):
    """A row of the table of batches."""

    base: int
    last: int
    records: int
    bytes: int
    append_time: int | None
    delete_horizon: int | None
    blob_id: int


_ROWS = """
SELECT base_offset, last_offset, records, bytes, append_time, delete_horizon, blob_id
FROM batches WHERE topic_id = ? AND partition = ?
"""


def rows_from(
    db: sqlite3.Connection, place: Place, position: int, end: int
) -> list[Batch]:
    """Batches that begin in the range, as many as one transaction may replace; at least one."""
    rows: list[Batch] = []
    records = size = 0
    cursor = db.execute(
        f"{_ROWS} AND base_offset >= ? AND base_offset < ? ORDER BY base_offset LIMIT ?",
        (*place, position, end, GROUP_BATCHES),
    )
    for row in map(Batch._make, cursor):
        records += row.records
        size += row.bytes
        if rows and (records > BATCH_RECORDS or size > GROUP_BYTES):
            break
        rows.append(row)
    cursor.close()
    return rows


def load(db: sqlite3.Connection, row: Batch) -> pa.RecordBatch:
    """The records of a batch with a reader's columns."""
    layout, data = db.execute(
        "SELECT layout, data FROM blobs WHERE id = ?", (row.blob_id,)
    ).fetchone()
    return as_read(decode(data, layout), layout, row.base, row.append_time)


def are_as_read(db: sqlite3.Connection, place: Place, rows: Sequence[Batch]) -> bool:
    """Whether these are still all the batches from the first to the last of them."""
    found = db.execute(
        f"{_ROWS} AND base_offset >= ? AND base_offset <= ? ORDER BY base_offset",
        (*place, rows[0].base, rows[-1].base),
    ).fetchall()
    return [Batch._make(row) for row in found] == list(rows)


def insert(
    db: sqlite3.Connection, place: Place, span: tuple[int, int], chunk: Chunk,
    delete_horizon: int | None,
) -> None:
    """A batch that stands for the offsets of the span. Those it replaces must be gone already."""
    facts = chunk.facts
    db.execute(
        "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?)",
        (*place, *span, facts.records, facts.bytes, facts.min_timestamp, facts.max_timestamp,
         delete_horizon, insert_blob(db, chunk)),
    )


def delete_rows(db: sqlite3.Connection, place: Place, rows: Sequence[Batch]) -> None:
    """Take batches out of their partition; `delete_blobs` has to follow, after any insert."""
    db.executemany(
        "DELETE FROM batches WHERE topic_id = ? AND partition = ? AND base_offset = ?",
        [(*place, row.base) for row in rows],
    )


def delete_blobs(db: sqlite3.Connection, rows: Sequence[Batch]) -> None:
    """Remove the bytes of batches that are gone."""
    db.executemany("DELETE FROM blobs WHERE id = ?", [(row.blob_id,) for row in rows])
