"""Records that a task drops: noted by the task, logged after the commit at a limited rate.

A task notes node, reason, count and the first record. `DropLog` logs the first record of a node and
reason at once, and then one line per interval with the number of the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from penstock.record import RecordMetadata, TaskId

log = logging.getLogger(__name__)

#: The time between two lines about the same node and reason.
INTERVAL_S = 60.0


class DropNote(NamedTuple):
    """Records of one batch that one node dropped for one reason."""

    node: str
    #: The event of each record, such as "dropped a record: null key".
    event: str
    level: int
    records: int
    #: The first of them.
    position: RecordMetadata


class DropNotes:
    """The notes of a task since its last commit."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._first: dict[tuple[str, str], tuple[int, RecordMetadata]] = {}

    def add(
        self, node: str, event: str, level: int, position: Callable[[], RecordMetadata]
    ) -> None:
        """Note a record. `position` is called for the first record of a node and event only."""
        key = node, event
        counts = self._counts
        if key in counts:
            counts[key] += 1
        else:
            counts[key] = 1
            self._first[key] = level, position()

    def take(self) -> tuple[DropNote, ...]:
        """Return the notes and start again."""
        if not self._counts:
            return ()
        taken = tuple(
            DropNote(*key, level, self._counts[key], position)
            for key, (level, position) in self._first.items()
        )
        self._counts.clear()
        self._first.clear()
        return taken


@dataclass(slots=True)
class _Pending:
    """Records that are not logged yet, and the time of their next line."""

    due: float
    count: int = 0
    last: tuple[TaskId, DropNote] | None = None


class DropLog:
    """Logs the notes of all tasks. One thread calls it."""

    def __init__(
        self, interval_s: float = INTERVAL_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_s = interval_s
        self._clock = clock
        #: (node, event) -> the records that are not logged yet.
        self._pending: dict[tuple[str, str], _Pending] = {}

    def add(self, task_id: TaskId, notes: Iterable[DropNote]) -> None:
        """Log the first record of each node and event; count the others."""
        for note in notes:
            count = note.records
            pending = self._pending.get((note.node, note.event))
            if pending is None:
                log.log(note.level, "%s %s (%s).", note.node, note.event, _place(task_id, note))
                due = self._clock() + self._interval_s
                pending = self._pending[note.node, note.event] = _Pending(due)
                count -= 1
            if count:
                pending.count += count
                pending.last = task_id, note

    def log_counts(self, *, all_now: bool = False) -> None:
        """Log the counts that are due, or all."""
        if not self._pending:
            return
        now = self._clock()
        for key, pending in list(self._pending.items()):
            if not all_now and now < pending.due:
                continue
            if pending.last is None:
                del self._pending[key]
                continue
            task_id, note = pending.last
            log.log(
                note.level, "%s %s: %s more (the last batch from: %s).", note.node, note.event,
                f"{pending.count:,}", _place(task_id, note),
            )
            self._pending[key] = _Pending(now + self._interval_s)


def _place(task_id: TaskId, note: DropNote) -> str:
    topic, partition, offset = note.position
    if topic is None:
        return f"no source record; task {task_id}"
    return f"topic '{topic}', partition {partition}, offset {offset}; task {task_id}"
