"""Appends without a transaction.

An idempotent producer sends an append to one partition without a transaction. All checks run before
the first record is sent, but a process that is killed in between may leave a prefix of the records.
`KafkaTransaction` appends to several partitions atomically.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from penstock.clock import wall_clock_ms
from penstock.log.errors import LogError, OutcomeUnknown, PartlyAppended
from penstock.log.kafka.append_context import AppendContext
from penstock.log.kafka.client.errors import error_of, translate
from penstock.log.kafka.client.producers import Delivery
from penstock.log.kafka.client.retry import Retry
from penstock.log.kafka.encoding import check_columns
from penstock.log.kafka.pending import PendingAppend
from penstock.log.types import Append, AppendResult, Records, StagedRecords
from penstock.record import RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa

_POLL_S = 0.02
#: librdkafka reports a delivery timeout itself. Wait for that report.
_REPORT_GRACE_S = 5.0


class KafkaAppender:
    """Appends records, and stages them."""

    def __init__(self, context: AppendContext) -> None:
        self._context = context

    def append(self, topic: str, partition: int, records: Records) -> AppendResult:
        """Append to one partition."""
        return self.append_each([Append(topic, partition, records)])[0]

    def append_each(self, appends: Iterable[Append]) -> list[AppendResult]:
        """Append to several partitions, independently of each other; `PartlyAppended` if some of
        them fail."""
        context = self._context
        context.connection.check_open()
        pending = [PendingAppend.of(*append) for append in appends]
        now = wall_clock_ms()
        limit = context.check_appends(pending, now)
        try:
            appended = self._send(pending, now, limit)
        finally:
            context.connection.changed.set()
        context.staging.drop(staged for append in pending for staged in append.staged())
        return appended

    def _send(
        self, appends: Sequence[PendingAppend], now: int, limit: int
    ) -> list[AppendResult]:
        context = self._context
        timeout = context.connection.timeout
        producer = context.clients.producers.idempotent(limit)
        deliveries = []
        try:
            for append in appends:
                delivery = Delivery()
                deliveries.append(delivery)
                delivery.produce(
                    producer, append.where, append.pieces(context.staging), now,
                    report_all=True, timeout=timeout,
                )
            retry = Retry(timeout + _REPORT_GRACE_S)
            while not all(delivery.is_complete for delivery in deliveries):
                producer.poll(_POLL_S)
                if retry.is_over:
                    raise context.connection.unavailable("Appending records failed")
        except KafkaException as raised:
            raise self._failure(error_of(raised), appends[0].topic) from raised
        results = [
            context.result_of(append, delivery) if delivery.error is None
            else self._failure(delivery.error, append.topic)
            for append, delivery in zip(appends, deliveries, strict=True)
        ]
        failures = [each for each in results if isinstance(each, LogError)]
        if not failures:
            return [each for each in results if not isinstance(each, LogError)]
        raise failures[0] if len(failures) == len(results) else PartlyAppended(results)

    def _failure(self, error: KafkaError, topic: str) -> LogError:
        context = self._context
        context.clients.producers.discard_all()
        context.clients.topics.invalidate(topic)
        if error.code() in {KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT}:
            return OutcomeUnknown(
                f"Kafka did not acknowledge records of topic '{topic}' within "
                f"{context.connection.timeout:.0f} s. {error.str()}. They may be in the log. Read "
                "it before you append them again."
            )
        return translate(error, f"Topic '{topic}' rejects records", topic)

    def stage(self, records: RecordColumns | pa.RecordBatch | pa.Table) -> list[StagedRecords]:
        """Store records in files of this host."""
        self._context.connection.check_open()
        return self._context.staging.stage(check_columns(records))
