"""`CommittedState`: the committed offsets and task records of an application.

Both execution modes start from it: a batch plan and a grant contain what it knows of a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.plan.batch_plan import TaskPlan
from penstock.engine.plan.offset_metadata import resume_state
from penstock.engine.plan.start_offsets import StartOffsets
from penstock.engine.plan.task_records import TaskRecord, TaskRecords
from penstock.errors import MissingSourceTopicException
from penstock.log.base import Log
from penstock.log.errors import LogBusy, UnknownTopic
from penstock.log.types import PartitionOffsets, TopicPartition
from penstock.record import TaskId
from penstock.task.result import TaskState
from penstock.topology.topology import Topology


class CommittedState:
    """A copy of what the log holds. Holds no durable state.

    `offsets` and `records` change only after a commit. (`read_bounds` moves an offset only where
    retention has removed the records.)
    """

    def __init__(
        self, log: Log, graph: ExecutionGraph, config: StreamsConfig, topology: Topology, *,
        now_ms: int, records: TaskRecords,
    ) -> None:
        self._log = log
        self._graph = graph
        self._config = config
        #: The number and the wall clock of the last batch.
        self.number = 0 if records.batch is None else records.batch.number
        self.now = 0 if records.batch is None else records.batch.now
        self.records: dict[TaskId, TaskRecord] = {}
        self.resume_records(records, graph.tasks)
        self._start_offsets = StartOffsets(log, topology, config, graph)
        #: Source partition -> the next offset to read.
        self.offsets = self._start_offsets.resolve(records.batch, max(now_ms, self.now))
        #: Source partition -> its unread offsets, as of the last `read_bounds`.
        self.lag: dict[TopicPartition, int] = {}
        # A reset recreates the topic, so its id identifies the incarnation of the application.
        self.incarnation = log.topic(tasks_topic(config.application_id)).id

    def resume_records(self, records: TaskRecords, tasks: Iterable[TaskId]) -> None:
        """Take over the records of tasks.

        Kafka Streams for Java may have run since they were written: its times are in the metadata
        of the committed offsets.
        """
        partitions = {
            task_id: [
                TopicPartition(topic, task_id.partition)
                for _, topic in self._graph.queues(task_id)
            ]
            for task_id in tasks
        }
        committed = self._log.committed(
            self._config.application_id, (at for each in partitions.values() for at in each)
        )
        for task_id, of_task in partitions.items():
            record = records.tasks.get(task_id)
            state = resume_state(
                TaskState() if record is None else record.state,
                {at: committed[at] for at in of_task if at in committed},
                self._graph.close_clocks,
            )
            if record is not None:
                self.records[task_id] = replace(record, state=state)
            elif state != TaskState():
                self.records[task_id] = TaskRecord(0, 0, state)

    def read_bounds(self, now: int) -> dict[TopicPartition, PartitionOffsets]:
        """Read the bounds of the source partitions. Reset offsets that retention has removed."""
        try:
            bounds = self._log.offsets(self.offsets)
        except UnknownTopic as error:
            raise MissingSourceTopicException(
                f"A source topic was deleted while the application was running. {error} "
                f"Create it again, and reset the application with 'penstock reset "
                f"{self._config.application_id}'."
            ) from error
        for at, offset in self.offsets.items():
            start, end, _ = bounds[at]
            if not start <= offset <= end:
                self.offsets[at] = self._start_offsets.reset(at, offset, bounds[at], now)
        self.lag = {at: bounds[at].end - offset for at, offset in self.offsets.items()}
        return bounds

    def resume_task(self, task_id: TaskId, positions: Mapping[str, int]) -> TaskPlan:
        """Return a plan with the committed state of a task, without work."""
        record = self.records.get(task_id)
        if record is None:
            return TaskPlan(task_id, positions=positions)
        return TaskPlan(
            task_id, (), record.state, positions, dict(record.shuffled_offsets), record.batch,
            record.attempt,
        )

    def store_positions(self, planned: Iterable[TaskId]) -> dict[TaskId, dict[str, int]]:
        """Return task -> store -> the position to which its restore topic is committed.

        Only the process that runs a task writes its changelogs, and it commits them together with
        the offsets. So between two commits the end of a changelog is the position of its store,
        whatever offsets the log has used for itself. A source topic that serves as a changelog
        counts up to its committed offset.
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
                elif at in self.offsets:
                    positions[store] = self.offsets[at]
        return found

    def _check_changelog_end(
        self, task_id: TaskId, store: str, at: TopicPartition, end: int
    ) -> None:
        """Raise if a changelog ends before the position that its task has written."""
        record = self.records.get(task_id)
        written = 0 if record is None else record.positions.get(store, 0)
        if end < written:
            raise LogBusy(
                f"Changelog '{at.topic}' [{at.partition}] ends at {end}, but task {task_id} has "
                f"written up to {written}. Either the log does not show the records yet, or the "
                "topic was recreated and the store is lost. In that case reset the application "
                f"with 'penstock reset {self._config.application_id}'."
            )

    def global_positions(self) -> dict[tuple[str, int], int]:
        """Return (global topic, partition) -> its end."""
        ends = self._log.offsets(self._graph.global_partitions)
        return {(at[0], at[1]): bounds.end for at, bounds in ends.items()}
