"""One task in one batch, from its plan to its outcome."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.engine.packaging.failure import Failure
from penstock.engine.plan.batch_plan import BatchPlan, Range, TaskPlan
from penstock.engine.plan.task_records import TaskRecord
from penstock.engine.worker.blocks import Block, direct_ranges, encode_block
from penstock.engine.worker.changelog_cache import ChangelogCache
from penstock.engine.worker.columns import grouped, without_running_maximum
from penstock.engine.worker.outcome import LogLine, Sent, TaskOutcome, records_in
from penstock.engine.worker.task_stores import TaskStores
from penstock.log.base import Log
from penstock.log.types import Append, LogBatch
from penstock.record import PartitionColumns, TaskId
from penstock.task.queue import RecordRange
from penstock.task.result import TaskResult
from penstock.task.runtime import Environment
from penstock.task.task import Task

if TYPE_CHECKING:
    from penstock.engine.worker.worker import Worker

Partition = tuple[str, int]


class Attempt(NamedTuple):
    """Which run of which plan this is."""

    plan: BatchPlan
    task: TaskPlan
    number: int


class TaskRun:
    """Reads what the plan names, runs the task, and makes an outcome of its result.

    Nothing is changed outside: what is put aside, in the log or on this host, is used by nobody
    before the commit. Only where once more does no harm are outputs published at once.
    """

    def __init__(self, worker: Worker, attempt: Attempt, blocks: Sequence[Block]) -> None:
        self._worker = worker
        self._bundle = worker.bundle
        self._plan, self._task_plan, self._attempt = attempt
        self._task_id = self._task_plan.task_id
        self._blocks = blocks
        #: Store -> the topic it can be restored from.
        self._restored = self._bundle.graph.subtopologies[self._task_id.subtopology].restore_topics
        #: Topic -> (records, their bytes).
        self._bytes: dict[str, tuple[int, int]] = {}
        #: The plan's ranges as far as they were read.
        self._ranges: list[Range] = []

    def run(
        self, logged: Callable[[], tuple[LogLine, ...]]
    ) -> tuple[TaskOutcome, list[tuple[TaskId, bytes]]]:
        """The outcome, and blocks for other tasks. `logged`: what was logged so far."""
        worker, task_id = self._worker, self._task_id
        self._bytes = {}
        blueprint = worker.blueprint(task_id.subtopology)
        with worker.replicas.open(self._task_plan, blueprint, self._plan) as stores:
            environment = Environment(
                worker.topics.partitions_of, worker.topics.limits_of, stores.open_bytes,
                worker.global_tables.stores(self._plan), worker.resources,
                self._plan.now, self._own_files(),
                max_result_bytes=self._bundle.max_result_bytes,
            )
            task = Task(blueprint, task_id, environment, self._task_plan.state)
            try:
                stores.fill(task.runtime.stores)
                task.start()
                for source, topic in self._bundle.graph.queues(task_id):
                    task.subscribe(source, topic, task_id.partition)
                ranges = self._read()
                ranges |= direct_ranges(task_id, self._blocks, self._task_plan.shuffled_offsets)
                result = task.run(ranges)
                if result.failure is None:
                    stores.put_aside(task.runtime.stores, self._plan.number, self._attempt)
            finally:
                task.close()
        return self._outcome(result, ranges, stores, logged)

    def _own_files(self) -> str:
        """Where user processors of the task may keep files: apart from the replica's."""
        path = self._bundle.directory / str(self._task_id) / "files"
        path.mkdir(parents=True, exist_ok=True)
        return str(path)

    def _outcome(
        self, result: TaskResult, ranges: Mapping[Partition, RecordRange],
        stores: TaskStores, logged: Callable[[], tuple[LogLine, ...]],
    ) -> tuple[TaskOutcome, list[tuple[TaskId, bytes]]]:
        plan = self._task_plan
        if result.failure is not None:
            failed = TaskRecord(self._plan.number, self._attempt, plan.state)
            return TaskOutcome(
                self._task_id, failed, logged=logged(), restored=stores.restored,
                failure=Failure.of(str(self._task_id), result.failure),
            ), []
        outputs, blocks, sent = self._split(result)
        changes, changed = self._changes(result, stores.own_changes)
        published = 0
        if self._worker.publishes:
            published = records_in(outputs)
            self._worker.log.append_many(outputs, together=False)
            outputs = []
        offsets = self._offsets(result, ranges)
        direct = {
            topic: ranges[topic, number].records.offsets[-1] + 1
            for topic, number in ranges if ranges[topic, number].whole
        }
        record = TaskRecord(
            self._plan.number, self._attempt, result.state, self._positions(changed, offsets),
            {**plan.shuffled_offsets, **direct}, result.next_wall_punctuation,
        )
        return TaskOutcome(
            self._task_id, record, tuple(outputs), tuple(changes), offsets, tuple(sent),
            tuple(block.consumed for block in self._blocks), self._taken(result, ranges),
            self._bytes, tuple(result.printed), logged(), stores.restored, result.counters,
            result.commit_requested, published,
        ), blocks

    # ---- what was written --------------------------------------------------------------------

    def _split(
        self, result: TaskResult
    ) -> tuple[list[Append], list[tuple[TaskId, bytes]], list[Sent]]:
        """Records for the log, and for other tasks of the batch."""
        direct = self._bundle.graph.shuffled
        appends: list[Append] = []
        blocks: list[tuple[TaskId, bytes]] = []
        sent: list[Sent] = []
        found = grouped(result.outputs, running_maximum=bool(direct))
        for (topic, partition), records in found.groups():
            if topic in direct:
                target = TaskId(direct[topic], partition)
                block = encode_block(self._task_id, self._attempt, target, topic, records)
                blocks.append((target, block))
                sent.append(Sent(target, topic, records.num_rows))
            else:
                appends += self._appends(
                    topic, partition, without_running_maximum(records),
                    at_once=self._worker.publishes,
                )
        return appends, blocks, sent

    def _changes(
        self, result: TaskResult, own_changes: ChangelogCache | None
    ) -> tuple[list[Append], dict[str, int]]:
        """Records for changelogs, and how many each store has written."""
        appends: list[Append] = []
        changed: dict[str, int] = {}
        found = [(store, records) for (store,), records in grouped(result.changelog).groups()]
        if own_changes is not None:
            own_changes.keep(
                (self._plan.number, self._attempt), self._task_plan.positions, found
            )
        for store, records in found:
            appends += self._appends(self._restored[store], self._task_id.partition, records)
            changed[store] = records.num_rows
        return appends, changed

    def _appends(
        self, topic: str, partition: int, records: pa.RecordBatch, *, at_once: bool = False
    ) -> list[Append]:
        """What is to be appended; put aside if there is much of it, unless it is published here."""
        limit = self._bundle.aside_bytes
        if at_once or limit is None or records.nbytes <= limit:
            return [Append(topic, partition, records)]
        blobs = self._worker.log.stage_records(records)
        return [Append(topic, partition, blob) for blob in blobs]

    # ---- what was read -----------------------------------------------------------------------

    def _read(self) -> dict[Partition, RecordRange]:
        """The records of all ranges."""
        found = {}
        plan = self._task_plan
        all_prefetched = plan.prefetched or (None,) * len(plan.ranges)
        offsets = max(1, sum(each.end - each.start for each in plan.ranges))
        self._ranges = []
        for wanted, prefetched in zip(plan.ranges, all_prefetched, strict=True):
            if prefetched is not None:
                self._count_bytes(wanted.topic, prefetched)
                found[wanted.topic, wanted.partition] = RecordRange(prefetched, wanted.cut)
                self._ranges.append(wanted)
                continue
            limit = plan.max_bytes
            if limit is not None:
                limit = max(1, limit * (wanted.end - wanted.start) // offsets)
            taken, batches = read_range(self._worker.log, wanted, limit)
            before = self._bytes.get(wanted.topic, (0, 0))
            self._bytes[wanted.topic] = (
                before[0] + sum(map(len, batches)), before[1] + sum(map(_size, batches))
            )
            found[wanted.topic, wanted.partition] = _joined(wanted, batches, taken.cut)
            self._ranges.append(taken)
        return found

    def _count_bytes(self, topic: str, records: PartitionColumns) -> None:
        """Count records that came with the plan as if they had been read."""
        size = sum(
            len(part) for column in (records.keys, records.values) for part in column if part
        )
        count, before = self._bytes.get(topic, (0, 0))
        self._bytes[topic] = count + len(records), before + size

    def _offsets(
        self, result: TaskResult, ranges: Mapping[Partition, RecordRange]
    ) -> dict[Partition, int]:
        """Where to go on. Behind a range that is used up lies its end, wherever its records end."""
        offsets = {}
        for topic, partition, start, end, _ in self._ranges:
            numbers = ranges[topic, partition].records.offsets
            at = result.offsets.get((topic, partition), start)
            offsets[topic, partition] = end if not numbers or at > numbers[-1] else at
        return offsets

    def _taken(self, result: TaskResult, ranges: Mapping[Partition, RecordRange]) -> int:
        return sum(
            bisect_left(ranges[at].records.offsets, offset)
            for at, offset in result.offsets.items() if at in ranges
        )

    def _positions(
        self, changed: Mapping[str, int], offsets: Mapping[Partition, int]
    ) -> dict[str, int]:
        """Where the stores stand behind this batch.

        In a log without gaps that is exact, because only the holder of the lease writes to
        changelogs. Kafka puts markers in between, so a plan asks the log itself where a changelog
        ends; this is for people.
        """
        before, partition = self._task_plan.positions, self._task_id.partition
        return {
            store: offsets.get((topic, partition), before.get(store, 0) + changed.get(store, 0))
            for store, topic in self._restored.items()
        }


def read_range(
    log: Log, wanted: Range, max_bytes: int | None
) -> tuple[Range, list[LogBatch]]:
    """The records of a range, in order, and the range: cut where they would be too large."""
    if wanted.start == wanted.end:
        return wanted, []
    reading = log.read(
        wanted.topic, wanted.partition, wanted.start, wanted.end, max_bytes=max_bytes
    )
    batches = list(reading)
    if reading.position < wanted.end:
        wanted = wanted._replace(end=reading.position, cut=True)
    return wanted, batches


def _size(batch: LogBatch) -> int:
    return int(batch.records.column("key").nbytes + batch.records.column("value").nbytes)


def _joined(wanted: Range, batches: list[LogBatch], cut: bool) -> RecordRange:
    if not batches:
        nothing = PartitionColumns(
            topic=wanted.topic, partition=wanted.partition, offsets=(), timestamps=(), keys=(),
            values=(),
        )
        return RecordRange(nothing, cut)
    whole = batches[0]
    if len(batches) > 1:
        whole = replace(whole, records=pa.concat_batches([each.records for each in batches]))
    return RecordRange(whole.columns(), cut)
