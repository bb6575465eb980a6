"""Keeping house: retention, compaction, merging of small batches, sweeping of unused blobs.

Everything is done in small transactions, each of which leaves the log whole, so the cleaner may be
killed at any point and others may read, write and clean meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from penstock.log.embedded import stored_batches as rewriting
from penstock.log.embedded.arrow import BATCH_RECORDS, concatenated, stored_from
from penstock.log.embedded.compaction import Compaction
from penstock.log.embedded.database import Database
from penstock.log.embedded.stored_batches import GROUP_BATCHES, GROUP_BYTES, Batch, Place
from penstock.log.embedded.topics import Topic, all_topics, drop_batches, find_topic, set_start
from penstock.log.types import CleanReport

#: A batch below both is small. Fewer than so many in a row are left alone.
_SMALL_RECORDS = BATCH_RECORDS // 4
_SMALL_BYTES = GROUP_BYTES // 4
_MERGE_LEAST = 16
_SWEEP_BLOBS = 64
#: Unused space beyond this share of the file goes back to the file system.
_UNUSED_SHARE = 0.25


class Cleaning:
    """The part of the log that keeps house."""

    _db: Database

    def clean(self, topics: Iterable[str] | None = None, *, force: bool = False) -> CleanReport:
        """See `Log.clean`."""
        report = CleanReport()
        with self._db.reading() as db:
            found = all_topics(db) if topics is None else [find_topic(db, n) for n in topics]
        for topic in found:
            for partition in range(topic.partitions):
                self._clean_partition(topic, partition, report, force)
        self._sweep(report)
        self._db.free_pages(_UNUSED_SHARE)
        return report

    def _clean_partition(
        self, topic: Topic, partition: int, report: CleanReport, force: bool
    ) -> None:
        place = Place(topic.id, partition)
        settings = topic.settings
        if settings.delete:
            self._expire(topic, place, report)
        if settings.compact:
            Compaction(self._db, topic, partition, report).run(force)
        self._merge(place, settings.compact, report)

    # Retention

    def _expire(self, topic: Topic, place: Place, report: CleanReport) -> None:
        now = self._db.options.clock()
        with self._db.snapshot() as db:
            if _expired_before(db, topic, place, now) is None:
                return
        with self._db.writing() as db:
            before = _expired_before(db, topic, place, now)
            if before is None:
                return
            records, size = db.execute(
                "SELECT coalesce(sum(records), 0), coalesce(sum(bytes), 0) FROM batches "
                "WHERE topic_id = ? AND partition = ? AND last_offset < ?",
                (*place, before),
            ).fetchone()
            drop_batches(db, *place, before)
            set_start(db, *place, before)
        report.records_expired += records
        report.bytes_freed += size

    # Merging

    def _merge(self, place: Place, compacted: bool, report: CleanReport) -> None:
        with self._db.snapshot() as db:
            row = db.execute(
                "SELECT cleaned_to FROM partitions WHERE topic_id = ? AND partition = ?", place
            ).fetchone()
            if row is None:
                return
            # What is compacted already must not be mixed with what is not.
            runs = list(_small_runs(db, place, row[0] if compacted else None))
        for run in runs:
            self._merge_run(place, run, report)

    def _merge_run(self, place: Place, run: list[Batch], report: CleanReport) -> None:
        with self._db.snapshot() as db:
            if not rewriting.are_as_read(db, place, run):
                return
            merged = concatenated([rewriting.load(db, row) for row in run])
        first, last = run[0].base, run[-1].last
        chunk = stored_from(merged, with_offsets=merged.num_rows != last - first + 1)
        with self._db.writing() as db:
            if not rewriting.are_as_read(db, place, run):
                return
            rewriting.delete_rows(db, place, run)
            rewriting.insert(db, place, (first, last), chunk, None)
            rewriting.delete_blobs(db, run)
        report.batches_merged += len(run)
        report.bytes_freed += sum(row.bytes for row in run) - chunk.facts.bytes

    # Sweeping

    def _sweep(self, report: CleanReport) -> None:
        before = self._db.options.clock() - self._db.options.unused_blob_ms
        old = "SELECT blob_id FROM aside WHERE created_ms <= ? LIMIT ?"
        while True:
            with self._db.reading() as db:
                if db.execute(old, (before, 1)).fetchone() is None:
                    return
            with self._db.writing() as db:
                blobs = db.execute(old, (before, _SWEEP_BLOBS)).fetchall()
                db.executemany("DELETE FROM aside WHERE blob_id = ?", blobs)
                db.executemany("DELETE FROM blobs WHERE id = ?", blobs)
            report.blobs_swept += len(blobs)


def _expired_before(
    db: sqlite3.Connection, topic: Topic, place: Place, now: int
) -> int | None:
    """The offset before which whole batches are to go; None: there are none."""
    settings = topic.settings
    row = db.execute(
        'SELECT "end" FROM partitions WHERE topic_id = ? AND partition = ?', place
    ).fetchone()
    first = db.execute(
        "SELECT min(base_offset) FROM batches WHERE topic_id = ? AND partition = ?", place
    ).fetchone()[0]
    if row is None or first is None:
        return None
    before = first
    if settings.retention_ms >= 0:
        young = db.execute(
            "SELECT min(base_offset) FROM batches WHERE topic_id = ? AND partition = ? "
            "AND max_timestamp >= ?",
            (*place, now - settings.retention_ms),
        ).fetchone()[0]
        before = row[0] if young is None else young
    if settings.retention_bytes >= 0:
        before = max(before, _over_size(db, place, settings.retention_bytes, first))
    return before if before > first else None


def _over_size(db: sqlite3.Connection, place: Place, limit: int, before: int) -> int:
    """As Kafka does it: the oldest goes while what would be left is still the limit or more."""
    size = db.execute(
        "SELECT sum(bytes) FROM batches WHERE topic_id = ? AND partition = ?", place
    ).fetchone()[0]
    cursor = db.execute(
        "SELECT last_offset, bytes FROM batches WHERE topic_id = ? AND partition = ? "
        "ORDER BY base_offset",
        place,
    )
    for last, of_batch in cursor:
        size -= of_batch
        if size < limit:
            break
        before = last + 1
    cursor.close()
    return before


def _small_runs(
    db: sqlite3.Connection, place: Place, cleaned_to: int | None
) -> Iterator[list[Batch]]:
    """Neighbouring small batches that are worth being put together."""
    run: list[Batch] = []
    records = size = 0
    rows = db.execute(
        "SELECT base_offset, last_offset, records, bytes, append_time, delete_horizon, blob_id "
        "FROM batches WHERE topic_id = ? AND partition = ? ORDER BY base_offset",
        place,
    )
    for row in map(Batch._make, rows):
        # A horizon is for the batch's own tombstones: merged, theirs would be put off.
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
            if len(run) >= _MERGE_LEAST:
                yield run
            run, records, size = [], 0, 0
        if small:
            run.append(row)
            records += row.records
            size += row.bytes
    if len(run) >= _MERGE_LEAST:
        yield run
