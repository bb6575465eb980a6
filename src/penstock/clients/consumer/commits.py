"""How a consumer's offsets get into its group: at once, later, or from time to time.

Commits of one consumer happen in the order in which they were asked for: those that nobody waits
for are made by one thread, and whoever waits goes through the same thread once it is there.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from penstock.clients.errors import KafkaError, KafkaException, as_kafka_error
from penstock.clients.types import TopicPartition
from penstock.log.base import Log, Member
from penstock.log.errors import Fenced, LogError
from penstock.log.types import CommittedOffset
from penstock.log.types import TopicPartition as LogPartition

logger = logging.getLogger(__name__)

CommitCallback: TypeAlias = Callable[["KafkaError | None", list[TopicPartition]], object]
Offsets: TypeAlias = Mapping[LogPartition, CommittedOffset]


class Commits:
    """The commits of one consumer."""

    def __init__(self, log: Log, group_id: str, on_commit: CommitCallback | None) -> None:
        self._log = log
        self._group_id = group_id
        self._on_commit = on_commit
        self._worker: ThreadPoolExecutor | None = None
        #: What this consumer committed last, so that nothing is committed twice.
        self.last: dict[LogPartition, CommittedOffset] = {}
        self._done: deque[tuple[KafkaError | None, list[TopicPartition]]] = deque()

    def now(self, offsets: Offsets, member: Member | None) -> list[TopicPartition]:
        """Commit and wait for it."""
        if self._worker is None:
            error = self._commit(offsets, member)
        else:
            error = self._worker.submit(self._commit, offsets, member).result()
        if error is not None:
            raise KafkaException(error)
        return as_partitions(offsets)

    def later(self, offsets: Offsets, member: Member | None) -> None:
        """Commit soon; `on_commit` hears of it in a later poll."""
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="penstock-commits")
        self._worker.submit(self._commit_and_tell, offsets, member)

    def _commit(self, offsets: Offsets, member: Member | None) -> KafkaError | None:
        try:
            self._log.commit_offsets(self._group_id, offsets, member)
        except Fenced as error:
            return KafkaError(KafkaError.ILLEGAL_GENERATION, str(error))
        except LogError as error:
            return as_kafka_error(error)
        self.last.update(offsets)
        return None

    def _commit_and_tell(self, offsets: Offsets, member: Member | None) -> None:
        error = self._commit(offsets, member)
        partitions = as_partitions(offsets)
        if self._on_commit is not None:
            for partition in partitions:
                partition.error = error
            self._done.append((error, partitions))
        elif error is not None:
            logger.warning("Offsets of group '%s' were not committed: %s", self._group_id, error)

    @property
    def has_news(self) -> bool:
        """Whether `serve` has something to do."""
        return bool(self._done)

    def serve(self) -> None:
        """Call `on_commit` for what was done."""
        while self._done and self._on_commit is not None:
            self._on_commit(*self._done.popleft())

    def close(self) -> None:
        """Finish what was asked for."""
        if self._worker is not None:
            self._worker.shutdown()
            self._worker = None
        self.serve()


def as_partitions(offsets: Offsets) -> list[TopicPartition]:
    """Offsets in the form that a program gets."""
    return [
        TopicPartition(where.topic, where.partition, offset, metadata or None)
        for where, (offset, metadata) in sorted(offsets.items())
    ]


def as_offsets(partitions: list[TopicPartition]) -> dict[LogPartition, CommittedOffset]:
    """Offsets in the form that the log takes; partitions without a real one are left out."""
    return {
        LogPartition(partition.topic, partition.partition): CommittedOffset(
            partition.offset, partition.metadata or ""
        )
        for partition in partitions
        if partition.offset >= 0
    }
