"""The changelogs of a task, read for its replica: from the log, or from what this host has kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from penstock.clock import wall_clock_ms
from penstock.engine.worker.changelog_cache import KeptBatch
from penstock.log.base import Log
from penstock.log.errors import OffsetOutOfRange
from penstock.log.types import TopicPartition
from penstock.stores.replica.protocol import ChangelogBatch, ChangelogStart, ChangelogTruncated

#: Store -> where its changelog ended before the task's last run, and what that run wrote there.
LastChanges = Mapping[str, tuple[int, pa.RecordBatch]]

#: For who was away for less the settings are not looked up: no topic that holds state keeps
#: tombstones for less than a minute.
SURELY_KEPT_MS = 60_000
#: Clocks of hosts differ: so much of the time is counted on.
_PART = 0.9


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

    def start(self, store: str) -> ChangelogStart:
        """How the changelog stands right now."""
        topic = self._topics[store]
        offsets = self._log.offsets([topic])[topic]
        return ChangelogStart(offsets.start, offsets.tombstones_removed_to)

    def read(
        self, store: str, start: int, end: int, since: int | None = None
    ) -> Iterator[ChangelogBatch]:
        """All records from `start` up to, without, `end`; see `Changelogs.read`."""
        if self._last is None:
            self._last = self._find_last()
        if store in self._last and self._last[store][0] == start:
            yield KeptBatch(start, end, self._last[store][1])
            return
        topic, partition = self._topics[store]
        if since is not None:
            self._check_tombstones(topic, store, since)
        try:
            yield from self._log.read(topic, partition, start, end)
        except OffsetOutOfRange as error:
            if error.offset >= error.start:
                raise
            raise ChangelogTruncated(
                f"The changelog of store '{store}' begins later: {error}"
            ) from error

    def _check_tombstones(self, topic: str, store: str, since: int) -> None:
        """A broker does not tell up to where it has removed tombstones; but for how long it keeps
        them at least. Whoever was away for longer may have missed that rows were deleted."""
        away = wall_clock_ms() - since
        if self._log.capabilities.reports_tombstones or away < SURELY_KEPT_MS:
            return
        if away > _PART * int(self._log.topic(topic).setting("delete.retention.ms")):
            raise ChangelogTruncated(
                f"The rows of store '{store}' are too old to be brought up to date."
            )
