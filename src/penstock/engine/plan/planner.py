"""`Planner`: makes the plan of the next batch from the committed state and the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph, build_graph
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.plan.batch_plan import BatchPlan, TaskPlan
from penstock.engine.plan.batch_size import integer_setting
from penstock.engine.plan.ranges import RangePlanner, Ranges
from penstock.engine.plan.start_offsets import StartOffsets
from penstock.engine.plan.task_records import TaskRecord, TaskRecords, read_task_records
from penstock.errors import MissingSourceTopicException, StreamsException
from penstock.log.base import Log
from penstock.log.errors import LogBusy, UnknownTopic
from penstock.log.types import PartitionOffsets, TopicPartition
from penstock.record import PartitionColumns, TaskId
from penstock.topology.topology import Topology

#: A broker keeps the offsets of an idle group for a week by default.
RECOMMIT_INTERVAL_MS = 3_600_000

#: A plan carries prefetched records up to this size.
_MAX_PREFETCHED_BYTES = 256 * 1024

#: The interval of metadata checks; Kafka's consumer has a setting with the same name.
METADATA_MAX_AGE = "metadata.max.age.ms"


class Planner:
    """Plans batches. A new planner is created with every lease and every execution graph.

    Invariants:
    - The planner holds no durable state. `offsets` and `records` are copies of what the log holds.
    - They change only in `advance`, after a commit. A batch that fails is planned again from the
      same state. (`next_plan` moves an offset only where retention has removed the records.)
    - Every task runs in the first plan, with or without input: its stores are restored, its
      processors create their schedules, and the start offsets are committed.
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
        #: The number and the wall clock of the last batch.
        self._number = 0 if records.batch is None else records.batch.number
        self._now = 0 if records.batch is None else records.batch.now
        self._records: dict[TaskId, TaskRecord] = {
            task_id: records.tasks[task_id] for task_id in graph.tasks if task_id in records.tasks
        }
        self._start_offsets = StartOffsets(log, topology, config, graph)
        #: Source partition -> the next offset to read.
        self._offsets = self._start_offsets.resolve(records.batch, max(now_ms, self._now))
        self._lag: dict[TopicPartition, int] = {}
        self._ranges = RangePlanner(graph, config)
        self._is_first = True
        # A reset recreates the topic, so its id identifies the incarnation of the application.
        self._incarnation = log.topic(tasks_topic(config.application_id)).id
        self._topics = TopicMonitor(log, topology, config, graph, now_ms)

    # ---- state -------------------------------------------------------------------------------

    @property
    def next_due(self) -> int | None:
        """When a batch is due even without new input: epoch milliseconds, or None."""
        times = [
            record.next_wall_punctuation for record in self._records.values()
            if record.next_wall_punctuation is not None
        ]
        if self._ranges.next_due is not None:
            times.append(self._ranges.next_due)
        return min(times, default=None)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Source partition -> the next offset to read."""
        return dict(self._offsets)

    @property
    def graph_changed(self) -> bool:
        """Whether the application has another graph now, because topics have changed."""
        return self._topics.graph_changed

    @property
    def records(self) -> Mapping[TaskId, TaskRecord]:
        """The committed state of each task."""
        return self._records

    @property
    def has_delayed_input(self) -> bool:
        """Whether records wait for other input (`max.task.idle.ms`)."""
        return self._ranges.next_due is not None

    def lag(self) -> dict[TopicPartition, int]:
        """Return the unread offsets of each source partition, as of the last plan."""
        return dict(self._lag)

    def end_offsets(self) -> dict[TopicPartition, int]:
        """Return the end of each source partition, as of the last plan."""
        return {at: self._offsets[at] + lag for at, lag in self._lag.items()}

    # ---- planning ----------------------------------------------------------------------------

    def next_plan(self, now_ms: int, epoch: int) -> BatchPlan | None:
        """Return the plan of the next batch, or None if there is nothing to do."""
        now = max(now_ms, self._now)
        self._topics.check(now_ms)
        try:
            bounds = self._read_bounds(now)
        except MissingSourceTopicException:
            # A deleted topic may have matched a pattern. Then the application has another graph.
            with suppress(MissingSourceTopicException):
                self._topics.check(now_ms, at_once=True)
            if self._topics.graph_changed:
                return None
            raise
        ranges = self._ranges.choose(self._offsets, bounds, now)
        due = {
            task_id for task_id, record in self._records.items()
            if record.next_wall_punctuation is not None and record.next_wall_punctuation <= now
        }
        if self._is_first:
            due.update(self._graph.tasks)
        if not ranges and not due and not self._is_recommit_due(now):
            return None
        downstream = self._graph.downstream(task_id.subtopology for task_id in {*ranges, *due})
        planned = [
            task_id for task_id in self._graph.tasks
            if task_id in ranges or task_id in due or task_id.subtopology in downstream
        ]
        positions = self._store_positions(planned)
        prefetched = self._prefetch(ranges)
        max_bytes = self._ranges.max_bytes(ranges)
        return BatchPlan(
            self._number + 1, epoch, now,
            {
                task_id: replace(
                    self._resume_task(task_id, positions[task_id]),
                    ranges=ranges.get(task_id, ()), punctuate=task_id in due,
                    prefetched=prefetched.get(task_id, ()), max_bytes=max_bytes.get(task_id),
                )
                for task_id in planned
            },
            self._global_positions(), incarnation=self._incarnation,
        )

    def _read_bounds(self, now: int) -> dict[TopicPartition, PartitionOffsets]:
        """Read the bounds of the source partitions. Reset offsets that retention has removed."""
        try:
            bounds = self._log.offsets(self._offsets)
        except UnknownTopic as error:
            raise MissingSourceTopicException(
                f"A source topic was deleted while the application was running. {error} "
                f"Create it again, and reset the application with 'penstock reset "
                f"{self._config.application_id}'."
            ) from error
        for at, offset in self._offsets.items():
            start, end, _ = bounds[at]
            if not start <= offset <= end:
                self._offsets[at] = self._start_offsets.reset(at, offset, bounds[at], now)
        self._lag = {at: bounds[at].end - offset for at, offset in self._offsets.items()}
        return bounds

    def _is_recommit_due(self, now: int) -> bool:
        """Whether to commit unchanged offsets, because brokers expire those of an idle group."""
        return (
            self._log.capabilities.expires_offsets
            and now - self._now >= RECOMMIT_INTERVAL_MS
        )

    def _resume_task(self, task_id: TaskId, positions: Mapping[str, int]) -> TaskPlan:
        """Return a plan with the committed state of a task, without work."""
        record = self._records.get(task_id)
        if record is None:
            return TaskPlan(task_id, positions=positions)
        return TaskPlan(
            task_id, (), record.state, positions, dict(record.shuffled_offsets), record.batch,
            record.attempt,
        )

    def _prefetch(
        self, ranges: Ranges
    ) -> dict[TaskId, tuple[PartitionColumns | None, ...]]:
        """Return the records of each task's ranges, if the log has them in memory and they are few.

        They travel with the plan, so that workers do not have to read them.
        """
        bounds = {
            TopicPartition(each.topic, each.partition): (each.start, each.end)
            for of_task in ranges.values() for each in of_task
        }
        if not bounds or self._ranges.expected_bytes(ranges) > _MAX_PREFETCHED_BYTES:
            return {}
        found = {at: batch.columns() for at, batch in self._log.prefetch(bounds).items()}
        return {
            task_id: tuple(
                found.get(TopicPartition(each.topic, each.partition)) for each in of_task
            )
            for task_id, of_task in ranges.items()
        } if found else {}

    def _store_positions(self, planned: Iterable[TaskId]) -> dict[TaskId, dict[str, int]]:
        """Return task -> store -> the position to which its restore topic is committed.

        Only the lease holder writes changelogs, and it commits them together with the offsets. So
        between two batches the end of a changelog is the position of its store, whatever offsets
        the log has used for itself. A source topic that serves as a changelog counts up to its
        committed offset.
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
            positions = found.setdefault(task_id, {})
            for store, at in self._graph.restore_partitions(task_id).items():
                if at.topic in changelogs:
                    self._check_changelog_end(task_id, store, at, ends[at].end)
                    positions[store] = ends[at].end
                elif at in self._offsets:
                    positions[store] = self._offsets[at]
        return found

    def _check_changelog_end(
        self, task_id: TaskId, store: str, at: TopicPartition, end: int
    ) -> None:
        """Raise if a changelog ends before the position that its task has written."""
        record = self._records.get(task_id)
        written = 0 if record is None else record.positions.get(store, 0)
        if end < written:
            raise LogBusy(
                f"Changelog '{at.topic}' [{at.partition}] ends at {end}, but task {task_id} has "
                f"written up to {written}. Either the log does not show the records yet, or the "
                "topic was recreated and the store is lost. In that case reset the application "
                f"with 'penstock reset {self._config.application_id}'."
            )

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
        """Take over the committed offsets, and the records of the tasks that ran.

        `seconds`: the duration of the batch. `bytes_read`: topic -> (records, bytes) that the
        tasks read.
        """
        if plan.number != self._number + 1:
            raise StreamsException(
                f"Batch {plan.number} was committed, but batch {self._number + 1} was expected. "
                "Two plans were carried out at the same time."
            )
        self._number, self._now, self._is_first = plan.number, plan.now, False
        self._ranges.observe(plan, offsets, seconds=seconds, bytes_read=bytes_read or {})
        for at, before in self._offsets.items():
            after = offsets.get(at, before)
            self._lag[at] -= after - before
            self._offsets[at] = after
        self._records.update(records)


class TopicMonitor:
    """Checks every `metadata.max.age.ms` whether topics have changed the execution graph."""

    def __init__(
        self, log: Log, topology: Topology, config: StreamsConfig, graph: ExecutionGraph,
        now_ms: int,
    ) -> None:
        self._log = log
        self._topology = topology
        self._config = config
        self._graph = graph
        self._interval_ms = integer_setting(config, METADATA_MAX_AGE, 30_000, at_least=0)
        self._checked_at = now_ms
        self._partitions, self._ids = self._read_topics()
        #: Whether the application has another graph now. Never reset.
        self.graph_changed = False

    def check(self, now_ms: int, *, at_once: bool = False) -> None:
        """Check, if it is time. Raise the errors with which the application could not start."""
        is_early = not at_once and 0 <= now_ms - self._checked_at < self._interval_ms
        if self.graph_changed or is_early:
            return
        self._checked_at = now_ms
        partitions, ids = self._read_topics()
        for topic, topic_id in self._ids.items():
            if ids.get(topic, topic_id) != topic_id:
                raise StreamsException(
                    f"Topic '{topic}' was deleted and recreated while the application was "
                    "running. Its offsets do not fit the new topic. Reset the application with "
                    f"'penstock reset {self._config.application_id}'."
                )
        if partitions != self._partitions:
            self._partitions = partitions
            graph = build_graph(self._topology, self._config, partitions)
            self.graph_changed = graph != self._graph

    def _read_topics(self) -> tuple[dict[str, int], dict[str, str]]:
        """Return topic -> partitions of all topics, and topic -> id of the topics that are read."""
        topics = self._log.topics()
        read = {*self._graph.source_topics, *self._graph.global_topics}
        return (
            {topic.name: topic.partitions for topic in topics},
            {topic.name: topic.id for topic in topics if topic.name in read},
        )
