"""Failed tasks, reruns of lanes, and fenced drivers commit nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.harness import ONE_TO_ONE, Application, topology_of
from penstock import Processor, Record
from penstock.engine.commit import InconsistentAttempts, check_attempts, find_failure
from penstock.engine.worker.blocks import OUTCOME, RECORDS
from penstock.engine.worker.outcome import decode_outcomes
from penstock.engine.worker.worker import ATTEMPT_BITS, Worker
from penstock.errors import (
    ProcessingFailedException,
    StreamsException,
    TaskMigratedException,
)
from penstock.log.errors import OffsetOutOfRange
from penstock.record import TaskId


def doubled(value: str) -> str:
    return str(2 * int(value))


def test_failure_reports_the_record_and_the_line_of_user_code(tmp_path: Path) -> None:
    topology = topology_of(
        lambda builder: builder.stream("in").map_values(doubled, name="double").to("out")
    )
    with Application(topology, tmp_path, {"in": 1, "out": 1}) as app:
        app.send("in", ("k", "1", 1), ("q", "x", 2), ("k", "3", 3))
        with pytest.raises(ProcessingFailedException, match="processor=double") as caught:
            app.run()
        error = caught.value
        assert (error.task_id, error.processor, error.topic, error.partition) == (
            "0_0", "double", "in", 0
        )
        assert (error.offset, error.key) == (1, "q")
        assert isinstance(error.__cause__, ValueError)
        traceback = error.user_traceback  # type: ignore[attr-defined]
        assert "return str(2 * int(value))" in traceback
        assert "penstock/task" not in traceback
        assert app.rows("out") == []
        assert app.log.committed("app") == {}


def test_failure_with_a_file_name_that_is_not_utf8_reports_the_record(
    tmp_path: Path
) -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")

    def opened(value: str) -> str:
        raise ValueError(f"cannot open {name}")

    topology = topology_of(
        lambda builder: builder.stream("in").map_values(opened, name="open").to("out")
    )
    with Application(topology, tmp_path, {"in": 1, "out": 1}) as app:
        app.send("in", ("k", "1", 1))
        with pytest.raises(ProcessingFailedException, match="processor=open") as caught:
            app.run()
        assert (caught.value.offset, str(caught.value.__cause__)) == (0, f"cannot open {name}")


class FailingInit(Processor[str, str]):
    def init(self, context: Any) -> None:
        raise RuntimeError("no connection")

    def process(self, record: Record[str, str]) -> None:
        """Never called."""


def test_processor_that_fails_in_init_fails_the_batch(tmp_path: Path) -> None:
    topology = topology_of(lambda builder: builder.stream("in").process(FailingInit).to("out"))
    with Application(topology, tmp_path, ONE_TO_ONE) as app, \
            pytest.raises(StreamsException, match=r"KSTREAM-PROCESSOR-.*no connection") as caught:
        app.run()
    assert isinstance(caught.value.__cause__, RuntimeError)


class Panic(BaseException):
    """As a native library raises it, or asyncio."""


def panic() -> None:
    raise Panic(3)


@pytest.mark.parametrize(("end", "expected"), [
    (lambda: sys.exit(3), "SystemExit: 3"), (panic, "Panic: 3"),
])
def test_user_code_that_raises_no_error_fails_the_batch(
    tmp_path: Path, end: Callable[[], None], expected: str
) -> None:
    topology = topology_of(
        lambda builder: builder.stream("in").foreach(lambda key, value: end())
    )
    with Application(topology, tmp_path, {"in": 1}) as app:
        app.send("in", ("k", "v", 1))
        with pytest.raises(StreamsException, match=f"Task 0_0 failed: {expected}"):
            app.run()


def test_failed_task_ends_its_lane(tmp_path: Path) -> None:
    topology = topology_of(
        lambda builder: builder.stream("in").map_values(doubled).to("out")
    )
    with Application(topology, tmp_path, {"in": 3, "out": 1}, parallelism=1) as app:
        for partition, value in enumerate(("1", "x", "2")):
            app.append("in", partition, [("k", value, 1)])
        plan = app.plan()
        assert plan is not None
        outcomes = decode_outcomes(app.compute.compute(plan))
        assert [(each.task_id.partition, each.failure is None) for each in outcomes] == [
            (0, True), (1, False)
        ]


def test_rerun_of_a_single_lane_is_inconsistent_with_the_others(tmp_path: Path) -> None:
    """This happens when an executor is lost after its records were consumed."""
    topology = topology_of(
        lambda builder: builder.stream("in").select_key(lambda key, value: value)
        .repartition(name="moved").to("out")
    )
    with Application(topology, tmp_path, {"in": 1, "out": 1}, parallelism=1) as app:
        app.send("in", ("k", "v", 1))
        plan = app.plan()
        assert plan is not None
        worker = Worker(app.bundle, own_process=False)
        try:
            first, second = (
                [block for _, block in worker.run_lane(0, 0, plan, attempt, [])]
                for attempt in (1, 2)
            )
            (outcome,) = (block for block in second if block[0] == OUTCOME)
            rows = [block for block in first if block[0] == RECORDS]
            mixed = [block for _, block in worker.run_lane(1, 0, plan, 3, [outcome, *rows])]
            whole = [block for _, block in worker.run_lane(1, 0, plan, 4, first)]
        finally:
            worker.close()
        with pytest.raises(InconsistentAttempts, match="different attempts"):
            check_attempts(plan, decode_outcomes(mixed))
        check_attempts(plan, decode_outcomes(whole))


def test_attempt_numbers_of_different_drivers_differ(tmp_path: Path) -> None:
    topology = topology_of(lambda builder: builder.stream("in").to("out"))

    def attempts(app: Application) -> Mapping[TaskId, int]:
        plan = app.plan()
        assert plan is not None
        return {
            each.task_id: each.record.attempt
            for each in decode_outcomes(app.compute.compute(plan))
        }

    with Application(topology, tmp_path, ONE_TO_ONE) as app:
        first = attempts(app)
        assert {attempt >> ATTEMPT_BITS for attempt in first.values()} == {app.lease.epoch}
        app.lease = app.log.take_lease("app")
        app.crash()
        assert set(attempts(app).values()).isdisjoint(first.values())


def test_plan_that_is_older_than_the_replicas_is_refused(tmp_path: Path) -> None:
    """Such a plan comes from a driver that has lost the lease."""
    topology = topology_of(lambda builder: builder.table("in", store="kept").to_stream().to("out"))
    with Application(topology, tmp_path, {"in": 1, "out": 1}, batch=1) as app:
        app.send("in", ("a", "1", 1), ("b", "2", 2), ("c", "3", 3))
        plan = app.plan()
        assert plan is not None
        app.run()
        (outcome,) = decode_outcomes(app.compute.compute(plan))
        assert outcome.failure is not None
        assert isinstance(outcome.failure.exception(), TaskMigratedException)


def test_batch_is_planned_again_if_retention_removes_its_records(tmp_path: Path) -> None:
    topology = topology_of(lambda builder: builder.stream("in").to("out"))
    with Application(topology, tmp_path, {"in": 1, "out": 1}) as app:
        app.run()
        app.send("in", *[("a", str(n), n) for n in range(10)])
        plan = app.plan()
        assert plan is not None
        app.log.delete_records("in", 0, 5)
        failure = find_failure(decode_outcomes(app.compute.compute(plan)))
        assert isinstance(failure, OffsetOutOfRange)
        assert (failure.offset, failure.start, failure.end) == (0, 5, 10)
        app.run()
        assert [value for _, value, _ in app.texts("out")] == ["5", "6", "7", "8", "9"]
