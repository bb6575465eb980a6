"""`LaneTask`: one task while a lane runs it. Its stores and processors stay open."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.clock import wall_clock_ms
from penstock.engine.continuous.messages import Grant, PartitionLag
from penstock.engine.packaging.failure import Failure
from penstock.engine.plan.batch_plan import BatchPlan
from penstock.engine.plan.offset_metadata import add_metadata
from penstock.engine.plan.task_records import TaskRecord
from penstock.engine.worker.outcome import OnRestoring, RestoredStore, TaskOutcome
from penstock.engine.worker.record_groups import group_columns, group_records
from penstock.engine.worker.worker import Worker
from penstock.errors import (
    RetryRequestedException,
    TaskCorruptedException,
    TaskMigratedException,
)
from penstock.log.base import TailReader
from penstock.log.types import Append, AppendResult, CommittedOffset, TopicPartition
from penstock.record import NO_HEADERS, PartitionColumns, TaskId
from penstock.stores.cache.record_cache import RecordCache
from penstock.stores.replica.live_replica import CommittedChanges, LiveReplica
from penstock.task.result import TaskResult
from penstock.task.runtime import Environment
from penstock.task.task import Task

log = logging.getLogger(__name__)

#: A lane commits when the results of a task take this much. Logs stage larger transactions on disk.
MAX_RESULT_BYTES = 8 * 1024 * 1024
#: How often the limits of output topics are looked up.
LIMITS_INTERVAL_MS = 60_000


@dataclass(frozen=True, slots=True)
class TaskCommit:
    """The writes of a task in a transaction of its lane."""

    result: TaskResult
    record: TaskRecord
    outputs: list[Append]
    #: Store -> its changelog records.
    changes: dict[str, Append]
    #: Every source partition of the task -> the next offset to read.
    offsets: dict[TopicPartition, int]
    #: The same with the metadata of Kafka Streams.
    committed_offsets: dict[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True)
class RestoredReplica:
    """The stores of a task at its committed positions."""

    #: None for a task without stores.
    replica: LiveReplica | None
    #: The stores that were restored completely.
    stores: tuple[RestoredStore, ...]
    #: How long that took.
    seconds: float = 0.0


def restore_replica(
    worker: Worker, grant: Grant, context: BatchPlan, on_restoring: OnRestoring
) -> RestoredReplica:
    """Bring the stores of a task to its committed positions. `context`: epoch and incarnation.

    A replica that cannot be used is restored from the changelogs.
    """
    plan = grant.plan
    blueprint = worker.blueprint(plan.task_id.subtopology)
    number = plan.last_batch + 1
    if grant.discard_replica:
        context = replace(context, discard_replicas=frozenset((plan.task_id,)))
    context = replace(context, number=number)
    try:
        return RestoredReplica(
            *worker.replicas.open_live(plan, blueprint, context, on_restoring)
        )
    except TaskCorruptedException as error:
        log.warning("Restoring task %s again: %s", plan.task_id, error)
    except TaskMigratedException as error:
        # Another process is ahead, or was. If it holds the lease, this lane cannot commit.
        log.warning("Restoring task %s completely: %s", plan.task_id, error)
        context = replace(context, discard_replicas=frozenset((plan.task_id,)))
    return RestoredReplica(*worker.replicas.open_live(plan, blueprint, context, on_restoring))


class LaneTask:
    """A task, its replica, and its positions in the log.

    Invariant: the committed state of the task in the log is `record` and `offsets`.
    """

    def __init__(
        self, worker: Worker, grant: Grant, restored: RestoredReplica, context: BatchPlan,
        cache: RecordCache,
    ) -> None:
        """Open the stores and start the processors. `context`: clock and global positions."""
        self.task_id: TaskId = grant.plan.task_id
        self._worker = worker
        self._graph = worker.bundle.graph
        plan = grant.plan
        self.record = TaskRecord(
            plan.last_batch, plan.last_attempt, plan.state, plan.positions
        )
        #: Source partition -> the committed offset.
        self.offsets = {TopicPartition(*at): offset for at, offset in grant.offsets.items()}
        self._is_new = True
        #: When the limits of the output topics are looked up again.
        self._limits_due = 0
        #: When the task stops waiting for an empty partition (`max.task.idle.ms`).
        self._idle_deadlines: dict[TopicPartition, int] = {}
        self._idle_ms = worker.bundle.config.max_task_idle_ms
        #: The time of the last look at the queues.
        self._looked_at = 0
        #: The counters at the last commit.
        self._counted: dict[str, int] = {}
        #: The records of the commit that is being prepared.
        self._consumed = 0
        #: The replica was replaced or deleted, so the task must be opened again.
        self.is_broken = False
        blueprint = worker.blueprint(self.task_id.subtopology)
        self._replica = restored.replica
        environment = Environment(
            worker.topics.partitions_of, worker.topics.limits_of,
            global_stores=worker.global_tables.stores(context), resources=worker.resources,
            now=context.now, state_dir=worker.processor_directory(self.task_id), cache=cache,
            max_result_bytes=min(worker.bundle.max_result_bytes, MAX_RESULT_BYTES),
            clock=wall_clock_ms,
        )
        if self._replica is not None:
            environment.open_bytes = self._replica.open_bytes
            environment.restored_clocks = self._replica.state.clocks
        self.task = Task(blueprint, self.task_id, environment, plan.state)
        if self._replica is not None:
            self._replica.restore_custom_stores(self.task.runtime.stores)
        self.task.start()
        for source, topic in self._graph.queues(self.task_id):
            self.task.subscribe(source, topic, self.task_id.partition)

    # ---- records -----------------------------------------------------------------------------

    def add(self, records: PartitionColumns) -> None:
        """Queue records of a source partition."""
        self.task.add_columns(records)

    def queued(self, partition: TopicPartition) -> int:
        """The number of queued records of a source partition."""
        return self.task.queued(partition)

    def queued_bytes(self, partition: TopicPartition) -> int:
        """The size of the queued records of a source partition."""
        return self.task.queued_bytes(partition)

    @property
    def has_records(self) -> bool:
        """Whether any record is queued."""
        return self.task.has_records

    def refresh_limits(self, now: int) -> None:
        """Look up the limits of the output topics from time to time: they move with the clock."""
        if now >= self._limits_due:
            self._limits_due = now + LIMITS_INTERVAL_MS
            # A round may be long.
            self.task.refresh_limits(2 * LIMITS_INTERVAL_MS)

    def process(self, tail: TailReader, now: int, enough: Callable[[], bool]) -> bool:
        """Process queued records, as far as the order of timestamps allows (M3)."""
        task = self.task
        task.runtime.system_time = max(task.runtime.system_time, now)
        self._looked_at = now
        cut = [at for at in self.offsets if self._is_cut(tail, at, now)]
        is_enforced = self._idle_ms >= 0 and any(
            at not in cut and not task.queued(at) for at in self.offsets
        )
        has_progressed = task.process_available(cut, lambda: enough() or task.is_full())
        if is_enforced and has_progressed and task.runtime.meters.records("enforced"):
            task.runtime.meters.meter("enforced").record(1)
        return has_progressed

    def _is_cut(self, tail: TailReader, at: TopicPartition, now: int) -> bool:
        """Whether the task must wait where this partition runs empty."""
        idle_ms = self._idle_ms
        if idle_ms < 0:
            return False
        if not tail.is_at_end(at):
            return True
        if idle_ms == 0 or len(self.offsets) < 2:
            return False
        if self.task.queued(at):
            self._idle_deadlines.pop(at, None)
            return True
        return now < self._idle_deadlines.setdefault(at, now + idle_ms)

    def note_idle(self, tail: TailReader, now: int) -> None:
        """Start to wait for the partitions that are empty, although no record is queued: what
        arrives in one of them later has waited for the others already."""
        if self._idle_ms > 0:
            for at in self.offsets:
                self._is_cut(tail, at, now)

    def punctuate(self, now: int) -> None:
        """Fire the due wall-clock schedules."""
        if self.task.runtime.wall_schedules.next_due <= now:
            self.task.punctuate_wall_clock(now)
            self._is_new = True

    @property
    def next_due(self) -> int:
        """The time of the next wall-clock punctuation, or of the end of waiting for input."""
        due = [self.task.runtime.wall_schedules.next_due]
        if self.has_records:
            # A deadline stays when it has passed, until its partition has records again.
            due += (each for each in self._idle_deadlines.values() if each > self._looked_at)
        return min(due)

    # ---- commit ------------------------------------------------------------------------------

    @property
    def needs_commit(self) -> bool:
        """Whether the task was granted, has processed records, or has punctuated."""
        return self._is_new or self.task.taken_records > 0

    @property
    def requests_commit(self) -> bool:
        """Whether a processor has requested a commit, or the results take much memory."""
        return self.task.runtime.commit_requested or self.task.is_full()

    def prepare_commit(self, tail: TailReader, attempt: int) -> TaskCommit:
        """Flush the caches and return everything to be written."""
        self._consumed = self.task.taken_records
        result = self.task.commit()
        offsets = {at: self._next_offset(tail, at, result) for at in self.offsets}
        topics = self._graph.subtopologies[self.task_id.subtopology].restore_topics
        changes = {
            store: Append(topics[store], self.task_id.partition, records)
            for (store,), records in group_columns(result.changelog).items()
        }
        outputs = [
            Append(topic, partition, records)
            for (topic, partition), records in group_columns(result.outputs).items()
        ]
        record = TaskRecord(
            self.record.batch + 1, attempt, result.state,
            self._expected_positions(changes, offsets), {}, result.next_wall_punctuation,
        )
        committed = add_metadata(offsets, (result.state,), self._graph.close_clocks)
        return TaskCommit(result, record, outputs, changes, offsets, committed)

    def _next_offset(self, tail: TailReader, at: TopicPartition, result: TaskResult) -> int:
        """The next offset to read: behind offsets without a record if all records are processed."""
        if self.task.queued(at):
            return result.offsets.get(at, self.offsets[at])
        return tail.position(at)

    def _expected_positions(
        self, changes: Mapping[str, Append], offsets: Mapping[TopicPartition, int]
    ) -> dict[str, int]:
        """Return store -> its changelog position, as far as it is known before the commit."""
        before = {} if self._replica is None else self._replica.positions
        return {
            store: offsets.get(at, before.get(store, 0) + (
                len(changes[store].records) if store in changes else 0
            ))
            for store, at in self._graph.restore_partitions(self.task_id).items()
        }

    def committed(
        self, commit: TaskCommit, written: Mapping[str, AppendResult], epoch: int
    ) -> None:
        """Apply a commit to the replica. `written`: store -> its appended changelog records."""
        self.record = commit.record
        self.offsets = commit.offsets
        self._is_new = False
        if self._replica is None:
            self.task.advance()
            return
        positions = self._committed_positions(commit, written)
        # The driver grants the task again only when the log shows the changelogs up to here. On
        # Kafka the expected positions are too small: markers of transactions have offsets, too.
        self.record = replace(commit.record, positions=positions)
        changes = CommittedChanges(
            epoch, (commit.record.batch, commit.record.attempt), positions,
            dict(_custom_records(self._replica, commit, written)),
            {(at[0], at[1]): offset for at, offset in commit.offsets.items()},
        )
        try:
            self._replica.apply(self.task.runtime.stores, changes)
        except TaskCorruptedException as error:
            log.warning("The replica of task %s cannot be used: %s", self.task_id, error)
            self.is_broken = True

    def _committed_positions(
        self, commit: TaskCommit, written: Mapping[str, AppendResult]
    ) -> dict[str, int]:
        assert self._replica is not None
        positions = dict(self._replica.positions)
        for store, at in self._graph.restore_partitions(self.task_id).items():
            if store in written:
                positions[store] = written[store].next_offset
            elif at in commit.offsets:
                positions[store] = commit.offsets[at]
        return positions

    def positions(self, tail: TailReader) -> dict[TopicPartition, int]:
        """Return the offsets up to which everything is committed."""
        if self.needs_commit:
            return self.offsets
        return {
            at: offset if self.task.queued(at) else tail.position(at)
            for at, offset in self.offsets.items()
        }

    def lag(self, tail: TailReader) -> Iterator[PartitionLag]:
        """Yield how many records of each source partition are not processed, without a request."""
        for at in self.offsets:
            unread = tail.end(at) - tail.position(at)
            yield PartitionLag(
                self.task_id, at.topic, at.partition, max(0, unread) + self.task.queued(at)
            )

    # ---- reports -----------------------------------------------------------------------------

    def outcome(self, commit: TaskCommit) -> TaskOutcome:
        """Return the report of the last commit, without its records."""
        result = commit.result
        global_tables = self._worker.global_tables
        return TaskOutcome(
            self.task_id, self.record,
            offsets={(at[0], at[1]): offset for at, offset in commit.offsets.items()},
            records_consumed=self._consumed,
            printed=tuple(result.printed), restored=global_tables.take_restored(),
            counters=self._count(result.counters), drops=result.drops, sensors=result.sensors,
            readings=result.readings,
            global_dropped=global_tables.take_dropped(), commit_requested=result.commit_requested,
            notices=self._worker.notices,
            published=sum(len(each.records) for each in commit.outputs),
            logged_changes=sum(
                len(each.records) for each in commit.changes.values()
            ),
        )

    def _count(self, counters: dict[str, int]) -> dict[str, int]:
        """Return the amounts since the last commit. The counters of a task only grow."""
        before, self._counted = self._counted, counters
        return {name: amount - before.get(name, 0) for name, amount in counters.items()}

    def failure(self, error: BaseException) -> TaskOutcome:
        """Return the report of a failure, with the dead letters of the failed record.

        Under at-least-once processing on a broker, the outputs before the failure are included.
        """
        result = self.task.failed(error)
        letters = result.dead_letters
        if self._worker.publishes:
            letters = result.outputs
        if isinstance(error, RetryRequestedException):
            letters = []
        return TaskOutcome(
            self.task_id, self.record,
            failure=Failure.of(str(self.task_id), error),
            outputs=tuple(
                Append(topic, partition, records)
                for (topic, partition), records in group_records(letters).groups()
            ),
        )

    def close(self) -> None:
        """Close the processors and the stores. Uncommitted changes are discarded."""
        self.task.close()
        if self._replica is not None:
            self._replica.close()


def _custom_records(
    replica: LiveReplica, commit: TaskCommit, written: Mapping[str, AppendResult]
) -> Iterator[tuple[str, PartitionColumns]]:
    """Yield the changelog records of the stores that manage their own state."""
    for store in filter(replica.manages_own_state, written):
        rows = [row for row in commit.result.changelog if row[0] == store]
        topic, partition, base, *_ = written[store]
        headers = [row[4] or NO_HEADERS for row in rows]
        yield store, PartitionColumns(
            topic=topic, partition=partition, offsets=range(base, base + len(rows)),
            timestamps=[row[3] for row in rows], keys=[row[1] for row in rows],
            values=[row[2] for row in rows], headers=headers,
        )
