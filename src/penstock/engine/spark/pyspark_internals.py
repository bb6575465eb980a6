"""Every private name of PySpark that penstock uses, behind one small function each.

PySpark has no public API to pass raw bytes between stages, or to start another JVM after the first
one was lost. `tests/engine/spark/test_pyspark_internals.py` tests every function against the
installed PySpark.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pyspark
from pyspark import SparkConf, SparkContext, TaskContext
from pyspark.core.rdd import _wrap_function
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import NoOpSerializer, UTF8Deserializer, read_int
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.util import _load_from_socket

#: The local properties that `SparkContext.setJobGroup` sets. They are read to restore them.
JOB_GROUP_PROPERTIES = (
    "spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"
)
#: The variables with which spark-submit passes its JVM to Python.
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
#: The most tasks of a stage that `last_job_stages` returns.
_MAX_TASKS = 1_000


# ---- the process -----------------------------------------------------------------------------


def is_inside_spark_submit() -> bool:
    """Whether spark-submit has started this process, so that a JVM exists already."""
    return _PORT in os.environ


def pyspark_directory() -> str:
    """Return the directory of the `pyspark` package, which contains a complete Spark."""
    return os.path.dirname(os.path.abspath(pyspark.__file__))


# ---- the JVM ---------------------------------------------------------------------------------


def launch_jvm(conf: SparkConf, stderr: int) -> Any:
    """Start a JVM whose standard error is a file descriptor. Returns its gateway.

    `SparkContext` would start the JVM itself, but with the standard error of this process.
    """
    return launch_gateway(conf, popen_kwargs={"stderr": stderr})  # type: ignore[no-untyped-call]


def connect_to_jvm(connection_info: Path, process: subprocess.Popen[bytes]) -> Any:
    """Return the gateway of a JVM that was started without `launch_jvm`.

    The file is written by the JVM, which renames it when it is complete. `launch_gateway` connects
    to a JVM that its environment variables name. It gets variables of its own here, because those
    of the process would reach child processes that other threads start.
    """
    with connection_info.open("rb") as info:
        port: int = read_int(info)  # type: ignore[no-untyped-call]
        secret: str = UTF8Deserializer().loads(info)  # type: ignore[no-untyped-call]
    variables = SimpleNamespace(environ={**os.environ, _PORT: str(port), _SECRET: secret})
    connect = FunctionType(
        launch_gateway.__code__, {**launch_gateway.__globals__, "os": variables},
        argdefs=launch_gateway.__defaults__,
    )
    gateway = connect()
    gateway.proc = process
    return gateway


def connect_to_submitted_jvm() -> None:
    """Connect to the JVM of spark-submit. A SparkConf then contains the settings of the command."""
    SparkContext._ensure_initialized()


def current_gateway() -> Any:
    """Return the gateway to the JVM of this process, or None."""
    return SparkContext._gateway


def has_jvm_exited(gateway: Any) -> bool:
    """Whether the JVM is a child process that has ended. Does not call the JVM."""
    process = getattr(gateway, "proc", None)
    return process is not None and process.poll() is not None


def forget_gateway(gateway: Any) -> None:
    """Make PySpark start another JVM: the one of this gateway has ended."""
    with SparkContext._lock:
        if SparkContext._gateway is gateway:
            SparkContext._gateway = SparkContext._jvm = None
    # Ends py4j's thread that reports garbage to the JVM; it ignores a lost connection.
    gateway.shutdown()


# ---- the context -----------------------------------------------------------------------------


def active_context() -> SparkContext | None:
    """Return the SparkContext of this process, without creating one."""
    return SparkContext._active_spark_context


def is_stopped(context: SparkContext) -> bool:
    """Whether a context is stopped. A context that another thread is creating is not."""
    return getattr(context, "_jsc", context) is None


def forget_context(context: SparkContext) -> None:
    """Stop a context whose JVM has ended.

    `SparkContext.stop` calls the JVM first. Without a JVM it fails and leaves the context active.
    """
    context._jsc = None
    server, context._accumulatorServer = context._accumulatorServer, None  # type: ignore[assignment]
    if server is not None:
        server.shutdown()
    with SparkContext._lock:
        if SparkContext._active_spark_context is context:
            SparkContext._active_spark_context = None
    session = SparkSession._instantiatedSession
    if session is not None and session._sc is context:
        SparkSession._instantiatedSession = SparkSession._activeSession = None


def task_slots(context: SparkContext) -> int:
    """Return how many tasks the registered executors can run at the same time.

    `SparkContext.defaultParallelism` is at least 2 on a cluster, even without executors, and
    returns `spark.default.parallelism` if that is set.
    """
    java_context: Any = context._jsc
    scala_context = java_context.sc()
    profile = scala_context.resourceProfileManager().defaultResourceProfile()
    slots: int = scala_context.maxNumConcurrentTasks(profile)
    return slots


def executor_slots(context: SparkContext) -> dict[str, int]:
    """Return the task slots of each host with executors. Spark updates it with a short delay."""
    java_context: Any = context._jsc
    slots: dict[str, int] = {}
    executors = java_context.sc().statusStore().executorList(True)
    for number in range(executors.size()):
        executor = executors.apply(number)
        if executor.id() != "driver":
            host = executor.hostPort().rpartition(":")[0]
            slots[host] = slots.get(host, 0) + executor.maxTasks()
    return slots


def leaving_executors(context: SparkContext) -> frozenset[str]:
    """Return the ids of the executors that run tasks, but get no new ones: they are being
    decommissioned."""
    java_context: Any = context._jsc
    scala_context = java_context.sc()
    scheduler = scala_context.schedulerBackend()
    executors = scala_context.statusStore().executorList(True)
    known = {executors.apply(number).id() for number in range(executors.size())} - {"driver"}
    return frozenset(each for each in known if not scheduler.isExecutorActive(each))


def executors_of_group(context: SparkContext, group: str) -> frozenset[str]:
    """Return the ids of the executors that run tasks of a job group."""
    java_context: Any = context._jsc
    store = java_context.sc().statusStore()
    tracker = context.statusTracker()
    found: set[str] = set()
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            tasks = store.taskList(stage, 0, _MAX_TASKS)
            found |= {
                tasks.apply(number).executorId() for number in range(tasks.size())
                if tasks.apply(number).status() == "RUNNING"
            }
    return frozenset(found)


# ---- jobs ------------------------------------------------------------------------------------


class TaskInfo(NamedTuple):
    """An attempt of a Spark task."""

    partition: int
    executor: str
    host: str
    #: RUNNING, SUCCESS, FAILED, KILLED or UNKNOWN.
    status: str
    #: Epoch milliseconds.
    launched_at: int


class StageInfo(NamedTuple):
    """The last attempt of a stage."""

    stage_id: int
    partitions: int
    tasks: tuple[TaskInfo, ...]


def last_job_stages(context: SparkContext, group: str) -> list[StageInfo]:
    """Return the stages of the last job of a group that have started, in order.

    Costs several calls of the JVM for each task. Spark updates it with a short delay.
    """
    tracker = context.statusTracker()
    jobs = tracker.getJobIdsForGroup(group)
    job = tracker.getJobInfo(max(jobs)) if jobs else None
    java_context: Any = context._jsc
    store = java_context.sc().statusStore()
    stages = []
    for stage_id in sorted(job.stageIds) if job is not None else ():
        if tracker.getStageInfo(stage_id) is None:
            continue
        stage = store.lastStageAttempt(stage_id)
        tasks = store.taskList(stage_id, stage.attemptId(), _MAX_TASKS)
        stages.append(StageInfo(stage_id, stage.numTasks(), tuple(
            TaskInfo(
                task.partitionId(), task.executorId(), task.host(), task.status(),
                task.launchTime().getTime(),
            )
            for task in map(tasks.apply, range(tasks.size()))
        )))
    return stages


def cancel_group_and_future_jobs(context: SparkContext, group: str) -> None:
    """Cancel the jobs of a group, also those that start later.

    `SparkContext.cancelJobGroup` misses a job that is about to start.
    """
    java_context: Any = context._jsc
    if java_context is not None:
        java_context.sc().cancelJobGroupAndFutureJobs(group)


def clear_job_group(context: SparkContext) -> None:
    """Undo `SparkContext.setJobGroup` in one call, where `setLocalProperty` needs three."""
    java_context: Any = context._jsc
    java_context.clearJobGroup()


def worker_python(context: SparkContext) -> str:
    """Return the Python that runs the functions of a context."""
    python: str = context.pythonExec
    return python


_worker_settings_lock = threading.RLock()


@contextmanager
def worker_settings(
    context: SparkContext, python: str, environment: Mapping[str, str]
) -> Iterator[None]:
    """Set the Python and the environment of the functions that are wrapped meanwhile.

    Variables of the context win. PySpark sets both only for all functions of a context.
    """
    with _worker_settings_lock:
        before = context.pythonExec, context.environment
        context.pythonExec = python
        context.environment = {**environment, **context.environment}
        try:
            yield
        finally:
            context.pythonExec, context.environment = before


class JvmRdds:
    """Builds RDDs from the JVM classes behind PySpark's `RDD`, whose elements are raw bytes.

    The public `RDD` pickles every function again for each job, and every element. The classes are
    looked up once, because py4j searches all imported packages for a name.
    """

    def __init__(self, context: SparkContext) -> None:
        jvm: Any = context._jvm
        java_context: Any = context._jsc
        self._context = context
        self._raw = NoOpSerializer()
        self._python_rdd = jvm.PythonRDD
        self._value_of_pair = jvm.PythonRDD.valueOfPair
        self._collect_and_serve = jvm.PythonRDD.collectAndServe
        self._pairwise_rdd = jvm.PairwiseRDD
        self._partitioner = jvm.PythonPartitioner
        self._pruned_rdd = jvm.org.apache.spark.rdd.PartitionPruningRDD
        self._pair_rdd = jvm.org.apache.spark.api.java.JavaPairRDD
        self._tuple = jvm.scala.Tuple2
        self._to_seq = jvm.PythonUtils.toSeq
        self._any = jvm.scala.reflect.ClassTag.AnyRef()
        self._scala_context = java_context.sc()
        # Spark's default serializer for bytes is created again for every block, which is slow.
        self._serializer = jvm.org.apache.spark.serializer.JavaSerializer(
            java_context.sc().conf()
        )

    def wrap_function(
        self, function: Callable[[int, Iterator[bytes]], Iterator[bytes]]
    ) -> Any:
        """Pickle a function of (partition, elements) for `map_partitions`."""
        return _wrap_function(self._context, function, self._raw, self._raw)

    def empty(self, partitions: int) -> Any:
        """Return an RDD of empty partitions."""
        return self._context.parallelize((), partitions)._jrdd.rdd()

    def placed(self, hosts: Sequence[str]) -> Any:
        """Return an RDD with one partition for each host, which its task prefers. Each partition
        has one element, without content."""
        partitions = [self._tuple(b"", self._to_seq([host])) for host in hosts]
        return self._scala_context.makeRDD(self._to_seq(partitions), self._any)

    def diagonal(self, partitions: int) -> Any:
        """Return the filter that `place` needs for so many partitions."""
        return self._to_seq([n * partitions + n for n in range(partitions)]).toSet()

    def place(self, rdd: Any, placed: Any, diagonal: Any) -> Any:
        """Let the tasks of an RDD prefer the hosts of a placed RDD with as many partitions.

        A shuffled RDD prefers the hosts that hold most of its input, and Spark has no function to
        change that. A product of both RDDs prefers the hosts of its first factor. Of its partitions
        only those are kept that combine equal numbers.
        """
        product = placed.cartesian(rdd, self._any)
        pairs = self._pair_rdd(
            self._pruned_rdd(product, diagonal, self._any), self._any, self._any
        )
        return self._value_of_pair(pairs).rdd()

    def map_partitions(self, rdd: Any, function: Any) -> Any:
        """Apply a wrapped function to every partition of an RDD."""
        return self._python_rdd(rdd, function, False, False)

    def as_pairs(self, rdd: Any) -> Any:
        """Read elements alternately as key (a long in Java's format) and value."""
        return self._pairwise_rdd(rdd).asJavaPairRDD()

    def partitioner(self, partitions: int) -> Any:
        """Return a partitioner that sends key n to partition n modulo `partitions`.

        Partitioners of equal size are equal, which the second argument makes true.
        """
        return self._partitioner(partitions, partitions)

    def shuffle_values(self, pairs: Any, partitioner: Any) -> Any:
        """Shuffle pairs by key. Returns an RDD of their values."""
        shuffled = pairs.partitionBy(partitioner)
        shuffled.rdd().setSerializer(self._serializer)
        return self._value_of_pair(shuffled).rdd()

    def collect(self, rdd: Any) -> list[bytes]:
        """Run a job and return all elements."""
        with _load_from_socket(self._collect_and_serve(rdd), self._raw) as elements:
            return list(elements)


# ---- data sources ----------------------------------------------------------------------------


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the record batches that Spark expects from a data source."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:
        # Before PySpark 4.3, timestamps always are in UTC.
        return to_arrow_schema(schema)


def streaming_query_id() -> str:
    """Return the id of the streaming query that the present Spark task belongs to, or "".

    Spark keeps it in the checkpoint of the query.
    """
    context = TaskContext.get()
    return (context and context.getLocalProperty("sql.streaming.queryId")) or ""
