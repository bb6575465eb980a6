"""`Planner`: makes the plan of the next batch from the committed state and the log."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph, build_graph
from penstock.engine.plan.batch_plan import BatchPlan
from penstock.engine.plan.batch_size import NO_DURATION, BatchDuration, integer_setting
from penstock.engine.plan.committed_state import CommittedState
from penstock.engine.plan.ranges import RangePlanner, Ranges
from penstock.engine.plan.task_records import TaskRecord, TaskRecords, read_task_records
from penstock.errors import MissingSourceTopicException, StreamsException
from penstock.log.base import Log
from penstock.log.types import TopicPartition
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
    - The planner holds no durable state. `CommittedState` is a copy of what the log holds.
    - It changes only in `advance`, after a commit. A batch that fails is planned again from the
      same state.
    - Every task runs in the first plan, with or without input: its stores are restored, its
      processors create their schedules, and the start offsets are committed.
    """

    def __init__(
        self, log: Log, graph: ExecutionGraph, config: StreamsConfig, topology: Topology, *,
        now_ms: int, records: TaskRecords | None = None, draining: Collection[str] = (),
    ) -> None:
        """`draining`: read only these topics, which batches must consume before all others."""
        if records is None:
            records = read_task_records(log, config.application_id)
        self._log = log
        self._graph = graph
        self._state = CommittedState(log, graph, config, topology, now_ms=now_ms, records=records)
        self._ranges = RangePlanner(graph, config, draining)
        self._is_first = True
        self._topics = TopicMonitor(log, topology, config, graph, now_ms, draining)

    # ---- state -------------------------------------------------------------------------------

    @property
    def next_due(self) -> int | None:
        """When a batch is due even without new input: epoch milliseconds, or None."""
        times = [
            record.next_wall_punctuation for record in self._state.records.values()
            if record.next_wall_punctuation is not None
        ]
        if self._ranges.next_due is not None:
            times.append(self._ranges.next_due)
        return min(times, default=None)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Source partition -> the next offset to read."""
        return dict(self._state.offsets)

    @property
    def graph_changed(self) -> bool:
        """Whether the application has another graph now, because topics have changed."""
        return self._topics.graph_changed

    @property
    def records(self) -> Mapping[TaskId, TaskRecord]:
        """The committed state of each task."""
        return self._state.records

    @property
    def has_delayed_input(self) -> bool:
        """Whether records wait for other input (`max.task.idle.ms`)."""
        return self._ranges.next_due is not None

    def lag(self) -> dict[TopicPartition, int]:
        """Return the unread offsets of each source partition, as of the last plan."""
        return dict(self._state.lag)

    def end_offsets(self) -> dict[TopicPartition, int]:
        """Return the end of each source partition, as of the last plan."""
        state = self._state
        return {at: state.offsets[at] + lag for at, lag in state.lag.items()}

    def global_positions(self) -> dict[tuple[str, int], int]:
        """Return (global topic, partition) -> its end in the log."""
        return self._state.global_positions()

    # ---- planning ----------------------------------------------------------------------------

    def next_plan(self, now_ms: int, epoch: int) -> BatchPlan | None:
        """Return the plan of the next batch, or None if there is nothing to do."""
        state = self._state
        now = max(now_ms, state.now)
        self._topics.check(now_ms)
        try:
            bounds = state.read_bounds(now)
        except MissingSourceTopicException:
            # A deleted topic may have matched a pattern. Then the application has another graph.
            with suppress(MissingSourceTopicException):
                self._topics.check(now_ms, at_once=True)
            if self._topics.graph_changed:
                return None
            raise
        ranges = self._ranges.choose(state.offsets, bounds, now)
        due = {
            task_id for task_id, record in self._state.records.items()
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
        positions = state.store_positions(planned)
        prefetched = self._prefetch(ranges)
        max_bytes = self._ranges.max_bytes(ranges)
        return BatchPlan(
            state.number + 1, epoch, now,
            {
                task_id: replace(
                    state.resume_task(task_id, positions[task_id]),
                    ranges=ranges.get(task_id, ()), punctuate=task_id in due,
                    prefetched=prefetched.get(task_id, ()), max_bytes=max_bytes.get(task_id),
                )
                for task_id in planned
            },
            state.global_positions(), incarnation=state.incarnation,
        )

    def _is_recommit_due(self, now: int) -> bool:
        """Whether to commit unchanged offsets, because brokers expire those of an idle group."""
        return (
            self._log.capabilities.expires_offsets
            and now - self._state.now >= RECOMMIT_INTERVAL_MS
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

    # ---- after a commit ----------------------------------------------------------------------

    def advance(
        self, plan: BatchPlan, offsets: Mapping[tuple[str, int], int],
        records: Mapping[TaskId, TaskRecord], *, duration: BatchDuration = NO_DURATION,
        bytes_read: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        """Take over the committed offsets, and the records of the tasks that ran.

        `duration`: of the batch. `bytes_read`: topic -> (records, bytes) that the
        tasks read.
        """
        state = self._state
        if plan.number != state.number + 1:
            raise StreamsException(
                f"Batch {plan.number} was committed, but batch {state.number + 1} was expected. "
                "Two plans were carried out at the same time."
            )
        state.number, state.now, self._is_first = plan.number, plan.now, False
        self._ranges.observe(plan, offsets, duration=duration, bytes_read=bytes_read or {})
        for at, before in state.offsets.items():
            after = offsets.get(at, before)
            state.lag[at] -= after - before
            state.offsets[at] = after
        state.records.update(records)


class TopicMonitor:
    """Checks every `metadata.max.age.ms` whether topics have changed the execution graph."""

    def __init__(
        self, log: Log, topology: Topology, config: StreamsConfig, graph: ExecutionGraph,
        now_ms: int, in_log: Collection[str] = (),
    ) -> None:
        """`in_log`: see `build_graph`."""
        self._log = log
        self._topology = topology
        self._config = config
        self._graph = graph
        self._in_log = in_log
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
            graph = build_graph(self._topology, self._config, partitions, self._in_log)
            self.graph_changed = graph != self._graph

    def _read_topics(self) -> tuple[dict[str, int], dict[str, str]]:
        """Return topic -> partitions of all topics, and topic -> id of the topics that are read."""
        topics = self._log.topics()
        read = {*self._graph.source_topics, *self._graph.global_topics}
        return (
            {topic.name: topic.partitions for topic in topics},
            {topic.name: topic.id for topic in topics if topic.name in read},
        )
