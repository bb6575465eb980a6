"""Schedules of punctuations (M8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.processors.api import PunctuationType
from penstock.task.priority_queue import JavaPriorityQueue

#: Later than any time.
NEVER = 2**63


class ScheduleState(NamedTuple):
    """The state of a schedule between batches."""

    node: str
    #: Counts the calls of `schedule` in this node from 1.
    number: int
    due: int
    cancelled: bool


class Schedule:
    """One schedule of one node. `time` is its next due time."""

    __slots__ = ("cancelled", "interval_ms", "node", "number", "punctuator", "time", "type")

    def __init__(
        self, node: str, number: int, due: int, interval_ms: int, type: PunctuationType,
        punctuator: Callable[[int], object],
    ) -> None:
        self.node = node
        self.number = number
        self.time = due
        self.interval_ms = interval_ms
        self.type = type
        self.punctuator = punctuator
        self.cancelled = False

    def cancel(self) -> None:
        """Stop the punctuations."""
        self.cancelled = True

    def move_past(self, now: int) -> None:
        """Advance to the first due time after `now`; missed punctuations are skipped."""
        due = self.time + self.interval_ms
        if now >= due:
            due = self.time + ((now - self.time) // self.interval_ms + 1) * self.interval_ms
        self.time = due


class Schedules:
    """All schedules of a task that follow one clock.

    Processors create their schedules again in each batch. A schedule with a known node and number
    resumes from its previous state.
    """

    # Native code reads this slot for every record.
    __slots__ = ("__dict__", "next_due")

    def __init__(self, type: PunctuationType, known: tuple[ScheduleState, ...] = ()) -> None:
        self._type = type
        self._heap: JavaPriorityQueue[Schedule] = JavaPriorityQueue()
        #: The schedules that `init` of the processors has created.
        self._initial: list[Schedule] = []
        self._is_starting = True
        self._known = {(state.node, state.number): state for state in known}
        self._places = {name: place for place, name in enumerate(self._known)}
        #: The earliest due time, or `NEVER`; read directly on the hot path.
        self.next_due = NEVER

    def add(
        self, node: str, number: int, interval_ms: int, punctuator: Callable[[int], object],
        now: int, start: int | None,
    ) -> Schedule:
        """Add a schedule. A start in the past is moved to its next due time."""
        first = start
        if first is None:
            first = 0 if self._type is PunctuationType.STREAM_TIME else now + interval_ms
        schedule = Schedule(node, number, first, interval_ms, self._type, punctuator)
        if start is not None and start < now:
            schedule.move_past(now)
        state = self._known.pop((node, number), None)
        if state is not None:
            schedule.time, schedule.cancelled = state.due, state.cancelled
        if self._is_starting:
            self._initial.append(schedule)
        if not schedule.cancelled:
            self._heap.add(schedule)
        self._update()
        return schedule

    def restore_order(self) -> None:
        """Restore the order of schedules with equal times from the previous batch.

        Called once, when all processors are initialized.
        """
        self._is_starting = False
        heap, self._heap = self._heap, JavaPriorityQueue()
        last = len(self._places)
        for schedule in sorted(
            heap.items, key=lambda each: self._places.get((each.node, each.number), last)
        ):
            self._heap.add(schedule)

    def fire(self, now: int, punctuate: Callable[[Schedule, int], None]) -> None:
        """Fire all due schedules, each at most once."""
        heap = self._heap
        while (first := heap.peek()) is not None and first.time <= now:
            heap.take()
            if first.cancelled:
                continue
            punctuate(first, now)
            if not first.cancelled:
                first.move_past(now)
                heap.add(first)
        self._update()

    def states(self) -> tuple[ScheduleState, ...]:
        """The states for the next batch: the queued schedules first, in queue order.

        A cancelled schedule has a state only if `init` creates it again. `process` may create
        schedules for single records, whose numbers are used again in the next batch.
        """
        initial = set(map(id, self._initial))
        queued = [each for each in self._heap.items if not each.cancelled or id(each) in initial]
        others = initial.difference(map(id, queued))
        return tuple(
            ScheduleState(each.node, each.number, each.time, each.cancelled)
            for each in (*queued, *(each for each in self._initial if id(each) in others))
        )

    def _update(self) -> None:
        first = self._heap.peek()
        self.next_due = NEVER if first is None else first.time
