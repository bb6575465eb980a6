"""Transactions of Kafka.

The commit has these steps, with the same numbers in the code:

1. Nothing is sent before the commit. `CollectedTransaction` checks the records against the topics
   and rejects them as a whole.
2. Offsets are sent first, with the group metadata of the lease's holder or of the member: the
   broker rejects an old generation. A holder that still has the lease begins again with new
   metadata.
3. Records are sent.
4. The transaction is committed. Without a clear response, the first record is looked up: once the
   partition's end is behind its offset, it exists or never will.
5. Records become visible a moment after Kafka has acknowledged the commit. The commit waits for
   this moment, so that a reader that learns of the commit sees the records.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from penstock.log.base import Lease
from penstock.log.errors import LogBusy, LogUnavailable, OutcomeUnknown
from penstock.log.kafka.append_context import AppendContext
from penstock.log.kafka.client.errors import MEMBER_FENCED, PRODUCER_FENCED, error_of, translate
from penstock.log.kafka.client.producers import (
    TransactionalProducer,
    TransactionClient,
    create_delivery,
)
from penstock.log.kafka.client.retry import Retry, retry_producer_call
from penstock.log.kafka.collected import CollectedTransaction, GroupCommit
from penstock.log.kafka.leases import KafkaLease
from penstock.log.kafka.send_offsets import send_offsets
from penstock.log.types import AppendResult

_PAUSE_S = 0.02


class _RetryCommit(Exception):
    """The transaction was aborted and can be committed again."""


class KafkaTransaction(CollectedTransaction):
    """Commits appends and offsets in one transaction of Kafka."""

    def __init__(self, context: AppendContext, lease: Lease | None) -> None:
        if lease is not None and not isinstance(lease, KafkaLease):
            raise ValueError(f"The lease '{lease.name}' belongs to another log.")
        super().__init__(context)
        self._lease = lease

    def _publish(self, now: int, limit: int) -> list[AppendResult]:
        if not any(len(append) for append in self._appends) and not self._offsets:
            if self._lease is not None:
                self._lease.check()
            return [self._context.empty_result(append) for append in self._appends]
        retry = Retry(self._context.connection.timeout, _PAUSE_S)
        while True:
            try:
                with self._borrow_producer() as producer:
                    return self._attempt(producer, now, limit)
            except _RetryCommit as again:
                if retry.is_over:
                    raise LogBusy(
                        f"The transaction was aborted after repeated retries: {again}. Nothing was "
                        "written. Try again. Check that the group of the lease does not rebalance "
                        "all the time, and that a transaction takes less than "
                        "transaction.timeout.ms."
                    ) from again
                retry.wait()

    @contextlib.contextmanager
    def _borrow_producer(self) -> Iterator[TransactionalProducer]:
        if self._lease is None:
            with self._context.clients.producers.transactional() as producer:
                yield producer
        else:
            with self._lease.borrow_producer() as producer:
                yield producer

    def _attempt(
        self, transactional: TransactionalProducer, now: int, limit: int
    ) -> list[AppendResult]:
        context, timeout = self._context, self._context.connection.timeout
        producer = transactional.producer(limit)
        deliveries = [create_delivery(producer) for _ in self._appends]
        is_committing = False
        try:
            producer.begin_transaction()
            for commit in self._offsets:  # 2
                self._send_offsets(transactional, producer, commit)
            for append, delivery in zip(self._appends, deliveries, strict=True):  # 3
                delivery.send(append.where, append.pieces(context.staging), now, timeout)
            is_committing = True
            retry_producer_call(producer.commit_transaction, timeout)  # 4
        except KafkaException as raised:
            error = error_of(raised)
            if error.txn_requires_abort():
                self._abort_on_broker(transactional, producer)
                rejected = next((one.rejection for one in deliveries if one.rejection), None)
                if rejected is not None:
                    # After a rejected record, librdkafka's sequence numbers differ from the
                    # broker's, even if the abort succeeds.
                    transactional.discard()
                raise self._failure(rejected or error) from raised
            with contextlib.suppress(KafkaException):
                # Receive the last reports. A fenced producer raises once more.
                producer.poll(0)
            transactional.discard()
            if not is_committing or not context.was_committed(self._appends, deliveries):
                raise self._failure(error) from raised
        except BaseException:
            transactional.discard()
            raise
        appended = [
            context.result_of(append, delivery)
            for append, delivery in zip(self._appends, deliveries, strict=True)
        ]
        try:
            context.wait_until_visible(appended)  # 5
        except OutcomeUnknown:
            transactional.discard()
            raise
        return appended

    def _send_offsets(
        self, transactional: TransactionalProducer, producer: TransactionClient, commit: GroupCommit
    ) -> None:
        group, offsets, member = commit
        metadata: Any
        if member is not None:
            metadata = member.group_metadata()
        elif self._lease is not None and self._lease.group == group:
            metadata = self._lease.group_metadata()
        else:
            client = self._context.clients.group_offsets.of(group)
            client.find_coordinator()
            metadata = client.metadata
        if not send_offsets(producer, offsets, metadata, self._context.connection.timeout):
            # Nothing is committed, and the next producer fences this one.
            transactional.abandon()
            self._context.clients.group_offsets.of(group).find_coordinator()
            raise _RetryCommit(f"offsets of group '{group}' could not be sent")

    def _abort_on_broker(
        self, transactional: TransactionalProducer, producer: TransactionClient
    ) -> None:
        """Abort the transaction. If that fails, the next producer fences it."""
        try:
            retry_producer_call(producer.abort_transaction, self._context.connection.timeout)
        except KafkaException:
            transactional.discard()

    def _failure(self, error: KafkaError) -> Exception:
        """Return the error of a transaction that is not committed."""
        lease = self._lease
        code = error.code()
        is_fenced = code in MEMBER_FENCED or code in PRODUCER_FENCED
        if is_fenced and lease is not None:
            fenced = lease.find_fence(by_producer=code in PRODUCER_FENCED)
            return _RetryCommit(error.str()) if fenced is None else fenced
        failure = translate(error, "The transaction was rejected")
        if isinstance(failure, LogUnavailable) and not isinstance(failure, LogBusy):
            return self._context.connection.unavailable(
                f"The transaction is not committed: {error.str()}"
            )
        return failure
