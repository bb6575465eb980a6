"""The commit of a lane: everything that its tasks have done since the last one.

1. Flush: the caches of each task are flushed, which returns what the task writes.
2. Write: one transaction with outputs, changelogs, task records, and the offsets of all source
   partitions of these tasks. The log refuses it if the lane or the lease is fenced.
3. Apply: the changes go to the replicas of the tasks, with the new positions of the changelogs.

A process that dies before the end of step 2 has changed nothing. One that dies in step 3 leaves
replicas that are behind, and the next owner reads the changelogs.

Tasks that write to very many partitions are committed in several transactions, each with the steps
above: a log needs time for each partition, and ends transactions that take too long. The writes of
a task are always in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from penstock.engine.continuous.lane_task import LaneTask, TaskCommit
from penstock.engine.failpoints import failpoint
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.plan.task_records import encode_task, task_key
from penstock.log.base import TailReader, Transaction, Writer
from penstock.log.types import AppendResult
from penstock.record import RecordColumns

#: A transaction gets no further tasks once it writes to this many partitions.
MANY_PARTITIONS = 1_000


@dataclass(slots=True)
class LaneCommit:
    """The committed writes of a lane."""

    tasks: list[tuple[LaneTask, TaskCommit]] = field(default_factory=list)
    #: (topic, partition) -> the end of the outputs that were written to it.
    outputs: dict[tuple[str, int], int] = field(default_factory=dict)


def commit_tasks(
    tasks: Iterable[LaneTask], writer: Writer, tail: TailReader, *, attempt: int, now: int
) -> LaneCommit:
    """Commit tasks: in one transaction, unless they write to very many partitions."""
    committed = LaneCommit()
    remaining = iter(tasks)
    while commits := _flush(remaining, tail, attempt):
        failpoint("before-commit")
        _write(commits, writer, now, committed)
    return committed


def _flush(
    tasks: Iterator[LaneTask], tail: TailReader, attempt: int
) -> list[tuple[LaneTask, TaskCommit]]:
    """Return the writes of the next transaction."""
    commits: list[tuple[LaneTask, TaskCommit]] = []
    partitions = 0
    # 1. Flush
    for task in tasks:
        commit = task.prepare_commit(tail, attempt)
        commits.append((task, commit))
        partitions += len(commit.outputs) + len(commit.changes)
        if partitions >= MANY_PARTITIONS:
            break
    return commits


def _write(
    commits: Sequence[tuple[LaneTask, TaskCommit]], writer: Writer, now: int,
    committed: LaneCommit,
) -> None:
    # 2. Write
    application_id = writer.grant.lease
    with writer.transaction() as transaction:
        places = [_append(transaction, commit) for _, commit in commits]
        transaction.append(
            tasks_topic(application_id), 0, RecordColumns(
                [task_key(task.task_id) for task, _ in commits],
                [encode_task(commit.record) for _, commit in commits], [now] * len(commits),
            ),
        )
        transaction.commit_offsets(application_id, {
            at: offset for _, commit in commits for at, offset in commit.committed_offsets.items()
        })
        failpoint("in-commit")
    failpoint("after-commit")
    # 3. Apply
    appended = iter(transaction.appended)
    for (task, commit), stores in zip(commits, places, strict=True):
        written: dict[str, AppendResult] = {}
        for store in stores:
            result = next(appended)
            if store is None:
                committed.outputs[result.topic, result.partition] = result.next_offset
            else:
                written[store] = result
        task.committed(commit, written, writer.grant.epoch)
        committed.tasks.append((task, commit))
        failpoint("applying")


def _append(transaction: Transaction, commit: TaskCommit) -> list[str | None]:
    """Append the records of a task. Returns the store of each append; None for an output."""
    for append in commit.outputs:
        transaction.append(*append)
    for append in commit.changes.values():
        transaction.append(*append)
    return [*(None for _ in commit.outputs), *commit.changes]
