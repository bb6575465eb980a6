"""Records that a task drops: noted by the task, logged after the commit at a limited rate.

A task notes node, reason, count and the first record. `DropLog` logs the first record of a node and
reason at once, and then one line per interval with the number of the others. Records that an
exception handler skips are noted by topic and class of error, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from penstock.handlers import one_line
from penstock.record import RecordMetadata, TaskId

log = logging.getLogger(__name__)
#: Reports skipped records.
handler_log = logging.getLogger("penstock.handlers")

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
    #: If an exception handler skipped them: the class of the error, and the error of the first one.
    cause: str = ""
    error: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """Notes with the same key are logged together."""
        return (self.node, self.event, self.cause, (self.cause and self.position.topic) or "")

    def log_first(self, task_id: TaskId) -> None:
        """Log the first record."""
        place = self._place(task_id)
        if self.cause:
            handler_log.log(self.level, "%s: %s (%s).", self.event, self.error, place)
        else:
            log.log(self.level, "%s %s (%s).", self.node, self.event, place)

    def log_more(self, task_id: TaskId, count: int) -> None:
        """Log the number of further records, of which these are the last ones."""
        last = f"the last batch from: {self._place(task_id)}"
        if self.cause:
            topic = "" if self.position.topic is None else f" of topic '{self.position.topic}'"
            handler_log.log(
                self.level, "%s: %s more%s with %s (%s).", self.event, f"{count:,}", topic,
                self.cause, last,
            )
        else:
            log.log(self.level, "%s %s: %s more (%s).", self.node, self.event, f"{count:,}", last)

    def _place(self, task_id: TaskId) -> str:
        topic, partition, offset = self.position
        place = "no source record"
        if topic is not None:
            place = f"topic '{topic}', partition {partition}, offset {offset}"
        if self.cause:
            return f"{place}; processor '{self.node}', task {task_id}"
        return f"{place}; task {task_id}"


class DropNotes:
    """The notes of a task since its last commit."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], int] = {}
        #: The first record of each key.
        self._first: dict[tuple[str, ...], DropNote] = {}

    def add(
        self, node: str, event: str, level: int, position: Callable[[], RecordMetadata]
    ) -> None:
        """Note a record. `position` is called for the first record of a node and event only."""
        key = node, event, "", ""
        counts = self._counts
        if key in counts:
            counts[key] += 1
        else:
            counts[key] = 1
            self._first[key] = DropNote(node, event, level, 1, position())

    def add_error(
        self, node: str, event: str, error: Exception, position: RecordMetadata
    ) -> None:
        """Note a record that an exception handler skipped because of an error."""
        note = DropNote(
            node, event, logging.WARNING, 1, position, type(error).__name__,
            # It is sent to the driver as UTF-8.
            one_line(error).rstrip(".").encode(errors="backslashreplace").decode(),
        )
        self._first.setdefault(note.key, note)
        self._counts[note.key] = self._counts.get(note.key, 0) + 1

    def take(self) -> tuple[DropNote, ...]:
        """Return the notes and start again."""
        if not self._counts:
            return ()
        taken = tuple(
            first._replace(records=self._counts[key]) for key, first in self._first.items()
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
        #: The key of a note -> the records that are not logged yet.
        self._pending: dict[tuple[str, ...], _Pending] = {}

    def add(self, task_id: TaskId, notes: Iterable[DropNote]) -> None:
        """Log the first record of each key; count the others."""
        for note in notes:
            count = note.records
            pending = self._pending.get(note.key)
            if pending is None:
                note.log_first(task_id)
                pending = self._pending[note.key] = _Pending(self._clock() + self._interval_s)
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
            note.log_more(task_id, pending.count)
            self._pending[key] = _Pending(now + self._interval_s)
