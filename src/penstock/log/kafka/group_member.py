"""A place in a group, kept by a thread of its own.

The thread polls a consumer that is subscribed and reads nothing: its partitions are paused. All
state is under `changed`:
- `assigned`: what the group has given to this place;
- `leaving`: what of it is to be given up. The thread waits until nobody works on it any more
  (`worked_on` is told by every sign of life), and only then lets the group go on;
- `lost`: why the place is gone, once it is. It never comes back.

Only the thread touches the consumer: some calls of confluent-kafka hold Python's lock while they
wait for a poll of another thread to end, which then never does. What others want of the consumer
they leave in `_wishes`.

The broker notices a process that has died. A process that lives but does nothing is noticed here:
without a sign of life for `timeout_ms` the place is given up.
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

from penstock.log.kafka.client.connection import Connection, made
from penstock.log.kafka.client.errors import error_of
from penstock.log.types import CommittedOffset, TopicPartition

_POLL_S = 0.02
_EAGER_PATIENCE_S = 1.0
#: The least that brokers allow by default.
_LEAST_SESSION_MS = 6_000


@dataclass(frozen=True, slots=True)
class PlaceRules:
    """How a place in a group is held."""

    group: str
    topics: tuple[str, ...]
    timeout_ms: int
    strategy: str = "cooperative-sticky"
    client_id: str = ""
    #: Static membership.
    instance_id: str = ""
    #: False: partitions that are taken away are lost at once.
    hands_over: bool = True

    @property
    def is_incremental(self) -> bool:
        """Whether a rebalance leaves alone what does not move."""
        return self.strategy == "cooperative-sticky"


@dataclass(slots=True)
class _State:
    assigned: set[TopicPartition] = field(default_factory=set)
    leaving: set[TopicPartition] = field(default_factory=set)
    worked_on: set[TopicPartition] = field(default_factory=set)
    #: How often the group has changed for this place; 0: it is not in the group yet.
    rounds: int = 0
    #: How often partitions were taken away.
    losses: int = 0
    lost: str = ""


class GroupConnection:
    """A subscribed consumer and its thread."""

    def __init__(self, connection: Connection, rules: PlaceRules) -> None:
        self._connection = connection
        self.rules = rules
        self.changed = threading.Condition()
        self.state = _State()
        self._sign_at = time.monotonic()
        self._busy = 0
        self._metadata: Any = None
        self._wishes: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._stopping = False
        more: dict[str, Any] = {"partition.assignment.strategy": rules.strategy}
        if rules.client_id:
            more["client.id"] = rules.client_id
        if rules.instance_id:
            more["group.instance.id"] = rules.instance_id
        session_ms = max(rules.timeout_ms, _LEAST_SESSION_MS)
        settings = connection.settings.member(rules.group, session_ms, **more)
        self._consumer = made(lambda: Consumer(settings))
        self._thread = threading.Thread(
            target=self._run, name=f"penstock-kafka-group-{rules.group}", daemon=True
        )
        connection.opened(self)
        self._consumer.subscribe(
            list(rules.topics), on_assign=self._on_assign, on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        self._thread.start()

    # What the owner calls

    def sign(self, worked_on: Iterable[TopicPartition] = ()) -> None:
        """Show that the owner lives, and which partitions it works on."""
        with self.changed:
            self._sign_at = time.monotonic()
            self.state.worked_on = {TopicPartition(*where) for where in worked_on}
            self.changed.notify_all()

    @contextlib.contextmanager
    def alive(self) -> Iterator[None]:
        """For the time of the block the owner counts as alive, however long it takes."""
        with self.changed:
            self._busy += 1
        try:
            yield
        finally:
            with self.changed:
                self._busy -= 1
                self._sign_at = time.monotonic()

    def wait_for_round(self) -> None:
        """Wait until the group has heard of this place.

        With a strategy that is not incremental a group waits until all members have given up all
        partitions; that may depend on who calls this, so it is not waited for very long.
        """
        patience = self._connection.timeout if self.rules.is_incremental else _EAGER_PATIENCE_S
        deadline = time.monotonic() + patience
        with self.alive(), self.changed:
            while not self.state.rounds and not self.state.lost:
                left = deadline - time.monotonic()
                if left <= 0:
                    if not self.rules.is_incremental:
                        return
                    raise self._connection.unavailable(f"Group '{self.rules.group}' was joined")
                self.changed.wait(left)

    def metadata(self) -> Any:
        """What a transaction needs to know of this place, as of a moment ago."""
        return self._metadata

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> KafkaError | None:
        """Commit as this place; answers why it could not."""
        wanted = [
            KafkaPartition(*where, offset, text) for where, (offset, text) in offsets.items()
        ]
        try:
            committed: Any = self._wish(
                lambda: self._consumer.commit(offsets=wanted, asynchronous=False)
            )
        except KafkaException as raised:
            return error_of(raised)
        return next((one.error for one in committed if one.error is not None), None)

    def _wish(self, call: Callable[[], Any]) -> Any:
        """What the thread gets for a call of the consumer."""
        future: Future[Any] = Future()
        with self.changed:
            if self._stopping or self.state.lost:
                raise KafkaException(_GIVEN_UP)
            self._wishes.append((call, future))
            self.changed.notify_all()
        return future.result()

    def _grant(self) -> None:
        """Do what others want of the consumer; in the thread."""
        while self._wishes:
            call, future = self._wishes.popleft()
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)

    def close(self) -> None:
        """Give up the place."""
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
                self._metadata = self._consumer.consumer_group_metadata()
                self._grant()
            except (KafkaException, RuntimeError) as raised:
                self._lose(str(raised))
                break
            error = None if message is None else message.error()
            if error is not None and (error.fatal() or error.code() in _FINAL):
                self._lose(error.str())
        with self.changed:
            self._stopping = True
            self.changed.notify_all()
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()
        self._lose("it was given up")
        while self._wishes:
            self._wishes.popleft()[1].set_exception(KafkaException(_GIVEN_UP))

    def _is_over(self) -> bool:
        silent = time.monotonic() - self._sign_at
        if silent * 1000 > self.rules.timeout_ms and not self._busy:
            self._lose(f"it gave no sign for {silent:.1f} s")
        return self._stopping or bool(self.state.lost)

    def _lose(self, why: str) -> None:
        with self.changed:
            self.state.lost = self.state.lost or why
            self.state.assigned.clear()
            self.state.leaving.clear()
            self.changed.notify_all()

    def _on_assign(self, consumer: Any, partitions: list[KafkaPartition]) -> None:
        given = _plain(partitions)
        # With an offset, so that none is looked up: nothing will be read.
        wanted = [KafkaPartition(*where, 0) for where in given]
        if self.rules.is_incremental:
            consumer.incremental_assign(wanted)
        else:
            consumer.assign(wanted)
        if wanted:
            consumer.pause(wanted)
        with self.changed:
            self.state.assigned |= given
            self.state.rounds += 1
            self.changed.notify_all()

    def _on_revoke(self, consumer: Any, partitions: list[KafkaPartition]) -> None:
        gone = _plain(partitions)
        with self.changed:
            self.state.leaving |= gone
            self.state.losses += bool(gone)
            self.state.rounds += 1
            self.changed.notify_all()
            while self.rules.hands_over and gone & self.state.worked_on and not self._is_over():
                self.changed.wait(_POLL_S)
                self._grant()
            self.state.leaving -= gone
            self.state.assigned -= gone
            self.changed.notify_all()
        if self.rules.is_incremental:
            consumer.incremental_unassign([KafkaPartition(*where) for where in gone])
        else:
            consumer.unassign()

    def _on_lost(self, consumer: Any, partitions: list[KafkaPartition]) -> None:
        gone = _plain(partitions)
        with self.changed:
            if self.state.assigned - gone:
                # Only some: their topic was deleted.
                self.state.assigned -= gone
                self.state.leaving -= gone
                self.state.losses += 1
                self.state.rounds += 1
                self.changed.notify_all()
            else:
                self._lose("the group has given it up, because the broker heard nothing of it")
        if self.rules.is_incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()


def _plain(partitions: Collection[KafkaPartition]) -> set[TopicPartition]:
    return {TopicPartition(one.topic, one.partition) for one in partitions}


_FINAL = frozenset((KafkaError._MAX_POLL_EXCEEDED, KafkaError.FENCED_INSTANCE_ID))
_GIVEN_UP = KafkaError(KafkaError.UNKNOWN_MEMBER_ID, "The place was given up")
