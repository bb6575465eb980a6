"""The transactions of one producer.

    uninitialized ── init ──▶ ready ── begin ──▶ open ── commit, abort ──▶ ready
                                                   └─ error ─▶ failed ── abort ──▶ ready
    any ── a newer producer has the same transactional.id ──▶ fenced

Records are appended to a transaction of the log in batches and become visible with its commit;
their offsets are not known before. The lease of the `transactional.id` fences older producers: the
log rejects their commits.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.clients.errors import (
    KafkaError,
    KafkaException,
    kafka_exception,
    to_kafka_error,
    to_kafka_exception,
)
from penstock.clients.producer.buffer import DeliveryReport, PendingRecord, resolve_future
from penstock.clients.producer.sender import (
    failure_reports,
    group_by_partition,
    success_reports,
    to_columns,
)
from penstock.clients.types import ConsumerGroupMetadata, TopicPartition, to_log_partition
from penstock.log.base import Lease, Log, Transaction
from penstock.log.errors import Fenced, LogBusy, LogError
from penstock.log.types import CommittedOffset

T = TypeVar("T")

_BUSY_RETRY_S = 0.05


class ProducerTransactions:
    """The transaction state of a producer. Thread-safe."""

    def __init__(self, log: Log, transactional_id: str, batch_bytes: int) -> None:
        self._log = log
        self._id = transactional_id
        self._batch_bytes = batch_bytes
        self._lock = threading.RLock()
        self._state = "uninitialized"
        self._lease: Lease | None = None
        self._transaction: Transaction | None = None
        self._waiting: list[PendingRecord] = []
        self._waiting_bytes = 0
        #: The records in the log's transaction: one list per append, in order.
        self._appended: list[list[PendingRecord]] = []

    def init(self, timeout: float | None) -> None:
        """Acquire the lease of the `transactional.id`."""
        with self._lock:
            self._check_state("initialize transactions", "uninitialized", "ready")
            name = f"transactional.id:{self._id}"
            self._lease = _retry_while_busy(lambda: self._log.take_lease(name), timeout)
            self._state = "ready"

    def begin(self) -> None:
        """Open a transaction."""
        with self._lock:
            self._check_state("begin a transaction", "ready")
            self._transaction = self._log.transaction(self._lease)
            self._state = "open"

    def add(self, record: PendingRecord) -> None:
        """Add a record to the open transaction."""
        with self._lock:
            self._check_state("produce a record", "open")
            self._waiting.append(record)
            self._waiting_bytes += record.size
            if self._waiting_bytes >= self._batch_bytes:
                self._append_waiting()

    def flush(self) -> None:
        """Append the waiting records to the log's transaction."""
        with self._lock:
            if self._state == "open":
                self._append_waiting()

    def send_offsets(
        self, positions: list[TopicPartition], group: ConsumerGroupMetadata
    ) -> None:
        """Add the offsets of a consumer."""
        if not isinstance(group, ConsumerGroupMetadata):
            raise TypeError(
                "group_metadata must be the result of Consumer.consumer_group_metadata(), "
                f"not {group!r}."
            )
        with self._lock:
            self._check_state("send offsets", "open")
            offsets = {
                to_log_partition(position): CommittedOffset(
                    position.offset, position.metadata or ""
                )
                for position in positions
                if position.offset >= 0
            }
            if not offsets:
                return
            try:
                self._open_transaction().commit_offsets(group.group_id, offsets, group.member)
            except LogError as error:
                raise self._fail(error) from error

    def commit(self) -> list[DeliveryReport]:
        """Commit the transaction and return the reports of its records."""
        with self._lock:
            self._check_state("commit a transaction", "open")
            self._append_waiting()
            try:
                results = self._open_transaction().commit()
            except LogError as error:
                # The commit had no effect and cannot be retried.
                raise self._fail(error) from error
            reports: list[DeliveryReport] = []
            for records, result in zip(self._appended, results, strict=True):
                reports += success_reports(records, result)
            self._reset("ready")
        _resolve_futures(reports)
        return reports

    def abort(self) -> list[DeliveryReport]:
        """Abort the transaction and return the reports of its records."""
        with self._lock:
            self._check_state("abort a transaction", "open", "failed")
            return self._abort()

    def _abort(self) -> list[DeliveryReport]:
        error = KafkaError(KafkaError._PURGE_QUEUE, "The transaction was aborted.")
        records = [record for group in self._appended for record in group] + self._waiting
        transaction = self._transaction
        self._reset("ready" if self._state != "fenced" else "fenced")
        if transaction is not None:
            # If this fails, the log cleans up the staged records later.
            with contextlib.suppress(LogError):
                transaction.abort()
        reports = failure_reports(records, error)
        _resolve_futures(reports)
        return reports

    def close(self) -> list[DeliveryReport]:
        """Abort an open transaction and release the lease."""
        with self._lock:
            reports = self._abort() if self._transaction is not None else []
            if self._lease is not None and self._state != "fenced":
                with contextlib.suppress(LogError):
                    self._lease.release()
            self._state = "closed"
            return reports

    def __len__(self) -> int:
        return len(self._waiting)

    def _append_waiting(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        transaction = self._open_transaction()
        for (topic, partition), records in group_by_partition(waiting).items():
            self._appended.append(records)
            try:
                transaction.append(topic, partition, to_columns(records))
            except LogError as error:
                raise self._fail(error) from error

    def _fail(self, error: LogError) -> KafkaException:
        """Change the state after an error and return the exception to raise."""
        if isinstance(error, Fenced) and self._lease is not None and self._is_lease_lost():
            self._state = "fenced"
            return kafka_exception(KafkaError._FENCED, str(error), fatal=True)
        self._state = "failed"
        return KafkaException(to_kafka_error(error).with_abort_required())

    def _is_lease_lost(self) -> bool:
        """Distinguish a fenced producer from a consumer that lost its partitions."""
        try:
            if self._lease is not None:
                self._lease.renew()
        except LogError as error:
            return isinstance(error, Fenced)
        return False

    def _reset(self, state: str) -> None:
        self._state = state
        self._transaction = None
        self._waiting, self._waiting_bytes, self._appended = [], 0, []

    def _open_transaction(self) -> Transaction:
        assert self._transaction is not None
        return self._transaction

    def _check_state(self, action: str, *states: str) -> None:
        if self._state in states:
            return
        if self._state == "fenced":
            raise kafka_exception(
                KafkaError._FENCED,
                f"Cannot {action}: a newer producer has transactional.id '{self._id}'.",
                fatal=True,
            )
        error = KafkaError(
            KafkaError._STATE,
            f"Cannot {action} now: {_STATE_REASONS[self._state]}.",
            txn_requires_abort=self._state == "failed",
        )
        raise KafkaException(error)


#: State -> why a call is rejected in it.
_STATE_REASONS = {
    "uninitialized": "init_transactions was not called",
    "ready": "begin_transaction was not called",
    "open": "a transaction is open",
    "failed": "the transaction has failed and must be aborted",
    "closed": "the producer is closed",
}


def _resolve_futures(reports: list[DeliveryReport]) -> None:
    for record, error, message in reports:
        if record.future is not None and message is not None:
            resolve_future(record.future, error, message)


def _retry_while_busy(call: Callable[[], T], timeout: float | None) -> T:
    """Return the result of a call, retried until the timeout while other processes hold the log."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        try:
            return call()
        except LogBusy as error:
            if deadline is not None and time.monotonic() >= deadline:
                raise to_kafka_exception(error) from error
            time.sleep(_BUSY_RETRY_S)
        except LogError as error:
            raise to_kafka_exception(error) from error
