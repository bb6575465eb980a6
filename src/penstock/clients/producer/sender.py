"""Sends the buffered records of a producer: one append to the log per drain of the buffer.

A failed append to a partition has no effect, so a retry cannot duplicate a record: every producer
is idempotent. One invalid record must not fail the others: the sender halves a rejected batch until
the invalid records are alone. The order within a partition stays.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock.clients.errors import KafkaError, to_kafka_error
from penstock.clients.producer.buffer import DeliveryReport, PendingRecord, RecordBuffer
from penstock.clients.types import (
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
)
from penstock.log.base import Log
from penstock.log.errors import (
    InvalidRecord,
    LogBusy,
    LogError,
    PartlyAppended,
    UnknownPartition,
    UnknownTopic,
)
from penstock.log.types import Append, AppendResult
from penstock.record import RecordColumns

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SendSettings:
    """Acknowledgements and retries."""

    #: False (acks=0): reports contain neither errors nor offsets, and there are no retries.
    acknowledge: bool
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    delivery_timeout_ms: int


def group_by_partition(
    records: Iterable[PendingRecord],
) -> dict[tuple[str, int], list[PendingRecord]]:
    """Group records by topic and partition and keep their order."""
    groups: dict[tuple[str, int], list[PendingRecord]] = {}
    for record in records:
        partition = (record.topic, record.partition)
        if partition in groups:
            groups[partition].append(record)
        else:
            groups[partition] = [record]
    return groups


def to_columns(records: list[PendingRecord]) -> RecordColumns:
    """Convert the records of one partition for an append."""
    headers = [record.headers for record in records]
    return RecordColumns(
        [record.key for record in records],
        [record.value for record in records],
        [record.timestamp for record in records],
        headers if any(headers) else None,
    )


def success_reports(records: list[PendingRecord], result: AppendResult) -> list[DeliveryReport]:
    """Return the reports of records that one append wrote to one partition."""
    reports: list[DeliveryReport] = []
    offset = result.base_offset
    for record in records:
        message = None
        if record.callback is not None or record.future is not None:
            if result.timestamp >= 0:
                timestamp = (TIMESTAMP_LOG_APPEND_TIME, result.timestamp)
            else:
                timestamp = (TIMESTAMP_CREATE_TIME, record.timestamp)
            message = record.message(offset, timestamp, None)
        reports.append((record, None, message))
        offset += 1
    return reports


def failure_reports(records: Iterable[PendingRecord], error: KafkaError) -> list[DeliveryReport]:
    """Return the reports of records that were not appended."""
    return [
        (record, error, record.message(
            OFFSET_INVALID, (TIMESTAMP_CREATE_TIME, record.timestamp), error))
        for record in records
    ]


class Sender(threading.Thread):
    """The sender thread. Ends when the buffer is closed and empty."""

    def __init__(
        self,
        log: Log,
        buffer: RecordBuffer,
        settings: SendSettings,
        invalidate_topic: Callable[[str], None],
    ) -> None:
        super().__init__(name="penstock-producer", daemon=True)
        self._log = log
        self._buffer = buffer
        self._settings = settings
        self._invalidate_topic = invalidate_topic
        self._retries_stopped = threading.Event()

    def run(self) -> None:
        """Send until the buffer is closed."""
        while records := self._buffer.drain():
            try:
                reports = self._send(records)
            except Exception as error:
                # Without a report, callers would wait indefinitely.
                logger.exception("Sending %d records failed", len(records))
                reports = failure_reports(records, KafkaError(KafkaError._FAIL, repr(error)))
            if not self._settings.acknowledge:
                reports = self._without_acknowledgement(reports)
            self._buffer.complete(reports)

    def stop_retries(self) -> None:
        """Fail the records of an append that does not succeed at once."""
        self._retries_stopped.set()

    def _without_acknowledgement(self, reports: list[DeliveryReport]) -> list[DeliveryReport]:
        """Replace reports by those of acks=0; failures are logged instead."""
        replaced: list[DeliveryReport] = []
        for record, error, message in reports:
            if error is not None:
                logger.warning("A record of topic '%s' was not written: %s", record.topic, error)
            timestamp = (TIMESTAMP_CREATE_TIME, record.timestamp)
            unacknowledged = message and record.message(OFFSET_INVALID, timestamp, None)
            replaced.append((record, None, unacknowledged))
        return replaced

    def _send(self, records: list[PendingRecord]) -> list[DeliveryReport]:
        try:
            return self._append(records)
        except LogError as error:
            return self._send_after(error, records)

    def _send_after(self, error: LogError, records: list[PendingRecord]) -> list[DeliveryReport]:
        """Send what may be sent of records whose append has failed, and report the others."""
        if isinstance(error, UnknownTopic):
            return self._send_without_missing(records, error)
        if isinstance(error, InvalidRecord) and len(records) > 1:
            half = len(records) // 2
            return self._send(records[:half]) + self._send(records[half:])
        return failure_reports(records, to_kafka_error(error))

    def _send_without_missing(
        self, records: list[PendingRecord], error: UnknownTopic
    ) -> list[DeliveryReport]:
        """Fail the records of the missing topic or partition and send the others."""
        self._invalidate_topic(error.topic)
        partition = error.partition if isinstance(error, UnknownPartition) else None

        def is_missing(record: PendingRecord) -> bool:
            return record.topic == error.topic and partition in {None, record.partition}

        missing = [record for record in records if is_missing(record)]
        others = [record for record in records if not is_missing(record)]
        if not missing:
            return failure_reports(records, to_kafka_error(error))
        reports = failure_reports(missing, to_kafka_error(error))
        return reports + self._send(others) if others else reports

    def _append(self, records: list[PendingRecord]) -> list[DeliveryReport]:
        groups = group_by_partition(records)
        appends = [
            Append(topic, partition, to_columns(group))
            for (topic, partition), group in groups.items()
        ]
        results: Sequence[AppendResult | LogError]
        try:
            results = self._append_with_retries(appends, records[0].created_at)
        except PartlyAppended as error:
            results = error.results
        reports: list[DeliveryReport] = []
        for group, result in zip(groups.values(), results, strict=True):
            if isinstance(result, LogError):
                reports += self._send_after(result, group)
            else:
                reports += success_reports(group, result)
        return reports

    def _append_with_retries(self, appends: list[Append], created_at: float) -> list[AppendResult]:
        settings = self._settings
        backoff_ms = settings.retry_backoff_ms
        attempt = 0
        while True:
            try:
                return self._log.append_many(appends, together=False)
            except LogBusy:
                attempt += 1
                age_ms = (time.monotonic() - created_at) * 1000
                if (
                    attempt > settings.retries
                    or not settings.acknowledge
                    or age_ms + backoff_ms > settings.delivery_timeout_ms
                    or self._retries_stopped.wait(backoff_ms / 1000)
                ):
                    raise
                backoff_ms = min(2 * backoff_ms, settings.retry_backoff_max_ms)
