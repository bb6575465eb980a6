"""A batch is one Spark job, with the results of the test driver."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread

from engine.harness import config_of
from engine.test_worker import assert_equals_driver, feed
from engine.topologies import CASES
from penstock import StreamsBuilder, StreamsException, Topology
from penstock.engine.plan.batch_plan import BatchPlan, TaskPlan
from penstock.engine.spark import errors
from penstock.engine.spark.backend import SparkBackend
from penstock.engine.spark.job import PLAN, SparkCompute

pytestmark = pytest.mark.spark

DEADLINE_S = 60.0


def mapping(function: Callable[[Any], Any]) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").map_values(function).to("out")
    return builder.build()


def counting() -> Topology:
    builder = StreamsBuilder()
    (builder.stream("in").group_by(lambda key, value: value).count(store="counts")
        .to_stream().map_values(str).to("out"))
    return builder.build()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "The condition was not met in time."
        time.sleep(0.02)


@pytest.mark.parametrize("name", CASES)
def test_batches_on_spark_equal_the_test_driver(name: str, start: Any) -> None:
    case = CASES[name]()
    app = start(case.topology, case.topics, batch=40)
    feed(case, app)
    app.run()
    assert_equals_driver(case, app)


def test_job_restores_the_properties_of_its_thread(
    start: Any, backend: SparkBackend, tmp_path: Path
) -> None:
    app = start(mapping(str.upper), {"in": 1, "out": 1})
    app.send("in", ("k", "a", 1))
    context = backend.context
    context.setJobGroup("mine", "my own job", interruptOnCancel=False)
    try:
        app.run_batch()
        names = ("spark.jobGroup.id", "spark.job.description", PLAN)
        assert [context.getLocalProperty(name) for name in names] == ["mine", "my own job", None]
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]
    assert app.texts("out") == [("k", "A", 1)]


def test_job_starts_at_the_first_stage_with_work(
    start: Any, backend: SparkBackend
) -> None:
    app = start(counting(), {"in": 2, "out": 2})
    app.send("in", *((None, value, 1) for value in "abcab"))
    app.run()
    compute = app.compute
    assert compute._first_stage(BatchPlan(9, 1, 1, {})) == 1
    second = app.graph.stages[1][0]
    only_second = {second: TaskPlan(second, punctuate=True)}
    assert compute._first_stage(BatchPlan(9, 1, 1, only_second)) == 1


def test_task_of_a_killed_worker_is_retried(start: Any, tmp_path: Path) -> None:
    once = str(tmp_path / "once")

    def die_once(value: str) -> str:
        if value == "die":
            try:
                os.close(os.open(once, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return "survived"
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    app = start(mapping(die_once), {"in": 1, "out": 1})
    app.send("in", ("k", "a", 1), ("k", "die", 2), ("k", "b", 3))
    app.run()
    assert app.texts("out") == [("k", "a", 1), ("k", "survived", 2), ("k", "b", 3)]


@pytest.mark.slow
def test_batch_that_always_kills_its_worker_fails_with_one_error(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "MAX_RETRIES", 0)

    def die(value: str) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return value

    app = start(mapping(die), {"in": 1, "out": 1})
    app.send("in", ("k", "a", 1))
    message = r"Batch 1 of 'app' failed in each of 1 runs.*out-of-memory"
    with pytest.raises(StreamsException, match=message):
        app.run()
    assert app.texts("out") == []


def test_running_batch_can_be_cancelled(start: Any, tmp_path: Path) -> None:
    began = tmp_path / "began"

    def wait(value: str) -> str:
        began.touch()
        time.sleep(600)
        return value

    app = start(mapping(wait), {"in": 1, "out": 1})
    app.send("in", ("k", "a", 1))
    raised: list[BaseException] = []

    def compute() -> None:
        try:
            app.run_batch()
        except BaseException as error:
            raised.append(error)

    thread = InheritableThread(target=compute)
    thread.start()
    until(began.exists)
    app.compute.cancel()
    thread.join(DEADLINE_S)
    assert [str(error).partition(".")[0] for error in raised] == ["Batch 1 of 'app' was cancelled"]


def test_exception_of_a_user_function_carries_its_traceback(start: Any) -> None:
    def fails(value: str) -> str:
        raise LookupError(f"no {value}")

    app = start(mapping(fails), {"in": 1, "out": 1})
    app.send("in", ("k", "a", 1))
    with pytest.raises(StreamsException) as caught:
        app.run()
    assert "LookupError: no a" in caught.value.user_traceback  # type: ignore[attr-defined]
    assert "pyspark" not in caught.value.user_traceback  # type: ignore[attr-defined]


def test_more_applications_than_a_worker_keeps_share_workers(
    backend: SparkBackend, tmp_path: Path
) -> None:
    from engine.spark.application import SparkApplication

    apps = []
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        apps.append(SparkApplication(
            backend, counting(), folder, {"in": 1, "out": 1}, config=config_of(f"app-{number}"),
        ))
    try:
        for number in (*range(6), *range(6)):
            apps[number].send("in", (None, f"v{number}", 1))
            apps[number].run()
        assert [app.texts("out") for app in apps] == [
            [(f"v{n}", "1", 1), (f"v{n}", "2", 1)] for n in range(6)
        ]
    finally:
        for app in apps:
            app.close()


def test_results_of_many_megabytes_are_returned(start: Any) -> None:
    big = "x" * 900_000
    app = start(
        mapping(lambda value: value + big), {"in": 2, "out": 2}, staging_threshold_bytes=None
    )
    app.send("in", *((f"k{n}", str(n), n) for n in range(30)))
    app.run()
    assert sorted(len(value) for _, value, _ in app.texts("out")) == [900_001] * 10 + [900_002] * 20


def test_compute_can_be_closed_twice(start: Any) -> None:
    app = start(mapping(str.upper), {"in": 1, "out": 1})
    compute: SparkCompute = app.compute
    compute.close()
    compute.close()
