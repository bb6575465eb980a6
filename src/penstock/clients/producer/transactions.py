"""The transactions of one producer.

    uninitialized ── init ──▶ ready ── begin ──▶ open ── commit, abort ──▶ ready
                                                   └─ refused ─▶ failed ── abort ──▶ ready
    any ── a later producer has the same transactional.id ──▶ fenced

Records go to the log's transaction as they come, a batch at a time, and become visible when it is
committed; only then are their offsets known. The lease of the `transactional.id` fences: a commit
with an older one is refused by the log.
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
    as_kafka_error,
    failure,
    translated,
)
from penstock.clients.producer.buffer import Pending, resolve
from penstock.clients.producer.sender import Outcome, by_partition, columns, delivered, failed
from penstock.clients.types import ConsumerGroupMetadata, TopicPartition, log_partition
from penstock.log.base import Lease, Log, Transaction
from penstock.log.errors import Fenced, LogBusy, LogError
from penstock.log.types import CommittedOffset

T = TypeVar("T")

_BUSY_PAUSE_S = 0.05


class Transactions:
    """What a transactional producer is doing. May be used by many threads."""

    def __init__(self, log: Log, transactional_id: str, batch_bytes: int) -> None:
        self._log = log
        self._id = transactional_id
        self._batch_bytes = batch_bytes
        self._lock = threading.RLock()
        self._state = "uninitialized"
        self._lease: Lease | None = None
        self._transaction: Transaction | None = None
        self._waiting: list[Pending] = []
        self._waiting_bytes = 0
        #: What was handed to the transaction: one list for every append, in order.
        self._handed: list[list[Pending]] = []

    def init(self, timeout: float | None) -> None:
        """Take the lease of the transactional id."""
        with self._lock:
            self._require("initialize transactions", "uninitialized", "ready")
            name = f"transactional.id:{self._id}"
            self._lease = _patiently(lambda: self._log.take_lease(name), timeout)
            self._state = "ready"

    def begin(self) -> None:
        """Open a transaction."""
        with self._lock:
            self._require("begin a transaction", "ready")
            self._transaction = self._log.transaction(self._lease)
            self._state = "open"

    def add(self, pending: Pending) -> None:
        """Take a record into the open transaction."""
        with self._lock:
            self._require("produce a record", "open")
            self._waiting.append(pending)
            self._waiting_bytes += pending.size
            if self._waiting_bytes >= self._batch_bytes:
                self._hand_over()

    def flush(self) -> None:
        """Hand what waits to the log's transaction."""
        with self._lock:
            if self._state == "open":
                self._hand_over()

    def send_offsets(
        self, positions: list[TopicPartition], group: ConsumerGroupMetadata
    ) -> None:
        """Add the offsets of a consumer."""
        if not isinstance(group, ConsumerGroupMetadata):
            raise TypeError(
                "The group is what Consumer.consumer_group_metadata() answers, "
                f"not {group!r}."
            )
        with self._lock:
            self._require("send offsets", "open")
            offsets = {
                log_partition(position): CommittedOffset(position.offset, position.metadata or "")
                for position in positions
                if position.offset >= 0
            }
            if not offsets:
                return
            try:
                self._opened().commit_offsets(group.group_id, offsets, group.member)
            except LogError as error:
                raise self._refused(error) from error

    def commit(self) -> list[Outcome]:
        """Make the transaction visible; answers the reports of its records."""
        with self._lock:
            self._require("commit a transaction", "open")
            self._hand_over()
            try:
                appended = self._opened().commit()
            except LogError as error:
                # Nothing of it has happened, and nothing of it is left to be tried again.
                raise self._refused(error) from error
            outcomes: list[Outcome] = []
            for records, place in zip(self._handed, appended, strict=True):
                outcomes += delivered(records, place)
            self._reset("ready")
        return _resolved(outcomes)

    def abort(self) -> list[Outcome]:
        """Forget the transaction; answers the reports of its records."""
        with self._lock:
            self._require("abort a transaction", "open", "failed")
            return self._abort()

    def _abort(self) -> list[Outcome]:
        error = KafkaError(KafkaError._PURGE_QUEUE, "The transaction was aborted.")
        records = [record for group in self._handed for record in group] + self._waiting
        transaction = self._transaction
        self._reset("ready" if self._state != "fenced" else "fenced")
        if transaction is not None:
            # What it has put aside and cannot remove now is swept in time.
            with contextlib.suppress(LogError):
                transaction.abort()
        return _resolved(failed(records, error))

    def close(self) -> list[Outcome]:
        """Give up an open transaction and the lease."""
        with self._lock:
            outcomes = self._abort() if self._transaction is not None else []
            if self._lease is not None and self._state != "fenced":
                with contextlib.suppress(LogError):
                    self._lease.release()
            self._state = "closed"
            return outcomes

    def __len__(self) -> int:
        return len(self._waiting)

    def _hand_over(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        transaction = self._opened()
        for (topic, partition), records in by_partition(waiting).items():
            self._handed.append(records)
            try:
                transaction.append(topic, partition, columns(records))
            except LogError as error:
                raise self._refused(error) from error

    def _refused(self, error: LogError) -> KafkaException:
        """The state after an error, and what to raise."""
        if isinstance(error, Fenced) and self._lease is not None and self._lost_lease():
            self._state = "fenced"
            return failure(KafkaError._FENCED, str(error), fatal=True)
        self._state = "failed"
        return KafkaException(as_kafka_error(error).requiring_abort())

    def _lost_lease(self) -> bool:
        """Whether it was the lease that was lost, and not the consumer's partitions."""
        try:
            if self._lease is not None:
                self._lease.renew()
        except LogError as error:
            return isinstance(error, Fenced)
        return False

    def _reset(self, state: str) -> None:
        self._state = state
        self._transaction = None
        self._waiting, self._waiting_bytes, self._handed = [], 0, []

    def _opened(self) -> Transaction:
        assert self._transaction is not None
        return self._transaction

    def _require(self, what: str, *states: str) -> None:
        if self._state in states:
            return
        if self._state == "fenced":
            raise failure(
                KafkaError._FENCED,
                f"Cannot {what}: a later producer has transactional.id '{self._id}'.",
                fatal=True,
            )
        error = KafkaError(
            KafkaError._STATE,
            f"Cannot {what} now: {_SAID[self._state]}.",
            txn_requires_abort=self._state == "failed",
        )
        raise KafkaException(error)


_SAID = {
    "uninitialized": "init_transactions was not called",
    "ready": "no transaction was begun",
    "open": "a transaction is open",
    "failed": "the transaction has failed and must be aborted",
    "closed": "the producer is closed",
}


def _resolved(outcomes: list[Outcome]) -> list[Outcome]:
    for pending, error, message in outcomes:
        if pending.future is not None and message is not None:
            resolve(pending.future, error, message)
    return outcomes


def _patiently(call: Callable[[], T], timeout: float | None) -> T:
    """What the call answers; tried again while others hold the log, for at most the timeout."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        try:
            return call()
        except LogBusy as error:
            if end is not None and time.monotonic() >= end:
                raise translated(error) from error
            time.sleep(_BUSY_PAUSE_S)
        except LogError as error:
            raise translated(error) from error
