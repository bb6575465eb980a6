"""The membership of a consumer in a group, kept by a thread.

The thread polls a subscribed consumer that reads nothing: its partitions are paused. All state is
guarded by `changed`:
- `assigned`: the partitions that the group has assigned;
- `revoking`: those of them that are being revoked. The thread waits until none of them
  is being processed (every heartbeat reports `processing`), and only then lets the rebalance
  continue;
- `ended`: why the membership is over, once it is. It never begins again.

Only the thread uses the consumer: some calls of confluent-kafka hold the GIL while they wait for a
poll in another thread to end, and that poll needs the GIL. Other threads queue their calls in
`_requests`.

The broker detects a dead process. This class detects a live process that makes no progress: without
a heartbeat for `timeout_ms` it leaves the group.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.log.kafka.client.connection import Connection, create_client
from penstock.log.kafka.client.errors import error_of
from penstock.log.types import CommittedOffset, TopicPartition

_POLL_S = 0.02
#: How long to wait for the first assignment of an eager strategy.
_EAGER_JOIN_S = 1.0
#: The smallest session timeout that brokers allow by default.
_MIN_SESSION_MS = 6_000


@dataclass(frozen=True, slots=True)
class MembershipConfig:
    """The settings of a membership."""

    group: str
    topics: tuple[str, ...]
    timeout_ms: int
    strategy: str = "cooperative-sticky"
    client_id: str = ""
    #: For static membership.
    instance_id: str = ""
    #: Whether a revocation waits until the partitions are no longer processed.
    waits_for_processing: bool = True

    @property
    def is_cooperative(self) -> bool:
        """Whether a rebalance revokes only the partitions that move."""
        return self.strategy == "cooperative-sticky"


@dataclass(slots=True)
class _MembershipState:
    assigned: set[TopicPartition] = field(default_factory=set)
    revoking: set[TopicPartition] = field(default_factory=set)
    processing: set[TopicPartition] = field(default_factory=set)
    #: The number of assignments and revocations; 0: not in the group yet.
    rebalances: int = 0
    #: The number of revocations.
    revocations: int = 0
    ended: str = ""


class GroupMembership:
    """A subscribed consumer and its thread."""

    def __init__(self, connection: Connection, config: MembershipConfig) -> None:
        self._connection = connection
        self.config = config
        self.changed = threading.Condition()
        self.state = _MembershipState()
        self._heartbeat_at = time.monotonic()
        #: The number of open `keep_alive` blocks.
        self._keep_alive = 0
        self._metadata: Any = None
        #: The id of the member on the broker. A member that the broker has removed loses it.
        self._broker_member_id = ""
        self._requests: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._stopping = False
        more: dict[str, Any] = {"partition.assignment.strategy": config.strategy}
        if config.client_id:
            more["client.id"] = config.client_id
        if config.instance_id:
            more["group.instance.id"] = config.instance_id
        session_ms = max(config.timeout_ms, _MIN_SESSION_MS)
        settings = connection.settings.member(config.group, session_ms, **more)
        self._consumer = create_client(lambda: Consumer(settings))
        self._thread = threading.Thread(
            target=self._run, name=f"penstock-kafka-group-{config.group}", daemon=True
        )
        connection.close_later(self)
        self._consumer.subscribe(
            list(config.topics), on_assign=self._on_assign, on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        self._thread.start()

    # Called by the owner

    def heartbeat(self, processing: Iterable[TopicPartition] = ()) -> None:
        """Report that the owner is alive, and which partitions it processes."""
        with self.changed:
            self._heartbeat_at = time.monotonic()
            self.state.processing = {TopicPartition(*where) for where in processing}
            self.changed.notify_all()

    @contextlib.contextmanager
    def keep_alive(self) -> Iterator[None]:
        """Count the owner as alive for the duration of the block."""
        with self.changed:
            self._keep_alive += 1
        try:
            yield
        finally:
            with self.changed:
                self._keep_alive -= 1
                self._heartbeat_at = time.monotonic()

    def wait_until_joined(self, wait_s: float | None = None) -> None:
        """Wait for the first rebalance, at most `wait_s` seconds.

        A rebalance waits until other members have given up the partitions that they lose. With an
        eager strategy these are all partitions. If the caller runs these members as well, the
        rebalance waits for the caller: then it needs a limit. Without one, raises `LogUnavailable`
        after the timeout of the connection.
        """
        if wait_s is None and not self.config.is_cooperative:
            wait_s = _EAGER_JOIN_S
        timeout = self._connection.timeout if wait_s is None else wait_s
        deadline = time.monotonic() + timeout
        with self.keep_alive(), self.changed:
            while not self.state.rebalances and not self.state.ended:
                left = deadline - time.monotonic()
                if left <= 0:
                    if wait_s is not None:
                        return
                    what = f"Joining group '{self.config.group}' failed"
                    raise self._connection.unavailable(what)
                self.changed.wait(left)

    def metadata(self) -> Any:
        """Return the group metadata for a transaction: the generation of the last rebalance."""
        return self._metadata

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> KafkaError | None:
        """Commit offsets as this member. Returns the error, if any."""
        wanted = [
            KafkaPartition(*where, offset, text) for where, (offset, text) in offsets.items()
        ]
        try:
            committed: Any = self._run_in_thread(
                lambda: self._consumer.commit(offsets=wanted, asynchronous=False)
            )
        except KafkaException as raised:
            return error_of(raised)
        return next((one.error for one in committed if one.error is not None), None)

    def _run_in_thread(self, call: Callable[[], Any]) -> Any:
        """Run a call of the consumer in the thread, and return its result."""
        future: Future[Any] = Future()
        with self.changed:
            if self._stopping or self.state.ended:
                raise KafkaException(_MEMBERSHIP_OVER)
            self._requests.append((call, future))
            self.changed.notify_all()
        return future.result()

    def close(self) -> None:
        """Leave the group."""
        with self.changed:
            self._stopping = True
            self.changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # The thread

    def _run(self) -> None:
        while not self._is_over():
            try:
                message = self._consumer.poll(_POLL_S)
                self._update_metadata()
                self._run_requests()
            except (KafkaException, RuntimeError) as raised:
                self._end(str(raised))
                break
            error = None if message is None else message.error()
            if error is not None and (error.fatal() or error.code() in _FATAL):
                self._end(error.str())
        with self.changed:
            self._stopping = True
            self.changed.notify_all()
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()
        self._end("it has left the group")
        while self._requests:
            self._requests.popleft()[1].set_exception(KafkaException(_MEMBERSHIP_OVER))

    def _update_metadata(self) -> None:
        """Get the group metadata from librdkafka: every rebalance changes the generation.

        librdkafka discards the id of a member that the broker has removed. It reports the lost
        partitions only after a revocation has ended, when others may already have them.
        """
        metadata = self._consumer.consumer_group_metadata()
        # Read after the metadata: a discarded id does not return.
        member_id = self._consumer.memberid() or ""
        with self.changed:
            if member_id != self._broker_member_id and self.state.assigned:
                self._end(_REMOVED)
                return
            self._broker_member_id = member_id
            self._metadata = metadata

    def _run_requests(self) -> None:
        while self._requests and not self.state.ended:
            call, future = self._requests.popleft()
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)

    def _is_over(self) -> bool:
        silent_s = time.monotonic() - self._heartbeat_at
        if silent_s * 1000 > self.config.timeout_ms and not self._keep_alive:
            self._end(f"it sent no heartbeat for {silent_s:.1f} s")
        return self._stopping or bool(self.state.ended)

    def _end(self, reason: str) -> None:
        with self.changed:
            self.state.ended = self.state.ended or reason
            self.state.assigned.clear()
            self.state.revoking.clear()
            self.changed.notify_all()

    def _on_assign(self, consumer: Any, partitions: list[KafkaPartition]) -> None:
        assigned = _to_partitions(partitions)
        # With an offset, so that the consumer looks none up: it reads nothing.
        wanted = [KafkaPartition(*where, 0) for where in assigned]
        if self.config.is_cooperative:
            consumer.incremental_assign(wanted)
        else:
            consumer.assign(wanted)
        if wanted:
            consumer.pause(wanted)
        self._update_metadata()
        with self.changed:
            self.state.assigned |= assigned
            self.state.rebalances += 1
            self.changed.notify_all()

    def _on_revoke(self, consumer: Any, partitions: list[KafkaPartition]) -> None:
        revoked = _to_partitions(partitions)
        state = self.state
        if not self._is_over():
            # The owner may commit until it releases the partitions, with the new generation.
            self._update_metadata()
        with self.changed:
            state.revoking |= revoked
            state.revocations += bool(revoked)
            state.rebalances += 1
            self.changed.notify_all()
            while (
                self.config.waits_for_processing and revoked & state.processing
                and not self._is_over()
            ):
                self.changed.wait(_POLL_S)
                self._update_metadata()
                self._run_requests()
            state.revoking -= revoked
            state.assigned -= revoked
            self.changed.notify_all()
        if self.config.is_cooperative:
            consumer.incremental_unassign([KafkaPartition(*where) for where in revoked])
        else:
            consumer.unassign()

    def _on_lost(self, consumer: Any, partitions: list[KafkaPartition]) -> None:
        lost = _to_partitions(partitions)
        with self.changed:
            if self.state.assigned - lost:
                # Only some partitions are lost: their topic was deleted.
                self.state.assigned -= lost
                self.state.revoking -= lost
                self.state.revocations += 1
                self.state.rebalances += 1
                self.changed.notify_all()
            else:
                self._end(_REMOVED)
        if self.config.is_cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()


def _to_partitions(partitions: Collection[KafkaPartition]) -> set[TopicPartition]:
    return {TopicPartition(one.topic, one.partition) for one in partitions}


_FATAL = frozenset((KafkaError._MAX_POLL_EXCEEDED, KafkaError.FENCED_INSTANCE_ID))
_REMOVED = "the broker received no heartbeat and removed it from the group"
_MEMBERSHIP_OVER = KafkaError(KafkaError.UNKNOWN_MEMBER_ID, "The member has left the group")
