"""`EmbeddedTailReader`: follows partitions of the file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from penstock.log.base import TailReader
from penstock.log.embedded.ranges import RangeQueries
from penstock.log.errors import OffsetOutOfRange
from penstock.log.types import LogBatch, TopicPartition
from penstock.record import PartitionColumns

#: How long a poll waits at most before it looks at the partitions again.
_LONGEST_WAIT_S = 1.0


class EmbeddedTailReader(TailReader):
    """Reads the partitions whose ends have moved. Holds nothing open between polls."""

    def __init__(
        self, ranges: RangeQueries, wait_for_change: Callable[[float], bool],
        wake: Callable[[], None],
    ) -> None:
        """`wait_for_change` and `wake` are those of the log, which only this reader uses."""
        self._ranges = ranges
        self._wait_for_change = wait_for_change
        self._wake = wake
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        #: The partitions whose end was reached by the last look at them.
        self._at_end: set[TopicPartition] = set()

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `TailReader.add`."""
        self._ranges.offsets(positions)  # raises for unknown partitions
        self._positions.update(positions)
        self._at_end.difference_update(positions)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """See `TailReader.remove`."""
        for where in partitions:
            self._positions.pop(where, None)
            self._paused.discard(where)
            self._at_end.discard(where)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """See `TailReader.pause`."""
        self._paused.update(where for where in partitions if where in self._positions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """See `TailReader.resume`."""
        self._paused.difference_update(partitions)

    def poll(self, timeout: float, max_records: int) -> list[PartitionColumns]:
        """See `TailReader.poll`."""
        deadline = time.monotonic() + timeout
        while True:
            known_ends = len(self._at_end)
            found = self._read(max_records)
            left = deadline - time.monotonic()
            if found or len(self._at_end) > known_ends or left <= 0:
                return found
            if self._wait_for_change(min(left, _LONGEST_WAIT_S)):
                # A commit of any process, or `wake`.
                return self._read(max_records)

    def _read(self, max_records: int) -> list[PartitionColumns]:
        positions = self._positions
        followed = [where for where in positions if where not in self._paused]
        bounds = self._ranges.offsets(followed)
        grown = []
        for where in followed:
            start, end, _ = bounds[where]
            if not start <= positions[where] <= end:
                raise OffsetOutOfRange(*where, positions[where], (start, end))
            if positions[where] < end:
                grown.append(where)
                self._at_end.discard(where)
            else:
                self._at_end.add(where)
        limit = max(1, max_records // max(1, len(grown)))
        found = []
        for where in grown:
            batches = self._read_partition(where, bounds[where].end, limit)
            if batches:
                found.append(concatenate(batches).columns())
        return found

    def _read_partition(self, where: TopicPartition, end: int, limit: int) -> list[LogBatch]:
        reader = self._ranges.read(where, self._positions[where], end, (limit, None))
        batches = list(reader)
        self._positions[where] = reader.position
        if reader.position >= end:
            self._at_end.add(where)
        return batches

    def position(self, partition: TopicPartition) -> int:
        """See `TailReader.position`."""
        return self._positions[partition]

    def is_at_end(self, partition: TopicPartition) -> bool:
        """See `TailReader.is_at_end`."""
        return partition in self._at_end

    def wake(self) -> None:
        """See `TailReader.wake`."""
        self._wake()

    def close(self) -> None:
        """See `TailReader.close`."""
        self._positions.clear()
        self._paused.clear()
        self._at_end.clear()


def concatenate(batches: list[LogBatch]) -> LogBatch:
    """Return the records of successive batches of a partition as one batch."""
    if len(batches) == 1:
        return batches[0]
    return replace(batches[-1], records=pa.concat_batches([each.records for each in batches]))
