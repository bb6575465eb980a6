"""A consumer's place in its group, kept by a thread of its own.

Three sets of partitions, all under `_lock`:
- `held`: what the log counts as this member's; told with every heartbeat.
- `working`: what the program was told of (`on_assign`); always part of `held`.
- `wanted`: what the last heartbeat answered.

What is in `working` but no longer wanted stays in `held` until the program has been told
(`on_revoke`) and has committed; only then does another member get it. What is held but was never
worked on is given up at once. A member that is fenced, or whose program did not poll for
`max.poll.interval.ms`, has lost everything: the program is told (`on_lost`) and joins again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass

from penstock.clients.errors import KafkaError
from penstock.log.base import Log, Member
from penstock.log.errors import Fenced, LogBusy, LogError
from penstock.log.types import TopicPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupRules:
    """How a consumer takes part in its group."""

    group_id: str
    client_id: str
    #: Static membership: a restarted consumer takes its former place.
    instance_id: str
    strategy: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int


class Membership:
    """A place in a group, for one subscription."""

    def __init__(self, log: Log, rules: GroupRules, topics: Collection[str]) -> None:
        self._log = log
        self._rules = rules
        self._topics = list(topics)
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._member: Member | None = None
        self._former: Member | None = None
        self._held: set[TopicPartition] = set()
        self._working: set[TopicPartition] = set()
        self._wanted: frozenset[TopicPartition] = frozenset()
        #: Why everything was lost; the program is told by the next poll.
        self._lost: KafkaError | None = None
        #: What ends the membership for good.
        self._failed: KafkaError | None = None
        self._last_poll = time.monotonic()
        #: Written under the lock, read without it: whether a poll has something to do.
        self.needs_attention = True

    @property
    def member(self) -> Member | None:
        """The place in the log; None before the first poll.

        After a loss it is the former one, which the log refuses.
        """
        return self._member or self._former

    @property
    def failure(self) -> KafkaError | None:
        """What ends the membership for good."""
        return self._failed

    def polled(self) -> None:
        """The program is alive."""
        self._last_poll = time.monotonic()

    def follow(self) -> None:
        """Join if need be, and hear of changes in the group. Called by poll, now and then."""
        with self._lock:
            if self._failed is not None or self._lost is not None or self._stop.is_set():
                return
            if self._member is None:
                self._join()
            elif self._member.needs_heartbeat():
                self._heartbeat()

    def _join(self) -> None:
        rules = self._rules
        self._member = self._log.join_group(
            rules.group_id,
            self._topics,
            client_id=rules.client_id,
            member_id=rules.instance_id or None,
            session_timeout_ms=rules.session_timeout_ms,
            strategy=rules.strategy,
        )
        self._heartbeat()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._keep_alive, name=f"penstock-group-{rules.group_id}", daemon=True
            )
            self._thread.start()

    # What poll does with it

    def take_lost(self) -> tuple[set[TopicPartition], KafkaError] | None:
        """What was lost since the last call, and why; from then on the member may join again."""
        with self._lock:
            if self._lost is None:
                return None
            error, self._lost = self._lost, None
            working, self._working = self._working, set()
            return working, error

    def to_revoke(self) -> set[TopicPartition]:
        """What the program works on and is to give up."""
        with self._lock:
            return self._working - self._wanted if self._lost is None else set()

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """The program is done with them; others may have them."""
        with self._lock:
            self._working.difference_update(partitions)
            self._held.difference_update(partitions)
            if self._member is not None and self._lost is None:
                self._heartbeat()

    def take_assigned(self) -> set[TopicPartition]:
        """What the program may work on from now on and was not told of yet."""
        with self._lock:
            self.needs_attention = False
            if self._lost is not None:
                return set()
            added = set(self._wanted) - self._working
            self._working |= added
            return added

    def leave(self) -> set[TopicPartition]:
        """Stop taking part without giving the place up; answers what was worked on.

        `close` gives it up: in between the program may commit.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            working, self._working = self._working, set()
            return working if self._lost is None else set()

    def close(self) -> None:
        """Give up the place. A static member keeps it for its return, until it times out."""
        self._stop.set()
        with self._lock:
            member, self._member = self._member, None
            if member is not None and not self._rules.instance_id:
                # If it cannot be told, the session timeout tells it.
                with contextlib.suppress(LogError):
                    member.leave()

    # The thread

    def _keep_alive(self) -> None:
        interval = self._rules.heartbeat_interval_ms / 1000
        while not self._stop.wait(interval):
            with self._lock:
                if self._stop.is_set():
                    return
                if self._member is None or self._lost is not None:
                    continue
                try:
                    self._heartbeat_unless_stuck()
                except LogBusy:
                    logger.info("A heartbeat of group '%s' was late", self._rules.group_id)
                except LogError as error:
                    logger.warning("A heartbeat failed: %s", error)
            if self.needs_attention:
                self._log.wake()

    def _heartbeat_unless_stuck(self) -> None:
        silent_ms = (time.monotonic() - self._last_poll) * 1000
        if silent_ms <= self._rules.max_poll_interval_ms:
            self._heartbeat()
            return
        member = self._member
        self._lose(KafkaError(
            KafkaError._MAX_POLL_EXCEEDED,
            f"The program did not poll for {silent_ms:.0f} ms, so the consumer has left group "
            f"'{self._rules.group_id}'. max.poll.interval.ms is "
            f"{self._rules.max_poll_interval_ms}.",
        ))
        if member is not None:
            member.leave()

    def _heartbeat(self) -> None:
        """Tell what is held, hear what is wanted; under the lock."""
        member = self._member
        while member is not None:
            try:
                wanted = member.heartbeat(self._held).partitions
            except Fenced as error:
                self._lose_place(error)
                return
            self._wanted = wanted
            never_begun = self._held - wanted - self._working
            self._held |= wanted
            if wanted != self._working:
                self.needs_attention = True
            if not never_begun:
                return
            self._held -= never_begun

    def _lose_place(self, error: Fenced) -> None:
        if self._rules.instance_id:
            self._failed = KafkaError(
                KafkaError.FENCED_INSTANCE_ID,
                f"Another consumer of group '{self._rules.group_id}' has group.instance.id "
                f"'{self._rules.instance_id}' now. {error}",
                fatal=True,
            )
        self._lose(KafkaError(KafkaError._ASSIGNMENT_LOST, str(error)))

    def _lose(self, error: KafkaError) -> None:
        self._former, self._member = self._member, None
        self._held.clear()
        self._wanted = frozenset()
        self._lost = error
        self.needs_attention = True
