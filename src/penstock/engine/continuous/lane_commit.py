"""The commit of a lane: everything that its tasks have done since the last one, or nothing.

1. Flush: the caches of each task are flushed, which returns what the task writes.
2. Write: one transaction with outputs, changelogs, task records, and the offsets of all source
   partitions of these tasks. The log refuses it if the lane or the lease is fenced.
3. Apply: the changes go to the replicas of the tasks, with the new positions of the changelogs.

A process that dies before the end of step 2 has changed nothing. One that dies in step 3 leaves
replicas that are behind, and the next owner reads the changelogs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.engine.continuous.lane_task import LaneTask, TaskCommit
from penstock.engine.failpoints import failpoint
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.plan.task_records import encode_task, task_key
from penstock.log.base import TailReader, Transaction, Writer
from penstock.log.types import AppendResult
from penstock.record import RecordColumns


class LaneCommit(NamedTuple):
    """A committed transaction of a lane."""

    tasks: list[tuple[LaneTask, TaskCommit]]
    #: (topic, partition) -> the end of the outputs that were written to it.
    outputs: dict[tuple[str, int], int]


def commit_tasks(
    tasks: Iterable[LaneTask], writer: Writer, tail: TailReader, *, attempt: int, now: int
) -> LaneCommit:
    """Commit tasks in one transaction."""
    # 1. Flush
    commits = [(task, task.prepare_commit(tail, attempt)) for task in tasks]
    failpoint("before-commit")
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
    outputs: dict[tuple[str, int], int] = {}
    appended = iter(transaction.appended)
    for (task, commit), stores in zip(commits, places, strict=True):
        written: dict[str, AppendResult] = {}
        for store in stores:
            result = next(appended)
            if store is None:
                outputs[result.topic, result.partition] = result.next_offset
            else:
                written[store] = result
        task.committed(commit, written, writer.grant.epoch)
        failpoint("applying")
    return LaneCommit(commits, outputs)


def _append(transaction: Transaction, commit: TaskCommit) -> list[str | None]:
    """Append the records of a task. Returns the store of each append; None for an output."""
    for append in commit.outputs:
        transaction.append(*append)
    for append in commit.changes.values():
        transaction.append(*append)
    return [*(None for _ in commit.outputs), *commit.changes]
