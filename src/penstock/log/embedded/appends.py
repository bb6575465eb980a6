"""Appends, transactions and staged records.

Records are encoded before the file is locked; under the lock there are only a few inserts. A large
transaction stages its records before the commit, so neither its memory nor the time under the lock
grows with its size.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.log.base import Lease, Member, Transaction, Writer
from penstock.log.embedded.batch_codec import BatchInfo, EncodedBatch, encode_records
from penstock.log.embedded.batch_rows import insert_batch, insert_blob, insert_unreferenced
from penstock.log.embedded.checksums import ASIDE, Damage
from penstock.log.embedded.database import Database
from penstock.log.embedded.leases import check_lease, check_writer
from penstock.log.embedded.offsets import write_offsets
from penstock.log.embedded.partitions import PartitionKey, write_partition
from penstock.log.embedded.topics import find_partition
from penstock.log.errors import InvalidRecord, LogError, RecordTooLarge, StagedRecordsGone
from penstock.log.topic_config import TopicSettings
from penstock.log.types import (
    Append,
    AppendResult,
    CommittedOffset,
    Records,
    StagedRecords,
    TopicPartition,
    WriterGrant,
)
from penstock.record import RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa

#: Raises `Fenced` unless the writer of a transaction may commit. Called inside it.
_FenceCheck: TypeAlias = Callable[[sqlite3.Connection], object]

#: A transaction stages its records once they exceed this size.
_SPILL_BYTES = 32 * 1024 * 1024


class _EncodedAppend(NamedTuple):
    topic: str
    partition: int
    batches: list[EncodedBatch | StagedRecords]


def _encode(topic: str, partition: int, records: Records) -> _EncodedAppend:
    batches: Sequence[EncodedBatch | StagedRecords]
    batches = [records] if isinstance(records, StagedRecords) else encode_records(records)
    return _EncodedAppend(topic, partition, list(batches))


def _write_appends(
    db: sqlite3.Connection, appends: Iterable[_EncodedAppend], now: int
) -> list[AppendResult]:
    """Assign offsets to the records, inside a write transaction."""
    return [_write_append(db, append, now) for append in appends]


def _write_append(db: sqlite3.Connection, append: _EncodedAppend, now: int) -> AppendResult:
    topic, partition = find_partition(db, append.topic, append.partition)
    settings = topic.settings
    key = PartitionKey(topic.id, append.partition)
    base = offset = partition.end
    clock_time = -1
    for batch in append.batches:
        blob_id = 0
        if isinstance(batch, StagedRecords):
            info, blob_id = _take_staged(db, batch), batch.id
        else:
            info = batch.info
        append_time = now if settings.append_time or info.untimed else None
        _check(topic.name, settings, info, None if append_time is not None else now)
        if append_time is not None:
            clock_time = append_time
        if isinstance(batch, EncodedBatch):
            blob_id = insert_blob(db, batch)
        span = (offset, offset + info.records - 1)
        insert_batch(db, key, span, info, blob_id, append_time=append_time)
        offset += info.records
    if offset > base:
        write_partition(db, partition._replace(end=offset))
    return AppendResult(append.topic, append.partition, base, offset, clock_time)


def _check(topic: str, settings: TopicSettings, info: BatchInfo, now: int | None) -> None:
    """Raise if the topic rejects a record. `now` is None if the log assigns the timestamps."""
    if info.largest > settings.max_message_bytes:
        raise RecordTooLarge(topic, info.largest, settings.max_message_bytes)
    if settings.compact and info.null_keys:
        raise InvalidRecord(f"Topic '{topic}' is compacted. Its records must have a key.")
    if now is None:
        return
    if info.min_timestamp < now - settings.timestamp_before_max_ms:
        _reject_time(topic, info.min_timestamp, "message.timestamp.before.max.ms")
    if info.max_timestamp > now + settings.timestamp_after_max_ms:
        _reject_time(topic, info.max_timestamp, "message.timestamp.after.max.ms")


def _reject_time(topic: str, timestamp: int, setting: str) -> None:
    raise InvalidRecord(
        f"The timestamp {timestamp} is too far from the log's clock for topic '{topic}'. "
        f"The limit is {setting}."
    )


def _stage(db: sqlite3.Connection, batch: EncodedBatch, now: int) -> StagedRecords:
    staged = StagedRecords(insert_blob(db, batch), uuid.uuid4().hex, batch.info.records)
    insert_unreferenced(db, staged.id, staged.token, now, json.dumps(batch.info))
    return staged


def _take_staged(db: sqlite3.Connection, staged: StagedRecords) -> BatchInfo:
    row = db.execute(
        "SELECT blob_id, token, created_ms, facts, checksum FROM aside "
        "WHERE blob_id = ? AND token = ?", (staged.id, staged.token),
    ).fetchone()
    if row is None:
        raise StagedRecordsGone(
            f"The staged records {staged.id} do not exist. They were appended or dropped, or they "
            "expired. Nothing was written; stage the records again."
        )
    if not ASIDE.matches(row):
        raise Damage(f"The staged records {staged.id} are damaged")
    db.execute("DELETE FROM aside WHERE blob_id = ?", (staged.id,))
    return BatchInfo(*json.loads(row[3]))


def _delete_staged(db: sqlite3.Connection, staged: Iterable[StagedRecords]) -> None:
    for part in staged:
        gone = db.execute(
            "DELETE FROM aside WHERE blob_id = ? AND token = ?", (part.id, part.token)
        )
        if gone.rowcount:
            db.execute("DELETE FROM blobs WHERE id = ?", (part.id,))


class EmbeddedTransaction(Transaction):
    """Collects appends and offsets, and writes them in one transaction of the file."""

    def __init__(self, database: Database, check_fence: _FenceCheck | None) -> None:
        self.appended: list[AppendResult] = []
        self._database = database
        self._check_fence = check_fence
        self._appends: list[_EncodedAppend] = []
        self._offsets: list[
            tuple[str, Mapping[TopicPartition, CommittedOffset | int], Member | None]
        ] = []
        #: The size of the records that are not staged yet.
        self._bytes = 0
        self._spilled: list[StagedRecords] = []
        self._over = False

    def append(self, topic: str, partition: int, records: Records) -> None:
        """See `Transaction.append`."""
        self._check_open()
        append = _encode(topic, partition, records)
        self._appends.append(append)
        self._bytes += sum(
            batch.info.bytes for batch in append.batches if isinstance(batch, EncodedBatch)
        )
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
        now = self._database.options.clock()
        # One write transaction per batch, so that other writers get their turn.
        for append in self._appends:
            for index, batch in enumerate(append.batches):
                if isinstance(batch, EncodedBatch):
                    with self._database.writing() as db:
                        staged = _stage(db, batch, now)
                    append.batches[index] = staged
                    self._spilled.append(staged)
        self._bytes = 0

    def commit(self) -> list[AppendResult]:
        """See `Transaction.commit`."""
        self._check_open()
        try:
            with self._database.writing() as db:
                if self._check_fence is not None:
                    self._check_fence(db)
                now = self._database.options.clock()
                appended = _write_appends(db, self._appends, now)
                for group, offsets, member in self._offsets:
                    write_offsets(db, group, offsets, member, now)
        except BaseException:
            # This error is the reason. Records that cannot be deleted now expire.
            with contextlib.suppress(LogError):
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
            with self._database.writing() as db:
                _delete_staged(db, self._spilled)

    def _check_open(self) -> None:
        if self._over:
            raise ValueError("The transaction is over. Begin a new one.")


class EmbeddedWriter(Writer):
    """Each of its transactions checks the lease and the grant."""

    def __init__(self, database: Database, grant: WriterGrant) -> None:
        self.grant = grant
        self._database = database

    def transaction(self) -> EmbeddedTransaction:
        """See `Writer.transaction`."""
        return EmbeddedTransaction(self._database, lambda db: check_writer(db, self.grant))

    def close(self) -> None:
        """See `Writer.close`."""


class Appender:
    """Writes records and owns the staged ones."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append_many(self, appends: Iterable[Append]) -> list[AppendResult]:
        """Append to several partitions in one transaction."""
        encoded = [_encode(*append) for append in appends]
        with self._database.writing() as db:
            return _write_appends(db, encoded, self._database.options.clock())

    def transaction(self, lease: Lease | None) -> EmbeddedTransaction:
        """Begin a transaction."""
        if lease is None:
            return EmbeddedTransaction(self._database, None)
        return EmbeddedTransaction(
            self._database, lambda db: check_lease(db, lease.name, lease.epoch)
        )

    def open_writer(self, grant: WriterGrant) -> EmbeddedWriter:
        """Open a writer."""
        return EmbeddedWriter(self._database, grant)

    def stage(self, records: RecordColumns | pa.RecordBatch | pa.Table) -> list[StagedRecords]:
        """Store records that no partition refers to yet."""
        batches = encode_records(records)
        with self._database.writing() as db:
            now = self._database.options.clock()
            return [_stage(db, batch, now) for batch in batches]

    def drop_staged(self, staged: Iterable[StagedRecords]) -> None:
        """Delete staged records that still exist."""
        with self._database.writing() as db:
            _delete_staged(db, staged)
