"""The sources of `consume`: chosen partitions, or the partitions assigned by a consumer group.

A source is read in rounds. A round reads all partitions up to their current ends and merges the
records by timestamp; each partition keeps its order. A position advances only after the record has
been written.
"""

from __future__ import annotations

import heapq
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from penstock.cli.errors import CommandError
from penstock.log import Log, Member, TopicPartition
from penstock.log.errors import Fenced, OffsetOutOfRange
from penstock.record import NO_HEADERS, Headers

HEARTBEAT_INTERVAL_S = 3.0
SESSION_TIMEOUT_MS = 10_000
#: Without --follow, how long to wait for an assignment.
ASSIGNMENT_TIMEOUT_S = 5.0
#: Records between two checks whether a heartbeat is due.
HEARTBEAT_CHECK_RECORDS = 200

#: Returns the first offset to read of a partition.
StartOffset = Callable[[Log, TopicPartition], int]


class ReadRecord(NamedTuple):
    """A record and the position after it."""

    at: TopicPartition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    next_position: int


class RecordSource(ABC):
    """Partitions of one topic and their positions."""

    def __init__(self, log: Log, topic: str, note: Callable[[str], None]) -> None:
        self._log = log
        self._note = note
        self._description = log.topic(topic)
        #: Advanced by `mark_written`, and by a round over offsets that hold no record.
        self.positions: dict[TopicPartition, int] = {}

    @abstractmethod
    def read_round(self, limit: int | None) -> Iterator[ReadRecord]:
        """Yield records up to the current ends, at most `limit`, possibly fewer."""

    @abstractmethod
    def is_done(self) -> bool:
        """Return whether all records that existed at the start were read."""

    def mark_written(self, record: ReadRecord) -> None:
        """Advance the position after the record was written."""
        self.positions[record.at] = record.next_position

    def commit(self) -> None:  # noqa: B027  (only groups commit)
        """Commit the positions. All written records must have been flushed."""

    def wait(self) -> None:
        """Wait for new records, at most a heartbeat interval."""
        self._log.wait_for_change(HEARTBEAT_INTERVAL_S)

    def close(self) -> None:  # noqa: B027
        """Leave the group, if there is one."""

    def _read_merged(
        self, ends: Mapping[TopicPartition, int], limit: int | None
    ) -> Iterator[ReadRecord]:
        """Yield the records between the positions and the ends, by timestamp."""
        readings = [
            self._read_partition(at, end, limit)
            for at, end in ends.items() if self.positions[at] < end
        ]
        if len(readings) == 1:
            return readings[0]
        return heapq.merge(*readings, key=lambda record: record.timestamp)

    def _read_partition(
        self, at: TopicPartition, end: int, limit: int | None
    ) -> Iterator[ReadRecord]:
        while True:
            try:
                yield from self._read_batches(at, end, limit)
            except OffsetOutOfRange as error:
                if not error.offset < error.start:
                    raise
                self._note(f"{error} Continuing at {error.start}.")
                self.positions[at] = error.start
                if error.start < end:
                    continue
            return

    def _read_batches(
        self, at: TopicPartition, end: int, limit: int | None
    ) -> Iterator[ReadRecord]:
        reading = self._log.read(*at, self.positions[at], end, max_records=limit)
        for batch in reading:
            rows = batch.columns()
            headers = rows.headers
            last = len(rows.offsets) - 1
            for n, offset in enumerate(rows.offsets):
                yield ReadRecord(
                    at, offset, rows.timestamps[n], rows.keys[n], rows.values[n],
                    NO_HEADERS if headers is None else headers[n],
                    batch.next_offset if n == last else offset + 1,
                )
        # The caller has written the last record before it requests another one.
        self.positions[at] = reading.position

    def _ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: bounds.end for at, bounds in self._log.offsets(partitions).items()}


class AssignedSource(RecordSource):
    """Partitions chosen by the user, from positions chosen by the user."""

    def __init__(
        self, log: Log, topic: str, note: Callable[[str], None], start: StartOffset,
        partitions: list[int] | None,
    ) -> None:
        super().__init__(log, topic, note)
        self._reads_all = partitions is None
        numbers = range(self._description.partitions) if partitions is None else partitions
        chosen = [TopicPartition(topic, number) for number in numbers]
        self.targets = self._ends(chosen)
        self.positions = {at: start(log, at) for at in chosen}

    def read_round(self, limit: int | None) -> Iterator[ReadRecord]:
        """Read all partitions, including new ones."""
        current = self._log.topic(self._description.name)
        if current.id != self._description.id:
            raise CommandError(f"Topic '{current.name}' was deleted and created again.")
        if self._reads_all:
            for number in range(current.partitions):
                self.positions.setdefault(TopicPartition(current.name, number), 0)
        return self._read_merged(self._ends(self.positions), limit)

    def is_done(self) -> bool:
        """Return whether every partition was read to its end at the start."""
        return all(self.positions[at] >= end for at, end in self.targets.items())


class GroupSource(RecordSource):
    """A member of a consumer group, which commits the positions of written records.

    A record that was written but not committed is delivered again: at least once.
    """

    def __init__(
        self, log: Log, topic: str, note: Callable[[str], None], start: StartOffset, group: str,
    ) -> None:
        super().__init__(log, topic, note)
        self._start = start
        self._group = group
        self._member = self._join()
        #: On the monotonic clock; None before the first heartbeat.
        self._heartbeat_at: float | None = None
        self._joined_at = time.monotonic()
        self._committed: dict[TopicPartition, int] = {}
        #: The end of each partition when it was assigned.
        self.targets: dict[TopicPartition, int] = {}

    def read_round(self, limit: int | None) -> Iterator[ReadRecord]:
        """Read the assigned partitions; returns early when a heartbeat is due."""
        if self._needs_heartbeat():
            self._heartbeat()
        for count, record in enumerate(self._read_merged(self._ends(self.positions), limit), 1):
            yield record
            if count % HEARTBEAT_CHECK_RECORDS == 0 and self._needs_heartbeat():
                return

    def is_done(self) -> bool:
        """Return whether the assigned partitions were read, or the wait for one timed out."""
        if not self.positions:
            timed_out = time.monotonic() - self._joined_at >= ASSIGNMENT_TIMEOUT_S
            if timed_out:
                self._note(f"Other members of group '{self._group}' own all partitions.")
            return timed_out
        return all(self.positions[at] >= self.targets[at] for at in self.positions)

    def commit(self) -> None:
        """Commit the positions that changed."""
        moved = {
            at: offset for at, offset in self.positions.items() if self._committed.get(at) != offset
        }
        if not moved:
            return
        try:
            self._log.commit_offsets(self._group, moved, self._member)
        except Fenced:
            self._rejoin()
        else:
            self._committed |= moved

    def wait(self) -> None:
        """Wait for new records or for the time of the next heartbeat."""
        self._log.wait_for_change(max(0.01, self._seconds_to_heartbeat()))

    def close(self) -> None:
        """Leave the group, so that other members need not wait for the session timeout."""
        self._member.leave()

    def _join(self) -> Member:
        return self._log.join_group(
            self._group, [self._description.name], client_id="penstock-consume",
            session_timeout_ms=SESSION_TIMEOUT_MS,
        )

    def _needs_heartbeat(self) -> bool:
        return self._seconds_to_heartbeat() <= 0 or self._member.needs_heartbeat()

    def _seconds_to_heartbeat(self) -> float:
        if self._heartbeat_at is None:
            return 0.0
        return self._heartbeat_at + HEARTBEAT_INTERVAL_S - time.monotonic()

    def _heartbeat(self) -> None:
        """Send a heartbeat and apply the assignment that it returns."""
        # Revoked partitions are committed already, because every round ends with a commit.
        while True:
            try:
                assigned = self._member.heartbeat(list(self.positions)).partitions
            except Fenced:
                self._rejoin()
                continue
            self._heartbeat_at = time.monotonic()
            revoked = self.positions.keys() - assigned
            for at in revoked:
                del self.positions[at]
                self._committed.pop(at, None)
                self.targets.pop(at, None)
            self._add_partitions(sorted(assigned - self.positions.keys()))
            if not revoked:
                return

    def _add_partitions(self, added: list[TopicPartition]) -> None:
        if not added:
            return
        committed = self._log.committed(self._group, added)
        self.targets |= self._ends(added)
        for at in added:
            found = committed.get(at)
            self.positions[at] = self._start(self._log, at) if found is None else found.offset
            if found is not None:
                self._committed[at] = found.offset

    def _rejoin(self) -> None:
        """Join again after the group removed this member; resumes at the committed offsets."""
        self._note(
            f"Group '{self._group}' removed this member because its heartbeats were late. "
            "Rejoining."
        )
        self.positions.clear()
        self._committed.clear()
        self.targets.clear()
        self._member = self._join()
        self._heartbeat_at = None
