"""Commits a batch: all outcomes of its tasks in one transaction of the log, or none of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.engine.failpoints import failpoint
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.plan.batch_plan import BatchPlan
from penstock.engine.plan.offset_metadata import add_metadata
from penstock.engine.plan.task_records import (
    BATCH_KEY,
    BatchRecord,
    TaskRecord,
    encode_batch,
    encode_task,
    task_key,
)
from penstock.engine.worker.blocks import ConsumedBlock
from penstock.engine.worker.outcome import TaskOutcome
from penstock.errors import StreamsException
from penstock.log.base import Lease, Log
from penstock.log.types import Append, StagedRecords, TopicPartition
from penstock.record import RecordColumns, TaskId


class InconsistentAttempts(StreamsException):
    """The outcomes of a batch come from different attempts, so the batch must be rerun.

    When an executor is lost, Spark may rerun a part of a job. Then a task may have consumed records
    of a sender's first attempt while the outcome of the sender is from the second.
    """


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The committed state after a batch."""

    batch: BatchRecord
    #: The records of the tasks that ran.
    records: Mapping[TaskId, TaskRecord] = field(default_factory=dict)
    #: The committed offsets of all source partitions.
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)


def find_failure(outcomes: Iterable[TaskOutcome]) -> Exception | None:
    """Return the failure of the first failed task, by stage and task number, or None."""
    for outcome in outcomes:
        if outcome.failure is not None:
            return outcome.failure.exception()
    return None


def check_attempts(plan: BatchPlan, outcomes: Sequence[TaskOutcome]) -> None:
    """Raise `InconsistentAttempts` unless all outcomes belong to the same attempts.

    Every task with work in the plan must have one outcome, for this batch. The records that each
    task consumed must be those that the other tasks sent in the attempts of these outcomes.
    """
    by_task: dict[TaskId, TaskOutcome] = {}
    for outcome in outcomes:
        if outcome.record.batch != plan.number:
            raise InconsistentAttempts(
                f"Task {outcome.task_id} has an outcome for batch {outcome.record.batch}, not for "
                f"batch {plan.number}."
            )
        if outcome.task_id in by_task:
            raise InconsistentAttempts(f"Task {outcome.task_id} has two outcomes.")
        by_task[outcome.task_id] = outcome
    for task_id, task in plan.tasks.items():
        if (task.ranges or task.punctuate) and task_id not in by_task:
            raise InconsistentAttempts(f"Task {task_id} has no outcome.")
    sent = {
        (target, ConsumedBlock(outcome.task_id, outcome.record.attempt, topic, rows))
        for outcome in outcomes for target, topic, rows in outcome.sent
    }
    consumed = [(outcome.task_id, each) for outcome in outcomes for each in outcome.consumed]
    if sent != set(consumed) or len(sent) != len(consumed):
        raise InconsistentAttempts(
            f"Rows of batch {plan.number} were sent and consumed in different attempts. "
            f"Not consumed: {_format_rows(sent.difference(consumed))}. "
            f"Not sent: {_format_rows(set(consumed).difference(sent))}."
        )


def _format_rows(rows: Iterable[tuple[TaskId, ConsumedBlock]]) -> str:
    listed = [
        f"{each.records} of {each.topic} from {each.sender} (attempt {each.attempt}) to {target}"
        for target, each in sorted(rows)
    ]
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return (", ".join(listed[:3]) or "none") + more


def commit(
    log: Log, lease: Lease | None, plan: BatchPlan, outcomes: Sequence[TaskOutcome], *,
    graph: ExecutionGraph, offsets: Mapping[tuple[str, int], int],
    records: Mapping[TaskId, TaskRecord],
) -> CommitResult:
    """Commit a batch. `offsets`: the committed offset of each source partition before it.
    `records`: the task records before it.

    One transaction, which the log refuses if the lease is lost, writes:

    1. the outputs, including repartition topics in the log;
    2. the changelogs;
    3. a record for each task that ran, and one for the batch;
    4. the offsets of all source partitions, because a broker expires offsets that are not
       committed for a long time, with the metadata of Kafka Streams.

    Afterwards the log alone determines the next plan. The ends of the changelogs are not stored:
    the planner reads them from the log. Only the lease holder writes changelogs, and only the log
    knows the offsets of Kafka's transaction markers.
    """
    after = {**offsets}
    for outcome in outcomes:
        after.update(outcome.offsets)
    changed = {outcome.task_id: outcome.record for outcome in outcomes}
    batch = BatchRecord.of(plan, graph.source_topics)
    with log.transaction(lease) as transaction:
        # 1. and 2. Outputs and changelogs
        for append in _merge(
            [append for outcome in outcomes for append in outcome.outputs]
            + [append for outcome in outcomes for append in outcome.changes]
        ):
            transaction.append(*append)
        # 3. Task records
        keys = [*(task_key(outcome.task_id) for outcome in outcomes), BATCH_KEY]
        values = [*(encode_task(outcome.record) for outcome in outcomes), encode_batch(batch)]
        transaction.append(
            tasks_topic(graph.application_id), 0,
            RecordColumns(keys, values, [plan.now] * len(keys)),
        )
        # 4. Offsets
        transaction.commit_offsets(
            graph.application_id,
            add_metadata(
                {TopicPartition(*at): offset for at, offset in after.items()},
                (record.state for record in {**records, **changed}.values()),
                graph.close_clocks,
            ),
        )
        failpoint("in-commit")
    return CommitResult(batch, changed, after)


def _merge(appends: Iterable[Append]) -> list[Append]:
    """Merge the appends of each partition, so that the log gets few and large batches.

    Records keep the order of the outcomes. Staged records are not merged.
    """
    pieces: dict[tuple[str, int], list[list[pa.RecordBatch] | StagedRecords]] = {}
    for topic, partition, records in appends:
        of_partition = pieces.setdefault((topic, partition), [])
        if isinstance(records, StagedRecords):
            of_partition.append(records)
        elif of_partition and isinstance(last := of_partition[-1], list):
            last.append(records)
        else:
            of_partition.append([records])
    return [
        Append(*at, each)
        for at, of_partition in pieces.items() for piece in of_partition
        for each in ([piece] if isinstance(piece, StagedRecords) else _combine(piece))
    ]


def _combine(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Combine batches into as few as possible. A column of a batch holds at most 2 GiB."""
    if len(batches) == 1:
        return batches
    # Only some of the batches may have a header column.
    table = pa.concat_tables(map(pa.Table.from_batches, ([batch] for batch in batches)),
                             promote_options="default")
    found: list[pa.RecordBatch] = table.combine_chunks().to_batches()
    return found


def drop_staged(log: Log, outcomes: Iterable[TaskOutcome]) -> None:
    """Delete the staged records of outcomes that are not committed."""
    staged = [each for outcome in outcomes for each in outcome.staged_records()]
    if staged:
        log.drop_staged(staged)
