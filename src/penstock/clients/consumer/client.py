"""`Consumer`: reads topics, alone or as a member of a group.

    consumer = Consumer({"log": "orders.db", "group.id": "billing"})
    consumer.subscribe(["orders"])
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        bill(message.value())

The partitions of a group are divided among its consumers. A consumer without a partition is a spare
that takes over when another one leaves or fails. Rebalances are incremental: `on_assign` and
`on_revoke` get only the partitions that change. All callbacks run in `poll`, `consume` and `close`,
in the calling thread. A consumer is for one thread; only `wakeup` may be called from another.

`settings.py` lists the settings and their defaults.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

from penstock.clients.consumer.commits import OffsetCommitter, requested_offsets
from penstock.clients.consumer.fetcher import Fetcher
from penstock.clients.consumer.membership import ConsumerMembership
from penstock.clients.consumer.positions import ConsumerPositions
from penstock.clients.consumer.settings import ConsumerSettings
from penstock.clients.errors import (
    KafkaError,
    KafkaException,
    WakeupException,
    kafka_exception,
    to_kafka_exception,
)
from penstock.clients.settings import ConfigReader, merge_config, to_timeout
from penstock.clients.topic_cache import find_or_create_topic
from penstock.clients.types import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_STORED,
    ClusterMetadata,
    ConsumerGroupMetadata,
    Message,
    TopicPartition,
    describe_cluster,
    to_log_partition,
)
from penstock.log.base import Log, Member
from penstock.log.errors import LogError
from penstock.log.types import TopicPartition as LogPartition

RebalanceCallback: TypeAlias = Callable[["Consumer", list[TopicPartition]], object]

#: A waiting poll handles rebalances and callbacks at least this often.
_MAX_WAIT_S = 0.5
#: The maximum of `consume` without arguments, as in Kafka's consumer.
_DEFAULT_MAX_POLL_RECORDS = 500


class Consumer:
    """Reads topics. Not thread-safe, except for `wakeup`.

    Args:
        config: Settings under the names of confluent-kafka; `log` selects the log.
        settings: The same as keyword arguments, with underscores; they win.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from penstock.clients import AdminClient, NewTopic, Producer
        >>> with TemporaryDirectory() as directory:
        ...     log = f"{directory}/orders.db"
        ...     with AdminClient(log=log) as admin:
        ...         _ = admin.create_topics([NewTopic("orders")])["orders"].result()
        ...     with Producer(log=log) as producer:
        ...         producer.produce("orders", key="ann", value="3")
        ...     settings = {"group.id": "audit", "auto.offset.reset": "earliest"}
        ...     with Consumer(settings, log=log) as consumer:
        ...         consumer.subscribe(["orders"])
        ...         consumer.poll(10).value()
        b'3'
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        reader = ConfigReader(merge_config(config, settings), "Consumer")
        self._settings = ConsumerSettings.read(reader)
        self._group_id = self._settings.membership.group_id
        self._log: Log = reader.open_log()
        self._fetcher = Fetcher(
            self._log, self._settings.fetch, self._settings.key_serde, self._settings.value_serde,
            self._group_id,
        )
        self._positions = ConsumerPositions(self._log, self._fetcher, self._group_id)
        self._committer = OffsetCommitter(self._log, self._fetcher, self._settings.commit)
        self._membership: ConsumerMembership | None = None
        self._callbacks: dict[str, RebalanceCallback | None] = {}
        self._in_on_assign = False
        self._wakeup_requested = threading.Event()
        self._closed = False
        #: A `with` block failed, so `close` must not commit.
        self._failed = False

    # Subscription and assignment

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Subscribe to topics as a member of the group. A name that starts with `^` is a pattern.

        The first poll joins the group. Callbacks get the consumer and partitions: `on_assign` new
        ones (it may `seek`, or `assign` them with offsets), `on_revoke` those that move to another
        member and can still be committed, `on_lost` those that another member may already have
        (`on_revoke` is called instead if there is no `on_lost`).

        Args:
            topics: Names of topics, or regular expressions that start with "^".
            on_assign: Called with the consumer and its new partitions.
            on_revoke: Called with the consumer and the partitions that it loses.
            on_lost: Called with the consumer and the partitions that others have already; None for
                `on_revoke`.
        """
        self._check_open()
        if isinstance(topics, str):
            raise TypeError(f"topics must be a list of names, not the string '{topics}'.")
        if not self._group_id:
            raise kafka_exception(
                KafkaError._UNKNOWN_GROUP, "A subscription needs a group. Set 'group.id'."
            )
        self.unsubscribe()
        if not topics:
            return
        for topic in topics:
            self._check_topic(topic)
        self._callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}
        self._membership = ConsumerMembership(self._log, self._settings.membership, topics)

    def _check_topic(self, topic: str) -> None:
        if topic.startswith("^"):
            return
        try:
            find_or_create_topic(self._log, topic, create=self._settings.create_topics)
        except LogError as error:
            # The topic may be created later; until then the program gets one error.
            self._fetcher.report(to_kafka_exception(error).error, LogPartition(topic, -1))

    def unsubscribe(self) -> None:
        """Leave the group, or remove the assigned partitions."""
        self._check_open()
        self._leave_group()
        self._remove_partitions(list(self._fetcher.cursors))

    def _leave_group(self) -> None:
        membership = self._membership
        if membership is None:
            return
        active = membership.stop()
        try:
            self._revoke(active)
        finally:
            self._membership = None
            membership.close()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these partitions, from their offsets if they have one, without a group.

        In `on_assign` it sets the initial offsets.

        Args:
            partitions: The partitions.
        """
        self._check_open()
        if not self._in_on_assign:
            self.unsubscribe()
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Add partitions to the assignment.

        Args:
            partitions: The partitions.
        """
        self._check_open()
        for partition in partitions:
            log_partition = to_log_partition(partition)
            if self._membership is not None and log_partition not in self._fetcher.cursors:
                raise kafka_exception(
                    KafkaError._STATE,
                    f"The group has not assigned '{log_partition.topic}' "
                    f"[{log_partition.partition}] to this consumer.",
                )
            self._fetcher.add(log_partition, getattr(partition, "offset", OFFSET_STORED))

    def unassign(self) -> None:
        """Remove all partitions. `on_revoke` and `on_lost` need not call it."""
        if self._membership is None:
            self._remove_partitions(list(self._fetcher.cursors))

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Remove partitions. `on_revoke` and `on_lost` need not call it.

        Args:
            partitions: The partitions.
        """
        if self._membership is None:
            self._remove_partitions([to_log_partition(partition) for partition in partitions])

    def _remove_partitions(self, partitions: Collection[LogPartition]) -> None:
        self._fetcher.remove(partitions)
        self._committer.forget(partitions)

    # Reading

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Return the next record, an error event, or None after `timeout` seconds.

        None or a negative timeout waits indefinitely. Raises `WakeupException` after `wakeup`.

        Args:
            timeout: How long to wait, in seconds; -1 or None waits without a limit.
        """
        messages = self._consume(1, 1, timeout)
        return messages[0] if messages else None

    def consume(
        self, num_messages: int | None = None, timeout: float | None = -1
    ) -> list[Message]:
        """Wait for `num_messages` records, or until the timeout, and return those that arrived.

        Without a number it returns as soon as there are records, at most `max.poll.records` (or
        500), like Kafka's Java consumer.

        Args:
            num_messages: The largest number of messages.
            timeout: How long to wait, in seconds; -1 or None waits without a limit.

        Returns:
            The records that arrived, and errors as messages.
        """
        limit = self._settings.max_poll_records
        if num_messages is None:
            return self._consume(1, limit or _DEFAULT_MAX_POLL_RECORDS, timeout)
        if not 0 <= num_messages <= 1_000_000:
            raise ValueError(f"num_messages must be from 0 to 1000000, not {num_messages}.")
        count = min(num_messages, limit) if limit else num_messages
        return self._consume(count, count, timeout)

    def _consume(self, minimum: int, maximum: int, timeout: float | None) -> list[Message]:
        self._check_open()
        timeout_s = to_timeout(timeout)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        messages: list[Message] = []
        try:
            if time.monotonic() >= self._committer.next_auto_commit:
                self._auto_commit()
            while True:
                if self._is_interrupted(messages, before_waiting=False):
                    return messages
                if self._take(maximum, messages) or len(messages) >= minimum:
                    return messages
                if self._is_interrupted(messages, before_waiting=True):
                    return messages
                self._fetcher.fetch()
                if self._take(maximum, messages) or len(messages) >= minimum:
                    return messages
                wait_s = _MAX_WAIT_S
                if deadline is not None:
                    wait_s = min(wait_s, deadline - time.monotonic())
                    if wait_s <= 0:
                        return messages
                self._log.wait_for_change(self._fetcher.limit_wait(wait_s))
        except LogError as error:
            if messages:
                # They would be lost with the exception. The next call raises it, if it persists.
                return messages
            raise to_kafka_exception(error) from error

    def _take(self, limit: int, messages: list[Message]) -> bool:
        """Add error events and prefetched records. Returns whether to return them at once.

        That is the case before a record that cannot be deserialized: the next call raises its
        error, and no record is lost with the exception.
        """
        events = self._fetcher.events
        while events and len(messages) < limit:
            messages.append(events.popleft())
        return not self._fetcher.take(limit, messages)

    def _is_interrupted(self, messages: list[Message], *, before_waiting: bool) -> bool:
        """Handle wakeups, commit callbacks and rebalances. Only `before_waiting` asks the log.

        Each of them may raise. With messages, which would be lost with the exception, they are left
        for the next call, and the method returns True if there are any.
        """
        membership = self._membership
        if membership is not None:
            membership.record_poll()
            if before_waiting:
                membership.refresh()
        needs_rebalance = membership is not None and membership.needs_rebalance
        if messages:
            return (
                self._wakeup_requested.is_set() or self._committer.has_callbacks or needs_rebalance
            )
        if self._wakeup_requested.is_set():
            self._wakeup_requested.clear()
            raise WakeupException
        if self._committer.has_callbacks:
            self._committer.run_callbacks()
        if membership is not None and needs_rebalance:
            self._rebalance(membership)
        return False

    def wakeup(self) -> None:
        """Make a poll in another thread, or the next one, raise `WakeupException`."""
        self._wakeup_requested.set()
        self._log.wake()

    # Rebalances

    def _rebalance(self, membership: ConsumerMembership) -> None:
        lost = membership.take_lost()
        if lost is not None:
            partitions, error = lost
            self._handle_lost(partitions, error)
        if membership.fatal_error is not None:
            raise KafkaException(membership.fatal_error)
        membership.refresh()
        revoked = membership.partitions_to_revoke()
        if revoked:
            try:
                self._revoke(revoked)
            finally:
                membership.release(revoked)
        assigned = membership.take_assigned()
        if assigned:
            for partition in sorted(assigned):
                self._fetcher.add(partition)
            self._in_on_assign = True
            try:
                self._run_callback("assign", assigned)
            finally:
                self._in_on_assign = False

    def _revoke(self, partitions: Collection[LogPartition]) -> None:
        """Commit automatically, call `on_revoke`, and remove the partitions."""
        if not partitions:
            return
        self._commit_before_release(partitions)
        try:
            self._run_callback("revoke", partitions)
        finally:
            self._remove_partitions(partitions)

    def _commit_before_release(self, partitions: Collection[LogPartition]) -> None:
        """Commit automatically. If that fails, the next consumer reads some records again."""
        if not self._committer.commits_automatically or self._failed:
            return
        offsets = self._committer.committable_offsets(partitions)
        if not offsets or not self._group_id:
            return
        try:
            self._committer.commit(offsets, self._current_member())
        except KafkaException as error:
            self._committer.log_failure(error)

    def _handle_lost(self, partitions: Collection[LogPartition], error: KafkaError) -> None:
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:
            self._fetcher.report(error)
        try:
            if partitions:
                self._run_callback("lost" if self._callbacks.get("lost") else "revoke", partitions)
        finally:
            self._remove_partitions(partitions)

    def _run_callback(self, event: str, partitions: Collection[LogPartition]) -> None:
        callback = self._callbacks.get(event)
        if callback is not None:
            callback(self, [TopicPartition(*partition) for partition in sorted(partitions)])

    # Commits

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit a message's offset + 1, the given offsets, or the current positions.

        `asynchronous=False` waits and returns the committed offsets. Raises `KafkaException` if the
        consumer has lost a partition, or if there is nothing to commit.

        Args:
            message: The message after which to continue; None for the position of the consumer.
            offsets: The partitions with their next offsets, instead of a message.
            asynchronous: Return at once instead of waiting for the commit.

        Returns:
            The committed offsets of a synchronous commit; None for an asynchronous one.
        """
        self._check_open()
        requested = requested_offsets(message, offsets)
        if requested is None:
            requested = self._committer.committable_offsets(
                self._fetcher.cursors, include_committed=True
            )
        if not self._group_id:
            raise kafka_exception(
                KafkaError._UNKNOWN_GROUP, "A commit needs a group. Set 'group.id'."
            )
        if not requested:
            raise kafka_exception(KafkaError._NO_OFFSET, "There is no offset to commit.")
        if asynchronous:
            self._committer.commit_async(requested, self._current_member())
            return None
        return self._committer.commit(requested, self._current_member())

    def store_offsets(
        self, message: Message | None = None, offsets: Sequence[TopicPartition] | None = None
    ) -> None:
        """Store offsets for the next commit. Needs `enable.auto.offset.store` set to false.

        Args:
            message: The message after which to continue; None for the position of the consumer.
            offsets: The partitions with their next offsets, instead of a message.
        """
        self._check_open()
        requested = requested_offsets(message, offsets)
        if requested is None:
            raise TypeError("Pass a message or offsets to store.")
        self._committer.store(requested)

    def _auto_commit(self) -> None:
        self._committer.schedule_auto_commit()
        offsets = self._committer.committable_offsets(self._fetcher.cursors)
        if offsets:
            self._committer.commit_async(offsets, self._current_member())

    def _current_member(self) -> Member | None:
        """Return the member that commits; None for a consumer that uses `assign`."""
        if self._membership is None:
            return None
        member = self._membership.member
        if member is None:
            raise kafka_exception(
                KafkaError.UNKNOWN_MEMBER_ID,
                f"The consumer has not joined group '{self._group_id}' yet. Poll first.",
            )
        return member

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """Return the argument for `Producer.send_offsets_to_transaction`."""
        return ConsumerGroupMetadata(self._group_id, self._current_member())

    def memberid(self) -> str:
        """Return the member id in the group; empty if the consumer is not a member."""
        member = None if self._membership is None else self._membership.member
        return "" if member is None else member.member_id

    # Positions

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        self._check_open()
        return self._positions.assignment()

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets after the last returned records; `OFFSET_INVALID` if unknown.

        Args:
            partitions: The partitions.
        """
        self._check_open()
        return self._positions.position(partitions)

    def seek(self, partition: TopicPartition) -> None:
        """Continue at the partition's offset, or at `OFFSET_BEGINNING` or `OFFSET_END`.

        Args:
            partition: The partition, with an offset where one is needed.
        """
        self._check_open()
        self._positions.seek(partition)

    def seek_to_beginning(self, partitions: Sequence[TopicPartition] | None = None) -> None:
        """Continue the partitions, or all assigned ones, at their first records.

        Args:
            partitions: The partitions.
        """
        self._check_open()
        self._positions.seek_all(partitions, OFFSET_BEGINNING)

    def seek_to_end(self, partitions: Sequence[TopicPartition] | None = None) -> None:
        """Skip all records that exist at the next poll.

        Args:
            partitions: The partitions.
        """
        self._check_open()
        self._positions.seek_all(partitions, OFFSET_END)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`. They stay assigned.

        Args:
            partitions: The partitions.
        """
        self._check_open()
        self._positions.set_paused(partitions, True)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Return records of paused partitions again.

        Args:
            partitions: The partitions.
        """
        self._check_open()
        self._positions.set_paused(partitions, False)

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Return the committed offsets of the group; `OFFSET_INVALID` without one.

        Args:
            partitions: The partitions.
            timeout: How long to wait, in seconds; -1 or None waits without a limit.
        """
        self._check_open()
        return self._positions.committed(partitions)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """Return the first offset and the end offset of a partition.

        Args:
            partition: The partition, with an offset where one is needed.
            timeout: How long to wait, in seconds; -1 or None waits without a limit.
            cached: Return the last known offsets without asking the log.
        """
        self._check_open()
        return self._positions.watermarks(partition)

    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Return the first offset at or after the time in each partition's `offset`, or -1.

        Args:
            partitions: The partitions.
            timeout: How long to wait, in seconds; -1 or None waits without a limit.
        """
        self._check_open()
        return self._positions.offsets_for_times(partitions)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the metadata of all topics, or of one.

        Args:
            topic: One topic; None for all.
            timeout: How long to wait, in seconds; -1 or None waits without a limit.
        """
        self._check_open()
        return describe_cluster(self._log, topic)

    # Closing

    def close(self) -> None:
        """Commit automatically, leave the group, and close the log."""
        if self._closed:
            return
        try:
            if self._membership is None:
                self._commit_before_release(self._fetcher.cursors)
            self._leave_group()
        finally:
            self._committer.close()
            self._closed = True
            self._log.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("The consumer is closed.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None and issubclass(kind, Exception) and kind is not WakeupException:
            # The failed records must be read again, so they are not committed.
            self._failed = True
        self.close()
