"""The commit: consistent outcomes become one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from engine.harness import Application
from penstock import StreamsBuilder
from penstock.engine.commit import (
    InconsistentAttempts,
    check_attempts,
    commit,
    drop_staged,
    find_failure,
)
from penstock.engine.packaging.failure import Failure
from penstock.engine.plan.batch_plan import BatchPlan, Range, TaskPlan
from penstock.engine.plan.task_records import TaskRecord, read_task_records
from penstock.engine.worker.blocks import ConsumedBlock
from penstock.engine.worker.outcome import SentBlock, TaskOutcome
from penstock.engine.worker.record_groups import group_records
from penstock.errors import StreamsException
from penstock.log.errors import Fenced, StagedRecordsGone, UnknownTopic
from penstock.log.types import Append
from penstock.record import NO_HEADERS, Headers, TaskId
from penstock.task.result import TaskState

FROM, TO = TaskId(0, 0), TaskId(1, 0)


def plan_of(*tasks: TaskPlan) -> BatchPlan:
    return BatchPlan(1, 1, 0, {task.task_id: task for task in tasks})


PLAN = plan_of(TaskPlan(FROM, (Range("in", 0, 0, 1, False),)), TaskPlan(TO))


def sender(attempt: int = 5, rows: int = 3, batch: int = 1) -> TaskOutcome:
    return TaskOutcome(FROM, TaskRecord(batch, attempt), sent=(SentBlock(TO, "shuffled", rows),))


def receiver(*consumed: ConsumedBlock) -> TaskOutcome:
    return TaskOutcome(TO, TaskRecord(1, 6), consumed=consumed)


CONSUMED = ConsumedBlock(FROM, 5, "shuffled", 3)


def test_consistent_outcomes_are_accepted() -> None:
    check_attempts(PLAN, [sender(), receiver(CONSUMED)])


@pytest.mark.parametrize(("outcomes", "message"), [
    ([sender(attempt=4), receiver(CONSUMED)], "different attempts"),
    ([sender(rows=2), receiver(CONSUMED)], "different attempts"),
    ([sender()], "Not consumed: 3 of shuffled from 0_0 \\(attempt 5\\) to 1_0"),
    ([sender(), receiver()], "Not consumed"),
    ([sender(), receiver(CONSUMED, CONSUMED)], "different attempts"),
    ([TaskOutcome(FROM, TaskRecord(1, 5)), receiver(CONSUMED)], "Not sent"),
    ([receiver()], "Task 0_0 has no outcome"),
    ([sender(), sender(), receiver(CONSUMED)], "two outcomes"),
    ([sender(batch=2), receiver(CONSUMED)], "batch 2"),
])
def test_outcomes_of_different_attempts_are_refused(
    outcomes: list[TaskOutcome], message: str
) -> None:
    with pytest.raises(InconsistentAttempts, match=message):
        check_attempts(PLAN, outcomes)


def test_task_without_work_needs_no_outcome() -> None:
    check_attempts(plan_of(TaskPlan(TO)), [])
    with pytest.raises(InconsistentAttempts):
        check_attempts(plan_of(TaskPlan(TO, punctuate=True)), [])


def test_failure_of_the_first_task_is_found() -> None:
    failed = [
        TaskOutcome(task, TaskRecord(1, 1), failure=Failure.of(str(task), StreamsException(text)))
        for task, text in ((TaskId(0, 1), "one"), (TaskId(1, 0), "two"))
    ]
    assert str(find_failure([sender(), *failed])) == "one"
    assert find_failure([sender()]) is None


# ---- the transaction -------------------------------------------------------------------------


def records(*values: bytes, headers: Headers = NO_HEADERS) -> pa.RecordBatch:
    return group_records([("t", 0, b"k", value, 5, headers) for value in values]).records


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Application]:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts").to_stream().map_values(str).to("out")
    with Application(builder.build(), tmp_path, {"in": 2, "out": 2}) as found:
        yield found


def commit_outcomes(app: Application, *outcomes: TaskOutcome) -> None:
    plan = BatchPlan(1, app.lease.epoch, 77, {})
    before = {("in", 0): 0, ("in", 1): 4}
    commit(
        app.log, app.lease, plan, outcomes, graph=app.graph, offsets=before, records={}
    )


def test_outputs_changelogs_records_and_offsets_are_committed_together(app: Application) -> None:
    record = TaskRecord(1, 8, TaskState(5), {"counts": 1})
    commit_outcomes(app, TaskOutcome(
        FROM, record, outputs=(Append("out", 1, records(b"o")),),
        changes=(Append("app-counts-changelog", 0, records(b"c")),), offsets={("in", 0): 3},
    ))
    assert app.rows("out", 1) == [(b"k", b"o", 5)]
    assert app.rows("app-counts-changelog", 0) == [(b"k", b"c", 5)]
    found = read_task_records(app.log, "app")
    assert found.tasks == {FROM: record}
    assert found.batch is not None
    assert (found.batch.number, found.batch.now, found.batch.sources) == (1, 77, {"in": 2})
    assert {tuple(at): offset.offset for at, offset in app.log.committed("app").items()} == {
        ("in", 0): 3, ("in", 1): 4
    }


def test_nothing_is_committed_without_the_lease(app: Application) -> None:
    app.log.take_lease("app", holder="another")
    with pytest.raises(Fenced):
        commit_outcomes(app, TaskOutcome(
            FROM, TaskRecord(1, 8), outputs=(Append("out", 1, records(b"o")),)
        ))
    assert app.rows("out") == []
    assert read_task_records(app.log, "app").batch is None
    assert app.log.committed("app") == {}


def test_nothing_is_committed_if_an_output_is_refused(app: Application) -> None:
    with pytest.raises(UnknownTopic):
        commit_outcomes(app, TaskOutcome(
            FROM, TaskRecord(1, 8),
            outputs=(Append("out", 1, records(b"o")), Append("nowhere", 0, records(b"n"))),
        ))
    assert app.rows("out") == []


def test_records_of_several_tasks_keep_their_order_in_a_partition(app: Application) -> None:
    (staged,) = app.log.stage_records(records(b"3"))
    headers = Headers((("h", b"1"),))
    commit_outcomes(
        app,
        TaskOutcome(FROM, TaskRecord(1, 8), outputs=(
            Append("out", 0, records(b"1")), Append("out", 0, records(b"2", headers=headers)),
            Append("out", 0, staged),
        )),
        TaskOutcome(TO, TaskRecord(1, 9), outputs=(Append("out", 0, records(b"4", b"5")),)),
    )
    assert [value for _, value, _ in app.rows("out", 0)] == [b"1", b"2", b"3", b"4", b"5"]
    (batch,) = app.log.read("out", 0, 0, max_records=2)
    assert batch.columns().headers == [NO_HEADERS, headers]


def test_staged_records_of_discarded_outcomes_are_dropped(app: Application) -> None:
    (staged,) = app.log.stage_records(records(b"1"))
    outcome = TaskOutcome(FROM, TaskRecord(1, 8), outputs=(Append("out", 0, staged),))
    drop_staged(app.log, [outcome])
    with pytest.raises(StagedRecordsGone):
        commit_outcomes(app, outcome)
