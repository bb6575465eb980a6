"""Runs one task in one batch, from its plan to its outcome."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.clock import wall_clock_ms
from penstock.engine.packaging.failure import Failure
from penstock.engine.plan.batch_plan import BatchPlan, Range, TaskPlan
from penstock.engine.plan.task_records import TaskRecord
from penstock.engine.worker.blocks import Block, SentBlock, encode_block, shuffled_ranges
from penstock.engine.worker.changelog_cache import ChangelogCache
from penstock.engine.worker.log_lines import LogLine
from penstock.engine.worker.origins import origin_columns
from penstock.engine.worker.outcome import TaskOutcome, count_records
from penstock.engine.worker.record_groups import group_records, without_shuffle_columns
from penstock.engine.worker.replica_pool import TaskSnapshot
from penstock.errors import RetryRequestedException
from penstock.log.base import Log
from penstock.log.errors import PartlyAppended
from penstock.log.types import Append, LogBatch
from penstock.record import PartitionColumns, TaskId
from penstock.task.queue import RecordRange
from penstock.task.result import TaskResult
from penstock.task.runtime import Environment
from penstock.task.task import Task

if TYPE_CHECKING:
    from penstock.engine.worker.worker import Worker

Partition = tuple[str, int]
#: Encoded records for another task.
AddressedBlock = tuple[TaskId, bytes]


class TaskAttempt(NamedTuple):
    """Identifies one run of a task."""

    plan: BatchPlan
    task: TaskPlan
    number: int


class TaskRun:
    """Reads the ranges of the plan, runs the task, and converts its result into an outcome.

    A run has no visible effects: nothing uses staged records and files before the commit. The
    exception is at-least-once processing, where the worker publishes the outputs itself.
    """

    def __init__(self, worker: Worker, attempt: TaskAttempt, blocks: Sequence[Block]) -> None:
        self._worker = worker
        self._bundle = worker.bundle
        self._plan, self._task_plan, self._attempt = attempt
        self._task_id = self._task_plan.task_id
        self._blocks = blocks
        subtopology = self._bundle.graph.subtopologies[self._task_id.subtopology]
        #: Store -> the topic that restores it.
        self._restore_topics = subtopology.restore_topics
        #: Topic -> (records, bytes) that were read.
        self._read_sizes: dict[str, tuple[int, int]] = {}
        #: The plan's ranges, as far as they were read.
        self._ranges: list[Range] = []

    def run(
        self, log_lines: Callable[[], tuple[LogLine, ...]]
    ) -> tuple[TaskOutcome, list[AddressedBlock]]:
        """Run the task. Returns the outcome and the blocks for other tasks.

        `log_lines` returns what was logged so far.
        """
        worker, task_id, graph = self._worker, self._task_id, self._bundle.graph
        self._read_sizes = {}
        blueprint = worker.blueprint(task_id.subtopology)
        with worker.replicas.open(self._task_plan, blueprint, self._plan) as snapshot:
            environment = Environment(
                worker.topics.partitions_of, worker.topics.limits_of, snapshot.open_bytes,
                worker.global_tables.stores(self._plan), worker.resources,
                self._plan.now, worker.processor_directory(task_id),
                shuffled_topics=frozenset(graph.shuffled),
                notes_origins=graph.sends(task_id.subtopology),
                max_result_bytes=self._bundle.max_result_bytes,
                restored_clocks=snapshot.clocks, clock=wall_clock_ms,
            )
            task = Task(blueprint, task_id, environment, self._task_plan.state)
            try:
                snapshot.restore_custom_stores(task.runtime.stores)
                task.start()
                for source, topic in graph.queues(task_id):
                    task.subscribe(source, topic, task_id.partition)
                ranges = self._read()
                ranges |= shuffled_ranges(task_id, self._blocks, self._task_plan.shuffled_offsets)
                result = task.run(ranges)
                if result.failure is None:
                    snapshot.stage_writes(task.runtime.stores, self._plan.number, self._attempt)
            finally:
                task.close()
        return self._outcome(result, ranges, snapshot, log_lines)

    def _outcome(
        self, result: TaskResult, ranges: Mapping[Partition, RecordRange],
        snapshot: TaskSnapshot, log_lines: Callable[[], tuple[LogLine, ...]],
    ) -> tuple[TaskOutcome, list[AddressedBlock]]:
        plan = self._task_plan
        global_tables = self._worker.global_tables
        catch_up = snapshot.catch_up
        restored = (*global_tables.take_restored(), *catch_up.restored)
        self._worker.count_preparation(catch_up.extra_seconds)
        if result.failure is not None:
            return TaskOutcome(
                self._task_id, TaskRecord(self._plan.number, self._attempt, plan.state),
                logged=log_lines(), restored=restored,
                failure=Failure.of(str(self._task_id), result.failure),
                outputs=tuple(self._final_outputs(result)),
            ), []
        outputs, blocks, sent = self._split_outputs(result)
        changes, changed = self._changes(result, snapshot.changelog_cache)
        published = 0
        if self._worker.publishes:
            published = count_records(outputs)
            self._publish(outputs)
            outputs = []
        offsets = self._offsets(result, ranges)
        shuffled = {
            topic: ranges[topic, number].records.offsets[-1] + 1
            for topic, number in ranges if ranges[topic, number].whole
        }
        record = TaskRecord(
            self._plan.number, self._attempt, result.state, self._positions(changed, offsets),
            {**plan.shuffled_offsets, **shuffled}, result.next_wall_punctuation,
        )
        return TaskOutcome(
            self._task_id,
            record,
            offsets=offsets,
            sent=tuple(sent),
            consumed=tuple(block.consumed for block in self._blocks),
            records_consumed=self._count_consumed(result, ranges),
            read=self._read_sizes,
            printed=tuple(result.printed),
            logged=log_lines(),
            restored=restored,
            counters=result.counters, sensors=result.sensors,
            readings=result.readings,
            drops=result.drops,
            global_dropped=global_tables.take_dropped(),
            preparation=self._worker.preparation(catch_up.from_log, catch_up.from_host),
            notices=self._worker.notices,
            commit_requested=result.commit_requested,
            published=published,
            outputs=tuple(outputs),
            changes=tuple(changes),
        ), blocks

    # ---- output ------------------------------------------------------------------------------

    def _split_outputs(
        self, result: TaskResult
    ) -> tuple[list[Append], list[AddressedBlock], list[SentBlock]]:
        """Separate the records for the log from those for other tasks of the batch."""
        shuffled = self._bundle.graph.shuffled
        appends: list[Append] = []
        blocks: list[AddressedBlock] = []
        sent: list[SentBlock] = []
        origins = None if result.origins is None else origin_columns(result.origins)
        groups = group_records(
            result.outputs, running_maximum=bool(shuffled), origins=origins
        ).groups()
        for (topic, partition), records in groups:
            if topic in shuffled:
                target = TaskId(shuffled[topic], partition)
                assert origins is not None
                block = encode_block(
                    self._task_id, self._attempt, target, topic, records, origins.sources
                )
                blocks.append((target, block))
                sent.append(SentBlock(target, topic, records.num_rows))
            else:
                appends += self._appends(
                    topic, partition, without_shuffle_columns(records),
                    may_stage=not self._worker.publishes,
                )
        return appends, blocks, sent

    def _final_outputs(self, result: TaskResult) -> list[Append]:
        """Return the dead letters of a failed batch, which the driver writes.

        Under at-least-once processing, the worker publishes them with the outputs before them.
        """
        if isinstance(result.failure, RetryRequestedException):
            return []
        publishes = self._worker.publishes
        appends = [
            Append(topic, partition, records) for (topic, partition), records
            in group_records(result.outputs if publishes else result.dead_letters).groups()
            if topic not in self._bundle.graph.shuffled
        ]
        if not publishes:
            return appends
        self._publish(appends)
        return []

    def _publish(self, outputs: list[Append]) -> None:
        """Write outputs before the commit. A retry writes all of them again."""
        try:
            self._worker.log.append_many(outputs, together=False)
        except PartlyAppended as error:
            raise error.first from error

    def _changes(
        self, result: TaskResult, cache: ChangelogCache | None
    ) -> tuple[list[Append], dict[str, int]]:
        """Return the changelog records, and how many each store has written."""
        appends: list[Append] = []
        changed: dict[str, int] = {}
        groups = [
            (store, records) for (store,), records in group_records(result.changelog).groups()
        ]
        if cache is not None:
            cache.save((self._plan.number, self._attempt), self._task_plan.positions, groups)
        for store, records in groups:
            appends += self._appends(
                self._restore_topics[store], self._task_id.partition, records
            )
            changed[store] = records.num_rows
        return appends, changed

    def _appends(
        self, topic: str, partition: int, records: pa.RecordBatch, *, may_stage: bool = True
    ) -> list[Append]:
        """Return the append of a group of records, staged in the log if it is large."""
        threshold = self._bundle.staging_threshold_bytes
        if not may_stage or threshold is None or records.nbytes <= threshold:
            return [Append(topic, partition, records)]
        parts = self._worker.log.stage_records(records)
        return [Append(topic, partition, part) for part in parts]

    # ---- input -------------------------------------------------------------------------------

    def _read(self) -> dict[Partition, RecordRange]:
        """Read the records of all ranges."""
        found = {}
        plan = self._task_plan
        all_prefetched = plan.prefetched or (None,) * len(plan.ranges)
        offsets = max(1, sum(each.end - each.start for each in plan.ranges))
        self._ranges = []
        for wanted, prefetched in zip(plan.ranges, all_prefetched, strict=True):
            if prefetched is not None:
                self._count_read(wanted.topic, len(prefetched), _size(prefetched))
                found[wanted.topic, wanted.partition] = RecordRange(prefetched, wanted.cut)
                self._ranges.append(wanted)
                continue
            limit = plan.max_bytes
            if limit is not None:
                limit = max(1, limit * (wanted.end - wanted.start) // offsets)
            actual, batches = read_range(self._worker.log, wanted, limit)
            self._count_read(
                wanted.topic, sum(map(len, batches)), sum(map(_batch_size, batches))
            )
            found[wanted.topic, wanted.partition] = _concatenate(wanted, batches, actual.cut)
            self._ranges.append(actual)
        return found

    def _count_read(self, topic: str, count: int, size: int) -> None:
        counted, counted_size = self._read_sizes.get(topic, (0, 0))
        self._read_sizes[topic] = counted + count, counted_size + size

    def _offsets(
        self, result: TaskResult, ranges: Mapping[Partition, RecordRange]
    ) -> dict[Partition, int]:
        """Return the next offset of each range.

        After a range that was consumed completely that is the end of the range, which may lie
        behind its last record.
        """
        offsets = {}
        for topic, partition, start, end, _ in self._ranges:
            numbers = ranges[topic, partition].records.offsets
            at = result.offsets.get((topic, partition), start)
            offsets[topic, partition] = end if not numbers or at > numbers[-1] else at
        return offsets

    def _count_consumed(
        self, result: TaskResult, ranges: Mapping[Partition, RecordRange]
    ) -> int:
        return sum(
            bisect_left(ranges[at].records.offsets, offset)
            for at, offset in result.offsets.items() if at in ranges
        )

    def _positions(
        self, changed: Mapping[str, int], offsets: Mapping[Partition, int]
    ) -> dict[str, int]:
        """Return the changelog position of each store after this batch.

        The positions are exact in a log without gaps, because only the holder of the lease writes
        to changelogs. Kafka adds transaction markers, so a plan asks the log for the end of a
        changelog; there the positions are informational.
        """
        before, partition = self._task_plan.positions, self._task_id.partition
        return {
            store: offsets.get((topic, partition), before.get(store, 0) + changed.get(store, 0))
            for store, topic in self._restore_topics.items()
        }


def read_range(
    log: Log, wanted: Range, max_bytes: int | None
) -> tuple[Range, list[LogBatch]]:
    """Read a range, in order. Returns the range that was read, cut at `max_bytes`."""
    if wanted.start == wanted.end:
        return wanted, []
    reader = log.read(
        wanted.topic, wanted.partition, wanted.start, wanted.end, max_bytes=max_bytes
    )
    batches = list(reader)
    if reader.position < wanted.end:
        wanted = wanted._replace(end=reader.position, cut=True)
    return wanted, batches


def _size(records: PartitionColumns) -> int:
    return sum(len(part) for column in (records.keys, records.values) for part in column if part)


def _batch_size(batch: LogBatch) -> int:
    return int(batch.records.column("key").nbytes + batch.records.column("value").nbytes)


def _concatenate(wanted: Range, batches: list[LogBatch], cut: bool) -> RecordRange:
    if not batches:
        empty = PartitionColumns(
            topic=wanted.topic, partition=wanted.partition, offsets=(), timestamps=(), keys=(),
            values=(),
        )
        return RecordRange(empty, cut)
    batch = batches[0]
    if len(batches) > 1:
        batch = replace(batch, records=pa.concat_batches([each.records for each in batches]))
    return RecordRange(batch.columns(), cut)
