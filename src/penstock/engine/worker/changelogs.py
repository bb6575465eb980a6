"""Reads changelogs for replicas, from the log or from the changelog cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from penstock.clock import wall_clock_ms
from penstock.engine.worker.changelog_cache import CachedBatch
from penstock.log.base import Log
from penstock.log.errors import OffsetOutOfRange
from penstock.log.types import TopicPartition
from penstock.stores.replica.protocol import ChangelogBatch, ChangelogStart, ChangelogTruncated

#: Store -> the end of its changelog before the task's last run, and the records of that run.
CachedChanges = Mapping[str, tuple[int, pa.RecordBatch]]

#: No changelog keeps tombstones for less than this, so for a shorter absence the topic's settings
#: are not looked up.
MIN_TOMBSTONE_RETENTION_MS = 60_000
#: The share of the retention time that is relied on, because the clocks of hosts differ.
_RETENTION_SHARE = 0.9


class LogChangelogs:
    """Satisfies `Changelogs`, with a fixed topic and partition for each store."""

    def __init__(
        self, log: Log, topics: Mapping[str, TopicPartition],
        load_cached: Callable[[], CachedChanges] = dict,
    ) -> None:
        """`load_cached` is called by the first read."""
        self._log = log
        self._topics = topics
        self._load_cached = load_cached
        self._cached: CachedChanges | None = None

    def start(self, store: str) -> ChangelogStart:
        """See `Changelogs.start`."""
        topic = self._topics[store]
        offsets = self._log.offsets([topic])[topic]
        return ChangelogStart(offsets.start, offsets.tombstones_removed_to)

    def read(
        self, store: str, start: int, end: int, since: int | None = None
    ) -> Iterator[ChangelogBatch]:
        """See `Changelogs.read`."""
        if self._cached is None:
            self._cached = self._load_cached()
        if store in self._cached and self._cached[store][0] == start:
            yield CachedBatch(start, end, self._cached[store][1])
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
                f"The changelog of store '{store}' starts at a later offset: {error}"
            ) from error

    def _check_tombstones(self, topic: str, store: str, since: int) -> None:
        """Raise if tombstones may have been removed that the reader has not seen.

        A broker does not report which tombstones it has removed, but how long it keeps them.
        """
        absence_ms = wall_clock_ms() - since
        if (
            self._log.capabilities.reports_tombstones
            or absence_ms < MIN_TOMBSTONE_RETENTION_MS
        ):
            return
        retention_ms = int(self._log.topic(topic).setting("delete.retention.ms"))
        if absence_ms > _RETENTION_SHARE * retention_ms:
            raise ChangelogTruncated(
                f"The rows of store '{store}' are too old to catch up with the changelog."
            )
