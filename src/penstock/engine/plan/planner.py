"""`Planner`: decides what the next batch does, from what is committed and what is in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.plan.batch_plan import BatchPlan, Range, TaskPlan
from penstock.engine.plan.batch_size import BatchLimits, BatchSize
from penstock.engine.plan.start_offsets import StartOffsets
from penstock.engine.plan.task_idle import TaskIdle
from penstock.engine.plan.task_records import TaskRecord, TaskRecords, read_task_records
from penstock.engine.plan.topic_changes import TopicChanges
from penstock.errors import MissingSourceTopicException, StreamsException
from penstock.log.base import Log
from penstock.log.errors import LogBusy, UnknownTopic
from penstock.log.types import PartitionOffsets, TopicPartition
from penstock.record import PartitionColumns, TaskId
from penstock.topology.topology import Topology

#: Below this, a range is not made smaller because less than it was consumed.
_LEAST_RANGE = 1_000

#: A broker remembers offsets for a week, if it is not told otherwise.
COMMIT_AGAIN_MS = 3_600_000

#: Records of a topic differ: only what is larger than expected by so much is cut.
_SLACK = 2

#: What a plan may carry of records.
_MOST_GIVEN_BYTES = 256 * 1024

Bounds = Mapping[TopicPartition, PartitionOffsets]


class Planner:
    """Plans batches for as long as a lease is held; made anew with every lease and every graph.

    The truth about nothing: `offsets` and the records are what the log holds, kept here so that
    they need not be read again. They change only in `advance`, behind a commit; a batch that comes
    to nothing is planned again from the same.

    In the first plan every task runs, with or without input. Its stores are restored before they
    are needed, its processors make their schedules, and the offsets where reading began are
    committed.
    """

    def __init__(
        self, log: Log, graph: ExecutionGraph, config: StreamsConfig, topology: Topology, *,
        now_ms: int, records: TaskRecords | None = None,
    ) -> None:
        if records is None:
            records = read_task_records(log, config.application_id)
        self._log = log
        self._graph = graph
        self._config = config
        self._topology = topology
        self._number = 0 if records.batch is None else records.batch.number
        #: The wall clock of the last batch.
        self._now = 0 if records.batch is None else records.batch.now
        self._records: dict[TaskId, TaskRecord] = {
            task_id: records.tasks[task_id] for task_id in graph.tasks if task_id in records.tasks
        }
        self._starting = StartOffsets(log, topology, config, graph)
        #: Every source partition -> where it is read on.
        self._offsets = self._starting.offsets(records.batch, max(now_ms, self._now))
        self._size = BatchSize(BatchLimits.of(config))
        #: Partitions whose ranges were longer than what their tasks came to -> a better length.
        self._caps: dict[TopicPartition, int] = {}
        self._idling = TaskIdle(config.max_task_idle_ms)
        self._queues = {task_id: graph.log_topics(task_id) for task_id in graph.tasks}
        self._is_first = True
        self._lag: dict[TopicPartition, int] = {}
        # The topic is made anew with every life of the application.
        self._incarnation = log.topic(tasks_topic(config.application_id)).id
        self._topics = TopicChanges(log, topology, config, graph, now_ms)

    # ---- reading -----------------------------------------------------------------------------

    @property
    def next_due(self) -> int | None:
        """When a batch is wanted even without new input: epoch milliseconds."""
        times = [
            record.next_wall_punctuation for record in self._records.values()
            if record.next_wall_punctuation is not None
        ]
        if self._idling.next_due is not None:
            times.append(self._idling.next_due)
        return min(times, default=None)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Where every source partition is read on: what a commit sets, with what it moved."""
        return dict(self._offsets)

    @property
    def shape_changed(self) -> bool:
        """Topics have come or grown, so the application has another graph than this planner's."""
        return self._topics.changed

    @property
    def records(self) -> Mapping[TaskId, TaskRecord]:
        """What each task was left with."""
        return self._records

    @property
    def holds_back(self) -> bool:
        """Whether there are records that wait for others."""
        return self._idling.next_due is not None

    def lag(self) -> dict[TopicPartition, int]:
        """Offsets that are still to be read, as of the last plan."""
        return dict(self._lag)

    def ends(self) -> dict[TopicPartition, int]:
        """Where the source partitions ended when the last plan was made."""
        return {at: self._offsets[at] + lag for at, lag in self._lag.items()}

    # ---- planning ----------------------------------------------------------------------------

    def next_plan(self, now_ms: int, epoch: int) -> BatchPlan | None:
        """The next batch; None if there is nothing to do."""
        now = max(now_ms, self._now)
        self._topics.look(now_ms)
        try:
            bounds = self._bounds(now)
        except MissingSourceTopicException:
            # One of a pattern may go: then the application has another graph.
            with suppress(MissingSourceTopicException):
                self._topics.look(now_ms, at_once=True)
            if self._topics.changed:
                return None
            raise
        ranges = self._ranges(bounds, now)
        due = {
            task_id for task_id, record in self._records.items()
            if record.next_wall_punctuation is not None and record.next_wall_punctuation <= now
        }
        if self._is_first:
            due.update(self._queues)
        if not ranges and not due and not self._is_commit_due(now):
            return None
        downstream = self._graph.downstream(task_id.subtopology for task_id in {*ranges, *due})
        planned = [
            task_id for task_id in self._queues
            if task_id in ranges or task_id in due or task_id.subtopology in downstream
        ]
        positions = self._positions(planned)
        prefetched = self._prefetch(ranges)
        max_bytes = self._max_bytes(ranges)
        return BatchPlan(
            self._number + 1, epoch, now,
            {
                task_id: replace(
                    self._task_plan(task_id, positions[task_id]),
                    ranges=ranges.get(task_id, ()), punctuate=task_id in due,
                    prefetched=prefetched.get(task_id, ()), max_bytes=max_bytes.get(task_id),
                )
                for task_id in planned
            },
            self._global_positions(), incarnation=self._incarnation,
        )

    def _max_bytes(self, ranges: Mapping[TaskId, tuple[Range, ...]]) -> dict[TaskId, int]:
        """What the ranges of each task may hold: records may be larger than any before."""
        offsets = {
            task_id: sum(each.end - each.start for each in of_task)
            for task_id, of_task in ranges.items()
        }
        most = _SLACK * self._size.max_bytes / max(1, sum(offsets.values()))
        return {task_id: max(1, int(most * count)) for task_id, count in offsets.items()}

    def _is_commit_due(self, now: int) -> bool:
        """Whether offsets are to be committed again although nothing has happened: brokers forget
        those of an application that is idle for long."""
        return self._log.capabilities.expires_offsets and now - self._now >= COMMIT_AGAIN_MS

    def _task_plan(self, task_id: TaskId, positions: Mapping[str, int]) -> TaskPlan:
        """A task as it was left, without what it is to do."""
        record = self._records.get(task_id)
        if record is None:
            return TaskPlan(task_id, positions=positions)
        return TaskPlan(
            task_id, (), record.state, positions, dict(record.shuffled_offsets), record.batch,
            record.attempt,
        )

    def _prefetch(
        self, ranges: Mapping[TaskId, tuple[Range, ...]]
    ) -> dict[TaskId, tuple[PartitionColumns | None, ...]]:
        """Records that travel with the plan, where the log has them at hand and they are few."""
        wanted = {
            TopicPartition(each.topic, each.partition): (each.start, each.end)
            for of_task in ranges.values() for each in of_task
        }
        size = sum(
            (end - start) * self._size.record_bytes(at.topic)
            for at, (start, end) in wanted.items()
        )
        if not wanted or size > _MOST_GIVEN_BYTES:
            return {}
        found = {
            at: batch.columns() for at, batch in self._log.prefetch(wanted).items()
        }
        return {
            task_id: tuple(
                found.get(TopicPartition(each.topic, each.partition)) for each in of_task
            )
            for task_id, of_task in ranges.items()
        } if found else {}

    def _bounds(self, now: int) -> Bounds:
        """The source partitions as they stand; reading goes on where they still have records."""
        try:
            bounds = self._log.offsets(self._offsets)
        except UnknownTopic as error:
            raise MissingSourceTopicException(
                f"A source topic is gone: {error} It was there when the application was started. "
                f"Create it again and start anew with 'penstock reset "
                f"{self._config.application_id}'."
            ) from error
        for at, offset in self._offsets.items():
            start, end, _ = bounds[at]
            if not start <= offset <= end:
                self._offsets[at] = self._starting.overtaken(at, offset, bounds[at], now)
        self._lag = {at: bounds[at].end - offset for at, offset in self._offsets.items()}
        return bounds

    def _ranges(self, bounds: Bounds, now: int) -> dict[TaskId, tuple[Range, ...]]:
        """What each task reads; tasks that have nothing to read are not in it."""
        waiting = {
            at: (at.topic, min(lag, self._caps.get(at, lag)))
            for task_id, topics in self._queues.items()
            for at, lag in self._ready(task_id, topics, now)
        }
        shares = self._size.shares(waiting)
        found = {}
        for task_id, topics in self._queues.items():
            ranges = []
            for topic in topics:
                at = TopicPartition(topic, task_id.partition)
                if at not in shares:
                    continue
                start = self._offsets[at]
                end = start + shares[at]
                ranges.append(Range(
                    *at, start, end, self._idling.is_cut(len(topics), end < bounds[at].end)
                ))
            if ranges:
                found[task_id] = tuple(ranges)
        return found

    def _ready(
        self, task_id: TaskId, topics: Iterable[str], now: int
    ) -> list[tuple[TopicPartition, int]]:
        """The partitions of a task that have records, unless it waits for the others."""
        lags = {
            at: self._lag[at]
            for at in (TopicPartition(topic, task_id.partition) for topic in topics)
        }
        if self._idling.waits(lags, now):
            return []
        return [(at, lag) for at, lag in lags.items() if lag > 0]

    def _positions(self, planned: Iterable[TaskId]) -> dict[TaskId, dict[str, int]]:
        """Task -> store -> how far the topic that it is restored from counts.

        The holder of the lease is the only one who writes to changelogs, and what it writes is
        committed with the offsets. So between two batches the end of a changelog is where its
        store stands, whatever offsets the log itself used up. An end that lies before what the
        task has written is not to be believed. A source topic that serves as a changelog counts
        as far as it was consumed.
        """
        planned = list(planned)
        changelogs = self._graph.changelogs
        ends = self._log.offsets(
            TopicPartition(topic, task_id.partition) for task_id in planned
            for topic in self._graph.subtopologies[task_id.subtopology].restore_topics.values()
            if topic in changelogs
        )
        found: dict[TaskId, dict[str, int]] = {}
        for task_id in planned:
            restored = self._graph.subtopologies[task_id.subtopology].restore_topics
            positions = found.setdefault(task_id, {})
            for store, topic in restored.items():
                at = TopicPartition(topic, task_id.partition)
                if topic in changelogs:
                    positions[store] = self._believed(task_id, store, at, ends[at].end)
                elif at in self._offsets:
                    positions[store] = self._offsets[at]
        return found

    def _believed(self, task_id: TaskId, store: str, at: TopicPartition, end: int) -> int:
        """The end of a changelog, unless something is missing there."""
        record = self._records.get(task_id)
        written = 0 if record is None else record.positions.get(store, 0)
        if end < written:
            raise LogBusy(
                f"'{at.topic}' [{at.partition}] ends at {end}, but task {task_id} has written up "
                f"to {written}. Either the log does not show it yet, or the topic was made anew; "
                "then its store is lost, and 'penstock reset' starts the application anew."
            )
        return end

    def _global_positions(self) -> dict[tuple[str, int], int]:
        partitions = [
            TopicPartition(topic, number) for topic in sorted(self._graph.global_topics)
            for number in range(self._graph.partitions[topic])
        ]
        return {(at[0], at[1]): bounds.end for at, bounds in self._log.offsets(partitions).items()}

    # ---- after a commit ----------------------------------------------------------------------

    def advance(
        self, plan: BatchPlan, offsets: Mapping[tuple[str, int], int],
        records: Mapping[TaskId, TaskRecord], *, seconds: float = 0.0,
        bytes_read: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        """A batch was committed: with these offsets, and these records of the tasks that ran.

        `seconds`: how long it lasted. `bytes_read`: topic -> (records, their size), of what the
        tasks read.
        """
        if plan.number != self._number + 1:
            raise StreamsException(
                f"Batch {plan.number} was committed, but batch {self._number + 1} was to come. "
                "Two plans were carried out at once."
            )
        self._number, self._now, self._is_first = plan.number, plan.now, False
        consumed = 0
        for task_plan in plan.tasks.values():
            for each in task_plan.ranges:
                at = TopicPartition(each.topic, each.partition)
                after = offsets.get(at, each.start)
                consumed += after - each.start
                if after < each.end:
                    # Not to be read again and again while its task comes to a part of it only.
                    self._caps[at] = max(2 * (after - each.start), _LEAST_RANGE)
                else:
                    self._caps.pop(at, None)
        for at, before in self._offsets.items():
            after = offsets.get(at, before)
            self._lag[at] -= after - before
            self._offsets[at] = after
        self._records.update(records)
        if seconds > 0:
            self._size.observe(consumed, seconds)
        for topic, (count, size) in (bytes_read or {}).items():
            self._size.observe_bytes(topic, count, size)
