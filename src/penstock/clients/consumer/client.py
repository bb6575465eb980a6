"""`Consumer`: reads topics, alone or as one of a group.

    consumer = Consumer({"log": "orders.db", "group.id": "billing"})
    consumer.subscribe(["orders"])
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        bill(message.value())

A group's partitions are divided among its consumers; one that has none is a spare and takes over
when another leaves or dies. Rebalances are incremental: `on_assign` and `on_revoke` are told what
comes and what goes, what stays is not touched. All callbacks are called by `poll`, `consume` and
`close`, in the thread that calls them. A consumer is for one thread; only `wakeup` may be called
from another.

Settings, with their defaults (Kafka's and librdkafka's names are taken):

    group.id                 none: partitions are assigned by `assign`, and nothing is committed
    group.instance.id        none: with one, a restarted consumer takes its former place
    auto.offset.reset        latest; or earliest, or error
    enable.auto.commit       true: what earlier polls gave is committed by a poll every
    auto.commit.interval.ms  5000, when partitions are revoked, and by `close` (but not by a
                             `with` block that has failed)
    enable.auto.offset.store true; false: only what `store_offsets` was told is committed
    key.deserializer, value.deserializer   bytes as they are
    max.poll.records         none: `consume` gives no more than this
    fetch.min.bytes          1: wait for so many bytes, but no longer than
    fetch.wait.max.ms        500
    fetch.max.bytes          52428800 are read ahead, and of one partition
    max.partition.fetch.bytes   1048576; but always one record
    session.timeout.ms       45000 without a sign and the others take over
    heartbeat.interval.ms    3000, or a third of the session timeout
    max.poll.interval.ms     300000 without a poll and the consumer leaves its group
    partition.assignment.strategy   range; or roundrobin, or cooperative-sticky
    isolation.level          read_committed: the embedded log shows nothing else
    enable.partition.eof     false; true: `poll` tells when it has reached the end of a partition
    on_commit                called with (error, partitions) after commits that nobody waited for
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

from penstock.clients.consumer.commits import Commits, as_offsets
from penstock.clients.consumer.fetcher import Fetcher
from penstock.clients.consumer.membership import Membership
from penstock.clients.consumer.positions import Places
from penstock.clients.consumer.settings import ConsumerSettings
from penstock.clients.errors import (
    KafkaError,
    KafkaException,
    WakeupException,
    failure,
    translated,
)
from penstock.clients.settings import Settings, merged, seconds
from penstock.clients.topic_cache import find_topic
from penstock.clients.types import (
    OFFSET_STORED,
    ConsumerGroupMetadata,
    Message,
    TopicPartition,
    log_partition,
)
from penstock.log.base import Log
from penstock.log.errors import LogError
from penstock.log.types import CommittedOffset
from penstock.log.types import TopicPartition as LogPartition

logger = logging.getLogger(__name__)

RebalanceCallback: TypeAlias = Callable[["Consumer", list[TopicPartition]], object]

#: A waiting poll looks around at least this often.
_LONGEST_WAIT_S = 0.5


class Consumer(Places):
    """Reads topics. For one thread; see the module."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        read = Settings(merged(config, settings), "Consumer")
        self._settings = ConsumerSettings.of(read)
        self._group_id = self._settings.group.group_id
        self._log: Log = read.open_log()
        self._fetcher = Fetcher(
            self._log, self._settings.fetch, self._settings.converters, self._committed_offsets
        )
        self._commits = Commits(self._log, self._group_id, self._settings.on_commit)
        self._membership: Membership | None = None
        self._callbacks: dict[str, RebalanceCallback | None] = {}
        self._in_on_assign = False
        #: What `store_offsets` was told.
        self._stored: dict[LogPartition, CommittedOffset] = {}
        self._next_auto_commit = self._auto_commit_time()
        self._woken = threading.Event()
        self._closed = False
        self._failed = False

    # What to read

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Share the topics with the other consumers of the group; `^` begins a pattern.

        The group is joined by the first poll. Callbacks get the consumer and the partitions:
        `on_assign` those that come (it may `seek`, or `assign` them with offsets), `on_revoke`
        those to be given up, while they can still be committed, `on_lost` those that others may
        have already (without it, `on_revoke` gets them).
        """
        self._check_open()
        if isinstance(topics, str):
            raise TypeError(f"topics must be a list of names, not the text '{topics}'.")
        if not self._group_id:
            raise failure(
                KafkaError._UNKNOWN_GROUP, "A subscription needs a group. Set 'group.id'."
            )
        self.unsubscribe()
        if not topics:
            return
        for topic in topics:
            self._look_for(topic)
        self._callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}
        self._membership = Membership(self._log, self._settings.group, topics)

    def _look_for(self, topic: str) -> None:
        if topic.startswith("^"):
            return
        try:
            find_topic(self._log, topic, create=self._settings.create_topics)
        except LogError as error:
            # It may be created later; until then the program hears of it once.
            self._fetcher.tell(translated(error).error, LogPartition(topic, -1))

    def unsubscribe(self) -> None:
        """Leave the group, or forget what was assigned."""
        self._check_open()
        self._leave_group()
        self._forget(list(self._fetcher.cursors))

    def _leave_group(self) -> None:
        membership = self._membership
        if membership is None:
            return
        working = membership.leave()
        try:
            self._give_up(working)
        finally:
            self._membership = None
            membership.close()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions, from their offsets if they have one, and no others.

        Without a group's help: nobody takes over. In `on_assign` it sets where to begin.
        """
        self._check_open()
        if not self._in_on_assign:
            self.unsubscribe()
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions too."""
        self._check_open()
        for partition in partitions:
            where = log_partition(partition)
            if self._membership is not None and where not in self._fetcher.cursors:
                raise failure(
                    KafkaError._STATE,
                    f"The group did not give '{where.topic}' [{where.partition}] to this consumer.",
                )
            self._fetcher.add(where, getattr(partition, "offset", OFFSET_STORED))

    def unassign(self) -> None:
        """Read nothing. In `on_revoke` and `on_lost` there is no need for it."""
        if self._membership is None:
            self._forget(list(self._fetcher.cursors))

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these no more. In `on_revoke` and `on_lost` there is no need for it."""
        if self._membership is None:
            self._forget([log_partition(partition) for partition in partitions])

    def _forget(self, partitions: Collection[LogPartition]) -> None:
        self._fetcher.remove(partitions)
        for where in partitions:
            self._stored.pop(where, None)
            self._commits.last.pop(where, None)

    # Reading

    def poll(self, timeout: float | None = -1) -> Message | None:
        """The next record, or an error in place of one; None if none came within the seconds.

        A negative timeout, or None, waits for ever. `WakeupException` after `wakeup`.
        """
        messages = self._consume(1, 1, timeout)
        return messages[0] if messages else None

    def consume(
        self, num_messages: int | None = None, timeout: float | None = -1
    ) -> list[Message]:
        """Several records: as many as asked for, or what has come within the seconds.

        Without a number: what there is, as soon as there is something (`max.poll.records` of
        them, or 500), as Kafka's own consumer does it.
        """
        most = self._settings.max_poll_records
        if num_messages is None:
            return self._consume(1, most or 500, timeout)
        if not 0 <= num_messages <= 1_000_000:
            raise ValueError(f"num_messages must be from 0 to 1000000, not {num_messages}.")
        count = min(num_messages, most) if most else num_messages
        return self._consume(count, count, timeout)

    def _consume(self, least: int, most: int, timeout: float | None) -> list[Message]:
        self._check_open()
        left = seconds(timeout)
        end = None if left is None else time.monotonic() + left
        messages: list[Message] = []
        try:
            self._auto_commit_if_due()
            while True:
                self._look_around(before_waiting=False)
                if self._take(most, messages) or len(messages) >= least:
                    return messages
                self._look_around(before_waiting=True)
                self._fetcher.fetch()
                if self._take(most, messages) or len(messages) >= least:
                    return messages
                wait = _LONGEST_WAIT_S
                if end is not None:
                    wait = min(wait, end - time.monotonic())
                    if wait <= 0:
                        return messages
                self._log.wait_for_change(self._fetcher.wait_at_most(wait))
        except LogError as error:
            raise translated(error) from error

    def _take(self, most: int, messages: list[Message]) -> bool:
        """Add what there is, errors first; whether it should be given to the program as it is."""
        events = self._fetcher.events
        while events and len(messages) < most:
            messages.append(events.popleft())
        # A record that cannot be read is raised, if nothing is lost with the exception.
        return not self._fetcher.take(most, messages)

    def _look_around(self, *, before_waiting: bool) -> None:
        """What has to be done between two records. `before_waiting`: also what takes a moment."""
        if self._woken.is_set():
            self._woken.clear()
            raise WakeupException
        if self._commits.has_news:
            self._commits.serve()
        membership = self._membership
        if membership is None:
            return
        membership.polled()
        if before_waiting:
            membership.follow()
        if membership.needs_attention:
            self._rebalance(membership)

    def wakeup(self) -> None:
        """Let a poll in another thread, or the next one, raise `WakeupException`."""
        self._woken.set()
        self._log.wake()

    # Rebalances

    def _rebalance(self, membership: Membership) -> None:
        lost = membership.take_lost()
        if lost is not None:
            partitions, error = lost
            self._lose(partitions, error)
        if membership.failure is not None:
            raise KafkaException(membership.failure)
        membership.follow()
        revoked = membership.to_revoke()
        if revoked:
            try:
                self._give_up(revoked)
            finally:
                membership.revoked(revoked)
        assigned = membership.take_assigned()
        if assigned:
            for where in sorted(assigned):
                self._fetcher.add(where)
            self._in_on_assign = True
            try:
                self._call("assign", assigned)
            finally:
                self._in_on_assign = False

    def _give_up(self, partitions: Collection[LogPartition]) -> None:
        """Commit if that is the consumer's task, tell the program, forget."""
        if not partitions:
            return
        self._commit_at_last(partitions)
        try:
            self._call("revoke", partitions)
        finally:
            self._forget(partitions)

    def _commit_at_last(self, partitions: Collection[LogPartition]) -> None:
        """If it cannot be committed, the next consumer gets some records once more."""
        if self._settings.auto_commit_interval_ms is None or self._failed:
            return
        try:
            self._commit_now(self._to_commit(partitions))
        except KafkaException as error:
            logger.warning("Offsets of group '%s' were not committed: %s", self._group_id, error)

    def _lose(self, partitions: Collection[LogPartition], error: KafkaError) -> None:
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:
            self._fetcher.tell(error)
        try:
            if partitions:
                self._call("lost" if self._callbacks.get("lost") else "revoke", partitions)
        finally:
            self._forget(partitions)

    def _call(self, what: str, partitions: Collection[LogPartition]) -> None:
        callback = self._callbacks.get(what)
        if callback is not None:
            callback(self, [TopicPartition(*where) for where in sorted(partitions)])

    # Committing

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit a message's offset + 1, given offsets, or what polls have given so far.

        `asynchronous=False` waits, and answers what was committed. `KafkaException` if the
        consumer has lost a partition, or if there is nothing to commit.
        """
        self._check_open()
        wanted = self._offsets_of(message, offsets)
        if wanted is None:
            wanted = self._to_commit(self._fetcher.cursors, again=True)
        if not self._group_id:
            raise failure(KafkaError._UNKNOWN_GROUP, "Offsets need a group. Set 'group.id'.")
        if not wanted:
            raise failure(KafkaError._NO_OFFSET, "There is no offset to commit.")
        if asynchronous:
            self._commits.later(wanted, self._member())
            return None
        return self._commit_now(wanted)

    def store_offsets(
        self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None
    ) -> None:
        """Say what may be committed, with `enable.auto.offset.store` off."""
        self._check_open()
        if self._settings.auto_offset_store:
            raise failure(KafkaError._INVALID_ARG, "Set 'enable.auto.offset.store' to false first.")
        wanted = self._offsets_of(message, offsets)
        if wanted is None:
            raise TypeError("Give a message or offsets to store.")
        for where in wanted:
            self._fetcher.cursor(where)
        self._stored.update(wanted)

    def _offsets_of(
        self, message: Message | None, offsets: Sequence[TopicPartition] | None
    ) -> dict[LogPartition, CommittedOffset] | None:
        if message is not None and offsets is not None:
            raise ValueError("Give a message or offsets, not both.")
        if message is not None:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if message.error() is not None or topic is None or partition is None or offset is None:
                raise ValueError(f"There is no offset in {message!r}.")
            return {LogPartition(topic, partition): CommittedOffset(offset + 1)}
        return None if offsets is None else as_offsets(list(offsets))

    def _to_commit(
        self, partitions: Collection[LogPartition], *, again: bool = False
    ) -> dict[LogPartition, CommittedOffset]:
        """What polls have given of the partitions, or what was stored; `again`: even if it is
        committed already."""
        wanted = {}
        for where in partitions:
            if self._settings.auto_offset_store:
                cursor = self._fetcher.cursors.get(where)
                if cursor is None or cursor.position is None:
                    continue
                offset = CommittedOffset(cursor.position)
            elif where in self._stored:
                offset = self._stored[where]
            else:
                continue
            if again or self._commits.last.get(where) != offset:
                wanted[where] = offset
        return wanted

    def _commit_now(self, offsets: dict[LogPartition, CommittedOffset]) -> list[TopicPartition]:
        if not offsets or not self._group_id:
            return []
        return self._commits.now(offsets, self._member())

    def _auto_commit_time(self) -> float:
        interval = self._settings.auto_commit_interval_ms
        if interval is None or not self._group_id:
            return float("inf")
        return time.monotonic() + interval / 1000

    def _auto_commit_if_due(self) -> None:
        if time.monotonic() < self._next_auto_commit:
            return
        self._next_auto_commit = self._auto_commit_time()
        wanted = self._to_commit(self._fetcher.cursors)
        if wanted:
            self._commits.later(wanted, self._member())

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """What `Producer.send_offsets_to_transaction` takes."""
        return ConsumerGroupMetadata(self._group_id, self._member())

    def memberid(self) -> str:
        """The consumer's name in its group; empty while it has none."""
        member = None if self._membership is None else self._membership.member
        return "" if member is None else member.member_id

    def close(self) -> None:
        """Commit if that is the consumer's task, leave the group, let go of the log."""
        if self._closed:
            return
        try:
            if self._membership is None:
                self._commit_at_last(self._fetcher.cursors)
            self._leave_group()
        finally:
            self._commits.close()
            self._closed = True
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None and issubclass(kind, Exception) and kind is not WakeupException:
            # What failed is to be done again, so it is not committed.
            self._failed = True
        self.close()
