"""The membership of a consumer in its group, with a heartbeat thread.

Three sets of partitions, all guarded by `_lock`:
- `owned`: the log assigns these partitions to no other member; sent with every heartbeat.
- `active`: the program has them (`on_assign` was called); always a subset of `owned`.
- `target`: the assignment that the last heartbeat returned.

A partition in `active` that leaves `target` stays in `owned` until `on_revoke` has run and offsets
are committed; only then can another member own it. An owned partition that never became active is
released at once. A member that is fenced, or whose program does not poll for
`max.poll.interval.ms`, loses all partitions: the next poll calls `on_lost` and joins again.
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

#: How long a poll waits for the first assignment. Kafka may make none before other consumers have
#: polled, and these may belong to the same thread.
_JOIN_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """The settings of a group member."""

    group_id: str
    client_id: str
    #: Static membership: a restarted consumer keeps its partitions.
    instance_id: str
    strategy: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int


class ConsumerMembership:
    """The membership for one subscription."""

    def __init__(
        self, log: Log, settings: MembershipSettings, topics: Collection[str]
    ) -> None:
        self._log = log
        self._settings = settings
        self._topics = list(topics)
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._member: Member | None = None
        self._previous_member: Member | None = None
        self._owned: set[TopicPartition] = set()
        self._active: set[TopicPartition] = set()
        self._target: frozenset[TopicPartition] = frozenset()
        #: Why all partitions were lost, until a poll handles it.
        self._lost_error: KafkaError | None = None
        #: Ends the membership permanently.
        self._fatal_error: KafkaError | None = None
        self._last_poll = time.monotonic()
        #: Whether a poll has to handle a rebalance. Written under the lock, read without it.
        self.needs_rebalance = True

    @property
    def member(self) -> Member | None:
        """The member in the log; None before the first poll.

        After a loss it is the previous member, whose commits the log rejects.
        """
        return self._member or self._previous_member

    @property
    def fatal_error(self) -> KafkaError | None:
        """The error that ended the membership permanently."""
        return self._fatal_error

    def record_poll(self) -> None:
        """Record that the program polled."""
        self._last_poll = time.monotonic()

    def refresh(self) -> None:
        """Join the group, or send a heartbeat if the log has a change for this member."""
        with self._lock:
            if (
                self._fatal_error is not None
                or self._lost_error is not None
                or self._stop.is_set()
            ):
                return
            if self._member is None:
                self._join()
            elif self._member.needs_heartbeat():
                self._heartbeat()

    def _join(self) -> None:
        settings = self._settings
        self._member = self._log.join_group(
            settings.group_id,
            self._topics,
            client_id=settings.client_id,
            member_id=settings.instance_id or None,
            session_timeout_ms=settings.session_timeout_ms,
            strategy=settings.strategy,
        )
        self._heartbeat()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run_heartbeats, name=f"penstock-group-{settings.group_id}", daemon=True
            )
            self._thread.start()

    # Called by poll

    def take_lost(self) -> tuple[set[TopicPartition], KafkaError] | None:
        """Return the lost partitions and the reason, once. Afterwards the member may rejoin."""
        with self._lock:
            if self._lost_error is None:
                return None
            error, self._lost_error = self._lost_error, None
            active, self._active = self._active, set()
            return active, error

    def partitions_to_revoke(self) -> set[TopicPartition]:
        """Return the active partitions that another member shall get."""
        with self._lock:
            return self._active - self._target if self._lost_error is None else set()

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Release revoked partitions to other members."""
        with self._lock:
            self._active.difference_update(partitions)
            self._owned.difference_update(partitions)
            if self._member is not None and self._lost_error is None:
                self._heartbeat()

    def take_assigned(self) -> set[TopicPartition]:
        """Activate the new partitions of the assignment and return them."""
        with self._lock:
            self.needs_rebalance = False
            if self._lost_error is not None:
                return set()
            added = set(self._target) - self._active
            self._active |= added
            return added

    def stop(self) -> set[TopicPartition]:
        """Stop heartbeats and return the active partitions.

        The program can still commit until `close`, which leaves the group.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            active, self._active = self._active, set()
            return active if self._lost_error is None else set()

    def close(self) -> None:
        """Leave the group. A static member stays in it until its session times out."""
        self._stop.set()
        with self._lock:
            member, self._member = self._member, None
            if member is not None and not self._settings.instance_id:
                # If this fails, the session timeout removes the member.
                with contextlib.suppress(LogError):
                    member.leave()

    # The heartbeat thread

    def _run_heartbeats(self) -> None:
        interval_s = self._settings.heartbeat_interval_ms / 1000
        while not self._stop.wait(interval_s):
            with self._lock:
                if self._stop.is_set():
                    return
                if self._member is None or self._lost_error is not None:
                    continue
                try:
                    self._heartbeat_or_leave()
                except LogBusy:
                    logger.info("A heartbeat of group '%s' was late", self._settings.group_id)
                except LogError as error:
                    logger.warning(
                        "A heartbeat of group '%s' failed: %s", self._settings.group_id, error
                    )
            if self.needs_rebalance:
                self._log.wake()

    def _heartbeat_or_leave(self) -> None:
        """Send a heartbeat, or leave the group if the program has stopped polling."""
        since_poll_ms = (time.monotonic() - self._last_poll) * 1000
        if since_poll_ms <= self._settings.max_poll_interval_ms:
            self._heartbeat(wait_s=0)
            return
        member = self._member
        self._lose_all(KafkaError(
            KafkaError._MAX_POLL_EXCEEDED,
            f"The consumer left group '{self._settings.group_id}', because the program did not "
            f"poll for {since_poll_ms:.0f} ms. max.poll.interval.ms is "
            f"{self._settings.max_poll_interval_ms}.",
        ))
        if member is not None:
            member.leave()

    def _heartbeat(self, wait_s: float = _JOIN_WAIT_S) -> None:
        """Send the owned partitions and receive the assignment. Called under the lock."""
        member = self._member
        while member is not None:
            try:
                target = member.heartbeat(self._owned, wait_s=wait_s).partitions
            except Fenced as error:
                self._handle_fenced(error)
                return
            self._target = target
            never_active = self._owned - target - self._active
            self._owned |= target
            if target != self._active:
                self.needs_rebalance = True
            if not never_active:
                return
            self._owned -= never_active

    def _handle_fenced(self, error: Fenced) -> None:
        if self._settings.instance_id:
            self._fatal_error = KafkaError(
                KafkaError.FENCED_INSTANCE_ID,
                f"Another consumer of group '{self._settings.group_id}' has the same "
                f"group.instance.id '{self._settings.instance_id}'. {error}",
                fatal=True,
            )
        self._lose_all(KafkaError(KafkaError._ASSIGNMENT_LOST, str(error)))

    def _lose_all(self, error: KafkaError) -> None:
        self._previous_member, self._member = self._member, None
        self._owned.clear()
        self._target = frozenset()
        self._lost_error = error
        self.needs_rebalance = True
