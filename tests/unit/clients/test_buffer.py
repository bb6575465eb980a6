"""The buffer of a producer."""

from __future__ import annotations

from penstock.clients import KafkaError
from penstock.clients.producer.buffer import BufferLimits, PendingRecord, RecordBuffer
from penstock.clients.producer.sender import failure_reports

LIMITS = BufferLimits(
    linger_ms=0, batch_bytes=1_000, batch_records=10, buffer_bytes=1_000, buffer_records=0,
    max_block_ms=0,
)
PURGED = KafkaError(KafkaError._PURGE_QUEUE, "The record was purged.")


def record() -> PendingRecord:
    return PendingRecord("t", 0, None, b"v", 0, (), 1, 0.0)


def test_records_drained_during_a_purge_are_waited_for() -> None:
    buffer = RecordBuffer(LIMITS)
    buffer.append(record())
    purged = buffer.purge()
    buffer.append(record())
    drained = buffer.drain()
    buffer.complete(failure_reports(purged, PURGED))
    assert buffer.flush(0) == 1
    buffer.complete([(each, None, None) for each in drained])
    # Without a timeout it would wait forever if records were missing.
    assert buffer.flush(1) == 0
    assert not buffer._in_flight
