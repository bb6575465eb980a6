"""Selects and commits the offsets of a consumer.

Commits of one consumer happen in the order of their calls: asynchronous commits run in one thread,
and once that thread exists, synchronous commits use it too.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

from penstock.clients.consumer.fetcher import Fetcher
from penstock.clients.errors import KafkaError, KafkaException, kafka_exception, to_kafka_error
from penstock.clients.types import Message, TopicPartition
from penstock.log.base import Log, Member
from penstock.log.errors import Fenced, LogError
from penstock.log.types import CommittedOffset
from penstock.log.types import TopicPartition as LogPartition

logger = logging.getLogger(__name__)

CommitCallback: TypeAlias = Callable[["KafkaError | None", list[TopicPartition]], object]
Offsets: TypeAlias = Mapping[LogPartition, CommittedOffset]


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """The settings of commits."""

    group_id: str
    #: None: only the program commits.
    auto_interval_ms: int | None
    #: False: only offsets passed to `store_offsets` are committed.
    auto_offset_store: bool
    on_commit: CommitCallback | None


class OffsetCommitter:
    """Commits the positions of a consumer, or the offsets that the program stored."""

    def __init__(self, log: Log, fetcher: Fetcher, settings: CommitSettings) -> None:
        self._log = log
        self._fetcher = fetcher
        self._settings = settings
        self._executor: ThreadPoolExecutor | None = None
        #: Prevents repeated automatic commits of the same offset.
        self._last_committed: dict[LogPartition, CommittedOffset] = {}
        self._stored: dict[LogPartition, CommittedOffset] = {}
        self._callbacks: deque[tuple[KafkaError | None, list[TopicPartition]]] = deque()
        #: The time of the next automatic commit, on the monotonic clock.
        self.next_auto_commit = 0.0
        self.schedule_auto_commit()

    @property
    def commits_automatically(self) -> bool:
        """Whether `enable.auto.commit` is set."""
        return self._settings.auto_interval_ms is not None

    def schedule_auto_commit(self) -> None:
        """Set the time of the next automatic commit."""
        interval_ms = self._settings.auto_interval_ms
        if interval_ms is None or not self._settings.group_id:
            self.next_auto_commit = float("inf")
        else:
            self.next_auto_commit = time.monotonic() + interval_ms / 1000

    # Offsets to commit

    def store(self, offsets: Offsets) -> None:
        """Store offsets for the next commit, if `enable.auto.offset.store` is false."""
        if self._settings.auto_offset_store:
            raise kafka_exception(
                KafkaError._INVALID_ARG,
                "store_offsets needs 'enable.auto.offset.store' set to false.",
            )
        for partition in offsets:
            self._fetcher.cursor(partition)
        self._stored.update(offsets)

    def committable_offsets(
        self, partitions: Collection[LogPartition], *, include_committed: bool = False
    ) -> dict[LogPartition, CommittedOffset]:
        """Return the positions, or stored offsets, of partitions that changed since a commit."""
        offsets = {}
        for partition in partitions:
            if self._settings.auto_offset_store:
                cursor = self._fetcher.cursors.get(partition)
                if cursor is None or cursor.position is None:
                    continue
                offset = CommittedOffset(cursor.position)
            elif partition in self._stored:
                offset = self._stored[partition]
            else:
                continue
            if include_committed or self._last_committed.get(partition) != offset:
                offsets[partition] = offset
        return offsets

    def forget(self, partitions: Collection[LogPartition]) -> None:
        """Forget the stored and committed offsets of partitions that are no longer assigned."""
        for partition in partitions:
            self._stored.pop(partition, None)
            self._last_committed.pop(partition, None)

    # Commits

    def commit(self, offsets: Offsets, member: Member | None) -> list[TopicPartition]:
        """Commit and wait for the result."""
        if self._executor is None:
            error = self._commit(offsets, member)
        else:
            error = self._executor.submit(self._commit, offsets, member).result()
        if error is not None:
            raise KafkaException(error)
        return to_topic_partitions(offsets)

    def commit_async(self, offsets: Offsets, member: Member | None) -> None:
        """Commit in the background; a later poll calls `on_commit`."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="penstock-commits")
        self._executor.submit(self._commit_and_report, offsets, member)

    def _commit(self, offsets: Offsets, member: Member | None) -> KafkaError | None:
        try:
            self._log.commit_offsets(self._settings.group_id, offsets, member)
        except Fenced as error:
            return KafkaError(KafkaError.ILLEGAL_GENERATION, str(error))
        except LogError as error:
            return to_kafka_error(error)
        self._last_committed.update(offsets)
        return None

    def _commit_and_report(self, offsets: Offsets, member: Member | None) -> None:
        error = self._commit(offsets, member)
        partitions = to_topic_partitions(offsets)
        if self._settings.on_commit is not None:
            for partition in partitions:
                partition.error = error
            self._callbacks.append((error, partitions))
        elif error is not None:
            self.log_failure(error)

    def log_failure(self, error: object) -> None:
        """Log a failed commit that the program does not see otherwise."""
        logger.warning(
            "Offsets of group '%s' were not committed: %s", self._settings.group_id, error
        )

    @property
    def has_callbacks(self) -> bool:
        """Whether `run_callbacks` has something to do."""
        return bool(self._callbacks)

    def run_callbacks(self) -> None:
        """Call `on_commit` for finished asynchronous commits."""
        while self._callbacks and self._settings.on_commit is not None:
            self._settings.on_commit(*self._callbacks.popleft())

    def close(self) -> None:
        """Finish the asynchronous commits and run their callbacks."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
        self.run_callbacks()


def requested_offsets(
    message: Message | None, offsets: Sequence[TopicPartition] | None
) -> dict[LogPartition, CommittedOffset] | None:
    """Return the offsets that the caller of `commit` or `store_offsets` names; None: none."""
    if message is not None and offsets is not None:
        raise ValueError("Pass a message or offsets, not both.")
    if message is not None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if message.error() is not None or topic is None or partition is None or offset is None:
            raise ValueError(f"{message!r} has no offset.")
        return {LogPartition(topic, partition): CommittedOffset(offset + 1)}
    return None if offsets is None else to_committed_offsets(offsets)


def to_topic_partitions(offsets: Offsets) -> list[TopicPartition]:
    """Convert offsets of the log to the type of the clients."""
    return [
        TopicPartition(partition.topic, partition.partition, offset, metadata or None)
        for partition, (offset, metadata) in sorted(offsets.items())
    ]


def to_committed_offsets(
    partitions: Sequence[TopicPartition],
) -> dict[LogPartition, CommittedOffset]:
    """Convert offsets of the clients to the type of the log; logical offsets are omitted."""
    return {
        LogPartition(partition.topic, partition.partition): CommittedOffset(
            partition.offset, partition.metadata or ""
        )
        for partition in partitions
        if partition.offset >= 0
    }
