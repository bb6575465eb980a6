"""The changelogs of a task, read from the log for its replica."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.log.base import Log, LogBatch, TopicPartition
from penstock.log.errors import OffsetOutOfRange
from penstock.stores.followed import Oldest, Overtaken


class LogChangelogs:
    """Satisfies `Changelogs`: each store's topic and partition are known from the start."""

    def __init__(self, log: Log, topics: Mapping[str, TopicPartition]) -> None:
        self._log = log
        self._topics = topics

    def oldest(self, store: str) -> Oldest:
        """How the changelog stands right now."""
        topic = self._topics[store]
        offsets = self._log.offsets([topic])[topic]
        return Oldest(offsets.start, offsets.tombstones_removed_to)

    def read(self, store: str, start: int, end: int) -> Iterator[LogBatch]:
        """All records from `start` up to, without, `end`."""
        topic, partition = self._topics[store]
        try:
            yield from self._log.read(topic, partition, start, end)
        except OffsetOutOfRange as error:
            if error.offset >= error.start:
                raise
            raise Overtaken(f"The changelog of store '{store}' begins later: {error}") from error
