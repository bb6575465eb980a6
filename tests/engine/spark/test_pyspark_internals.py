"""The private names of PySpark that penstock uses still work in the installed version.

A failure here names the function of `pyspark_internals` that the new PySpark breaks.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, StringType, StructField, StructType, TimestampType

from penstock.engine.spark import pyspark_internals as internals
from penstock.engine.spark.backend import SparkBackend
from penstock.engine.spark.pyspark_internals import JvmRdds

# ---- without a JVM ---------------------------------------------------------------------------


def test_class_attributes_exist() -> None:
    for owner, names in (
        (SparkContext, (
            "_gateway", "_jvm", "_active_spark_context", "_lock", "_ensure_initialized",
        )),
        (SparkSession, ("_instantiatedSession", "_activeSession")),
    ):
        missing = [name for name in names if not hasattr(owner, name)]
        assert missing == [], f"{owner.__name__} has lost {missing}"


def test_launch_jvm_passes_the_standard_error() -> None:
    assert list(inspect.signature(launch_gateway).parameters) == ["conf", "popen_kwargs"]
    assert 'popen_kwargs["stdin"]' in inspect.getsource(launch_gateway)
    assert "gateway.proc = proc" in inspect.getsource(launch_gateway)


def test_spark_submit_is_recognized_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "PYSPARK_GATEWAY_PORT" in inspect.getsource(launch_gateway)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert internals.is_inside_spark_submit()
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    assert not internals.is_inside_spark_submit()


def test_pyspark_directory_contains_spark() -> None:
    assert Path(internals.pyspark_directory(), "bin", "spark-class").exists()
    assert Path(internals.pyspark_directory(), "jars").is_dir()


def test_has_jvm_exited_polls_the_child_process() -> None:
    running, ended = (SimpleNamespace(poll=lambda code=code: code) for code in (None, 1))
    assert not internals.has_jvm_exited(None)
    assert not internals.has_jvm_exited(SimpleNamespace(proc=running))
    assert internals.has_jvm_exited(SimpleNamespace(proc=ended))


def test_forget_context_resets_every_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()
    context = SparkContext.__new__(SparkContext)
    context._jsc = object()  # type: ignore[assignment]
    context._accumulatorServer = SimpleNamespace(shutdown=stopped.set)  # type: ignore[assignment]
    session = SimpleNamespace(_sc=context)
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", session)
    monkeypatch.setattr(SparkSession, "_activeSession", session)
    assert internals.active_context() is context
    assert not internals.is_stopped(context)
    internals.forget_context(context)
    assert internals.is_stopped(context)
    assert stopped.is_set()
    assert internals.active_context() is None
    assert SparkSession._instantiatedSession is SparkSession._activeSession is None


def test_context_under_construction_is_not_stopped() -> None:
    assert not internals.is_stopped(SparkContext.__new__(SparkContext))


def test_forget_gateway_resets_every_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = threading.Event()
    gateway = SimpleNamespace(shutdown=closed.set)
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    monkeypatch.setattr(SparkContext, "_jvm", object())
    assert internals.current_gateway() is gateway
    internals.forget_gateway(gateway)
    assert SparkContext._gateway is SparkContext._jvm is None
    assert closed.is_set()


# ---- with a JVM ------------------------------------------------------------------------------


@pytest.fixture
def rdds(backend: SparkBackend) -> JvmRdds:
    return JvmRdds(backend.context)


@pytest.mark.spark
def test_context_and_gateway_of_this_process_are_found(backend: SparkBackend) -> None:
    assert internals.active_context() is backend.context
    assert not internals.is_stopped(backend.context)
    gateway = internals.current_gateway()
    assert gateway.proc.poll() is None
    assert not internals.has_jvm_exited(gateway)


@pytest.mark.spark
def test_task_slots_are_those_of_the_executors(backend: SparkBackend) -> None:
    # Those of `local[2]`, and one for jobs of the user.
    assert internals.task_slots(backend.context) == 3


@pytest.mark.spark
def test_map_partitions_passes_raw_bytes(rdds: JvmRdds) -> None:
    def emit(partition: int, elements: Iterator[bytes]) -> Iterator[bytes]:
        assert list(elements) == []
        yield b"\x00%d" % partition

    function = rdds.wrap_function(emit)
    rdd = rdds.map_partitions(rdds.empty(3), function)
    assert rdds.collect(rdd) == [b"\x000", b"\x001", b"\x002"]


@pytest.mark.spark
def test_shuffle_sends_values_to_the_partition_of_their_key(rdds: JvmRdds) -> None:
    def emit(partition: int, elements: Iterator[bytes]) -> Iterator[bytes]:
        list(elements)
        for key in range(4):
            yield key.to_bytes(8, "big")
            yield b"%d from %d" % (key, partition)

    def label(partition: int, elements: Iterator[bytes]) -> Iterator[bytes]:
        for element in elements:
            yield b"%d: %b" % (partition, element)

    pairs = rdds.as_pairs(rdds.map_partitions(rdds.empty(2), rdds.wrap_function(emit)))
    values = rdds.shuffle_values(pairs, rdds.partitioner(2))
    rdd = rdds.map_partitions(values, rdds.wrap_function(label))
    assert sorted(rdds.collect(rdd)) == [
        b"%d: %d from %d" % (key % 2, key, sender)
        for key in (0, 2, 1, 3) for sender in range(2)
    ]


def preferred_hosts(backend: SparkBackend, rdd: Any) -> list[str]:
    """The hosts that the scheduler would choose for each partition, in Scala's notation."""
    java_context: Any = backend.context._jsc
    return [
        str(java_context.sc().getPreferredLocs(rdd, number))
        for number in range(rdd.getNumPartitions())
    ]


@pytest.mark.spark
def test_tasks_of_a_placed_rdd_prefer_their_hosts(backend: SparkBackend, rdds: JvmRdds) -> None:
    def emit(partition: int, elements: Iterator[bytes]) -> Iterator[bytes]:
        assert list(elements) == [b""]
        yield b"%d" % partition

    rdd = rdds.map_partitions(rdds.placed(["a", "b", "a"]), rdds.wrap_function(emit))
    assert preferred_hosts(backend, rdd) == ["List(a)", "List(b)", "List(a)"]
    assert rdds.collect(rdd) == [b"0", b"1", b"2"]


@pytest.mark.spark
def test_tasks_behind_a_shuffle_prefer_the_hosts_of_a_placed_rdd(
    backend: SparkBackend, rdds: JvmRdds
) -> None:
    def emit(partition: int, elements: Iterator[bytes]) -> Iterator[bytes]:
        list(elements)
        for key in range(3):
            yield key.to_bytes(8, "big")
            yield b"%d from %d" % (key, partition)

    def join(partition: int, elements: Iterator[bytes]) -> Iterator[bytes]:
        yield b"%d: %b" % (partition, b", ".join(sorted(elements)))

    pairs = rdds.as_pairs(rdds.map_partitions(rdds.empty(2), rdds.wrap_function(emit)))
    values = rdds.shuffle_values(pairs, rdds.partitioner(3))
    placed = rdds.place(values, rdds.placed(["x", "y", "x"]), rdds.diagonal(3))
    rdd = rdds.map_partitions(placed, rdds.wrap_function(join))
    assert rdds.collect(rdd) == [b"%d: %d from 0, %d from 1" % (n, n, n) for n in range(3)]
    # Also now, when Spark knows that all input of the shuffle is on this host.
    assert preferred_hosts(backend, rdd) == ["List(x)", "List(y)", "List(x)"]


@pytest.mark.spark
def test_executor_slots_do_not_count_the_driver(backend: SparkBackend) -> None:
    assert internals.executor_slots(backend.context) == {}


@pytest.mark.spark
def test_stages_of_the_last_job_have_the_hosts_of_their_tasks(
    backend: SparkBackend, rdds: JvmRdds
) -> None:
    def emit(partition: int, elements: Iterator[bytes]) -> Iterator[bytes]:
        list(elements)
        yield partition.to_bytes(8, "big")
        yield b"value"

    context = backend.context
    assert internals.last_job_stages(context, "no such group") == []
    function = rdds.wrap_function(emit)
    pairs = rdds.as_pairs(rdds.map_partitions(rdds.empty(2), function))
    rdd = rdds.shuffle_values(pairs, rdds.partitioner(3))
    group = "stages of a job"
    context.setJobGroup(group, "a test")
    rdds.collect(rdd)
    internals.clear_job_group(context)
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        # Spark's status store follows its events.
        first, second = internals.last_job_stages(context, group)
        tasks = (*first.tasks, *second.tasks)
        if len(tasks) == 5 and all(task.status == "SUCCESS" for task in tasks):
            break
        time.sleep(0.02)
    assert (first.partitions, second.partitions) == (2, 3)
    assert sorted(task.partition for task in second.tasks) == [0, 1, 2]
    assert {(task.executor, task.host) for task in tasks} == {("driver", "localhost")}
    assert all(task.launched_at > 0 for task in tasks)


@pytest.mark.spark
def test_partitioners_of_equal_size_are_equal(rdds: JvmRdds) -> None:
    assert rdds.partitioner(2).equals(rdds.partitioner(2))
    assert not rdds.partitioner(2).equals(rdds.partitioner(3))


@pytest.mark.spark
def test_worker_settings_apply_to_wrapped_functions_only(
    backend: SparkBackend, rdds: JvmRdds
) -> None:
    def environment(partition: int, elements: Iterator[bytes]) -> Iterator[bytes]:
        list(elements)
        yield os.environ.get("PENSTOCK_TEST", "").encode()

    context = backend.context
    before = internals.worker_python(context), dict(context.environment)
    with internals.worker_settings(context, sys.executable, {"PENSTOCK_TEST": "set"}):
        function = rdds.wrap_function(environment)
    assert (internals.worker_python(context), context.environment) == before
    assert rdds.collect(rdds.map_partitions(rdds.empty(1), function)) == [b"set"]


@pytest.mark.spark
def test_job_group_properties_are_those_that_spark_sets(backend: SparkBackend) -> None:
    context = backend.context
    context.setJobGroup("a group", "a description", interruptOnCancel=True)
    values = [context.getLocalProperty(name) for name in internals.JOB_GROUP_PROPERTIES]
    assert values == ["a group", "a description", "true"]
    internals.clear_job_group(context)
    values = [context.getLocalProperty(name) for name in internals.JOB_GROUP_PROPERTIES]
    assert values == [None, None, None]


@pytest.mark.spark
def test_cancelled_group_ends_its_job_and_later_ones(
    backend: SparkBackend, rdds: JvmRdds, tmp_path: Path
) -> None:
    began = tmp_path / "began"

    def wait(partition: int, elements: Iterator[bytes]) -> Iterator[bytes]:
        began.touch()
        time.sleep(600)
        return iter(())

    context = backend.context
    rdd = rdds.map_partitions(rdds.empty(1), rdds.wrap_function(wait))
    failures: list[Any] = []

    def run_twice() -> None:
        context.setJobGroup("to cancel", "a test", interruptOnCancel=True)
        for _ in range(2):
            try:
                rdds.collect(rdd)
            except Exception as error:
                failures.append(error)

    thread = InheritableThread(target=run_twice)
    thread.start()
    deadline = time.monotonic() + 180
    while not began.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    internals.cancel_group_and_future_jobs(context, "to cancel")
    thread.join(180)
    assert not thread.is_alive()
    assert len(failures) == 2
    assert all(isinstance(error, Py4JError) for error in failures), failures


def test_arrow_schema_has_timestamps_in_utc() -> None:
    schema = StructType([
        StructField("time", TimestampType()), StructField("names", ArrayType(StringType())),
    ])
    found = internals.arrow_schema(schema)
    assert found.field("time").type == pa.timestamp("us", tz="UTC")
    assert found.field("names").type.value_type == pa.string()


def test_no_streaming_query_outside_of_a_task() -> None:
    assert internals.streaming_query_id() == ""
