"""The tables `batches` and `blobs`, and the row of a blob that no batch uses."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.log.embedded.batch_codec import (
    EMPTY_BATCH,
    BatchInfo,
    EncodedBatch,
    add_read_columns,
    decode,
)
from penstock.log.embedded.checksums import ASIDE, BATCHES, Damage, data_checksum
from penstock.log.embedded.partitions import PartitionKey, topic_name

#: The columns of the table. The checksum is the last.
BATCH_COLUMNS = (
    "topic_id", "partition", "base_offset", "last_offset", "records", "bytes", "min_timestamp",
    "max_timestamp", "append_time", "delete_horizon", "blob_id", "data_checksum", "checksum",
)
SELECT_BATCHES = (
    f"SELECT {', '.join(BATCH_COLUMNS)} FROM batches WHERE topic_id = ? AND partition = ?"
)
_INSERT = f"INSERT INTO batches VALUES ({', '.join('?' * len(BATCH_COLUMNS))})"
_EMPTY = BatchInfo(0, 0, 0, -1, -1, 0, False, False)


class BatchRow(NamedTuple):
    """A row of the table `batches`. An empty batch has no blob; its `blob_id` is 0."""

    topic_id: int
    partition: int
    base: int
    last: int
    records: int
    bytes: int
    min_timestamp: int
    max_timestamp: int
    append_time: int | None
    delete_horizon: int | None
    blob_id: int
    #: None if the blob was written in format 1.
    data_checksum: int | None
    checksum: int

    @property
    def key(self) -> PartitionKey:
        """The key of the partition."""
        return PartitionKey(self.topic_id, self.partition)


def insert_batch(
    db: sqlite3.Connection, key: PartitionKey, span: tuple[int, int], info: BatchInfo | None,
    blob_id: int = 0, *, append_time: int | None = None, delete_horizon: int | None = None,
) -> None:
    """Insert a batch that covers the offsets of the span; without `info`, an empty one."""
    info = info or _EMPTY
    first, last = info.min_timestamp, info.max_timestamp
    if append_time is not None:
        first = last = append_time
    row = (
        *key, *span, info.records, info.bytes, first, last, append_time, delete_horizon, blob_id,
        info.data_checksum,
    )
    db.execute(_INSERT, (*row, BATCHES.of(row)))


def insert_row(db: sqlite3.Connection, row: BatchRow) -> None:
    """Insert a row as it was read."""
    db.execute(_INSERT, row)


def update_delete_horizon(
    db: sqlite3.Connection, row: BatchRow, delete_horizon: int | None
) -> None:
    """Change the delete horizon of a batch."""
    changed = row._replace(delete_horizon=delete_horizon)
    db.execute(
        "UPDATE batches SET delete_horizon = ?, checksum = ? "
        "WHERE topic_id = ? AND partition = ? AND base_offset = ?",
        (delete_horizon, BATCHES.of(changed[:-1]), *row.key, row.base),
    )


def delete_batches(
    db: sqlite3.Connection, topic_id: int, partition: int | None = None, before: int | None = None
) -> None:
    """Delete the batches of a topic; of one partition if given, and only those below an offset.

    Their blobs are left to `clean`, which deletes them in small steps. A damaged row may name the
    wrong blob, so its blob stays.
    """
    where, values = "WHERE topic_id = ?", [topic_id]
    if partition is not None and before is not None:
        where, values = f"{where} AND partition = ? AND last_offset < ?", [
            topic_id, partition, before,
        ]
    rows = map(BatchRow._make, db.execute(
        f"SELECT {', '.join(BATCH_COLUMNS)} FROM batches {where}", values
    ))
    list_unused(db, [row.blob_id for row in rows if row.blob_id and BATCHES.matches(row)])
    db.execute(f"DELETE FROM batches {where}", values)


# Blobs


def insert_blob(db: sqlite3.Connection, batch: EncodedBatch) -> int:
    """Store the bytes of a batch. The caller must insert the row that refers to them."""
    cursor = db.execute(
        "INSERT INTO blobs (layout, data) VALUES (?, ?)", (batch.info.layout, batch.data)
    )
    return int(cursor.lastrowid or 0)


def insert_unreferenced(
    db: sqlite3.Connection, blob_id: int, token: str, created_ms: int, facts: str
) -> None:
    """List a blob that no batch refers to."""
    row = (blob_id, token, created_ms, facts)
    db.execute("INSERT INTO aside VALUES (?, ?, ?, ?, ?)", (*row, ASIDE.of(row)))


def list_unused(db: sqlite3.Connection, blob_ids: Iterable[int]) -> None:
    """List blobs that `clean` may delete at once."""
    for blob_id in blob_ids:
        insert_unreferenced(db, blob_id, "", 0, "")


# Reading


def check_row(db: sqlite3.Connection, row: BatchRow) -> None:
    """Raise `Damage` if a row is not what was written."""
    if not BATCHES.matches(row):
        raise damaged_offsets(db, row.key, (row.base, row.last), "the checksum of the row differs")


def decode_batch(
    db: sqlite3.Connection, row: BatchRow, layout: Any, data: Any
) -> pa.RecordBatch:
    """Return the stored columns of a batch that is not empty. `check_row` was called before.

    Raises `Damage` if the data is not what was written. Data of format 1 has no checksum; its
    structure is validated, because invalid Arrow data can crash the process.
    """
    if not isinstance(data, bytes) or not isinstance(layout, int):
        problem = "the data is missing"
    elif row.data_checksum is not None and data_checksum(data, layout) != row.data_checksum:
        problem = "the checksum of the data differs"
    else:
        try:
            stored = decode(data, layout)
            if row.data_checksum is None:
                stored.validate(full=True)
            if stored.num_rows == row.records:
                return stored
            problem = f"{stored.num_rows} records instead of {row.records}"
        except (pa.ArrowException, OSError, EOFError) as error:
            problem = f"the data cannot be decoded: {error}"
    raise damaged_offsets(db, row.key, (row.base, row.last), problem)


def load(db: sqlite3.Connection, row: BatchRow) -> pa.RecordBatch:
    """Return the records of a batch with the columns of `COLUMNS`."""
    check_row(db, row)
    if not row.records:
        return EMPTY_BATCH
    found: tuple[Any, Any] | None = db.execute(
        "SELECT layout, data FROM blobs WHERE id = ?", (row.blob_id,)
    ).fetchone()
    layout, data = found or (0, None)
    stored = decode_batch(db, row, layout, data)
    return add_read_columns(stored, layout, row.base, row.append_time)


def damaged_offsets(
    db: sqlite3.Connection, key: PartitionKey, offsets: tuple[int, int], problem: str
) -> Damage:
    """Return the error for damaged records."""
    topic = topic_name(db, key.topic_id)
    first, last = offsets
    return Damage(
        f"Offsets {first} to {last} of '{topic}' [{key.partition}] are damaged", problem,
        topic=topic, partition=key.partition, offsets=offsets,
    )
