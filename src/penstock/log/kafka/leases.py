"""Leases: the group coordinator picks the holder.

Those who want a lease are members of the consumer group of its name, subscribed to a topic of one
partition, `LEASES`. Whoever has the partition has the lease. A new holder

1. makes a producer whose transactional id is the lease's name: that ends and fences whatever an
   older holder has under way;
2. writes its name to `LEASES`. The offset of that record is the epoch: it grows with every holder.

So there are two fences. The producer of an older holder is refused by the broker; and offsets that
are committed with a transaction carry the holder's group metadata, so a holder that the group has
given up is refused even if its producer is the newest. A holder whose group has merely changed
(another candidate came) still has the lease, and publishes again with new metadata.

A lease that is taken at once (`take_lease`) has only the producer as a fence.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from penstock.log.base import Candidate, Columns, Lease
from penstock.log.errors import Fenced, TopicExists, UnknownTopic
from penstock.log.kafka.places import GroupPlace, PlaceRules
from penstock.log.kafka.producers import TransactionalProducer
from penstock.log.kafka.reading import Ranges

LEASES = "__penstock_leases"


class KafkaLease(Lease):
    """One epoch of one lease. `place` is None for one that was taken at once."""

    def __init__(
        self, name: str, epoch: int, kept: TransactionalProducer, place: GroupPlace | None
    ) -> None:
        self.name = name
        self.epoch = epoch
        self._kept = kept
        self._place = place
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
        if self._place is not None:
            self._place.sign()

    def release(self) -> None:
        """See `Lease.release`."""
        self._over = self._over or "it was released"
        if self._place is not None:
            self._place.close()
        with self._publishing:
            self._kept.let_go()

    # What a transaction asks for

    def check(self) -> None:
        """Raise `Fenced` if it is known that the lease is over."""
        if not self._over and self._place is not None:
            with self._place.changed:
                state = self._place.state
                if state.lost:
                    self._over = state.lost
                elif not state.assigned - state.leaving:
                    self._over = "the group has given it to another"
        if self._over:
            raise Fenced(
                f"The lease '{self.name}' of epoch {self.epoch} is over: {self._over}."
            )

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
            if self._place is None and by_producer:
                self._over = self._over or "a later holder has taken it"
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
        self._place: GroupPlace | None = None
        self._lease: KafkaLease | None = None
        #: The round of the group in which `holder` was looked up.
        self._looked_in = -1

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
            if self._looked_in != place.state.rounds:
                self._looked_in = place.state.rounds
                self.holder = self._leases.holder_of(self._name)
            return None
        if self._lease is not None:
            return None
        with place.alive():
            self._lease = self._leases.taken(self._name, self._holder, place)
        return self._lease


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

    def place_in(self, name: str, timeout_ms: int) -> GroupPlace:
        """A place among those who want the lease."""
        self._make_topic()
        return GroupPlace(
            self._connection, PlaceRules(name, (LEASES,), timeout_ms, hands_over=False)
        )

    def taken(self, name: str, holder: str, place: GroupPlace | None) -> KafkaLease:
        """The lease of somebody who may have it."""
        kept = TransactionalProducer(self._connection, name)
        self._connection.opened(kept)
        kept.producer()  # 1
        who = {"holder": holder, "host": socket.gethostname(), "pid": os.getpid()}
        record = Columns([name.encode()], [json.dumps(who).encode()])
        try:
            told = self.append(LEASES, 0, record)  # 2
        except UnknownTopic:
            self._make_topic()
            told = self.append(LEASES, 0, record)
        return KafkaLease(name, told.base_offset + 1, kept, place)

    def holder_of(self, name: str) -> str | None:
        """What the last holder told of itself; None if there was none."""
        start, end = self.bounds_of(LEASES, 0)
        told: str | None = None
        for batch in self.read(LEASES, 0, start, end):
            rows = batch.rows()
            for key, value in zip(rows.keys, rows.values, strict=True):
                if key == name.encode() and value is not None:
                    told = str(json.loads(value).get("holder", ""))
        return told

    def _make_topic(self) -> None:
        def make() -> bool:
            with contextlib.suppress(TopicExists):
                self.create_topic(LEASES, 1, {"cleanup.policy": "compact"})
            return True

        self._connection.part("leases", make)
