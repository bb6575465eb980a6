"""The changelogs of a task, read for its replica: from the log, or from what this host has kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from penstock.engine.own_changes import KeptBatch
from penstock.log.base import Log, TopicPartition
from penstock.log.errors import OffsetOutOfRange
from penstock.stores.followed import ChangelogBatch, Oldest, Overtaken

#: Store -> where its changelog ended before the task's last run, and what that run wrote there.
LastChanges = Mapping[str, tuple[int, pa.RecordBatch]]


class LogChangelogs:
    """Satisfies `Changelogs`: each store's topic and partition are known from the start."""

    def __init__(
        self, log: Log, topics: Mapping[str, TopicPartition],
        find_last: Callable[[], LastChanges] = dict,
    ) -> None:
        """`find_last` is called when something is read for the first time."""
        self._log = log
        self._topics = topics
        self._find_last = find_last
        self._last: LastChanges | None = None

    def oldest(self, store: str) -> Oldest:
        """How the changelog stands right now."""
        topic = self._topics[store]
        offsets = self._log.offsets([topic])[topic]
        return Oldest(offsets.start, offsets.tombstones_removed_to)

    def read(self, store: str, start: int, end: int) -> Iterator[ChangelogBatch]:
        """All records from `start` up to, without, `end`."""
        if self._last is None:
            self._last = self._find_last()
        if store in self._last and self._last[store][0] == start:
            yield KeptBatch(start, end, self._last[store][1])
            return
        topic, partition = self._topics[store]
        try:
            yield from self._log.read(topic, partition, start, end)
        except OffsetOutOfRange as error:
            if error.offset >= error.start:
                raise
            raise Overtaken(f"The changelog of store '{store}' begins later: {error}") from error
