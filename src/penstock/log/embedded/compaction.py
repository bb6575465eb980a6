"""Compaction keeps the newest record of each key, and a tombstone for a limited time.

A pass has two steps. The first reads the records since the last pass and collects the newest offset
of each key, as far as memory allows. The second goes through all batches from the start up to that
point, and drops the records that are older than the newest one of their key.

A tombstone can be removed for this reason: a batch gets its `delete_horizon` in the second step,
after every earlier batch was processed with the tombstone collected. So no older record of that key
is left. Once the horizon has passed, the next pass removes the tombstones of the batch, and
advances `tombstones_removed_to` in the same transaction.

All this also holds for a pass that is killed: each group of batches is replaced in one transaction,
in ascending order, and `cleaned_to` advances only at the end of a pass. Compaction does not change
offsets, nor the start and the end of the partition.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.embedded import stored_batches
from penstock.log.embedded.batch_codec import EncodedBatch, encode_read_batch
from penstock.log.embedded.batch_rows import BatchRow, load, update_delete_horizon
from penstock.log.embedded.database import Database
from penstock.log.embedded.partitions import PartitionKey, read_partition, write_partition
from penstock.log.embedded.ranges import EmbeddedRangeReader
from penstock.log.embedded.topics import TopicRow
from penstock.log.topic_config import TopicSettings
from penstock.log.types import CleanReport

#: The memory for a key besides its bytes: two Python objects and a dictionary entry.
_KEY_OVERHEAD_BYTES = 200


class _PartitionState(NamedTuple):
    """A partition before its compaction."""

    start: int
    #: Earlier passes have compacted up to here.
    cleaned_to: int
    #: Compaction may go up to here.
    limit: int
    bytes: int
    #: The bytes between `cleaned_to` and `limit`.
    dirty_bytes: int
    #: The number of batches whose delete horizon has passed.
    expired_horizons: int


class _Rewrite(NamedTuple):
    """The result of compacting one batch: it is kept, replaced, or deleted."""

    row: BatchRow
    #: The records are unchanged. The delete horizon may change.
    kept: bool
    #: The new batch; None if no records are left, which makes it an empty batch.
    batch: EncodedBatch | None
    delete_horizon: int | None
    dropped: int
    tombstones_removed_to: int


class PartitionCompactor:
    """Compacts one partition."""

    def __init__(
        self, database: Database, topic: TopicRow, partition: int, report: CleanReport
    ) -> None:
        self._database = database
        self._topic = topic
        self._settings: TopicSettings = topic.settings
        self._key = PartitionKey(topic.id, partition)
        self._report = report
        self._now = database.options.clock()

    def run(self, force: bool) -> None:
        """Run passes until the partition is clean."""
        state = self._read_state()
        if state is None:
            return
        is_worthwhile = state.dirty_bytes > 0 and (
            force or state.dirty_bytes >= self._settings.dirty_ratio * state.bytes
        )
        if not is_worthwhile:
            if state.expired_horizons:
                self._rewrite_batches({}, state.start, state.cleaned_to)
            return
        cleaned_to = state.cleaned_to
        while cleaned_to < state.limit:
            newest, seen_to = self._collect_newest(cleaned_to, state.limit)
            self._rewrite_batches(newest, state.start, seen_to)
            with self._database.writing() as db:
                row = read_partition(db, *self._key)
                if row is None:
                    return
                write_partition(db, row._replace(cleaned_to=max(row.cleaned_to, seen_to)))
            cleaned_to = seen_to

    def _read_state(self) -> _PartitionState | None:
        """Return the state of the partition; None if its topic was deleted."""
        with self._database.snapshot() as db:
            row = read_partition(db, *self._key)
            if row is None:
                return None
            limit = row.end
            if self._settings.min_compaction_lag_ms:
                young = db.execute(
                    "SELECT min(base_offset) FROM batches WHERE topic_id = ? AND partition = ? "
                    "AND max_timestamp > ?",
                    (*self._key, self._now - self._settings.min_compaction_lag_ms),
                ).fetchone()[0]
                limit = row.end if young is None else young
            size, dirty, expired = db.execute(
                "SELECT coalesce(sum(bytes), 0), "
                "coalesce(sum(bytes) FILTER (WHERE last_offset >= ? AND base_offset < ?), 0), "
                "count(*) FILTER (WHERE delete_horizon <= ?) "
                "FROM batches WHERE topic_id = ? AND partition = ?",
                (row.cleaned_to, limit, self._now, *self._key),
            ).fetchone()
        cleaned_to = max(row.start, row.cleaned_to)
        return _PartitionState(row.start, cleaned_to, limit, size, dirty, expired)

    def _collect_newest(self, start: int, limit: int) -> tuple[dict[bytes | None, int], int]:
        """Return the newest offset of each key from `start` on, and the offset reached."""
        newest: dict[bytes | None, int] = {}
        reader = EmbeddedRangeReader(
            self._database, self._topic, self._key.partition, (start, limit), (None, None)
        )
        for batch in reader:
            keys = batch.records.column("key")
            newest.update(zip(keys.to_pylist(), batch.records.column("offset").to_pylist(),
                              strict=True))
            each = _KEY_OVERHEAD_BYTES + keys.nbytes // max(1, len(keys))
            if len(newest) * each > self._database.options.compaction_buffer_bytes:
                break
        return newest, reader.position

    def _rewrite_batches(
        self, newest: Mapping[bytes | None, int], start: int, seen_to: int
    ) -> None:
        position = start
        while True:
            with self._database.snapshot() as db:
                rows = stored_batches.find_group(db, self._key, position, seen_to)
                rewrites = [self._rewrite(db, row, newest, seen_to) for row in rows]
            if not rows:
                return
            changes = [
                rewrite for rewrite in rewrites
                if not rewrite.kept or rewrite.delete_horizon != rewrite.row.delete_horizon
            ]
            if not changes or self._replace(rows, changes):
                position = rows[-1].base + 1

    def _rewrite(
        self, db: sqlite3.Connection, row: BatchRow, newest: Mapping[bytes | None, int],
        seen_to: int,
    ) -> _Rewrite:
        expired = row.delete_horizon is not None and row.delete_horizon <= self._now
        if not newest and not expired:
            return _Rewrite(row, True, None, row.delete_horizon, 0, 0)
        records = load(db, row)
        keep, tombstones_removed_to = _select(records, newest, expired)
        kept = records.filter(keep)
        horizon = row.delete_horizon
        if kept.column("value").null_count == 0:
            horizon = None
        elif horizon is None and row.last < seen_to:
            horizon = self._now + self._settings.delete_retention_ms
        dropped = records.num_rows - kept.num_rows
        if not dropped:
            return _Rewrite(row, True, None, horizon, 0, 0)
        batch = encode_read_batch(kept, with_offsets=True) if kept.num_rows else None
        return _Rewrite(row, False, batch, horizon, dropped, tombstones_removed_to)

    def _replace(self, rows: list[BatchRow], changes: list[_Rewrite]) -> bool:
        """Write the changes. Returns False if another process has changed the batches."""
        with self._database.writing() as db:
            if not stored_batches.are_unchanged(db, self._key, rows):
                return False
            for change in changes:
                row = change.row
                if change.kept:
                    update_delete_horizon(db, row, change.delete_horizon)
                    continue
                stored_batches.delete_rows(db, self._key, [row])
                stored_batches.insert(
                    db, self._key, (row.base, row.last), change.batch, change.delete_horizon
                )
                stored_batches.delete_blobs(db, [row])
            partition = read_partition(db, *self._key)
            removed_to = max(change.tombstones_removed_to for change in changes)
            if partition is not None and removed_to > partition.tombstones_removed_to:
                write_partition(db, partition._replace(tombstones_removed_to=removed_to))
        for change in changes:
            stored = change.batch.info.bytes if change.batch else 0
            self._report.records_compacted += change.dropped
            if not change.kept:
                self._report.bytes_freed += change.row.bytes - stored
        return True


def _select(
    records: pa.RecordBatch, newest: Mapping[bytes | None, int], tombstones_expired: bool
) -> tuple[pa.Array, int]:
    """Return a mask of the records to keep, and the offset after the last removed tombstone.

    Records without a key were written before the topic was compacted. They are dropped.
    """
    offsets, keys, values = (records.column(name) for name in ("offset", "key", "value"))
    since = pa.array([newest.get(key, -1) for key in keys.to_pylist()], pa.int64())
    keep = pc.and_(pc.greater_equal(offsets, since), pc.is_valid(keys))
    if not tombstones_expired:
        return keep, 0
    tombstones = pc.is_null(values)
    removed = pc.filter(offsets, pc.and_(keep, tombstones))
    removed_to = int(pc.max(removed).as_py()) + 1 if len(removed) else 0
    return pc.and_(keep, pc.invert(tombstones)), removed_to
