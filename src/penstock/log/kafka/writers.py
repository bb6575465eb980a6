"""Writers: transactions of one process on behalf of the holder of a lease.

A writer has one producer, which is initialized once. A second initialization would revive a writer
that is fenced. So after an error that the producer does not survive, the writer is retired: all
later commits raise.

The commit of a transaction has these steps, with the same numbers in the code:

1. Nothing is sent before the commit. The collected records are checked against the topics.
2. Offsets are sent with the holder's token. The broker rejects the token of an old generation: then
   the transaction is aborted and sent again with a new token. The broker also rejects the first
   request of a transaction until the markers of the last one are written. librdkafka repeats it
   after `retry.backoff.ms` if it is for offsets, but only after 20 ms if it is for records.
3. Records are sent.
4. All records are delivered. An error up to here means that nothing is committed.
5. The transaction is committed. An error here leaves the outcome unknown, even the error of a
   fenced producer: the response to the first attempt may be lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.log.base import Transaction, Writer
from penstock.log.errors import Fenced, LogBusy, LogError, LogUnavailable, OutcomeUnknown
from penstock.log.kafka.append_context import AppendContext
from penstock.log.kafka.client.connection import abandon, create_client
from penstock.log.kafka.client.errors import MEMBER_FENCED, PRODUCER_FENCED, error_of, translate
from penstock.log.kafka.client.producers import (
    BATCH_BYTES,
    KEEP_BROKERS,
    AnyDelivery,
    TransactionClient,
    create_delivery,
    create_producer,
    init_transactions,
)
from penstock.log.kafka.client.retry import Retry, retry_producer_call
from penstock.log.kafka.collected import CollectedTransaction, GroupCommit
from penstock.log.kafka.encoding import CheckedColumns
from penstock.log.kafka.fencing import transactional_id
from penstock.log.kafka.pending import PendingAppend
from penstock.log.kafka.send_offsets import send_offsets
from penstock.log.types import AppendResult, WriterGrant

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.1
#: The broker writes the markers of a transaction after it has acknowledged the commit, which takes
#: 2 to 5 ms. Until then it rejects the producer's next transaction.
_MARKERS_S = 0.003


class KafkaWriter(Writer):
    """The producer of a writer, and the token with which it commits offsets."""

    settle_s = _MARKERS_S

    def __init__(
        self, context: AppendContext, grant: WriterGrant, token: Callable[[], bytes],
        is_fenced: Callable[[WriterGrant], bool],
    ) -> None:
        """Initialize the producer; `Fenced` if the writer is fenced already."""
        self.grant = grant
        self._context = context
        self._fetch_token = token
        self._token: bytes | None = None
        #: Why the writer cannot be used any more.
        self._retired: LogError | None = None
        connection = context.connection
        settings: dict[str, Any] = {
            **KEEP_BROKERS,
            **connection.settings.writer(BATCH_BYTES, transactional_id(grant)),
        }
        self._producer = create_producer(settings)
        init_transactions(connection, self._producer, transactional_id(grant))
        if is_fenced(grant):
            raise self.retire(self.fenced("it was fenced before it was opened"))
        connection.close_later(self)

    def transaction(self) -> Transaction:
        """See `Writer.transaction`."""
        self._context.connection.check_open()
        return WriterTransaction(self._context, self)

    def close(self) -> None:
        """See `Writer.close`."""
        self.retire(LogUnavailable("The writer is closed. Open another one."))
        self._context.connection.forget(self)

    # Called by transactions

    def producer(self) -> TransactionClient:
        """Return the producer, or raise why the writer cannot be used."""
        if self._retired is not None:
            raise self._retired
        return self._producer

    def token(self) -> bytes:
        """Return the holder's token, fetched once; `Fenced` if the lease is lost."""
        if self._token is None:
            self._token = self._fetch_token()
        return self._token

    def forget_token(self) -> None:
        """Fetch the token again when it is needed next."""
        self._token = None

    def retire(self, reason: LogError, *, hangs: bool = False) -> LogError:
        """Give up the producer, and return the reason. The broker ends its transaction."""
        if self._retired is None:
            self._retired = reason
            if hangs:
                abandon(self._producer)
            else:
                # Not closed: closing would try to abort the transaction and log that it failed.
                with contextlib.suppress(KafkaException):
                    self._producer.purge()
            del self._producer
        return reason

    def fenced(self, reason: str) -> Fenced:
        """Return the error of a writer that is fenced, or whose transaction took too long."""
        lease, epoch, serial = self.grant
        return Fenced(
            f"Writer {serial} of epoch {epoch} of the lease '{lease}' is fenced: {reason}."
        )


class _StaleToken(Exception):
    """The transaction was aborted because the holder's token is of an old generation."""


class WriterTransaction(CollectedTransaction):
    """A transaction of a writer."""

    _accepts_stale_metadata = True

    def __init__(self, context: AppendContext, writer: KafkaWriter) -> None:
        super().__init__(context)
        self._writer = writer

    def _publish(self, now: int, limit: int) -> list[AppendResult]:
        self._writer.producer()
        if not any(len(append) for append in self._appends) and not self._offsets:
            return [self._context.empty_result(append) for append in self._appends]
        retry = Retry(self._context.connection.timeout, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            try:
                return self._attempt(now)
            except _StaleToken as stale:
                self._writer.forget_token()
                if retry.is_over:
                    raise LogBusy(
                        f"The transaction was aborted after repeated retries: {stale}. Nothing "
                        "was written. Check that the group of the lease does not rebalance all "
                        "the time."
                    ) from stale
                retry.wait()

    def _attempt(self, now: int) -> list[AppendResult]:
        timeout = self._context.connection.timeout
        producer = self._writer.producer()
        deliveries = [create_delivery(producer) for _ in self._appends]
        # The token before the transaction: if the lease is lost, nothing is to be aborted.
        metadata = [self._metadata(commit) for commit in self._offsets]
        is_committing = False
        try:
            producer.begin_transaction()
            for commit, proof in zip(self._offsets, metadata, strict=True):  # 2
                self._send_offsets(producer, commit, proof)
            for append, delivery in zip(self._appends, deliveries, strict=True):  # 3
                pieces = self._pieces(producer, append)
                delivery.send(append.where, pieces, now, timeout)
            _flush(producer, timeout)  # 4
            is_committing = not any(delivery.error for delivery in deliveries)
            retry_producer_call(producer.commit_transaction, timeout)  # 5
        except KafkaException as raised:
            raise self._failure(error_of(raised), deliveries, is_committing) from raised
        except BaseException:
            self._writer.retire(LogUnavailable("The last transaction of the writer failed."))
            raise
        return [
            self._result(append, delivery)
            for append, delivery in zip(self._appends, deliveries, strict=True)
        ]

    def _pieces(
        self, producer: TransactionClient, append: PendingAppend
    ) -> Iterator[CheckedColumns]:
        """Yield the records. No batch may exceed the limit of a topic with a small one."""
        context = self._context
        topic = context.clients.topics.find(append.topic, may_be_stale=True)
        limit = topic.settings.max_message_bytes
        for columns in append.pieces(context.staging):
            if limit >= BATCH_BYTES:
                yield columns
                continue
            for piece in columns.split(limit):
                yield piece
                _flush(producer, context.connection.timeout)

    def _send_offsets(
        self, producer: TransactionClient, commit: GroupCommit, metadata: Any
    ) -> None:
        timeout = self._context.connection.timeout
        if not send_offsets(producer, commit.offsets, metadata, timeout):
            error = self._context.connection.unavailable(
                f"Sending the offsets of group '{commit.group}' failed"
            )
            raise self._writer.retire(error, hangs=True)

    def _metadata(self, commit: GroupCommit) -> Any:
        """Return the group metadata with which offsets are sent."""
        if commit.member is not None:
            return commit.member.group_metadata()
        if commit.group == self._writer.grant.lease and (token := self._writer.token()):
            return token
        client = self._context.clients.group_offsets.of(commit.group)
        client.find_coordinator()
        return client.metadata

    def _failure(
        self, error: KafkaError, deliveries: Sequence[AnyDelivery], is_committing: bool
    ) -> Exception:
        """Return the error of a failed attempt. Aborts the transaction if that is possible."""
        writer = self._writer
        code = error.code()
        if error.txn_requires_abort() and self._abort(writer.producer()):
            rejected = next((one.rejection for one in deliveries if one.rejection), None)
            if rejected is not None:
                # After a rejected record, librdkafka's sequence numbers differ from the broker's.
                return writer.retire(translate(rejected, "The transaction was rejected"))
            if code in MEMBER_FENCED:
                return _StaleToken(error.str())
            return translate(error, "The transaction was aborted")
        if is_committing and not error.txn_requires_abort():
            return writer.retire(OutcomeUnknown(
                f"Kafka did not report whether the transaction is committed: {error.str()}. Fence "
                "the writer and read the committed offsets before you continue."
            ))
        if code in PRODUCER_FENCED:
            return writer.retire(writer.fenced(error.str()))
        return writer.retire(
            self._context.connection.unavailable(f"The transaction failed: {error.str()}")
        )

    def _abort(self, producer: TransactionClient) -> bool:
        try:
            retry_producer_call(producer.abort_transaction, self._context.connection.timeout)
        except KafkaException:
            return False
        return True

    def _result(self, append: PendingAppend, delivery: AnyDelivery) -> AppendResult:
        """Return the offsets of an append. Reports of repeated requests have no offset."""
        if not len(append):
            return self._context.empty_result(append)
        base, last = delivery.base or 0, delivery.last
        if last is None or last < 0:
            end = self._end(append)
            return AppendResult(*append.where, max(0, end - len(append)), end, delivery.timestamp)
        if base < 0:
            base = max(0, last + 1 - len(append))
        return AppendResult(*append.where, base, last + 1, delivery.timestamp)

    def _end(self, append: PendingAppend) -> int:
        """Return the end of a partition, behind records that are not readable yet."""
        connection = self._context.connection
        settings = connection.settings.reader() | {"isolation.level": "read_uncommitted"}
        consumer = create_client(lambda: Consumer(settings))
        try:
            found: Any = consumer.get_watermark_offsets(
                KafkaPartition(*append.where), timeout=connection.timeout
            )
        except KafkaException as raised:
            raise OutcomeUnknown(
                "The transaction is committed, but Kafka did not report the offsets of its "
                f"records: {error_of(raised).str()}."
            ) from raised
        finally:
            consumer.close()
        return int(found[1])


def _flush(producer: TransactionClient, timeout: float) -> None:
    """Wait for delivery reports. Raises `KafkaException` for a fatal error of the producer."""
    try:
        producer.flush(timeout)
    except SystemError as raised:
        # confluent-kafka calls the next delivery report while the error is set.
        if isinstance(raised.__cause__, KafkaException):
            raise raised.__cause__ from raised
        raise
