"""Shared by appends and transactions: checks before sending, results after delivery."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.log.errors import LogUnavailable, OutcomeUnknown
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.pool import ClientPool
from penstock.log.kafka.client.producers import AnyDelivery
from penstock.log.kafka.client.retry import Retry
from penstock.log.kafka.pending import PendingAppend, check_records
from penstock.log.kafka.ranges import KafkaRanges
from penstock.log.kafka.staging import StagingDirectory
from penstock.log.types import AppendResult, TopicPartition

_MAX_BATCH_BYTES = 1_000_000
#: The pauses while records of a committed transaction become visible.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.02
#: How long a transaction may stay undecided. The broker ends it after a minute.
_UNDECIDED_S = 90.0


@dataclass(frozen=True, slots=True)
class AppendContext:
    """The parts of the log that appends and transactions use."""

    connection: Connection
    clients: ClientPool
    ranges: KafkaRanges
    staging: StagingDirectory

    def check_appends(
        self, appends: Sequence[PendingAppend], now: int, *, may_be_stale: bool = False
    ) -> int:
        """Raise if a topic would reject a record. Returns the limit of batches in bytes.

        `may_be_stale`: with metadata from the cache, so that the brokers may still reject one.
        """
        limit = _MAX_BATCH_BYTES
        for append in appends:
            topic = self.clients.topics.find_partition(
                append.topic, append.partition, may_be_stale=may_be_stale
            )
            limit = min(limit, topic.settings.max_message_bytes)
            for columns in append.pieces(self.staging):
                check_records(columns, topic, now)
        return limit

    def empty_result(self, append: PendingAppend) -> AppendResult:
        """Return the result of an append without records."""
        end = self.ranges.bounds(append.topic, append.partition)[1]
        return AppendResult(append.topic, append.partition, end, end)

    def result_of(self, append: PendingAppend, delivery: AnyDelivery) -> AppendResult:
        """Return the result of an append that was delivered."""
        if delivery.base is None or delivery.last is None:
            return self.empty_result(append)
        return AppendResult(
            append.topic, append.partition, delivery.base, delivery.last + 1, delivery.timestamp
        )

    def wait_until_visible(self, appended: Iterable[AppendResult]) -> None:
        """Wait until readers see committed records; `OutcomeUnknown` if it takes too long.

        The records will become visible in any case. But a caller that continues too early would
        see the ends of partitions from before the transaction.
        """
        left: dict[TopicPartition, int] = {}
        for topic, partition, _, next_offset, _ in appended:
            where = TopicPartition(topic, partition)
            left[where] = max(left.get(where, 0), next_offset)
        retry = Retry(self.connection.timeout, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        invisible = OutcomeUnknown(
            "The transaction is committed, but its records are not visible yet. Wait for them "
            "before you continue from the committed offsets."
        )
        while left:
            try:
                ends = self.ranges.ends(left)
            except LogUnavailable as error:
                raise invisible from error
            left = {
                where: wanted for where, wanted in left.items() if ends.get(where, wanted) < wanted
            }
            if left:
                retry.wait_or_raise(invisible)

    def was_committed(
        self, appends: Sequence[PendingAppend], deliveries: Sequence[AnyDelivery]
    ) -> bool:
        """Return whether a transaction was committed, after its commit had no clear response.

        The first record is readable, or the partition's end is behind it and it never will be.
        """
        sent = [
            (append, delivery.base)
            for append, delivery in zip(appends, deliveries, strict=True)
            if delivery.base is not None
        ]
        if not sent:
            # A transaction is committed only after all records are delivered.
            return False
        append, offset = sent[0]
        unknown = OutcomeUnknown(
            "Kafka did not report whether the transaction is committed, and offset "
            f"{offset} of '{append.topic}' [{append.partition}] cannot be read. Read the log "
            "before you continue from the committed offsets."
        )
        retry = Retry(_UNDECIDED_S, _LONGEST_PAUSE_S)
        where = TopicPartition(*append.where)
        while True:
            try:
                start, end = self.ranges.bounds(*where)
                if end > offset:
                    if start > offset:
                        raise unknown
                    found = self.ranges.read(where, offset, offset + 1, (None, None))
                    return any(len(batch) for batch in found)
            except LogUnavailable as error:
                if isinstance(error, OutcomeUnknown):
                    raise
                if retry.is_over:
                    raise unknown from error
            retry.wait_or_raise(unknown)
