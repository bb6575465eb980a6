"""Schedules: when a processor wants to be called by the clock (M8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.processors.api import PunctuationType
from penstock.task.partition_group import PartitionGroup

#: Later than any time.
NEVER = 2**63


class ScheduleState(NamedTuple):
    """A schedule as it is kept between batches: which one it is, when it is due next."""

    node: str
    #: The how-manieth call of `schedule` in this node.
    number: int
    due: int
    cancelled: bool


class Schedule:
    """One schedule of one node. `time` is when it is due next."""

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
        """No more punctuations."""
        self.cancelled = True

    def move_on(self, now: int) -> None:
        """To the next time after now; what was missed is missed."""
        due = self.time + self.interval_ms
        if now >= due:
            due = self.time + ((now - self.time) // self.interval_ms + 1) * self.interval_ms
        self.time = due


class Schedules:
    """All schedules of a task that follow one clock.

    In the next batch the processors make their schedules again; one that is known from before
    (by its node and number) goes on from where it was.
    """

    # Looked at for every record: a slot of its own, where native code finds it.
    __slots__ = ("__dict__", "next_due")

    def __init__(self, type: PunctuationType, known: tuple[ScheduleState, ...] = ()) -> None:
        self._type = type
        self._heap: PartitionGroup[Schedule] = PartitionGroup()
        self._all: list[Schedule] = []
        self._known = {(state.node, state.number): state for state in known}
        self._places = {name: place for place, name in enumerate(self._known)}
        #: The earliest due time, for a check without a call; `NEVER` if nothing is scheduled.
        self.next_due = NEVER

    def add(
        self, node: str, number: int, interval_ms: int, punctuator: Callable[[int], object],
        now: int, start: int | None,
    ) -> Schedule:
        """Make a schedule; with a start in the past, from its next slot on."""
        first = start
        if first is None:
            first = 0 if self._type is PunctuationType.STREAM_TIME else now + interval_ms
        schedule = Schedule(node, number, first, interval_ms, self._type, punctuator)
        if start is not None and start < now:
            schedule.move_on(now)
        state = self._known.pop((node, number), None)
        if state is not None:
            schedule.time, schedule.cancelled = state.due, state.cancelled
        self._all.append(schedule)
        if not schedule.cancelled:
            self._heap.add(schedule)
        self._update()
        return schedule

    def settle(self) -> None:
        """Let schedules of one time go in the order in which they would have gone before.

        To be called when all processors are set up.
        """
        heap, self._heap = self._heap, PartitionGroup()
        last = len(self._places)
        for schedule in sorted(
            heap.items, key=lambda each: self._places.get((each.node, each.number), last)
        ):
            self._heap.add(schedule)

    def fire(self, now: int, punctuate: Callable[[Schedule, int], None]) -> None:
        """Call all that are due, each at most once."""
        heap = self._heap
        while (first := heap.peek()) is not None and first.time <= now:
            heap.take()
            if first.cancelled:
                continue
            punctuate(first, now)
            if not first.cancelled:
                first.move_on(now)
                heap.add(first)
        self._update()

    def states(self) -> tuple[ScheduleState, ...]:
        """What the next batch must know: first those that are due some time, as they stand."""
        waiting = self._heap.items
        others = [each for each in self._all if each not in waiting]
        return tuple(
            ScheduleState(each.node, each.number, each.time, each.cancelled)
            for each in (*waiting, *others)
        )

    def _update(self) -> None:
        first = self._heap.peek()
        self.next_due = NEVER if first is None else first.time
