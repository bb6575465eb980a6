"""Where `consume` reads: partitions of its own choice, or those that a group gives it.

A source is read in rounds. A round goes to the ends as they stood when it began, through all
partitions at once, by the time of the records; each partition keeps its own order. A position moves
when a record has been written, never before.
"""

from __future__ import annotations

import heapq
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from penstock.cli.errors import CommandFailed
from penstock.log import Log, Member, TopicPartition
from penstock.log.errors import Fenced, OffsetOutOfRange
from penstock.record import NO_HEADERS, Headers

HEARTBEAT_SECONDS = 3.0
SESSION_TIMEOUT_MS = 10_000
#: How long a reader that does not follow waits for others to give partitions up.
PATIENCE_SECONDS = 5.0
#: Records between two looks at the clock.
STRIDE = 200


class Consumed(NamedTuple):
    """A record that was read. `next` is where to go on after it."""

    at: TopicPartition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    next: int


class Source(ABC):
    """Partitions of one topic and how far each was read."""

    def __init__(self, log: Log, topic: str, note: Callable[[str], None]) -> None:
        self._log = log
        self._note = note
        self._description = log.topic(topic)
        #: Written by `took`, and by a round for offsets that hold no record.
        self.positions: dict[TopicPartition, int] = {}

    @abstractmethod
    def round(self, limit: int | None) -> Iterator[Consumed]:
        """Records up to the ends as they stand now, or fewer; `limit` is all that are wanted."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether everything was read that was there at the beginning."""

    def took(self, record: Consumed) -> None:
        """The record was written."""
        self.positions[record.at] = record.next

    def settle(self) -> None:  # noqa: B027  (not every source keeps what it knows)
        """All that was taken has reached its receiver."""

    def wait(self) -> None:
        """Wait for a change, for a while."""
        self._log.wait_for_change(HEARTBEAT_SECONDS)

    def close(self) -> None:  # noqa: B027
        """Give up whatever is held."""

    def _merged(self, ends: Mapping[TopicPartition, int], limit: int | None) -> Iterator[Consumed]:
        """The records from the positions up to the ends, by time."""
        readings = [
            self._read(at, end, limit)
            for at, end in ends.items() if self.positions[at] < end
        ]
        if len(readings) == 1:
            return readings[0]
        return heapq.merge(*readings, key=lambda record: record.timestamp)

    def _read(self, at: TopicPartition, end: int, limit: int | None) -> Iterator[Consumed]:
        while True:
            try:
                yield from self._steps(at, end, limit)
            except OffsetOutOfRange as error:
                if not error.offset < error.start:
                    raise
                self._note(f"{error} Going on at {error.start}.")
                self.positions[at] = error.start
                if error.start < end:
                    continue
            return

    def _steps(self, at: TopicPartition, end: int, limit: int | None) -> Iterator[Consumed]:
        reading = self._log.read(*at, self.positions[at], end, max_records=limit)
        for batch in reading:
            rows = batch.columns()
            headers = rows.headers
            last = len(rows.offsets) - 1
            for n, offset in enumerate(rows.offsets):
                yield Consumed(
                    at, offset, rows.timestamps[n], rows.keys[n], rows.values[n],
                    NO_HEADERS if headers is None else headers[n],
                    batch.next_offset if n == last else offset + 1,
                )
        # By now the last record was taken: whoever asks for more is done with what it has.
        self.positions[at] = reading.position

    def _bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: bounds.end for at, bounds in self._log.offsets(partitions).items()}


class AssignedSource(Source):
    """Partitions that the user chose, from where the user said."""

    def __init__(
        self, log: Log, topic: str, note: Callable[[str], None],
        start: Callable[[Log, TopicPartition], int], partitions: list[int] | None,
    ) -> None:
        super().__init__(log, topic, note)
        self._all = partitions is None
        chosen = range(self._description.partitions) if partitions is None else partitions
        ats = [TopicPartition(topic, number) for number in chosen]
        self.targets = self._bounds(ats)
        self.positions = {at: start(log, at) for at in ats}

    def round(self, limit: int | None) -> Iterator[Consumed]:
        """All partitions; those that were added meanwhile, too."""
        now = self._log.topic(self._description.name)
        if now.id != self._description.id:
            raise CommandFailed(f"Topic '{now.name}' was deleted and made again meanwhile.")
        if self._all:
            for number in range(now.partitions):
                self.positions.setdefault(TopicPartition(now.name, number), 0)
        return self._merged(self._bounds(self.positions), limit)

    def is_done(self) -> bool:
        """Whether every partition was read to where it ended at the beginning."""
        return all(self.positions[at] >= end for at, end in self.targets.items())


class GroupSource(Source):
    """A place in a group: reads what the group gives it, commits what was written.

    A record that was written and not committed is written again, here or elsewhere: at least once.
    """

    def __init__(
        self, log: Log, topic: str, note: Callable[[str], None],
        start: Callable[[Log, TopicPartition], int], group: str,
    ) -> None:
        super().__init__(log, topic, note)
        self._start = start
        self._group = group
        self._member = self._join()
        #: On the monotonic clock; None: the member has still to introduce itself.
        self._beat_at: float | None = None
        self._began_at = time.monotonic()
        self._committed: dict[TopicPartition, int] = {}
        #: Where each partition ended when it was given to this member.
        self.targets: dict[TopicPartition, int] = {}

    def round(self, limit: int | None) -> Iterator[Consumed]:
        """What the group gives now; ends early if the group has changed."""
        if self._is_due():
            self._beat()
        for count, record in enumerate(self._merged(self._bounds(self.positions), limit), 1):
            yield record
            if count % STRIDE == 0 and self._is_due():
                return

    def is_done(self) -> bool:
        """Whether every partition that was given was read; with none, whether it is hopeless."""
        if not self.positions:
            waited = time.monotonic() - self._began_at
            if waited >= PATIENCE_SECONDS:
                self._note(f"Other members of group '{self._group}' have all partitions.")
            return waited >= PATIENCE_SECONDS
        return all(self.positions[at] >= self.targets[at] for at in self.positions)

    def settle(self) -> None:
        """Commit what has moved."""
        moved = {at: to for at, to in self.positions.items() if self._committed.get(at) != to}
        if not moved:
            return
        try:
            self._log.commit_offsets(self._group, moved, self._member)
        except Fenced:
            self._lost()
        else:
            self._committed |= moved

    def wait(self) -> None:
        """Wait for records, for the group, or for the time of the next sign of life."""
        self._log.wait_for_change(max(0.01, self._until_due()))

    def close(self) -> None:
        """Leave, so that the others need not wait for a timeout."""
        self._member.leave()

    def _join(self) -> Member:
        return self._log.join_group(
            self._group, [self._description.name], client_id="penstock-consume",
            session_timeout_ms=SESSION_TIMEOUT_MS,
        )

    def _is_due(self) -> bool:
        return self._until_due() <= 0 or self._member.needs_heartbeat()

    def _until_due(self) -> float:
        if self._beat_at is None:
            return 0.0
        return self._beat_at + HEARTBEAT_SECONDS - time.monotonic()

    def _beat(self) -> None:
        """Say what is worked on, and take over what the group says."""
        # What is to be given up was committed: every round ends with `settle`.
        while True:
            try:
                given = self._member.heartbeat(list(self.positions)).partitions
            except Fenced:
                self._lost()
                continue
            self._beat_at = time.monotonic()
            gone = self.positions.keys() - given
            for at in gone:
                del self.positions[at]
                self._committed.pop(at, None)
                self.targets.pop(at, None)
            self._take_over(sorted(given - self.positions.keys()))
            if not gone:
                return

    def _take_over(self, new: list[TopicPartition]) -> None:
        if not new:
            return
        committed = self._log.committed(self._group, new)
        self.targets |= self._bounds(new)
        for at in new:
            found = committed.get(at)
            self.positions[at] = self._start(self._log, at) if found is None else found.offset
            if found is not None:
                self._committed[at] = found.offset

    def _lost(self) -> None:
        """The group has given this member up; begin anew, from what is committed."""
        self._note(f"Group '{self._group}' gave this member up: it was silent for too long.")
        self.positions.clear()
        self._committed.clear()
        self.targets.clear()
        self._member = self._join()
        self._beat_at = None
