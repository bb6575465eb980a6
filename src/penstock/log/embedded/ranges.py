"""Reads of ranges, partition offsets, and offsets for timestamps."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.base import RangeReader
from penstock.log.embedded import batch_codec
from penstock.log.embedded.batch_rows import (
    BATCH_COLUMNS,
    SELECT_BATCHES,
    BatchRow,
    decode_batch,
    load,
)
from penstock.log.embedded.continuity import Continuity
from penstock.log.embedded.database import Database
from penstock.log.embedded.partitions import (
    PARTITION_COLUMNS,
    PartitionKey,
    check_partition,
    read_partition,
)
from penstock.log.embedded.topics import TopicRow, find_partition, find_topic
from penstock.log.errors import OffsetOutOfRange, UnknownTopic
from penstock.log.types import LogBatch, OffsetAndTimestamp, PartitionOffsets, TopicPartition

#: A step reads stored batches until it has this much. The bytes are those in memory: records may be
#: a thousand times smaller in the file.
_STEP_RECORDS = 4096
_STEP_BYTES = 4 * 1024 * 1024

# One statement sees one snapshot: the partition and its batches from a position on.
_STEP = f"""
SELECT {", ".join(f"p.{name}" for name in PARTITION_COLUMNS)},
       {", ".join(f"b.{name}" for name in BATCH_COLUMNS)}, blobs.layout, blobs.data
FROM partitions p
LEFT JOIN batches b ON b.topic_id = p.topic_id AND b.partition = p.partition
    AND b.last_offset >= :position
    AND b.base_offset >= coalesce((
        SELECT max(base_offset) FROM batches
        WHERE topic_id = :topic AND partition = :partition AND base_offset <= :position), 0)
    AND b.base_offset < :end
LEFT JOIN blobs ON blobs.id = b.blob_id
WHERE p.topic_id = :topic AND p.partition = :partition
ORDER BY b.base_offset
"""
_OF_PARTITION = len(PARTITION_COLUMNS)


class _Step(NamedTuple):
    offsets: PartitionOffsets
    #: Batches with the columns of `COLUMNS`, each with the last offset that it covers.
    batches: list[tuple[pa.RecordBatch, int]]


class _BatchJoiner:
    """Joins adjacent stored batches of the same layout and append time."""

    def __init__(self) -> None:
        self._joined: list[tuple[pa.RecordBatch, int]] = []
        self._kind: tuple[int, int | None] = (0, None)
        self._base = self._last = -1
        self._run: list[pa.RecordBatch] = []

    def add(
        self, kind: tuple[int, int | None], base: int, last: int, stored: pa.RecordBatch
    ) -> None:
        """Add the next batch; `kind` is its layout and its append time."""
        if self._run and (kind != self._kind or base != self._last + 1):
            self._end_run()
        if not self._run:
            self._kind, self._base = kind, base
        self._run.append(stored)
        self._last = last

    def add_empty(self, last: int) -> None:
        """Add an empty batch."""
        self._end_run()
        self._joined.append((batch_codec.EMPTY_BATCH, last))

    def _end_run(self) -> None:
        if self._run:
            layout, append_time = self._kind
            stored = batch_codec.concatenate(self._run)
            batch = batch_codec.add_read_columns(stored, layout, self._base, append_time)
            self._joined.append((batch, self._last))
            self._run = []

    def batches(self) -> list[tuple[pa.RecordBatch, int]]:
        """Return the joined batches, each with the last offset that it covers."""
        self._end_run()
        return self._joined


class EmbeddedRangeReader(RangeReader):
    """Reads a range of one partition. Each step is one statement."""

    def __init__(
        self, database: Database, topic: TopicRow, partition: int, bounds: tuple[int, int],
        limits: tuple[int | None, int | None],
    ) -> None:
        self._database = database
        self._topic = topic
        self._key = PartitionKey(topic.id, partition)
        self.position, self._end = bounds
        self._records_left, self._bytes_left = limits
        #: Whether a record was returned. The limits allow the first record of any size.
        self._has_returned = False

    def __next__(self) -> LogBatch:
        while self.position < self._end and not self._at_limit():
            step = self._next_step()
            pieces = []
            for batch, last in step.batches:
                piece, whole = self._apply_limits(batch)
                if piece.num_rows:
                    pieces.append(piece)
                    self._has_returned = True
                if not whole:
                    break
                self.position = min(last + 1, self._end)
            if not step.batches:
                self.position = self._end
            if pieces:
                found = batch_codec.concatenate(pieces)
                return LogBatch(
                    self._topic.name, self._key.partition, found, self.position,
                    step.offsets.tombstones_removed_to,
                )
        raise StopIteration

    def _at_limit(self) -> bool:
        if self._records_left is not None and self._records_left <= 0:
            return self._has_returned
        return self._bytes_left is not None and self._bytes_left <= 0 and self._has_returned

    def _next_step(self) -> _Step:
        which = {
            "topic": self._topic.id, "partition": self._key.partition, "position": self.position,
            "end": self._end,
        }
        joiner = _BatchJoiner()
        records = size = 0
        offsets = None
        continuity = Continuity(self._database, self._key, self.position)
        with (
            self._database.reading() as db,
            continuity.locate_damage(db, self._end),
            closing(db.execute(_STEP, which)) as cursor,
        ):
            for found in cursor:
                if offsets is None:
                    offsets = self._check_position(db, found[:_OF_PARTITION])
                row = BatchRow._make(found[_OF_PARTITION:-2])
                if row.base is None:
                    continue
                continuity.add(db, row)
                if not row.records:
                    joiner.add_empty(row.last)
                    continue
                layout, data = found[-2:]
                stored = decode_batch(db, row, layout, data)
                joiner.add((layout, row.append_time), row.base, row.last, stored)
                records += row.records
                size += stored.nbytes
                if records >= _STEP_RECORDS or size >= _STEP_BYTES:
                    break
            else:
                # Raises if the partition must exist.
                if offsets is None and read_partition(db, *self._key) is None:
                    raise UnknownTopic(self._topic.name)
                continuity.end(db, self._end)
        assert offsets is not None
        return _Step(offsets, joiner.batches())

    def _check_position(self, db: sqlite3.Connection, row: tuple[int, ...]) -> PartitionOffsets:
        """Return the offsets of the partition. `OffsetOutOfRange` if retention was faster."""
        offsets = check_partition(db, self._key, row).offsets
        if not offsets.start <= self.position <= offsets.end:
            raise OffsetOutOfRange(
                self._topic.name, self._key.partition, self.position, offsets[:2]
            )
        return offsets

    def _apply_limits(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, bool]:
        """Return the part of a batch within the range and the limits, and whether it is whole.

        If it is not whole, the position is behind the part.
        """
        batch = _slice_offsets(batch, self.position, self._end)
        count = batch.num_rows
        if self._records_left is not None:
            count = min(count, max(self._records_left, 0 if self._has_returned else 1))
        if self._bytes_left is not None and count:
            count = self._fit_bytes(batch.slice(0, count))
        if count < batch.num_rows:
            if count:
                batch = batch.slice(0, count)
                self.position = batch.column(0)[-1].as_py() + 1
                self._subtract(count)
            else:
                batch = batch.slice(0, 0)
            self._records_left = self._bytes_left = 0
            return batch, False
        self._subtract(count)
        return batch, True

    def _subtract(self, records: int) -> None:
        if self._records_left is not None:
            self._records_left -= records

    def _fit_bytes(self, batch: pa.RecordBatch) -> int:
        """Return how many records fit into the remaining bytes, and subtract their size."""
        _, _, key, value, headers = batch.columns
        running = pc.cumulative_sum(batch_codec.record_sizes(key, value, headers))
        fitting = int(pc.sum(pc.less_equal(running, self._bytes_left)).as_py())
        if fitting == 0 and not self._has_returned:
            fitting = 1
        if fitting:
            assert self._bytes_left is not None
            self._bytes_left -= running[fitting - 1].as_py()
        return fitting


def _slice_offsets(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """Return the records with offsets in the range. Offsets ascend."""
    offsets = batch.column(0)
    count = batch.num_rows
    if count and (offsets[0].as_py() < start or offsets[count - 1].as_py() >= end):
        below = int(pc.sum(pc.less(offsets, start)).as_py())
        until = int(pc.sum(pc.less(offsets, end)).as_py())
        return batch.slice(below, until - below)
    return batch


class RangeQueries:
    """Reads records and partition offsets. Holds no state."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(
        self, where: TopicPartition, start: int, end: int | None,
        limits: tuple[int | None, int | None],
    ) -> EmbeddedRangeReader:
        """Return a reader of a range; `limits` are the most records and the most bytes."""
        topic, partition = where
        with self._database.snapshot() as db:
            found, row = find_partition(db, topic, partition)
        if not row.start <= start <= row.end:
            raise OffsetOutOfRange(topic, partition, start, (row.start, row.end))
        until = row.end if end is None else min(end, row.end)
        return EmbeddedRangeReader(
            self._database, found, partition, (start, max(until, start)), limits
        )

    def offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionOffsets]:
        """Return the offsets of partitions, all from one snapshot."""
        offsets = {}
        topics: dict[str, TopicRow] = {}
        with self._database.snapshot() as db:
            for topic, partition in partitions:
                if topic not in topics:
                    topics[topic] = find_topic(db, topic)
                found = topics[topic]
                found.check_partition(partition)
                row = read_partition(db, found.id, partition)
                assert row is not None
                offsets[TopicPartition(topic, partition)] = row.offsets
        return offsets

    def offset_for_time(
        self, topic: str, partition: int, timestamp: int
    ) -> OffsetAndTimestamp | None:
        """Return the first record with this timestamp or a later one, or None."""
        with self._database.snapshot() as db:
            found, partition_row = find_partition(db, topic, partition)
            start = partition_row.start
            key = PartitionKey(found.id, partition)
            continuity = Continuity(self._database, key, start)
            rows = db.execute(
                f"{SELECT_BATCHES} AND last_offset >= ? ORDER BY base_offset", (*key, start)
            )
            # All late records of a batch can lie below the start, but only of the first batch.
            for row in map(BatchRow._make, rows):
                continuity.add(db, row)
                if row.max_timestamp < timestamp:
                    continue
                batch = load(db, row)
                later = pc.and_(
                    pc.greater_equal(batch.column(1), timestamp),
                    pc.greater_equal(batch.column(0), start),
                )
                index = pc.index(later, True).as_py()
                if index >= 0:
                    return OffsetAndTimestamp(
                        batch.column(0)[index].as_py(), batch.column(1)[index].as_py()
                    )
            continuity.end(db, partition_row.end)
        return None
