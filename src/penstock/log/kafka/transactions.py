"""Transactions of Kafka.

The commit, with the same numbers in the code:

1. Nothing is sent before the commit. What was collected is checked against the topics, and refused
   as a whole.
2. Offsets are sent first, with the group metadata of the lease's holder or of the member: the
   broker refuses a generation that is over. A holder that still has the lease begins again with
   its new metadata.
3. Records are sent.
4. The transaction is committed. If that has no clear answer, the first record that was sent is
   looked up: once the partition's end is behind it, it is there, or it never will be.
5. Kafka lets the records appear a moment after it has said that they will. That moment is waited
   for, so that whoever hears of the commit can read them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.clock import wall_clock_ms
from penstock.log.base import Lease, Member, Transaction
from penstock.log.errors import LogBusy, LogUnavailable, OutcomeUnknown
from penstock.log.kafka.client.errors import GENERATION_OVER, PRODUCER_FENCED, error_of, translated
from penstock.log.kafka.client.producers import Delivery, TransactionalProducer
from penstock.log.kafka.encoding import CheckedColumns
from penstock.log.kafka.leases import KafkaLease
from penstock.log.kafka.members import KafkaMember, checked_member
from penstock.log.kafka.pending import Prepared, as_committed
from penstock.log.types import AppendResult, CommittedOffset, Records, StagedRecords, TopicPartition

if TYPE_CHECKING:
    from penstock.log.kafka.appends import Appends

#: What a transaction keeps in memory before it puts blobs aside.
_SPILL_BYTES = 32 * 1024 * 1024
_PAUSE_S = 0.02
#: A call that takes longer will never end.
_STUCK_S = 10.0


#: A group, its offsets, and the member that commits them.
_Offsets: TypeAlias = "tuple[str, dict[TopicPartition, CommittedOffset], KafkaMember | None]"


class _Again(Exception):
    """The transaction was given up, and may be published again."""


class KafkaTransaction(Transaction):
    """What was asked for so far; published in one transaction of Kafka at the end."""

    def __init__(self, log: Appends, lease: Lease | None) -> None:
        if lease is not None and not isinstance(lease, KafkaLease):
            raise ValueError(f"The lease '{lease.name}' is not one of this log.")
        self.appended: list[AppendResult] = []
        self._log = log
        self._lease = lease
        self._appends: list[Prepared] = []
        self._offsets: list[_Offsets] = []
        self._bytes = 0
        self._spilled: list[StagedRecords] = []
        self._over = False

    def append(self, topic: str, partition: int, records: Records) -> None:
        """See `Transaction.append`."""
        self._check_open()
        append = Prepared.of(topic, partition, records)
        self._appends.append(append)
        self._bytes += sum(part.size for part in append.parts if isinstance(part, CheckedColumns))
        if self._bytes > _SPILL_BYTES:
            self._spill()

    def _spill(self) -> None:
        blobs = self._log.blobs
        for append in self._appends:
            kept: list[CheckedColumns | StagedRecords] = []
            for part in append.parts:
                if isinstance(part, CheckedColumns):
                    made = blobs.put(part)
                    self._spilled += made
                    kept += made
                else:
                    kept.append(part)
            append.parts = kept
        self._bytes = 0

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        member: Member | None = None,
    ) -> None:
        """See `Transaction.commit_offsets`."""
        self._check_open()
        self._offsets.append((group, as_committed(offsets), checked_member(group, member)))

    def commit(self) -> list[AppendResult]:
        """See `Transaction.commit`."""
        self._check_open()
        try:
            now = wall_clock_ms()
            limit = self._log.check_appends(self._appends, now)  # 1
            for _, offsets, member in self._offsets:
                if member is not None:
                    member.check_owns(offsets)
                for topic, partition in offsets:
                    self._log.topic_book.find_partition(topic, partition)
            self.appended = self._publish(now, limit)
        except BaseException:
            self.abort()
            raise
        self._over = True
        used = [blob for append in self._appends for blob in append.blobs()]
        self._log.blobs.drop([*used, *self._spilled])
        self._log.tell_change()
        return self.appended

    def abort(self) -> None:
        """See `Transaction.abort`."""
        if self._over:
            return
        self._over = True
        self._appends.clear()
        self._log.blobs.drop(self._spilled)

    def _check_open(self) -> None:
        if self._over:
            raise ValueError("The transaction is over. Begin a new one.")

    # The commit

    def _publish(self, now: int, limit: int) -> list[AppendResult]:
        if not any(len(append) for append in self._appends) and not self._offsets:
            if self._lease is not None:
                self._lease.check()
            return [self._log.nothing_appended(append) for append in self._appends]
        deadline = time.monotonic() + self._log.timeout
        while True:
            try:
                with self._producer() as kept:
                    return self._attempt(kept, now, limit)
            except _Again as again:
                if time.monotonic() > deadline:
                    raise LogBusy(
                        f"The transaction was given up, again and again: {again}. Nothing was "
                        "written; try again. Is the group of the lease at rest, and does a "
                        "transaction last no longer than transaction.timeout.ms?"
                    ) from again
                time.sleep(_PAUSE_S)

    @contextlib.contextmanager
    def _producer(self) -> Iterator[TransactionalProducer]:
        if self._lease is None:
            with self._log.producers.transactional() as kept:
                yield kept
        else:
            with self._lease.publishing() as kept:
                yield kept

    def _attempt(self, kept: TransactionalProducer, now: int, limit: int) -> list[AppendResult]:
        producer = kept.producer(limit)
        deliveries = [Delivery() for _ in self._appends]
        is_ending = False
        try:
            producer.begin_transaction()
            for group, offsets, member in self._offsets:  # 2
                self._send_offsets(kept, producer, (group, offsets, member))
            for append, delivery in zip(self._appends, deliveries, strict=True):  # 3
                delivery.send(
                    producer, append.where, append.pieces(self._log.blobs), now,
                    report_all=False, patience=self._log.timeout,
                )
            is_ending = True
            _patiently(producer.commit_transaction, self._log.timeout)  # 4
        except KafkaException as raised:
            error = error_of(raised)
            if error.txn_requires_abort():
                self._give_up(kept, producer)
                refused = next((one.refusal for one in deliveries if one.refusal), None)
                if refused is not None:
                    # Behind records that a broker has refused, librdkafka's sequence numbers are
                    # not the broker's any more, whatever the abort says.
                    kept.let_go()
                raise self._refused(refused or error) from raised
            with contextlib.suppress(KafkaException):
                # For the last reports; a producer that was fenced says so once more.
                producer.poll(0)
            kept.let_go()
            if not is_ending or not self._log.was_committed(self._appends, deliveries):
                raise self._refused(error) from raised
        except BaseException:
            kept.let_go()
            raise
        appended = [
            self._log.as_appended(append, delivery)
            for append, delivery in zip(self._appends, deliveries, strict=True)
        ]
        try:
            self._log.wait_until_visible(appended)  # 5
        except OutcomeUnknown:
            kept.let_go()
            raise
        return appended

    def _send_offsets(
        self, kept: TransactionalProducer, producer: Producer, wish: _Offsets
    ) -> None:
        group, offsets, member = wish
        metadata: Any
        if member is not None:
            metadata = member.group_metadata()
        elif self._lease is not None and self._lease.group == group:
            metadata = self._lease.group_metadata()
        else:
            stranger = self._log.strangers.of(group)
            stranger.find_coordinator()
            metadata = stranger.metadata
        wanted = [
            KafkaPartition(topic, partition, offset, text)
            for (topic, partition), (offset, text) in offsets.items()
        ]
        sent = _Call(
            lambda left: producer.send_offsets_to_transaction(wanted, metadata, left),
            self._log.timeout,
        )
        if not sent.is_done(_STUCK_S):
            # librdkafka may hang here, whatever its timeout, while the group's coordinator moves.
            # Nothing was committed, and the next producer fences this one.
            kept.abandon()
            self._log.strangers.of(group).find_coordinator()
            raise _Again(f"offsets of group '{group}' could not be sent")

    def _give_up(self, kept: TransactionalProducer, producer: Producer) -> None:
        """Abort what the broker has refused. What cannot be aborted is fenced by the next one."""
        try:
            _patiently(producer.abort_transaction, self._log.timeout)
        except KafkaException:
            kept.let_go()

    def _refused(self, error: KafkaError) -> Exception:
        """What to raise for a transaction that has not happened."""
        lease = self._lease
        code = error.code()
        is_fence = code in GENERATION_OVER or code in PRODUCER_FENCED
        if is_fence and lease is not None:
            fenced = lease.fenced(by_producer=code in PRODUCER_FENCED)
            return _Again(error.str()) if fenced is None else fenced
        raised = translated(error, "The transaction was refused")
        if isinstance(raised, LogUnavailable) and not isinstance(raised, LogBusy):
            return self._log.unavailable(f"The transaction was not committed: {error.str()}")
        return raised


class _Call:
    """A call of the producer in a thread of its own, so that it can be given up."""

    def __init__(self, call: Callable[[float], object], timeout: float) -> None:
        self._call = call
        self._timeout = timeout
        self._raised: BaseException | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, name="penstock-kafka-call", daemon=True).start()

    def _run(self) -> None:
        try:
            _patiently(self._call, self._timeout)
        except BaseException as raised:
            self._raised = raised
        finally:
            self._done.set()

    def is_done(self, patience: float) -> bool:
        """Wait for it; raises what the call has raised."""
        if not self._done.wait(patience):
            return False
        if self._raised is not None:
            raise self._raised
        return True


def _patiently(call: Any, timeout: float) -> None:
    """Make a call of the producer again for as long as it says that this may help."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            call(max(0.1, deadline - time.monotonic()))
        except KafkaException as raised:
            error = error_of(raised)
            if not error.retriable() or error.txn_requires_abort():
                raise
            if time.monotonic() > deadline:
                raise
        else:
            return
