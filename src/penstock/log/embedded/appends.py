"""Appends and transactions.

Records are encoded before the file is locked; what happens under the lock are a few inserts. A
transaction that collects much puts its blobs aside on the way, so neither its memory nor the time
it holds the lock grows with it.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.log.base import Lease, Member, Transaction
from penstock.log.embedded.arrow import BatchInfo, Chunk, as_chunks
from penstock.log.embedded.database import Database
from penstock.log.embedded.leases import check_lease
from penstock.log.embedded.offsets import write_offsets
from penstock.log.embedded.topics import find_partition
from penstock.log.errors import InvalidRecord, RecordTooLarge, StagedRecordsGone
from penstock.log.topic_config import TopicSettings
from penstock.log.types import (
    Append,
    AppendResult,
    CommittedOffset,
    Records,
    StagedRecords,
    TopicPartition,
)
from penstock.record import RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa

#: What a transaction keeps in memory before it puts blobs aside.
_SPILL_BYTES = 32 * 1024 * 1024


class _Prepared(NamedTuple):
    topic: str
    partition: int
    chunks: list[Chunk | StagedRecords]


def _prepared(topic: str, partition: int, records: Records) -> _Prepared:
    chunks: Sequence[Chunk | StagedRecords]
    chunks = [records] if isinstance(records, StagedRecords) else as_chunks(records)
    return _Prepared(topic, partition, list(chunks))


def write_appends(
    db: sqlite3.Connection, appends: Iterable[_Prepared], now: int
) -> list[AppendResult]:
    """Give the records their offsets, inside a write transaction."""
    return [_write_append(db, append, now) for append in appends]


def _write_append(db: sqlite3.Connection, append: _Prepared, now: int) -> AppendResult:
    topic = find_partition(db, append.topic, append.partition)
    settings = topic.settings
    which = (topic.id, append.partition)
    base = offset = db.execute(
        'SELECT "end" FROM partitions WHERE topic_id = ? AND partition = ?', which
    ).fetchone()[0]
    clock_time = -1
    for chunk in append.chunks:
        blob_id: int | None = None
        if isinstance(chunk, StagedRecords):
            facts, blob_id = _take_blob(db, chunk), chunk.id
        else:
            facts = chunk.facts
        append_time = now if settings.append_time or facts.untimed else None
        _check(topic.name, settings, facts, None if append_time is not None else now)
        first, last = facts.min_timestamp, facts.max_timestamp
        if append_time is not None:
            first = last = clock_time = append_time
        if isinstance(chunk, Chunk):
            blob_id = insert_blob(db, chunk)
        db.execute(
            "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?)",
            (*which, offset, offset + facts.records - 1, facts.records, facts.bytes, first, last,
             append_time, blob_id),
        )
        offset += facts.records
    if offset > base:
        db.execute(
            'UPDATE partitions SET "end" = ? WHERE topic_id = ? AND partition = ?',
            (offset, *which),
        )
    return AppendResult(append.topic, append.partition, base, offset, clock_time)


def _check(topic: str, settings: TopicSettings, facts: BatchInfo, now: int | None) -> None:
    """Refuse what the topic does not take. `now` is None where the times are the log's own."""
    if facts.largest > settings.max_message_bytes:
        raise RecordTooLarge(topic, facts.largest, settings.max_message_bytes)
    if settings.compact and facts.null_keys:
        raise InvalidRecord(
            f"Topic '{topic}' is compacted: it takes no records without a key."
        )
    if now is None:
        return
    if facts.min_timestamp < now - settings.timestamp_before_max_ms:
        _refuse_time(topic, facts.min_timestamp, "message.timestamp.before.max.ms")
    if facts.max_timestamp > now + settings.timestamp_after_max_ms:
        _refuse_time(topic, facts.max_timestamp, "message.timestamp.after.max.ms")


def _refuse_time(topic: str, timestamp: int, setting: str) -> None:
    raise InvalidRecord(
        f"The timestamp {timestamp} is too far from the log's clock for topic '{topic}'. "
        f"{setting} is the limit."
    )


def insert_blob(db: sqlite3.Connection, chunk: Chunk) -> int:
    """Store the bytes; whoever calls it makes something point to them."""
    cursor = db.execute(
        "INSERT INTO blobs (layout, data) VALUES (?, ?)", (chunk.facts.layout, chunk.data)
    )
    return int(cursor.lastrowid or 0)


def _put_aside(db: sqlite3.Connection, chunk: Chunk, now: int) -> StagedRecords:
    blob = StagedRecords(insert_blob(db, chunk), uuid.uuid4().hex, chunk.facts.records)
    db.execute(
        "INSERT INTO aside (blob_id, token, created_ms, facts) VALUES (?, ?, ?, ?)",
        (blob.id, blob.token, now, json.dumps(chunk.facts)),
    )
    return blob


def _take_blob(db: sqlite3.Connection, blob: StagedRecords) -> BatchInfo:
    row = db.execute(
        "SELECT facts FROM aside WHERE blob_id = ? AND token = ?", (blob.id, blob.token)
    ).fetchone()
    if row is None:
        raise StagedRecordsGone(
            f"Blob {blob.id} is not there: it was used, dropped, or swept because nobody used it "
            "for too long. Nothing was written; make it again."
        )
    db.execute("DELETE FROM aside WHERE blob_id = ?", (blob.id,))
    return BatchInfo._make(json.loads(row[0]))


def drop_aside(db: sqlite3.Connection, blobs: Iterable[StagedRecords]) -> None:
    """Remove blobs that were put aside and are still there."""
    for blob in blobs:
        gone = db.execute(
            "DELETE FROM aside WHERE blob_id = ? AND token = ?", (blob.id, blob.token)
        )
        if gone.rowcount:
            db.execute("DELETE FROM blobs WHERE id = ?", (blob.id,))


class EmbeddedTransaction(Transaction):
    """What was asked for so far; written in one transaction of the file at the end."""

    def __init__(self, db: Database, lease: Lease | None) -> None:
        self.appended: list[AppendResult] = []
        self._db = db
        self._lease = lease
        self._appends: list[_Prepared] = []
        self._offsets: list[
            tuple[str, Mapping[TopicPartition, CommittedOffset | int], Member | None]
        ] = []
        self._bytes = 0
        self._spilled: list[StagedRecords] = []
        self._over = False

    def append(self, topic: str, partition: int, records: Records) -> None:
        """See `Transaction.append`."""
        self._check_open()
        append = _prepared(topic, partition, records)
        self._appends.append(append)
        self._bytes += sum(c.facts.bytes for c in append.chunks if isinstance(c, Chunk))
        if self._bytes > _SPILL_BYTES:
            self._spill()

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        member: Member | None = None,
    ) -> None:
        """See `Transaction.commit_offsets`."""
        self._check_open()
        self._offsets.append((group, dict(offsets), member))

    def _spill(self) -> None:
        now = self._db.options.clock()
        # A transaction of its own for each: others may write in between.
        for append in self._appends:
            for index, chunk in enumerate(append.chunks):
                if isinstance(chunk, Chunk):
                    with self._db.writing() as db:
                        blob = _put_aside(db, chunk, now)
                    append.chunks[index] = blob
                    self._spilled.append(blob)
        self._bytes = 0

    def commit(self) -> list[AppendResult]:
        """See `Transaction.commit`."""
        self._check_open()
        try:
            with self._db.writing() as db:
                if self._lease is not None:
                    check_lease(db, self._lease)
                now = self._db.options.clock()
                appended = write_appends(db, self._appends, now)
                for group, offsets, member in self._offsets:
                    write_offsets(db, group, offsets, member, now)
        except BaseException:
            self.abort()
            raise
        self._over = True
        self.appended = appended
        return appended

    def abort(self) -> None:
        """See `Transaction.abort`."""
        if self._over:
            return
        self._over = True
        self._appends.clear()
        if self._spilled:
            with self._db.writing() as db:
                drop_aside(db, self._spilled)

    def _check_open(self) -> None:
        if self._over:
            raise ValueError("The transaction is over. Begin a new one.")


class Appends:
    """The part of the log that writes records."""

    _db: Database

    def append(self, topic: str, partition: int, records: Records) -> AppendResult:
        """See `Log.append`."""
        return self.append_many([Append(topic, partition, records)])[0]

    def append_many(
        self, appends: Iterable[Append], *, together: bool = True
    ) -> list[AppendResult]:
        """See `Log.append_many`. A transaction of the file costs the same either way."""
        prepared = [_prepared(*append) for append in appends]
        with self._db.writing() as db:
            return write_appends(db, prepared, self._db.options.clock())

    def transaction(self, lease: Lease | None = None) -> Transaction:
        """See `Log.transaction`."""
        return EmbeddedTransaction(self._db, lease)

    def stage_records(
        self, records: RecordColumns | pa.RecordBatch | pa.Table
    ) -> list[StagedRecords]:
        """See `Log.stage_records`."""
        chunks = as_chunks(records)
        with self._db.writing() as db:
            now = self._db.options.clock()
            return [_put_aside(db, chunk, now) for chunk in chunks]

    def drop_staged(self, blobs: Iterable[StagedRecords]) -> None:
        """See `Log.drop_staged`."""
        with self._db.writing() as db:
            drop_aside(db, blobs)
