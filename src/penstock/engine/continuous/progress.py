"""`ContinuousProgress`: how far an application has processed its input, as lanes report it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.plan.batch_plan import TaskPlan
from penstock.engine.plan.committed_state import CommittedState
from penstock.engine.plan.offset_metadata import add_metadata
from penstock.engine.plan.task_records import (
    BATCH_KEY,
    BatchRecord,
    TaskRecord,
    TaskRecords,
    encode_batch,
    read_task_records,
)
from penstock.log.base import Lease, Log, Transaction
from penstock.log.errors import LogBusy
from penstock.log.types import TopicPartition
from penstock.record import RecordColumns, TaskId
from penstock.topology.topology import Topology


class ContinuousProgress:
    """A copy of the committed state, kept up to date by the messages of lanes.

    It is exact for tasks that no lane runs: a task is granted from it.
    """

    def __init__(
        self, log: Log, graph: ExecutionGraph, config: StreamsConfig, topology: Topology, *,
        now_ms: int, records: TaskRecords,
    ) -> None:
        self._log = log
        self._graph = graph
        self._application_id = config.application_id
        self._state = CommittedState(log, graph, config, topology, now_ms=now_ms, records=records)
        #: Source partition -> the committed offset, as far as lanes have reported it. `offsets` may
        #: be behind further offsets without a record.
        self.committed: dict[TopicPartition, int] = {}
        #: Partition -> the end of committed outputs that readers may not see yet.
        self._outputs: dict[TopicPartition, int] = {}

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Source partition -> the offset up to which everything is committed."""
        return dict(self._state.offsets)

    @property
    def records(self) -> dict[TaskId, TaskRecord]:
        """The committed state of each task."""
        return self._state.records

    @property
    def incarnation(self) -> str:
        """Identifies the time between two resets of the application."""
        return self._state.incarnation

    def record_start(self, lease: Lease, now: int) -> None:
        """Commit the start offsets, and record which topics the application reads."""
        state = self._state
        state.number, state.now = state.number + 1, max(now, state.now)
        with self._log.transaction(lease) as transaction:
            self._append_batch(transaction)
            transaction.commit_offsets(self._application_id, add_metadata(
                state.offsets, (record.state for record in state.records.values()),
                self._graph.close_clocks,
            ))

    def _append_batch(self, transaction: Transaction) -> None:
        state = self._state
        record = BatchRecord(
            state.number, state.now, state.global_positions(), self._graph.source_topics
        )
        transaction.append(
            tasks_topic(self._application_id), 0,
            RecordColumns([BATCH_KEY], [encode_batch(record)], [state.now]),
        )

    def commit(
        self, task_id: TaskId, record: TaskRecord, offsets: Mapping[tuple[str, int], int]
    ) -> None:
        """Take over a commit that a lane has reported."""
        self._state.records[task_id] = record
        self.committed.update((TopicPartition(*at), offset) for at, offset in offsets.items())

    def advance(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Take over the positions that a lane has reported."""
        self._state.offsets.update(
            (TopicPartition(*at), offset) for at, offset in offsets.items()
        )

    def add_outputs(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Take over the ends of the outputs that a lane has committed."""
        self._outputs.update((TopicPartition(*at), end) for at, end in ends.items())

    def are_outputs_readable(self) -> bool:
        """Whether readers see all committed outputs.

        Lanes do not wait for this: Kafka shows the records of a transaction a moment after it has
        acknowledged the commit.
        """
        if self._outputs and self._log.is_readable(self._outputs):
            self._outputs.clear()
        return not self._outputs

    def reload(self, lease: Lease, tasks: Collection[TaskId]) -> None:
        """Read the state of tasks from the log, after their lanes were fenced.

        Only of these tasks: the offsets of others may be part of open transactions, which readers
        of offsets wait for.
        """
        if not tasks:
            return
        # Readers see nothing behind the first record of an open transaction, and other lanes write
        # to this topic all the time. This commit returns when readers see everything before it.
        with self._log.transaction(lease) as transaction:
            self._append_batch(transaction)
        state = self._state
        state.resume_records(read_task_records(self._log, self._application_id), tasks)
        partitions = [
            TopicPartition(topic, task_id.partition) for task_id in tasks
            for topic in self._graph.log_topics(task_id)
        ]
        committed = self._log.committed(self._application_id, partitions)
        state.offsets.update((at, found.offset) for at, found in committed.items())

    def grants(
        self, tasks: Iterable[TaskId], now: int
    ) -> dict[TaskId, tuple[TaskPlan, dict[tuple[str, int], int]]]:
        """Return the committed state of each task, and the offsets of its source partitions."""
        tasks = list(tasks)
        state = self._state
        state.read_bounds(now)
        positions = state.store_positions(tasks)
        return {
            task_id: (
                state.resume_task(task_id, positions[task_id]),
                {
                    (topic, task_id.partition): state.offsets[
                        TopicPartition(topic, task_id.partition)
                    ]
                    for topic in self._graph.log_topics(task_id)
                },
            )
            for task_id in tasks
        }

    def is_caught_up(self) -> bool:
        """Whether everything in the source topics is processed, and its output readable.

        The positions are taken before the ends: a record that a commit has written to a repartition
        topic since then is beyond the position that was reported before. Such a record may not be
        readable yet, so repartition topics must have no open transaction.
        """
        offsets = self.offsets
        repartitions = [at for at in offsets if at.topic in self._graph.repartition_topics]
        ends = self._log.offsets(offsets)
        try:
            ends |= self._log.settled_offsets(repartitions, timeout_s=0.0)
        except LogBusy:
            return False
        is_processed = all(offset >= ends[at].end for at, offset in offsets.items())
        return is_processed and self.are_outputs_readable()

    def end_offsets(self) -> dict[TopicPartition, int]:
        """Return the current end of each source partition."""
        return {at: bounds.end for at, bounds in self._log.offsets(self.offsets).items()}

    def lag(self) -> dict[TopicPartition, int]:
        """Return the unread offsets of each source partition."""
        offsets = self.offsets
        return {at: max(0, end - offsets[at]) for at, end in self.end_offsets().items()}
