"""Leases: the group coordinator picks the holder.

Those who want a lease are members of the consumer group of its name, subscribed to a topic of one
partition, `LEASES`. Whoever has the partition has the lease. A new holder

1. writes its name to `LEASES`. The offset of that record is the epoch: it grows with every holder;
2. makes a producer whose transactional id is the lease's name: that ends and fences whatever an
   older holder has under way. Whoever makes a producer looks whether a later holder has written
   its name meanwhile: then its own lease is over, and the later one makes its producer anew.

So there are two fences. The producer of an older holder is refused by the broker; and offsets that
are committed with a transaction carry the holder's group metadata, so a holder that the group has
given up is refused even if its producer is the newest. A holder whose group has merely changed
(another candidate came) still has the lease, and publishes again with new metadata.

A lease that is taken at once (`take_lease`) has only the producer as a fence. Candidates leave it
alone until it is released, or until `AT_ONCE_MS` have passed.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from penstock.clock import wall_clock_ms
from penstock.log.base import Candidate, Lease
from penstock.log.errors import Fenced, LogError, TopicExists, UnknownTopic
from penstock.log.kafka.client.producers import TransactionalProducer
from penstock.log.kafka.group_member import GroupConnection, PlaceRules
from penstock.log.kafka.ranges import Ranges
from penstock.log.types import TopicPartition
from penstock.record import RecordColumns

LEASES = "__penstock_leases"
#: For so long nobody else becomes the holder of a lease that was taken at once.
AT_ONCE_MS = 60_000


class _Told(NamedTuple):
    """What was written about a holder."""

    #: Empty if nobody has the lease since.
    who: dict[str, Any]
    timestamp: int


class KafkaLease(Lease):
    """One epoch of one lease. `place` is None for one that was taken at once."""

    def __init__(
        self, leases: Leases, name: str, epoch: int, place: GroupConnection | None
    ) -> None:
        self.name = name
        self.epoch = epoch
        self._leases = leases
        self._kept = leases.producer_of(name, self.confirm)
        self._place = place
        #: How far it is known that nobody has become the holder since.
        self._looked_to = epoch
        #: How often the place had lost what it was given, when it got this.
        self._losses = 0 if place is None else place.state.losses
        self._publishing = threading.Lock()
        #: Why it is over; empty while it is held.
        self._over = ""

    @property
    def group(self) -> str | None:
        """The group whose offsets this lease guards by its generation."""
        return None if self._place is None else self.name

    def renew(self) -> None:
        """See `Lease.renew`."""
        self.check()
        if self._place is None:
            self.confirm()
        else:
            self._place.sign()
            # However long the brokers take to answer: who asks them lives.
            with self._place.alive():
                self.confirm()

    def settle(self) -> None:
        """See `Lease.settle`. After any trouble there is no producer; the broker lets a new one
        begin when the last transaction of the old one is over, and its markers are written."""
        with self.publishing() as kept:
            kept.producer()

    def release(self) -> None:
        """See `Lease.release`."""
        was_held = not self._over
        self._over = self._over or "it was released"
        if self._place is not None:
            self._place.close()
        elif was_held:
            # If that cannot be written now, others wait a little.
            with contextlib.suppress(LogError):
                self._leases.tell_holder(self.name, None)
        with self._publishing:
            self._kept.let_go()

    @property
    def is_over(self) -> bool:
        """Whether that is known."""
        return bool(self._over)

    # What a transaction asks for

    def check(self) -> None:
        """Raise `Fenced` if it is known that the lease is over."""
        if not self._over and self._place is not None:
            with self._place.changed:
                state = self._place.state
                if state.lost:
                    self._over = state.lost
                elif state.losses != self._losses or not state.assigned - state.leaving:
                    self._over = "the group has given it to another"
        if self._over:
            raise Fenced(
                f"The lease '{self.name}' of epoch {self.epoch} is over: {self._over}."
            )

    def confirm(self) -> None:
        """Raise `Fenced` if somebody has become the holder since."""
        end = self._leases.told_to()
        if end > self._looked_to:
            if self._leases.has_told(self.name, self._looked_to, end):
                self._over = self._over or "a later holder has taken it"
            self._looked_to = end
        self.check()

    @contextlib.contextmanager
    def publishing(self) -> Iterator[TransactionalProducer]:
        """The holder's producer, for one transaction at a time."""
        with self._publishing:
            self.check()
            yield self._kept

    def group_metadata(self) -> Any:
        """The holder's place in the group, as of now."""
        assert self._place is not None
        return self._place.metadata()

    def fenced(self, *, by_producer: bool) -> Fenced | None:
        """After a refusal: why the lease is over, or None if it is still held."""
        try:
            if by_producer:
                self.confirm()
            self.check()
        except Fenced as error:
            return error
        return None


class KafkaCandidate(Candidate):
    """One who wants a lease. It joins the group with its first call."""

    def __init__(self, leases: Leases, name: str, holder: str, timeout_ms: int) -> None:
        self._leases = leases
        self._name = name
        self._holder = holder
        self._timeout_ms = timeout_ms
        self._place: GroupConnection | None = None
        self._lease: KafkaLease | None = None
        #: How far the records of holders have been read.
        self._read_to = 0

    def try_acquire(self) -> Lease | None:
        """See `Candidate.try_acquire`. The first call waits until the group has answered."""
        place = self._place
        if place is None or place.state.lost:
            self._lease = None
            place = self._place = self._leases.place_in(self._name, self._timeout_ms)
            place.wait_for_round()
        place.sign()
        with place.changed:
            is_holder = bool(place.state.assigned - place.state.leaving)
        if not is_holder:
            self._lease = None
            self._look_for_holder()
            return None
        if self._lease is not None and not self._lease.is_over:
            return None
        if self._leases.is_taken_at_once(self._name):
            self._look_for_holder()
            return None
        with place.alive():
            self._lease = self._leases.taken(self._name, self._holder, place)
        return self._lease

    def _look_for_holder(self) -> None:
        """Hear who holds it. The group has a holder before that one has written its name."""
        end = self._leases.told_to()
        if end != self._read_to:
            since = self._read_to if end > self._read_to else 0
            self.holder = self._leases.holder_of(self._name, since, end) or self.holder
            self._read_to = end


class Leases(Ranges):
    """The part of the log that knows leases."""

    append: Callable[..., Any]
    create_topic: Callable[..., Any]

    def candidate(self, name: str, *, holder: str = "", timeout_ms: int = 6_000) -> Candidate:
        """See `Log.candidate`."""
        self._connection.check_open()
        return KafkaCandidate(self, name, holder, timeout_ms)

    def take_lease(self, name: str, *, holder: str = "") -> Lease:
        """See `Log.take_lease`."""
        self._connection.check_open()
        return self.taken(name, holder, None)

    def place_in(self, name: str, timeout_ms: int) -> GroupConnection:
        """A place among those who want the lease."""
        self._make_topic()
        # What Kafka's own tools show of it.
        client_id = f"penstock-{socket.gethostname()}-{os.getpid()}"
        rules = PlaceRules(name, (LEASES,), timeout_ms, client_id=client_id, hands_over=False)
        return GroupConnection(self._connection, rules)

    def taken(self, name: str, holder: str, place: GroupConnection | None) -> KafkaLease:
        """The lease of somebody who may have it."""
        who = {
            "holder": holder, "host": socket.gethostname(), "pid": os.getpid(),
            "at_once": place is None,
        }
        lease = KafkaLease(self, name, self.tell_holder(name, who) + 1, place)  # 1
        lease.settle()  # 2
        return lease

    def tell_holder(self, name: str, who: dict[str, Any] | None) -> int:
        """Write who has a lease, None for nobody; answers the offset."""
        value = None if who is None else json.dumps(who).encode()
        record = RecordColumns([name.encode()], [value])
        try:
            told = self.append(LEASES, 0, record)
        except UnknownTopic:
            self._make_topic()
            told = self.append(LEASES, 0, record)
        return int(told.base_offset)

    def producer_of(self, name: str, on_begin: Callable[[], None]) -> TransactionalProducer:
        """The producer of a lease, not made yet."""
        kept = TransactionalProducer(self._connection, name, on_begin)
        self._connection.opened(kept)
        return kept

    def has_told(self, name: str, start: int, end: int) -> bool:
        """Whether a holder of that lease has written its name in that range."""
        return any(True for _ in self._told_of(name, start, end))

    def is_taken_at_once(self, name: str) -> bool:
        """Whether the last holder took it at once, not long ago, and has not released it."""
        told = list(self._told_of(name, 0, self.told_to()))
        if not told or not told[-1].who.get("at_once"):
            return False
        return wall_clock_ms() - told[-1].timestamp < AT_ONCE_MS

    def told_to(self) -> int:
        """Where the records of holders end."""
        where = TopicPartition(LEASES, 0)
        return self.ends([where]).get(where, 0)

    def holder_of(self, name: str, start: int, end: int) -> str | None:
        """What the last holder in that range told of itself; None if there was none."""
        names = [told.who["holder"] for told in self._told_of(name, start, end) if told.who]
        return names[-1] if names else None

    def _told_of(self, name: str, start: int, end: int) -> Iterator[_Told]:
        """What was written about the holders of a lease, in that range."""
        start = max(start, self.bounds_of(LEASES, 0)[0])
        if start >= end:
            return
        for batch in self.read(LEASES, 0, start, end):
            rows = batch.columns()
            for key, value, timestamp in zip(rows.keys, rows.values, rows.timestamps, strict=True):
                if key == name.encode():
                    yield _Told({} if value is None else json.loads(value), timestamp)

    def _make_topic(self) -> None:
        def make() -> bool:
            with contextlib.suppress(TopicExists):
                self.create_topic(LEASES, 1, {"cleanup.policy": "compact"})
            return True

        self._connection.part("leases", make)
