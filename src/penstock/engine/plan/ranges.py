"""`RangePlanner`: chooses the offsets that each task reads in a batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.plan.batch_plan import BatchPlan, Range
from penstock.engine.plan.batch_size import BatchDuration, BatchLimits, BatchSize
from penstock.log.types import PartitionOffsets, TopicPartition
from penstock.record import TaskId

#: A range that was consumed only in part is not made shorter than this.
_MIN_RANGE = 1_000
#: Tasks truncate ranges that hold more than this many times the expected bytes.
_BYTES_TOLERANCE = 2

Ranges = Mapping[TaskId, tuple[Range, ...]]


class RangePlanner:
    """Divides a batch among the partitions that have records.

    Holds no durable state: the sizes are learned again after a restart.
    """

    def __init__(
        self, graph: ExecutionGraph, config: StreamsConfig, draining: Collection[str] = ()
    ) -> None:
        """`draining`: read only these topics; by default all."""
        self._topics = {
            task_id: tuple(
                topic for topic in graph.log_topics(task_id) if not draining or topic in draining
            )
            for task_id in graph.tasks
        }
        self._size = BatchSize(BatchLimits.of(config))
        self._idle = TaskIdle(config.max_task_idle_ms)
        #: Partition whose last range was consumed only in part -> a better length.
        self._length_limits: dict[TopicPartition, int] = {}

    @property
    def next_due(self) -> int | None:
        """When the first waiting task stops waiting: epoch milliseconds; None if no task waits."""
        return self._idle.next_due

    def choose(
        self, offsets: Mapping[TopicPartition, int],
        bounds: Mapping[TopicPartition, PartitionOffsets], now: int,
    ) -> dict[TaskId, tuple[Range, ...]]:
        """Return the ranges of each task that has something to read."""
        available = {
            at: (at.topic, min(lag, self._length_limits.get(at, lag)))
            for task_id, topics in self._topics.items()
            for at, lag in self._available(task_id, topics, offsets, bounds, now)
        }
        shares = self._size.shares(available)
        found = {}
        for task_id, topics in self._topics.items():
            ranges = []
            for topic in topics:
                at = TopicPartition(topic, task_id.partition)
                if at not in shares:
                    continue
                start = offsets[at]
                end = start + shares[at]
                ranges.append(Range(
                    *at, start, end, self._idle.is_cut(len(topics), end < bounds[at].end)
                ))
            if ranges:
                found[task_id] = tuple(ranges)
        return found

    def _available(
        self, task_id: TaskId, topics: Iterable[str], offsets: Mapping[TopicPartition, int],
        bounds: Mapping[TopicPartition, PartitionOffsets], now: int,
    ) -> list[tuple[TopicPartition, int]]:
        """Return the partitions of a task with records, and their lag; none if the task waits."""
        lags = {
            at: bounds[at].end - offsets[at]
            for at in (TopicPartition(topic, task_id.partition) for topic in topics)
        }
        if self._idle.waits(lags, now):
            return []
        return [(at, lag) for at, lag in lags.items() if lag > 0]

    def expected_bytes(self, ranges: Ranges) -> float:
        """Estimate the size of all ranges."""
        return sum(
            (each.end - each.start) * self._size.record_bytes(each.topic)
            for of_task in ranges.values() for each in of_task
        )

    def max_bytes(self, ranges: Ranges) -> dict[TaskId, int]:
        """Return a limit for each task, because records may be larger than any before."""
        offsets = {
            task_id: sum(each.end - each.start for each in of_task)
            for task_id, of_task in ranges.items()
        }
        per_offset = _BYTES_TOLERANCE * self._size.max_bytes / max(1, sum(offsets.values()))
        return {task_id: max(1, int(per_offset * count)) for task_id, count in offsets.items()}

    def observe(
        self, plan: BatchPlan, offsets: Mapping[tuple[str, int], int], *, duration: BatchDuration,
        bytes_read: Mapping[str, tuple[int, int]],
    ) -> None:
        """Learn from a committed batch.

        `offsets`: the committed ones. `bytes_read`: topic -> (records, bytes) that tasks read.
        """
        consumed = 0
        for task_plan in plan.tasks.values():
            for each in task_plan.ranges:
                at = TopicPartition(each.topic, each.partition)
                after = offsets.get(at, each.start)
                consumed += after - each.start
                if after < each.end:
                    # The task would otherwise read the rest of the range in vain every time.
                    self._length_limits[at] = max(2 * (after - each.start), _MIN_RANGE)
                else:
                    self._length_limits.pop(at, None)
        if duration.seconds > 0:
            self._size.observe(consumed, duration)
        for topic, (count, size) in bytes_read.items():
            self._size.observe_bytes(topic, count, size)


class TaskIdle:
    """Lets a task wait for partitions without records (`max.task.idle.ms`, M3).

    With 0, the default, a task waits for known lag only: it stops where a cut range is exhausted.
    With -1 it does not wait at all. With more, a task with several partitions stops where any of
    them is exhausted, and continues when the partition has been empty for that time.
    """

    def __init__(self, idle_ms: int) -> None:
        self._idle_ms = idle_ms
        #: Empty partition -> when it was first found empty.
        self._empty_since: dict[TopicPartition, int] = {}
        self._waiting_until: dict[TopicPartition, int] = {}

    @property
    def next_due(self) -> int | None:
        """When the first waiting task continues; None if no task waits."""
        return min(self._waiting_until.values(), default=None)

    def waits(self, lags: Mapping[TopicPartition, int], now: int) -> bool:
        """Whether a task whose partitions have these lags waits for one of them."""
        if self._idle_ms <= 0 or len(lags) < 2:
            return False
        until = 0
        for at, lag in lags.items():
            self._waiting_until.pop(at, None)
            if lag > 0:
                self._empty_since.pop(at, None)
            else:
                until = max(until, self._empty_since.setdefault(at, now) + self._idle_ms)
        if until <= now or not any(lags.values()):
            return False
        self._waiting_until[next(iter(lags))] = until
        return True

    def is_cut(self, partitions: int, has_more: bool) -> bool:
        """Whether the end of a range stops a task that reads so many partitions."""
        if self._idle_ms < 0:
            return False
        return has_more or (self._idle_ms > 0 and partitions > 1)
