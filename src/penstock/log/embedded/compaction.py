"""Compaction: of each key only the newest record stays, and a tombstone only for a while.

A pass has two steps. The first reads what came since the last pass and remembers the newest offset
of each key, as far as memory allows. The second goes through all batches from the start up to there
and drops the records that are older than what was remembered.

Why a tombstone can go: a batch gets its `delete_horizon` in the second step, when every batch
before it has been gone through with the tombstone remembered; so nothing older of that key is left.
Once the horizon has passed, the next pass drops the tombstones of the batch and says so in
`tombstones_removed_to`, in the same transaction.

A pass that is killed leaves all this true: each group of batches is replaced in one transaction, in
ascending order, and `cleaned_to` moves only when the pass is through. Offsets stay, and so do the
start and the end of the partition.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.embedded import stored_batches as rewriting
from penstock.log.embedded.arrow import Chunk, stored_from
from penstock.log.embedded.database import Database
from penstock.log.embedded.ranges import EmbeddedRangeReader
from penstock.log.embedded.stored_batches import Batch, Place
from penstock.log.embedded.topics import Topic
from penstock.log.topic_config import TopicSettings
from penstock.log.types import CleanReport

#: What a key costs in memory besides its bytes: about what Python takes for the two objects and
#: their place in the dictionary.
_KEY_OVERHEAD_BYTES = 200


class _Dirt(NamedTuple):
    """A partition as compaction sees it."""

    start: int
    cleaned_to: int
    #: Up to here it may be compacted now.
    limit: int
    bytes: int
    dirty_bytes: int
    expired_horizons: int


class _Verdict(NamedTuple):
    """What becomes of one batch: stays as it is (with another horizon), is replaced, or goes."""

    row: Batch
    stays: bool
    chunk: Chunk | None
    delete_horizon: int | None
    dropped: int
    tombstones_removed_to: int


class Compaction:
    """The compaction of one partition."""

    def __init__(self, db: Database, topic: Topic, partition: int, report: CleanReport) -> None:
        self._db = db
        self._topic = topic
        self._settings: TopicSettings = topic.settings
        self._place = Place(topic.id, partition)
        self._report = report
        self._now = db.options.clock()

    def run(self, force: bool) -> None:
        """Passes until all is clean that should be."""
        dirt = self._look()
        worth = dirt.dirty_bytes > 0 and (
            force or dirt.dirty_bytes >= self._settings.dirty_ratio * dirt.bytes
        )
        if not worth:
            if dirt.expired_horizons:
                self._go_through({}, dirt.start, dirt.cleaned_to)
            return
        cleaned_to = dirt.cleaned_to
        while cleaned_to < dirt.limit:
            newest, seen_to = self._remember(cleaned_to, dirt.limit)
            self._go_through(newest, dirt.start, seen_to)
            with self._db.writing() as db:
                db.execute(
                    "UPDATE partitions SET cleaned_to = max(cleaned_to, ?) "
                    "WHERE topic_id = ? AND partition = ?",
                    (seen_to, *self._place),
                )
            cleaned_to = seen_to

    def _look(self) -> _Dirt:
        with self._db.snapshot() as db:
            start, end, cleaned_to = db.execute(
                'SELECT start, "end", cleaned_to FROM partitions '
                "WHERE topic_id = ? AND partition = ?",
                self._place,
            ).fetchone()
            limit = end
            if self._settings.min_compaction_lag_ms:
                young = db.execute(
                    "SELECT min(base_offset) FROM batches WHERE topic_id = ? AND partition = ? "
                    "AND max_timestamp > ?",
                    (*self._place, self._now - self._settings.min_compaction_lag_ms),
                ).fetchone()[0]
                limit = end if young is None else young
            size, dirty, expired = db.execute(
                "SELECT coalesce(sum(bytes), 0), "
                "coalesce(sum(bytes) FILTER (WHERE last_offset >= ? AND base_offset < ?), 0), "
                "count(*) FILTER (WHERE delete_horizon <= ?) "
                "FROM batches WHERE topic_id = ? AND partition = ?",
                (cleaned_to, limit, self._now, *self._place),
            ).fetchone()
        return _Dirt(start, max(start, cleaned_to), limit, size, dirty, expired)

    def _remember(self, start: int, limit: int) -> tuple[dict[bytes | None, int], int]:
        """The newest offset of each key from `start` on, and how far memory was enough."""
        newest: dict[bytes | None, int] = {}
        reading = EmbeddedRangeReader(
            self._db, self._topic, self._place.partition, (start, limit), (None, None)
        )
        for batch in reading:
            keys = batch.records.column("key")
            newest.update(zip(keys.to_pylist(), batch.records.column("offset").to_pylist(),
                              strict=True))
            each = _KEY_OVERHEAD_BYTES + keys.nbytes // max(1, len(keys))
            if len(newest) * each > self._db.options.compaction_buffer_bytes:
                break
        return newest, reading.position

    def _go_through(self, newest: Mapping[bytes | None, int], start: int, seen_to: int) -> None:
        position = start
        while True:
            with self._db.snapshot() as db:
                rows = rewriting.rows_from(db, self._place, position, seen_to)
                verdicts = [self._judge(db, row, newest, seen_to) for row in rows]
            if not rows:
                return
            changes = [
                verdict for verdict in verdicts
                if not verdict.stays or verdict.delete_horizon != verdict.row.delete_horizon
            ]
            if not changes or self._replace(rows, changes):
                position = rows[-1].base + 1

    def _judge(
        self, db: sqlite3.Connection, row: Batch, newest: Mapping[bytes | None, int], seen_to: int
    ) -> _Verdict:
        expired = row.delete_horizon is not None and row.delete_horizon <= self._now
        if not newest and not expired:
            return _Verdict(row, True, None, row.delete_horizon, 0, 0)
        records = rewriting.load(db, row)
        keep, tombstones_removed_to = _keep(records, newest, expired)
        kept = records.filter(keep)
        horizon = row.delete_horizon
        if kept.column("value").null_count == 0:
            horizon = None
        elif horizon is None and row.last < seen_to:
            horizon = self._now + self._settings.delete_retention_ms
        dropped = records.num_rows - kept.num_rows
        if not dropped:
            return _Verdict(row, True, None, horizon, 0, 0)
        chunk = stored_from(kept, with_offsets=True) if kept.num_rows else None
        return _Verdict(row, False, chunk, horizon, dropped, tombstones_removed_to)

    def _replace(self, rows: list[Batch], changes: list[_Verdict]) -> bool:
        """Carry the verdicts out, unless somebody else has changed the batches meanwhile."""
        with self._db.writing() as db:
            if not rewriting.are_as_read(db, self._place, rows):
                return False
            for verdict in changes:
                row = verdict.row
                if verdict.stays:
                    db.execute(
                        "UPDATE batches SET delete_horizon = ? "
                        "WHERE topic_id = ? AND partition = ? AND base_offset = ?",
                        (verdict.delete_horizon, *self._place, row.base),
                    )
                    continue
                rewriting.delete_rows(db, self._place, [row])
                if verdict.chunk is not None:
                    rewriting.insert(
                        db, self._place, (row.base, row.last), verdict.chunk,
                        verdict.delete_horizon,
                    )
                rewriting.delete_blobs(db, [row])
            db.execute(
                "UPDATE partitions SET tombstones_removed_to = max(tombstones_removed_to, ?) "
                "WHERE topic_id = ? AND partition = ?",
                (max(verdict.tombstones_removed_to for verdict in changes), *self._place),
            )
        for verdict in changes:
            stored = verdict.chunk.facts.bytes if verdict.chunk else 0
            self._report.records_compacted += verdict.dropped
            if not verdict.stays:
                self._report.bytes_freed += verdict.row.bytes - stored
        return True


def _keep(
    records: pa.RecordBatch, newest: Mapping[bytes | None, int], tombstones_expired: bool
) -> tuple[pa.Array, int]:
    """Which records stay, and the offset behind the last tombstone that does not.

    Records without a key, from a time when the topic was not compacted, go.
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
