"""All outcomes of a batch become one transaction of the log, or none of them happens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.engine.failpoints import failpoint
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.plan.batch_plan import BatchPlan
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
    """Outcomes of one batch that do not belong together: the batch is to be run again.

    Spark may run a part of a job again when an executor was lost. A task that has already taken
    rows of the first run then stands beside a sender of the second.
    """


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What is true since the commit."""

    batch: BatchRecord
    #: The tasks that ran.
    records: Mapping[TaskId, TaskRecord] = field(default_factory=dict)
    #: Of all source partitions: where the group goes on.
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)


def failure_of(outcomes: Iterable[TaskOutcome]) -> Exception | None:
    """What ended the batch, if a task failed: the first one, by stage and number of tasks."""
    for outcome in outcomes:
        if outcome.failure is not None:
            return outcome.failure.exception()
    return None


def check_attempts(plan: BatchPlan, outcomes: Sequence[TaskOutcome]) -> None:
    """Refuse outcomes unless all were made from each other.

    Every task that the plan gave work has one outcome, of this batch; what each task consumed is
    what the others sent to it in the very attempt whose outcome is here, row for row.
    """
    by_task: dict[TaskId, TaskOutcome] = {}
    for outcome in outcomes:
        if outcome.record.batch != plan.number:
            raise InconsistentAttempts(
                f"Task {outcome.task_id} answers for batch {outcome.record.batch}, not for batch "
                f"{plan.number}."
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
            f"Not consumed: {_shown(sent.difference(consumed))}. "
            f"Not sent: {_shown(set(consumed).difference(sent))}."
        )


def _shown(rows: Iterable[tuple[TaskId, ConsumedBlock]]) -> str:
    listed = [
        f"{each.records} of {each.topic} from {each.sender} (attempt {each.attempt}) to {target}"
        for target, each in sorted(rows)
    ]
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return (", ".join(listed[:3]) or "none") + more


def commit(
    log: Log, lease: Lease | None, plan: BatchPlan, outcomes: Sequence[TaskOutcome], *,
    graph: ExecutionGraph, offsets: Mapping[tuple[str, int], int],
) -> CommitResult:
    """Make a batch happen. `offsets`: where each source partition stood before it.

    In one transaction, which the log refuses if the lease has moved on:

    1. outputs, those for circle topics among them;
    2. changelogs;
    3. a record for each task that ran, and one for the batch;
    4. the offsets of all source partitions: a broker forgets those that are not committed for long.

    Afterwards the plan of the next batch can be made from the log alone. Where the changelogs end
    is not written down here but asked of the log then: the holder of the lease is the only one who
    writes to them, and only the log knows where Kafka puts its markers.
    """
    after = {**offsets}
    for outcome in outcomes:
        after.update(outcome.offsets)
    batch = BatchRecord.of(plan, graph.source_topics)
    with log.transaction(lease) as transaction:
        # 1. and 2.
        for append in _merged(
            [append for outcome in outcomes for append in outcome.outputs]
            + [append for outcome in outcomes for append in outcome.changes]
        ):
            transaction.append(*append)
        # 3.
        keys = [*(task_key(outcome.task_id) for outcome in outcomes), BATCH_KEY]
        values = [*(encode_task(outcome.record) for outcome in outcomes), encode_batch(batch)]
        transaction.append(
            tasks_topic(graph.application_id), 0,
            RecordColumns(keys, values, [plan.now] * len(keys)),
        )
        # 4.
        transaction.commit_offsets(
            graph.application_id,
            {TopicPartition(*where): offset for where, offset in after.items()},
        )
        failpoint("in-commit")
    return CommitResult(batch, {outcome.task_id: outcome.record for outcome in outcomes}, after)


def _merged(appends: Iterable[Append]) -> list[Append]:
    """One append a partition where that can be, so that the log gets few and larger batches.

    Records keep the order of the outcomes; what was put aside stays as it is.
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
        Append(*where, each)
        for where, of_partition in pieces.items() for piece in of_partition
        for each in ([piece] if isinstance(piece, StagedRecords) else _few(piece))
    ]


def _few(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same records in as few batches as can be: a column of one holds 2 GiB at most."""
    if len(batches) == 1:
        return batches
    # Some may have headers and some not.
    table = pa.concat_tables(map(pa.Table.from_batches, ([batch] for batch in batches)),
                             promote_options="default")
    found: list[pa.RecordBatch] = table.combine_chunks().to_batches()
    return found


def drop_staged(log: Log, outcomes: Iterable[TaskOutcome]) -> None:
    """Remove what was put aside for outcomes that will not be committed."""
    blobs = [blob for outcome in outcomes for blob in outcome.staged_records()]
    if blobs:
        log.drop_staged(blobs)
