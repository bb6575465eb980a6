"""Retention, compaction, merging of small batches, and deletion of unused staged records.

All work is done in small transactions, each of which leaves the log consistent. The cleaner may be
killed at any point, and other processes may read, write and clean at the same time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from penstock.log.embedded import stored_batches
from penstock.log.embedded.batch_codec import BATCH_RECORDS, concatenate, encode_read_batch
from penstock.log.embedded.batch_rows import SELECT_BATCHES, BatchRow, check_row, load
from penstock.log.embedded.checksums import ASIDE, Damage
from penstock.log.embedded.compaction import PartitionCompactor
from penstock.log.embedded.database import Database
from penstock.log.embedded.partitions import PartitionKey, PartitionRow, read_partition
from penstock.log.embedded.stored_batches import GROUP_BATCHES, GROUP_BYTES
from penstock.log.embedded.topics import (
    TopicRow,
    all_topics,
    delete_batches_before,
    find_topic,
)
from penstock.log.types import CleanReport

#: A batch below both limits is small. Shorter runs of small batches are not merged.
_SMALL_RECORDS = BATCH_RECORDS // 4
_SMALL_BYTES = GROUP_BYTES // 4
_MIN_MERGE_BATCHES = 16
#: The number of blobs that one transaction deletes.
_DELETE_BLOBS = 64
#: Unused space beyond this share of the file is returned to the file system.
_UNUSED_SHARE = 0.25


class Cleaner:
    """Cleans topics, and deletes data that nothing refers to."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def clean(self, topics: Iterable[str] | None, *, force: bool) -> CleanReport:
        """Clean the given topics, or all."""
        report = CleanReport()
        with self._database.snapshot() as db:
            found = all_topics(db) if topics is None else [find_topic(db, n) for n in topics]
        for topic in found:
            for partition in range(topic.partitions):
                self._clean_partition(topic, partition, report, force)
        self._delete_unused(report)
        self._database.free_pages(_UNUSED_SHARE)
        return report

    def _clean_partition(
        self, topic: TopicRow, partition: int, report: CleanReport, force: bool
    ) -> None:
        key = PartitionKey(topic.id, partition)
        settings = topic.settings
        if settings.delete:
            self._expire(topic, key, report)
        if settings.compact:
            PartitionCompactor(self._database, topic, partition, report).run(force)
        self._merge(key, settings.compact, report)

    # Retention

    def _expire(self, topic: TopicRow, key: PartitionKey, report: CleanReport) -> None:
        now = self._database.options.clock()
        with self._database.snapshot() as db:
            if _expired_before(db, topic, read_partition(db, *key), now) is None:
                return
        with self._database.writing() as db:
            row = read_partition(db, *key)
            before = _expired_before(db, topic, row, now)
            if before is None or row is None:
                return
            expired = db.execute(f"{SELECT_BATCHES} AND last_offset < ?", (*key, before))
            for batch in map(BatchRow._make, expired):
                check_row(db, batch)
                report.records_expired += batch.records
                report.bytes_freed += batch.bytes
            delete_batches_before(db, row, before)

    # Merging

    def _merge(self, key: PartitionKey, compacted: bool, report: CleanReport) -> None:
        with self._database.snapshot() as db:
            row = read_partition(db, *key)
            if row is None:
                return
            # Batches that are compacted must not be merged with batches that are not.
            runs = list(_small_runs(db, key, row.cleaned_to if compacted else None))
        for run in runs:
            self._merge_run(key, run, report)

    def _merge_run(self, key: PartitionKey, run: list[BatchRow], report: CleanReport) -> None:
        with self._database.snapshot() as db:
            if not stored_batches.are_unchanged(db, key, run):
                return
            merged = concatenate([load(db, row) for row in run])
        first, last = run[0].base, run[-1].last
        batch = None
        if merged.num_rows:
            batch = encode_read_batch(merged, with_offsets=merged.num_rows != last - first + 1)
        with self._database.writing() as db:
            if not stored_batches.are_unchanged(db, key, run):
                return
            stored_batches.delete_rows(db, key, run)
            stored_batches.insert(db, key, (first, last), batch)
            stored_batches.delete_blobs(db, run)
        report.batches_merged += len(run)
        report.bytes_freed += sum(row.bytes for row in run)
        report.bytes_freed -= batch.info.bytes if batch else 0

    # Unused data

    def _delete_unused(self, report: CleanReport) -> None:
        before = self._database.options.clock() - self._database.options.unused_blob_ms
        old = (
            "SELECT blob_id, token, created_ms, facts, checksum FROM aside "
            "WHERE created_ms <= ? LIMIT ?"
        )
        while True:
            with self._database.reading() as db:
                if db.execute(old, (before, 1)).fetchone() is None:
                    return
            with self._database.writing() as db:
                rows = db.execute(old, (before, _DELETE_BLOBS)).fetchall()
                if not all(map(ASIDE.matches, rows)):
                    raise Damage("The list of unused data is damaged")
                blobs = [row[:1] for row in rows]
                db.executemany("DELETE FROM aside WHERE blob_id = ?", blobs)
                db.executemany("DELETE FROM blobs WHERE id = ?", blobs)
            report.blobs_swept += len(blobs)


def _expired_before(
    db: sqlite3.Connection, topic: TopicRow, row: PartitionRow | None, now: int
) -> int | None:
    """Return the offset below which whole batches have expired; None if none have."""
    if row is None:
        return None
    settings = topic.settings
    key = PartitionKey(row.topic_id, row.partition)
    first = db.execute(
        "SELECT min(base_offset) FROM batches WHERE topic_id = ? AND partition = ?", key
    ).fetchone()[0]
    if first is None:
        return None
    before = first
    if settings.retention_ms >= 0:
        young = db.execute(
            "SELECT min(base_offset) FROM batches WHERE topic_id = ? AND partition = ? "
            "AND max_timestamp >= ?",
            (*key, now - settings.retention_ms),
        ).fetchone()[0]
        before = row.end if young is None else young
    if settings.retention_bytes >= 0:
        before = max(before, _oversized_before(db, key, settings.retention_bytes, first))
    return before if before > first else None


def _oversized_before(
    db: sqlite3.Connection, key: PartitionKey, limit: int, before: int
) -> int:
    """Apply `retention.bytes` as Kafka does.

    The oldest batch expires while the rest still has at least `limit` bytes.
    """
    size = db.execute(
        "SELECT sum(bytes) FROM batches WHERE topic_id = ? AND partition = ?", key
    ).fetchone()[0]
    cursor = db.execute(
        "SELECT last_offset, bytes FROM batches WHERE topic_id = ? AND partition = ? "
        "ORDER BY base_offset",
        key,
    )
    for last, of_batch in cursor:
        size -= of_batch
        if size < limit:
            break
        before = last + 1
    cursor.close()
    return before


def _small_runs(
    db: sqlite3.Connection, key: PartitionKey, cleaned_to: int | None
) -> Iterator[list[BatchRow]]:
    """Yield runs of adjacent small batches that are long enough to merge."""
    run: list[BatchRow] = []
    records = size = 0
    rows = db.execute(f"{SELECT_BATCHES} ORDER BY base_offset", key)
    for row in map(BatchRow._make, rows):
        # A delete horizon applies to the tombstones of one batch; a merge would postpone it.
        small = (
            row.records < _SMALL_RECORDS and row.bytes < _SMALL_BYTES
            and row.delete_horizon is None
        )
        full = (
            records + row.records > BATCH_RECORDS or size + row.bytes > GROUP_BYTES
            or len(run) >= GROUP_BATCHES
        )
        crosses = cleaned_to is not None and bool(run) and run[-1].base < cleaned_to <= row.base
        if run and (not small or full or crosses):
            if len(run) >= _MIN_MERGE_BATCHES:
                yield run
            run, records, size = [], 0, 0
        if small:
            run.append(row)
            records += row.records
            size += row.bytes
    if len(run) >= _MIN_MERGE_BATCHES:
        yield run
