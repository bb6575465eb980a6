"""Reads changelogs for replicas, from the log or from the changelog cache.

The stores of all tasks of a lane are read together before the first task runs, as far as they are
small. A consumer for each store would cost several requests for each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa

from penstock.clock import wall_clock_ms
from penstock.engine.worker.changelog_cache import CachedBatch
from penstock.log.base import Log
from penstock.log.errors import LogError, OffsetOutOfRange
from penstock.log.types import LogBatch, PartitionOffsets, TopicPartition
from penstock.stores.replica.protocol import ChangelogBatch, ChangelogStart, ChangelogTruncated

logger = logging.getLogger(__name__)

#: Store -> the end of its changelog before the task's last run, and the records of that run.
CachedChanges = Mapping[str, tuple[int, pa.RecordBatch]]

#: No changelog keeps tombstones for less than this, so for a shorter absence the topic's settings
#: are not looked up.
MIN_TOMBSTONE_RETENTION_MS = 60_000
#: The share of the retention time that is relied on, because the clocks of hosts differ.
_RETENTION_SHARE = 0.9
#: At most so many offsets of changelogs are fetched together. The rest is read store by store.
_MAX_FETCHED_OFFSETS = 100_000
#: How long that may take.
_FETCH_S = 5.0


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
        #: Store -> the bounds and the records that `fetch_together` has fetched.
        self._bounds: dict[str, PartitionOffsets] = {}
        self._fetched: dict[str, tuple[int, LogBatch]] = {}
        #: The stores that were read from the log, and from the changelog cache.
        self.from_log: set[str] = set()
        self.from_host: set[str] = set()

    def missing(
        self, positions: Mapping[str, int], targets: Mapping[str, int]
    ) -> dict[str, tuple[int | None, int]]:
        """Return store -> (position or None, target) of the changes that only the log has."""
        cached = self._read_cache()
        return {
            store: (positions.get(store), target) for store, target in targets.items()
            if store in self._topics and positions.get(store) != target
            and (store not in cached or cached[store][0] != positions.get(store))
        }

    def partition_of(self, store: str) -> TopicPartition:
        """Return the changelog partition of a store."""
        return self._topics[store]

    def add_bounds(self, store: str, bounds: PartitionOffsets) -> None:
        """Use these bounds for the next `start`."""
        self._bounds[store] = bounds

    def add_fetched(self, store: str, start: int, batch: LogBatch) -> None:
        """Use this batch for the next `read` that starts at `start`."""
        self._fetched[store] = (start, batch)

    def start(self, store: str) -> ChangelogStart:
        """See `Changelogs.start`."""
        known = self._bounds.pop(store, None)
        if known is not None:
            return ChangelogStart(known.start, known.tombstones_removed_to)
        topic = self._topics[store]
        offsets = self._log.offsets([topic])[topic]
        return ChangelogStart(offsets.start, offsets.tombstones_removed_to)

    def read(
        self, store: str, start: int, end: int, since: int | None = None
    ) -> Iterator[ChangelogBatch]:
        """See `Changelogs.read`."""
        cached = self._read_cache()
        if store in cached and cached[store][0] == start:
            self.from_host.add(store)
            yield CachedBatch(start, end, cached[store][1])
            return
        self.from_log.add(store)
        topic, partition = self._topics[store]
        if since is not None:
            self._check_tombstones(topic, store, since)
        fetched = self._fetched.pop(store, None)
        if fetched is not None and (fetched[0], fetched[1].next_offset) == (start, end):
            yield fetched[1]
            return
        try:
            yield from self._log.read(topic, partition, start, end)
        except OffsetOutOfRange as error:
            if error.offset >= error.start:
                raise
            raise ChangelogTruncated(
                f"The changelog of store '{store}' starts at a later offset: {error}"
            ) from error

    def _read_cache(self) -> CachedChanges:
        if self._cached is None:
            self._cached = self._load_cached()
        return self._cached

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


#: The changelogs of a task, and store -> (position or None, target) of what is missing.
MissingChanges = tuple[LogChangelogs, Mapping[str, tuple[int | None, int]]]


def fetch_together(log: Log, missing: Iterable[MissingChanges]) -> None:
    """Fetch the changes of many stores with one consumer, and pass them to their changelogs.

    Changes that do not fit, or that the log does not return in time, are read one by one later.
    """
    wanted = {
        changelogs.partition_of(store): (changelogs, store, position, target)
        for changelogs, of_task in missing for store, (position, target) in of_task.items()
    }
    if len(wanted) < 2:
        return
    try:
        bounds = log.offsets(wanted)
    except LogError:
        # The task that needs the changelog raises it again.
        return
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for at, (changelogs, store, position, target) in wanted.items():
        changelogs.add_bounds(store, bounds[at])
        # A store behind the start of its changelog is restored from there.
        start = bounds[at].start if position is None else max(position, bounds[at].start)
        if start < target <= bounds[at].end:
            ranges[at] = (start, target)
    chosen = _smallest(ranges)
    if not chosen:
        return
    fetched = log.prefetch(chosen, timeout_s=_FETCH_S)
    logger.debug(
        "Fetched %d of %d changelogs with one consumer.", len(fetched), len(ranges)
    )
    for at, batch in fetched.items():
        changelogs, store, _, _ = wanted[at]
        changelogs.add_fetched(store, ranges[at][0], batch)


def _smallest(
    ranges: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the smallest ranges that fit into the limit together."""
    chosen = {}
    left = _MAX_FETCHED_OFFSETS
    for at, (start, end) in sorted(ranges.items(), key=lambda each: each[1][1] - each[1][0]):
        left -= end - start
        if left < 0:
            break
        chosen[at] = (start, end)
    return chosen
