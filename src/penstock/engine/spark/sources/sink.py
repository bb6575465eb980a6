"""Commits the batches of a streaming query exactly once.

Spark calls the commit of a batch again if the driver has failed before it has recorded the batch as
complete. Therefore the transaction that publishes the records of a batch also records its id:

1. A commit takes the lease of its query (`penstock-sink-<query id>`). A driver that was replaced
   and still runs is fenced: its transaction fails.
2. It reads the id of the last committed batch from the topic `SINKS`. If the id of this batch is
   not larger, the batch was committed before, and nothing is written.
3. One transaction appends the records and a record of the batch id.

`SINKS` is compacted, with one record for each query and topic. The committed offset of the lease's
group, written in the same transaction, tells where to look for it, so a restart does not read the
whole topic. If a broker has expired the offset, the topic is read from the start.

The query id is that of Spark's checkpoint: a new checkpoint is a new query. The process that
commits batches in the driver keeps the lease and the last id from batch to batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from penstock.engine.failpoints import failpoint
from penstock.engine.spark.sources.options import LogAddress
from penstock.engine.spark.sources.record_writer import WrittenRecords
from penstock.errors import StreamsException
from penstock.log.base import Lease, Log
from penstock.log.errors import TopicExists, UnknownTopic
from penstock.log.types import Append, StagedRecords, TopicPartition
from penstock.record import RecordColumns

#: The topic with the last batch of every query.
SINKS = "__penstock_sinks"
_WHERE = TopicPartition(SINKS, 0)
_SETTINGS = {
    "cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1",
}
FORMAT_VERSION = 1


class _LastBatch(msgspec.Struct):
    """The value of a record of `SINKS`. The key is the query id."""

    batch: int
    format_version: int = FORMAT_VERSION


@dataclass(slots=True)
class _Query:
    """The state of a query in the process that commits its batches. It holds the lease."""

    log: Log
    lease: Lease
    last_batch: int

    def close(self) -> None:
        """Give up the lease."""
        with contextlib.suppress(StreamsException):
            self.lease.release()
        self.log.close()


#: Spark reuses the process that commits batches, but not the objects in it.
_queries: dict[tuple[LogAddress, str], _Query] = {}


def commit_batch(
    address: LogAddress, messages: Sequence[WrittenRecords | None], batch_id: int
) -> bool:
    """Publish the records of a batch. Return False if it was committed before."""
    written = [each for each in messages if each is not None]
    appends = [each for message in written for each in message.appends]
    query_id = next((each.query_id for each in written if each.query_id), "")
    if not appends:
        # Publishing nothing again does no harm.
        return True
    if not query_id:
        raise StreamsException(
            "Spark has passed no query id to the tasks of the stream, so the batch cannot be "
            "written exactly once. Nothing was written."
        )
    key = (address, query_id)
    try:
        query = _queries.get(key)
        if query is None:
            query = _queries[key] = _open_query(address, query_id)
        if batch_id <= query.last_batch:
            query.log.drop_staged(staged_records(written))
            return False
        _publish(query, query_id, appends, batch_id)
    except BaseException:
        # The lease may be lost, or the outcome unknown: the next attempt starts from the log.
        found = _queries.pop(key, None)
        if found is not None:
            found.close()
        raise
    query.last_batch = batch_id
    return True


def close_queries() -> None:
    """Release all leases that this process holds."""
    while _queries:
        _queries.popitem()[1].close()


def staged_records(messages: Iterable[WrittenRecords | None]) -> list[StagedRecords]:
    """Return the staged records of messages."""
    return [staged for each in messages if each is not None for staged in each.staged()]


def publish(address: LogAddress, messages: Sequence[WrittenRecords | None]) -> None:
    """Publish the records of a batch write in one transaction."""
    with address.open() as log, log.transaction() as transaction:
        for each in messages:
            for append in () if each is None else each.appends:
                transaction.append(*append)
        failpoint("in-commit")


def discard(address: LogAddress, messages: Sequence[WrittenRecords | None]) -> None:
    """Delete the staged records of a write that has failed."""
    staged = staged_records(messages)
    if staged:
        with address.open() as log:
            log.drop_staged(staged)


def _open_query(address: LogAddress, query_id: str) -> _Query:
    log = address.open()
    try:
        lease = log.take_lease(_lease_name(query_id), holder="Structured Streaming")
        return _Query(log, lease, last_batch(log, query_id))
    except BaseException:
        log.close()
        raise


def _lease_name(query_id: str) -> str:
    return f"penstock-sink-{query_id}"


def last_batch(log: Log, query_id: str) -> int:
    """Return the id of the last committed batch of a query; -1 if there is none."""
    try:
        bounds = log.offsets([_WHERE])[_WHERE]
    except UnknownTopic:
        with contextlib.suppress(TopicExists):
            log.create_topic(SINKS, 1, _SETTINGS)
        return -1
    hint = log.committed(_lease_name(query_id), [_WHERE]).get(_WHERE)
    start = bounds.start if hint is None else max(bounds.start, hint.offset)
    found = -1
    if start >= bounds.end:
        return found
    for batch in log.read(SINKS, 0, start, bounds.end):
        columns = batch.columns()
        for key, value in zip(columns.keys, columns.values, strict=True):
            if key == query_id.encode() and value is not None:
                found = _decode(value)
    return found


def _decode(value: bytes) -> int:
    decoded = msgspec.json.decode(value, type=_LastBatch)
    if decoded.format_version > FORMAT_VERSION:
        raise StreamsException(
            f"The topic '{SINKS}' was written by a newer version of penstock. Upgrade penstock."
        )
    return decoded.batch


def _publish(
    query: _Query, query_id: str, appends: Sequence[Append], batch_id: int
) -> None:
    log = query.log
    # The record of the batch will have this offset or a larger one.
    end = log.offsets([_WHERE])[_WHERE].end
    failpoint("before-commit")
    with log.transaction(query.lease) as transaction:
        for append in appends:
            transaction.append(*append)
        value = msgspec.json.encode(_LastBatch(batch_id))
        transaction.append(SINKS, 0, RecordColumns([query_id.encode()], [value]))
        transaction.commit_offsets(_lease_name(query_id), {_WHERE: end})
        failpoint("in-commit")
    failpoint("after-commit")
