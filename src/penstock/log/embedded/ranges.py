"""Ranges of records, where partitions stand, and offsets for times."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.base import RangeReader
from penstock.log.embedded import arrow
from penstock.log.embedded.database import Database
from penstock.log.embedded.topics import Topic, find_partition
from penstock.log.errors import OffsetOutOfRange, UnknownTopic
from penstock.log.types import LogBatch, OffsetAndTimestamp, PartitionOffsets, TopicPartition

#: Stored batches are put together until a step has this much.
_STEP_RECORDS = 4096
_STEP_BYTES = 1024 * 1024

# One statement, so one snapshot: the partition as it stands, with its batches from a position on.
_STEP = """
SELECT p.start, p."end", p.tombstones_removed_to,
       b.base_offset, b.last_offset, b.records, b.append_time, blobs.layout, blobs.data
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


class _Step(NamedTuple):
    offsets: PartitionOffsets
    #: With a reader's columns, and the last offset that each batch stands for.
    batches: list[tuple[pa.RecordBatch, int]]


class _Found:
    """Stored batches in order; neighbours that can be put together cheaply are."""

    def __init__(self) -> None:
        self._done: list[tuple[pa.RecordBatch, int]] = []
        self._kind: tuple[int, int | None] = (0, None)
        self._base = self._last = -1
        self._run: list[pa.RecordBatch] = []

    def add(
        self, kind: tuple[int, int | None], base: int, last: int, stored: pa.RecordBatch
    ) -> None:
        """One more; its kind is its layout and its append time."""
        if self._run and (kind != self._kind or base != self._last + 1):
            self._end_run()
        if not self._run:
            self._kind, self._base = kind, base
        self._run.append(stored)
        self._last = last

    def _end_run(self) -> None:
        if self._run:
            layout, append_time = self._kind
            stored = arrow.concatenated(self._run)
            self._done.append(
                (arrow.as_read(stored, layout, self._base, append_time), self._last)
            )
            self._run = []

    def batches(self) -> list[tuple[pa.RecordBatch, int]]:
        """With a reader's columns, and the last offset that each stands for."""
        self._end_run()
        return self._done


class EmbeddedRangeReader(RangeReader):
    """A range of one partition. Each step is one statement and decodes what it found."""

    def __init__(
        self, db: Database, topic: Topic, partition: int, bounds: tuple[int, int],
        limits: tuple[int | None, int | None],
    ) -> None:
        self._db = db
        self._topic = topic
        self._partition = partition
        self.position, self._end = bounds
        self._records_left, self._bytes_left = limits
        self._some = False

    def __next__(self) -> LogBatch:
        while self.position < self._end and not self._at_limit():
            step = self._next_step()
            pieces = []
            for batch, last in step.batches:
                piece, whole = self._within(batch)
                if piece.num_rows:
                    pieces.append(piece)
                    self._some = True
                if not whole:
                    break
                self.position = min(last + 1, self._end)
            if not step.batches:
                self.position = self._end
            if pieces:
                found = arrow.concatenated(pieces)
                return LogBatch(
                    self._topic.name, self._partition, found, self.position,
                    step.offsets.tombstones_removed_to,
                )
        raise StopIteration

    def _at_limit(self) -> bool:
        if self._records_left is not None and self._records_left <= 0:
            return self._some
        return self._bytes_left is not None and self._bytes_left <= 0 and self._some

    def _next_step(self) -> _Step:
        which = {
            "topic": self._topic.id, "partition": self._partition, "position": self.position,
            "end": self._end,
        }
        found = _Found()
        records = size = 0
        offsets = None
        with self._db.reading() as db:
            cursor = db.execute(_STEP, which)
            for start, end, tombstones, base, last, count, append_time, layout, data in cursor:
                offsets = PartitionOffsets(start, end, tombstones)
                if not start <= self.position <= end:
                    raise OffsetOutOfRange(
                        self._topic.name, self._partition, self.position, (start, end)
                    )
                if base is None:
                    break
                found.add((layout, append_time), base, last, arrow.decode(data, layout))
                records += count
                size += len(data)
                if records >= _STEP_RECORDS or size >= _STEP_BYTES:
                    break
            cursor.close()
        if offsets is None:
            raise UnknownTopic(self._topic.name)
        return _Step(offsets, found.batches())

    def _within(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, bool]:
        """The part of a batch that is in the range and the limits, and whether that is all of it.

        If it is not, the position stands behind the part.
        """
        batch = _between(batch, self.position, self._end)
        count = batch.num_rows
        if self._records_left is not None:
            count = min(count, max(self._records_left, 0 if self._some else 1))
        if self._bytes_left is not None and count:
            count = self._fitting(batch.slice(0, count))
        if count < batch.num_rows:
            if count:
                batch = batch.slice(0, count)
                self.position = batch.column(0)[-1].as_py() + 1
                self._count(count)
            else:
                batch = batch.slice(0, 0)
            self._records_left = self._bytes_left = 0
            return batch, False
        self._count(count)
        return batch, True

    def _count(self, records: int) -> None:
        if self._records_left is not None:
            self._records_left -= records

    def _fitting(self, batch: pa.RecordBatch) -> int:
        """How many of the records the bytes that are left are enough for."""
        _, _, key, value, headers = batch.columns
        running = pc.cumulative_sum(arrow.record_sizes(key, value, headers))
        fitting = int(pc.sum(pc.less_equal(running, self._bytes_left)).as_py())
        if fitting == 0 and not self._some:
            fitting = 1
        if fitting:
            assert self._bytes_left is not None
            self._bytes_left -= running[fitting - 1].as_py()
        return fitting


def _between(batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """The records of a batch whose offsets are in the range; offsets ascend."""
    offsets = batch.column(0)
    count = batch.num_rows
    if count and (offsets[0].as_py() < start or offsets[count - 1].as_py() >= end):
        below = int(pc.sum(pc.less(offsets, start)).as_py())
        until = int(pc.sum(pc.less(offsets, end)).as_py())
        return batch.slice(below, until - below)
    return batch


def partition_offsets(db: sqlite3.Connection, topic_id: int, partition: int) -> PartitionOffsets:
    """A partition that is known to exist, as it stands."""
    row = db.execute(
        'SELECT start, "end", tombstones_removed_to FROM partitions '
        "WHERE topic_id = ? AND partition = ?",
        (topic_id, partition),
    ).fetchone()
    return PartitionOffsets._make(row)


class Ranges:
    """The part of the log that reads."""

    _db: Database

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
    ) -> RangeReader:
        """See `Log.read`."""
        with self._db.snapshot() as db:
            found = find_partition(db, topic, partition)
            offsets = partition_offsets(db, found.id, partition)
        if not offsets.start <= start <= offsets.end:
            raise OffsetOutOfRange(topic, partition, start, (offsets.start, offsets.end))
        until = offsets.end if end is None else min(end, offsets.end)
        return EmbeddedRangeReader(
            self._db, found, partition, (start, max(until, start)), (max_records, max_bytes)
        )

    def offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionOffsets]:
        """See `Log.offsets`."""
        answer = {}
        with self._db.snapshot() as db:
            for topic, partition in partitions:
                found = find_partition(db, topic, partition)
                answer[TopicPartition(topic, partition)] = partition_offsets(
                    db, found.id, partition
                )
        return answer

    def offset_for_time(
        self, topic: str, partition: int, timestamp: int
    ) -> OffsetAndTimestamp | None:
        """See `Log.offset_for_time`."""
        with self._db.snapshot() as db:
            found = find_partition(db, topic, partition)
            start = partition_offsets(db, found.id, partition).start
            rows = db.execute(
                "SELECT base_offset, append_time, layout, data FROM batches "
                "JOIN blobs ON blobs.id = blob_id WHERE topic_id = ? AND partition = ? "
                "AND max_timestamp >= ? AND last_offset >= ? ORDER BY base_offset",
                (found.id, partition, timestamp, start),
            )
            # Only the first batch can be one whose late records were all deleted.
            for base, append_time, layout, data in rows:
                batch = arrow.as_read(arrow.decode(data, layout), layout, base, append_time)
                later = pc.and_(
                    pc.greater_equal(batch.column(1), timestamp),
                    pc.greater_equal(batch.column(0), start),
                )
                index = pc.index(later, True).as_py()
                if index >= 0:
                    return OffsetAndTimestamp(
                        batch.column(0)[index].as_py(), batch.column(1)[index].as_py()
                    )
        return None
