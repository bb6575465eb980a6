"""Leases: the group coordinator chooses the holder.

Candidates for a lease are members of the consumer group of its name, subscribed to a topic with one
partition (`LEASES`). The member with the partition holds the lease. A new holder

1. records itself in `LEASES`. The offset of the record gives the epoch, which grows with every
   holder;
2. creates a producer whose transactional id is the name of the lease. That ends and fences the
   transactions of older holders. Each time a holder creates a producer, it checks for a record of
   a later holder: then its own lease is over, and the later holder creates its producer again;
3. fences the writers of older holders.

So there are two fences. The broker rejects the producer of an older holder. And offsets that are
committed in a transaction carry the holder's group metadata, so a holder that the group has removed
is rejected even if its producer is the newest. A holder whose group has merely rebalanced, because
another candidate joined, still has the lease and commits again with new metadata.

Writers have producers of their own, whose transactional ids have the epoch and a serial (see
`fencing`). A writer is recorded before its id is used. Two orders make the fences complete:

- A holder records a writer, then checks for a later holder. A later holder records itself, then
  reads the recorded writers of earlier epochs and fences them. At least one of them sees the other.
- A writer initializes its producer, then checks whether it is fenced. A holder records that a
  writer is fenced, then fences its id. A writer that starts late sees the record.

A lease that is taken directly (`take_lease`) has only the producer as a fence. Candidates do not
take it until it is released, or until `DIRECT_LEASE_MS` have passed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

from penstock.log.base import Candidate, Lease
from penstock.log.errors import Fenced, LogError
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.producers import TransactionalProducer
from penstock.log.kafka.fencing import fence_writers
from penstock.log.kafka.lease_records import LEASES, LeaseRecords, WriterRecord
from penstock.log.kafka.membership import GroupMembership, MembershipConfig
from penstock.log.types import WriterGrant


class KafkaLease(Lease):
    """One epoch of a lease."""

    def __init__(
        self, leases: KafkaLeases, name: str, epoch: int, membership: GroupMembership | None
    ) -> None:
        """`membership` is None for a lease that was taken directly."""
        self.name = name
        self.epoch = epoch
        self._records = leases.records
        self._producer = leases.create_producer(name, self.confirm)
        self._membership = membership
        #: No later holder has a record below this offset.
        self._checked_to = epoch
        #: The revocations of the membership when the lease was acquired.
        self._revocations = 0 if membership is None else membership.state.revocations
        self._producer_lock = threading.Lock()
        self._fence = leases.fence
        self._writers_lock = threading.Lock()
        #: As recorded.
        self._writers = WriterRecord(0)
        #: Why the lease is over; empty while it is held.
        self._over = ""

    @property
    def group(self) -> str | None:
        """The group whose offsets the lease protects by its generation."""
        return None if self._membership is None else self.name

    def renew(self) -> None:
        """See `Lease.renew`."""
        self.check()
        if self._membership is not None:
            self._membership.heartbeat()
        with self._keep_alive():
            self.confirm()

    def settle(self) -> None:
        """See `Lease.settle`.

        After a failure there is no producer. The broker initializes a new one only after the last
        transaction of the old one is over and its markers are written.
        """
        with self.borrow_producer() as producer:
            producer.producer()
        self._fence_all(self._writers.active())

    def release(self) -> None:
        """See `Lease.release`."""
        was_held = not self._over
        self._over = self._over or "it was released"
        if self._membership is not None:
            self._membership.close()
        elif was_held:
            # If the record cannot be written, candidates wait a little longer.
            with contextlib.suppress(LogError):
                self._records.write(self.name, None)
        with self._producer_lock:
            self._producer.discard()

    # Writers

    def create_writer(self) -> WriterGrant:
        """See `Lease.create_writer`."""
        self.check()
        with self._writers_lock, self._keep_alive():
            self._record_writers(self._writers._replace(serials=self._writers.serials + 1))
            self.confirm()
            return WriterGrant(self.name, self.epoch, self._writers.serials)

    def fence_writers(self, grants: Collection[WriterGrant]) -> None:
        """See `Lease.fence_writers`. Takes about half a second if transactions are open."""
        for grant in grants:
            if (grant.lease, grant.epoch) != (self.name, self.epoch):
                raise ValueError(f"The writer {grant} belongs to another lease or epoch.")
        self._fence_all([grant.serial for grant in grants])

    def _fence_all(self, serials: Collection[int]) -> None:
        if not serials:
            return
        with self._keep_alive():
            with self._writers_lock:
                fenced = self._writers.fenced.union(serials)
                self._record_writers(self._writers._replace(fenced=fenced))
            self._fence([WriterGrant(self.name, self.epoch, serial) for serial in serials])
            # Recorded with the next change. Until then a later holder fences them once more.
            self._writers = self._writers._replace(ended=self._writers.ended.union(serials))

    def member_token(self) -> bytes:
        """See `Lease.member_token`. Empty for a lease that was taken directly."""
        self.check()
        return b"" if self._membership is None else bytes(self._membership.metadata())

    def _record_writers(self, writers: WriterRecord) -> None:
        # A serial is never used again, even if writing its record fails.
        self._writers = writers
        self._records.write_writers(self.name, self.epoch, writers)

    def _keep_alive(self) -> contextlib.AbstractContextManager[None]:
        """The holder is alive while it waits for the brokers."""
        if self._membership is None:
            return contextlib.nullcontext()
        return self._membership.keep_alive()

    @property
    def is_over(self) -> bool:
        """Whether the lease is known to be over."""
        return bool(self._over)

    # Called by transactions

    def check(self) -> None:
        """Raise `Fenced` if the lease is known to be over. Sends no request."""
        if not self._over and self._membership is not None:
            with self._membership.changed:
                state = self._membership.state
                if state.ended:
                    self._over = state.ended
                elif (
                    state.revocations != self._revocations
                    or not state.assigned - state.revoking
                ):
                    self._over = "the group has assigned it to another candidate"
        if self._over:
            raise Fenced(
                f"Epoch {self.epoch} of the lease '{self.name}' is over: {self._over}."
            )

    def confirm(self) -> None:
        """Raise `Fenced` if there is a later holder."""
        end = self._records.end()
        if end > self._checked_to:
            if self._records.has_record(self.name, self._checked_to, end):
                self._over = self._over or "a later holder has taken it"
            self._checked_to = end
        self.check()

    @contextlib.contextmanager
    def borrow_producer(self) -> Iterator[TransactionalProducer]:
        """Borrow the holder's producer, for one transaction at a time."""
        with self._producer_lock:
            self.check()
            yield self._producer

    def group_metadata(self) -> Any:
        """Return the group metadata of the holder, as of now."""
        assert self._membership is not None
        return self._membership.metadata()

    def find_fence(self, *, by_producer: bool) -> Fenced | None:
        """Return why the lease is over, after a rejection; None if it is still held."""
        try:
            if by_producer:
                self.confirm()
            self.check()
        except Fenced as error:
            return error
        return None


class KafkaCandidate(Candidate):
    """A candidate for a lease. Its first attempt joins the group."""

    def __init__(self, leases: KafkaLeases, name: str, holder: str, timeout_ms: int) -> None:
        self._leases = leases
        self._name = name
        self._own_holder = holder
        self._timeout_ms = timeout_ms
        self._membership: GroupMembership | None = None
        self._lease: KafkaLease | None = None
        #: The records of holders are read up to here.
        self._read_to = 0

    def try_acquire(self) -> Lease | None:
        """See `Candidate.try_acquire`. The first call waits for the first rebalance."""
        membership = self._membership
        if membership is None or membership.state.ended:
            self._lease = None
            membership = self._membership = self._leases.join(self._name, self._timeout_ms)
            membership.wait_until_joined()
        membership.heartbeat()
        with membership.changed:
            is_holder = bool(membership.state.assigned - membership.state.revoking)
        if not is_holder:
            self._lease = None
            self._update_holder()
            return None
        if self._lease is not None and not self._lease.is_over:
            return None
        if self._leases.records.is_taken_directly(self._name):
            self._update_holder()
            return None
        with membership.keep_alive():
            self._lease = self._leases.acquire(self._name, self._own_holder, membership)
        return self._lease

    def _update_holder(self) -> None:
        """Read the holder's description. It is recorded after the group has chosen the holder."""
        records = self._leases.records
        end = records.end()
        if end != self._read_to:
            since = self._read_to if end > self._read_to else 0
            self.holder = records.last_holder(self._name, since, end) or self.holder
            self._read_to = end


class KafkaLeases:
    """Creates candidates and leases."""

    def __init__(self, connection: Connection, records: LeaseRecords) -> None:
        self._connection = connection
        self.records = records

    def candidate(self, name: str, holder: str, timeout_ms: int) -> KafkaCandidate:
        """Return a candidate for a lease."""
        self._connection.check_open()
        return KafkaCandidate(self, name, holder, timeout_ms)

    def take(self, name: str, holder: str) -> KafkaLease:
        """Take a lease directly."""
        self._connection.check_open()
        return self.acquire(name, holder, None)

    def join(self, name: str, timeout_ms: int) -> GroupMembership:
        """Join the group of candidates for a lease."""
        self.records.ensure_topic()
        # Kafka's tools show the client id.
        client_id = f"penstock-{socket.gethostname()}-{os.getpid()}"
        config = MembershipConfig(
            name, (LEASES,), timeout_ms, client_id=client_id, waits_for_processing=False
        )
        return GroupMembership(self._connection, config)

    def acquire(
        self, name: str, holder: str, membership: GroupMembership | None
    ) -> KafkaLease:
        """Acquire a lease, for the member with its partition or directly."""
        description = {
            "holder": holder, "host": socket.gethostname(), "pid": os.getpid(),
            "at_once": membership is None,
        }
        epoch = self.records.write(name, description) + 1  # 1
        lease = KafkaLease(self, name, epoch, membership)
        lease.settle()  # 2
        self._fence_earlier(name, epoch)  # 3
        return lease

    def _fence_earlier(self, name: str, epoch: int) -> None:
        """Fence the recorded writers of earlier epochs, then delete their records."""
        earlier = {
            before: writers for before, writers in self.records.writers(name).items()
            if before < epoch
        }
        self.fence([
            WriterGrant(name, before, serial)
            for before, writers in earlier.items() for serial in writers.active()
        ])
        for before in earlier:
            self.records.write_writers(name, before, None)

    def fence(self, grants: Collection[WriterGrant]) -> None:
        """Fence writers."""
        fence_writers(self._connection, grants)

    def create_producer(self, name: str, on_init: Callable[[], None]) -> TransactionalProducer:
        """Return the producer of a lease, not initialized yet."""
        producer = TransactionalProducer(self._connection, name, on_init)
        self._connection.close_later(producer)
        return producer
