"""A batch is one Spark job: it gives what the test driver gives, and leaves no traces."""

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
from engine.test_worker import feed, on_the_engine, told, under_the_driver
from engine.topologies import CASES
from penstock import StreamsBuilder, StreamsException, Topology
from penstock.engine.plan.batch_plan import BatchPlan, TaskPlan
from penstock.engine.spark import errors
from penstock.engine.spark.backend import SparkBackend
from penstock.engine.spark.job import PLAN, SparkCompute

pytestmark = pytest.mark.spark

DEADLINE_S = 60.0


def mapped(function: Callable[[Any], Any]) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").map_values(function).to("out")
    return builder.build()


def counted() -> Topology:
    builder = StreamsBuilder()
    (builder.stream("in").group_by(lambda key, value: value).count(store="counts")
        .to_stream().map_values(str).to("out"))
    return builder.build()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "It did not happen in time."
        time.sleep(0.02)


@pytest.mark.parametrize("name", CASES)
def test_batches_on_spark_give_what_the_driver_gives(name: str, started: Any) -> None:
    case = CASES[name]()
    app = started(case.topology, case.topics, batch=40)
    feed(case, app)
    app.run()
    assert told(case, on_the_engine(case, app)) == told(case, under_the_driver(case))


def test_a_job_says_what_it_is_and_the_thread_keeps_its_own_properties(
    started: Any, place: SparkBackend, tmp_path: Path
) -> None:
    app = started(mapped(str.upper), {"in": 1, "out": 1})
    app.send("in", ("k", "a", 1))
    context = place.context
    context.setJobGroup("mine", "my own job", interruptOnCancel=False)
    try:
        app.run_batch()
        names = ("spark.jobGroup.id", "spark.job.description", PLAN)
        assert [context.getLocalProperty(name) for name in names] == ["mine", "my own job", None]
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]
    assert app.texts("out") == [("k", "A", 1)]


def test_stages_before_the_first_one_with_work_are_left_out(
    started: Any, place: SparkBackend
) -> None:
    app = started(counted(), {"in": 2, "out": 2})
    app.send("in", *((None, value, 1) for value in "abcab"))
    app.run()
    compute = app.compute
    assert compute._first_stage(BatchPlan(9, 1, 1, {})) == 1
    second = app.graph.stages[1][0]
    only_second = {second: TaskPlan(second, punctuate=True)}
    assert compute._first_stage(BatchPlan(9, 1, 1, only_second)) == 1


def test_a_worker_that_dies_in_the_middle_is_made_good(started: Any, tmp_path: Path) -> None:
    once = str(tmp_path / "once")

    def die_once(value: str) -> str:
        if value == "die":
            try:
                os.close(os.open(once, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return "lived"
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    app = started(mapped(die_once), {"in": 1, "out": 1})
    app.send("in", ("k", "a", 1), ("k", "die", 2), ("k", "b", 3))
    app.run()
    assert app.texts("out") == [("k", "a", 1), ("k", "lived", 2), ("k", "b", 3)]


@pytest.mark.slow
def test_a_batch_that_always_kills_its_worker_ends_in_one_clear_error(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "MOST_RERUNS", 0)

    def die(value: str) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return value

    app = started(mapped(die), {"in": 1, "out": 1})
    app.send("in", ("k", "a", 1))
    with pytest.raises(StreamsException, match=r"Batch 1 of 'app' was run 1 times.*out-of-memory"):
        app.run()
    assert app.texts("out") == []


def test_a_running_batch_can_be_cancelled(started: Any, tmp_path: Path) -> None:
    began = tmp_path / "began"

    def wait(value: str) -> str:
        began.touch()
        time.sleep(600)
        return value

    app = started(mapped(wait), {"in": 1, "out": 1})
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


def test_what_a_user_function_raises_comes_with_its_own_traceback(started: Any) -> None:
    def fails(value: str) -> str:
        raise LookupError(f"no {value}")

    app = started(mapped(fails), {"in": 1, "out": 1})
    app.send("in", ("k", "a", 1))
    with pytest.raises(StreamsException) as caught:
        app.run()
    assert "LookupError: no a" in caught.value.user_traceback  # type: ignore[attr-defined]
    assert "pyspark" not in caught.value.user_traceback  # type: ignore[attr-defined]


def test_applications_take_turns_in_the_same_workers(
    place: SparkBackend, tmp_path: Path
) -> None:
    from engine.spark.application import SparkApplication

    apps = []
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        apps.append(SparkApplication(
            place, counted(), folder, {"in": 1, "out": 1}, config=config_of(f"app-{number}"),
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


def test_results_of_many_megabytes_come_back(started: Any) -> None:
    big = "x" * 900_000
    app = started(
        mapped(lambda value: value + big), {"in": 2, "out": 2}, staging_threshold_bytes=None
    )
    app.send("in", *((f"k{n}", str(n), n) for n in range(30)))
    app.run()
    assert sorted(len(value) for _, value, _ in app.texts("out")) == [900_001] * 10 + [900_002] * 20


def test_a_closed_compute_can_be_closed_again(started: Any) -> None:
    app = started(mapped(str.upper), {"in": 1, "out": 1})
    compute: SparkCompute = app.compute
    compute.close()
    compute.close()
