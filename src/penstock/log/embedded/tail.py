"""`EmbeddedTailReader`: follows partitions of the file.

A stored batch is read and decoded once. The records beyond the limit of a poll are held, as Arrow
columns, for the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from penstock.log.base import TailReader
from penstock.log.embedded.ranges import RangeQueries
from penstock.log.errors import OffsetOutOfRange
from penstock.log.types import LogBatch, TopicPartition
from penstock.record import PartitionColumns

#: How long a poll waits at most before it looks at the partitions again.
_LONGEST_WAIT_S = 1.0


class EmbeddedTailReader(TailReader):
    """Reads the partitions whose ends have moved. Holds nothing open between polls.

    Invariant: the records held of a partition begin at or after its position.
    """

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
        #: The records that were read and not returned.
        self._held: dict[TopicPartition, LogBatch] = {}
        #: The ends of the partitions at the last look at them.
        self._ends: dict[TopicPartition, int] = {}
        #: The partitions whose end was reached by the last look at them.
        self._at_end: set[TopicPartition] = set()

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `TailReader.add`."""
        self._ranges.offsets(positions)  # raises for unknown partitions
        self.remove(positions)
        self._positions.update(positions)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """See `TailReader.remove`."""
        for where in partitions:
            self._positions.pop(where, None)
            self._held.pop(where, None)
            self._ends.pop(where, None)
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
        followed = [where for where in self._positions if where not in self._paused]
        ends = self._look([where for where in followed if where not in self._held])
        ready = [where for where in followed if where in self._held or where in ends]
        limit = max(1, max_records // max(1, len(ready)))
        found = []
        for where in ready:
            batch = self._held.pop(where, None) or self._fetch(where, ends[where])
            if batch is not None:
                found.append(self._take(where, batch, limit))
        return found

    def _look(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of the partitions that have further records."""
        ends: dict[TopicPartition, int] = {}
        if not partitions:
            return ends
        for where, (start, end, _) in self._ranges.offsets(partitions).items():
            position = self._positions[where]
            self._ends[where] = end
            if not start <= position <= end:
                raise OffsetOutOfRange(*where, position, (start, end))
            if position < end:
                ends[where] = end
                self._at_end.discard(where)
            else:
                self._at_end.add(where)
        return ends

    def _fetch(self, where: TopicPartition, end: int) -> LogBatch | None:
        """Read the next stored batches; None if there are only offsets without a record."""
        reader = self._ranges.read(where, self._positions[where], end, (None, None))
        batch = next(reader, None)
        if batch is None:
            self._positions[where] = reader.position
        if reader.position >= end:
            self._at_end.add(where)
        return batch

    def _take(self, where: TopicPartition, batch: LogBatch, limit: int) -> PartitionColumns:
        """Return the first records of a batch, and hold the others."""
        self._positions[where] = batch.next_offset
        if len(batch) > limit:
            self._held[where] = replace(batch, records=batch.records.slice(limit))
            batch = replace(batch, records=batch.records.slice(0, limit))
            self._positions[where] = batch.records.column(0)[-1].as_py() + 1
        return batch.columns()

    def position(self, partition: TopicPartition) -> int:
        """See `TailReader.position`."""
        return self._positions[partition]

    def is_at_end(self, partition: TopicPartition) -> bool:
        """See `TailReader.is_at_end`."""
        return partition in self._at_end and partition not in self._held

    def end(self, partition: TopicPartition) -> int:
        """See `TailReader.end`."""
        return self._ends.get(partition, self._positions[partition])

    def wake(self) -> None:
        """See `TailReader.wake`."""
        self._wake()

    def close(self) -> None:
        """See `TailReader.close`."""
        self._positions.clear()
        self._held.clear()
        self._paused.clear()
        self._ends.clear()
        self._at_end.clear()
