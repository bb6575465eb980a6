"""Appends, and what transactions ask of the log.

An append to one partition is sent by an idempotent producer without a transaction: everything that
can be refused is refused before the first record is sent, but a process that is killed in the
midst of it may leave the first records. Several partitions at once are a transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from penstock.clock import wall_clock_ms
from penstock.log.base import Lease, Transaction
from penstock.log.errors import LogError, LogUnavailable, OutcomeUnknown
from penstock.log.kafka.client.errors import error_of, translated
from penstock.log.kafka.client.producers import Delivery
from penstock.log.kafka.encoding import check_columns
from penstock.log.kafka.pending import Prepared, check
from penstock.log.kafka.ranges import Ranges
from penstock.log.kafka.transactions import KafkaTransaction
from penstock.log.types import (
    Append,
    AppendResult,
    Records,
    StagedRecords,
    TopicPartition,
)
from penstock.record import RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa

_PAUSE_S = 0.02
#: How long a transaction without an answer may stay undecided: the broker ends it after a minute.
_UNDECIDED_S = 90.0
_LARGEST_BATCH = 1_000_000


class Appends(Ranges):
    """The part of the log that writes records."""

    def append(self, topic: str, partition: int, records: Records) -> AppendResult:
        """See `Log.append`."""
        return self.append_many([Append(topic, partition, records)])[0]

    def append_many(
        self, appends: Iterable[Append], *, together: bool = True
    ) -> list[AppendResult]:
        """See `Log.append_many`."""
        self._connection.check_open()
        listed = list(appends)
        if together and len({(append.topic, append.partition) for append in listed}) > 1:
            transaction = self.transaction()
            for append in listed:
                transaction.append(*append)
            return transaction.commit()
        prepared = [Prepared.of(*append) for append in listed]
        now = wall_clock_ms()
        limit = self.check_appends(prepared, now)
        appended = self._send(prepared, now, limit)
        self.blobs.drop(blob for append in prepared for blob in append.blobs())
        self.tell_change()
        return appended

    def _send(self, appends: Sequence[Prepared], now: int, limit: int) -> list[AppendResult]:
        producer = self.producers.plain(limit)
        deliveries = []
        try:
            for append in appends:
                delivery = Delivery()
                deliveries.append(delivery)
                delivery.send(
                    producer, append.where, append.pieces(self.blobs), now,
                    report_all=True, patience=self.timeout,
                )
            deadline = time.monotonic() + self.timeout + 5
            while not all(delivery.is_reported for delivery in deliveries):
                producer.poll(_PAUSE_S)
                if time.monotonic() > deadline:
                    raise self.unavailable("Records were to be appended")
        except KafkaException as raised:
            raise self._not_sent(error_of(raised), appends[0].topic) from raised
        for append, delivery in zip(appends, deliveries, strict=True):
            if delivery.error is not None:
                raise self._not_sent(delivery.error, append.topic)
        return [
            self.as_appended(append, delivery)
            for append, delivery in zip(appends, deliveries, strict=True)
        ]

    def _not_sent(self, error: KafkaError, topic: str) -> LogError:
        self.producers.let_go()
        self.topic_book.forget(topic)
        if error.code() in {KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT}:
            return OutcomeUnknown(
                f"Kafka has not acknowledged records of topic '{topic}' within "
                f"{self.timeout:.0f} s. {error.str()}. They may be there or not; look before you "
                "append them again."
            )
        return translated(error, f"Records of topic '{topic}' were refused", topic)

    def transaction(self, lease: Lease | None = None) -> Transaction:
        """See `Log.transaction`."""
        self._connection.check_open()
        return KafkaTransaction(self, lease)

    def stage_records(
        self, records: RecordColumns | pa.RecordBatch | pa.Table
    ) -> list[StagedRecords]:
        """See `Log.stage_records`."""
        self._connection.check_open()
        return self.blobs.put(check_columns(records))

    def drop_staged(self, blobs: Iterable[StagedRecords]) -> None:
        """See `Log.drop_staged`."""
        self.blobs.drop(blobs)

    # What a transaction asks for

    def check_appends(self, appends: Sequence[Prepared], now: int) -> int:
        """Refuse what the topics do not take; answers how large batches may be."""
        limit = _LARGEST_BATCH
        for append in appends:
            topic = self.topic_book.find_partition(append.topic, append.partition)
            limit = min(limit, topic.settings.max_message_bytes)
            for rows in append.pieces(self.blobs):
                check(rows, topic, now)
        return limit

    def nothing_appended(self, append: Prepared) -> AppendResult:
        """The answer to an append without records."""
        end = self.bounds_of(append.topic, append.partition)[1]
        return AppendResult(append.topic, append.partition, end, end)

    def as_appended(self, append: Prepared, delivery: Delivery) -> AppendResult:
        """The answer to an append that was delivered."""
        if delivery.base is None or delivery.last is None:
            return self.nothing_appended(append)
        return AppendResult(
            append.topic, append.partition, delivery.base, delivery.last + 1, delivery.timestamp
        )

    def wait_until_visible(self, appended: Iterable[AppendResult]) -> None:
        """Wait until readers see what was committed; `OutcomeUnknown` if they do not in time.

        It will come, whatever happens here. But whoever went on without it would take the ends of
        partitions for those of before the transaction.
        """
        left: dict[TopicPartition, int] = {}
        for topic, partition, _, next_offset, _ in appended:
            where = TopicPartition(topic, partition)
            left[where] = max(left.get(where, 0), next_offset)
        deadline = time.monotonic() + self.timeout
        pause = 0.0005
        unseen = OutcomeUnknown(
            "The transaction is committed, but Kafka does not show its records yet. Wait for them "
            "before you go on from what is committed."
        )
        while left:
            try:
                ends = self.ends(left)
            except LogUnavailable as error:
                raise unseen from error
            left = {
                where: wanted for where, wanted in left.items() if ends.get(where, wanted) < wanted
            }
            if left and time.monotonic() > deadline:
                raise unseen
            if left:
                time.sleep(pause)
                pause = min(2 * pause, _PAUSE_S)

    def was_committed(
        self, appends: Sequence[Prepared], deliveries: Sequence[Delivery]
    ) -> bool:
        """Whether a transaction whose commit had no clear answer is there."""
        sent = [
            (append, delivery.base)
            for append, delivery in zip(appends, deliveries, strict=True)
            if delivery.base is not None
        ]
        if not sent:
            # Nothing is committed before everything was delivered.
            return False
        append, offset = sent[0]
        unknown = OutcomeUnknown(
            "Kafka did not say whether the transaction was committed, and it could not be looked "
            f"up at offset {offset} of '{append.topic}' [{append.partition}]. Look before you go "
            "on from what is committed."
        )
        deadline = time.monotonic() + _UNDECIDED_S
        while True:
            try:
                start, end = self.bounds_of(*append.where)
                if end > offset:
                    if start > offset:
                        raise unknown
                    found = self.read(*append.where, offset, offset + 1)
                    return any(len(batch) for batch in found)
            except LogUnavailable as error:
                if isinstance(error, OutcomeUnknown) or time.monotonic() > deadline:
                    raise unknown from error
            if time.monotonic() > deadline:
                raise unknown
            time.sleep(_PAUSE_S)
