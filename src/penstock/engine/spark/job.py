"""`SparkCompute`: a batch is one Spark job.

    lanes of stage 0 ──(lane, block)──► shuffle ──► lanes of stage 1 ── ... ──► outcomes, collected

The job is put together from the objects of the JVM: the functions are pickled once, a batch makes
new shuffles only (Spark would answer from the files of an old one), and what goes from worker to
worker is bytes that neither Python's pickle nor the JVM looks into.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.core.rdd import _wrap_function
from pyspark.serializers import NoOpSerializer
from pyspark.util import _load_from_socket

from penstock.engine.packaging.bundle import Bundle
from penstock.engine.plan.batch_plan import BatchPlan, encode_plan
from penstock.engine.spark.backend import SparkBackend, worker_environment
from penstock.engine.spark.errors import JobRetries
from penstock.engine.spark.keepalive import Keepalive, nothing
from penstock.engine.spark.lane import PLAN, LaneFunction, LaneRunner, load_worker

log = logging.getLogger(__name__)

#: What `setJobGroup` sets.
_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


class SparkCompute:
    """A `Compute` on Spark. One thread computes; any may cancel."""

    def __init__(
        self, place: SparkBackend, bundle: Bundle, packed: bytes, *,
        load: Callable[[bytes], LaneRunner] = load_worker,
        on_close: Callable[[], object] = lambda: None,
    ) -> None:
        """`packed` is the bundle as bytes; `load` makes of them whatever runs lanes."""
        self._place = place
        self._context = place.context
        self._application_id = bundle.config.application_id
        self._stages = bundle.stages
        self._on_close = on_close
        self._cancelled = threading.Event()
        self._closed = False
        fingerprint = hashlib.sha256(packed).hexdigest()
        # Once a group is cancelled, no job of that name ever runs again.
        self._group = f"penstock-{self._application_id}-{uuid.uuid4().hex}"
        self._packed = self._context.broadcast(packed)
        self._chain = _Chain(
            place, bundle.lanes,
            lambda stage, is_first: LaneFunction(
                self._application_id, fingerprint, self._packed, stage, is_first,
                stage == len(bundle.lanes) - 1, load,
            ),
        )
        self._warmth = Keepalive(self._chain.run_nothing)

    def compute(self, plan: BatchPlan) -> list[bytes]:
        """Run all tasks of the plan; answers their outcomes.

        Workers that Spark has lost are no failure: the job is run again, a few times.
        """
        return self._run(plan, self._first_stage(plan))

    def warm_up(self) -> None:
        """Run a batch in which no task has anything to do: then workers are there that know the
        application, and Spark has met all that a batch needs."""
        self._run(BatchPlan(0, 0, 0, {}), 0)

    def _run(self, plan: BatchPlan, first: int) -> list[bytes]:
        self._place.check()
        description = f"penstock {self._application_id} batch {plan.number}"
        reruns = JobRetries(self._application_id, plan.number, self._cancelled, self._place.python)
        properties = job_properties(self._context, self._group, description, encode_plan(plan))
        with self._place.telling_loss(), properties:
            while True:
                try:
                    with self._place.telling_loss():
                        return self._chain.run(first)
                except Exception as error:
                    reruns.after(error)
                finally:
                    self._warmth.job_done()

    def _first_stage(self, plan: BatchPlan) -> int:
        """The first stage that has anything to do: those before it send nothing."""
        for stage, tasks in enumerate(self._stages):
            for task_id in tasks:
                planned = plan.tasks.get(task_id)
                if planned is not None and (planned.ranges or planned.punctuate):
                    return stage
        return len(self._stages) - 1

    def cancel(self) -> None:
        """End the running job, and all that would come: `compute` raises. Nothing has happened
        outside."""
        self._cancelled.set()
        java: Any = self._context._jsc
        if java is None:
            return
        try:
            # A job may be about to begin that is not there yet to be cancelled.
            java.sc().cancelJobGroupAndFutureJobs(self._group)
        except (Py4JError, OSError):
            if not self._place.is_lost:
                raise

    def close(self) -> None:
        """No more batches; may be called again."""
        if self._closed:
            return
        self._closed = True
        try:
            self.cancel()
            self._warmth.close()
            if self._context._jsc is not None:
                self._packed.destroy()
        except (Py4JError, OSError):
            log.debug("Spark was gone before the application was closed.", exc_info=True)
        finally:
            self._on_close()


class _Chain:
    """The stages as objects of the JVM. What can be kept is kept; names are looked up once,
    because py4j tries every imported package for a name, each time."""

    def __init__(
        self, place: SparkBackend, lanes: Sequence[int],
        function: Callable[[int, bool], LaneFunction],
    ) -> None:
        context = place.context
        jvm: Any = context._jvm
        java: Any = context._jsc
        self._lanes = lanes
        self._noop = NoOpSerializer()
        self._python_rdd = jvm.PythonRDD
        self._value_of_pair = jvm.PythonRDD.valueOfPair
        self._serve = jvm.PythonRDD.collectAndServe
        self._pairwise = jvm.PairwiseRDD
        # The default for bytes is a serializer that is built anew, slowly, for each block.
        self._serializer = jvm.org.apache.spark.serializer.JavaSerializer(java.sc().conf())
        with python_of(place):
            self._first = [self._wrapped(context, function(n, True)) for n in range(len(lanes))]
            self._then = [self._wrapped(context, function(n, False)) for n in range(len(lanes))]
            idle = self._wrapped(context, nothing)
        self._bases = {
            count: context.parallelize((), count)._jrdd.rdd()
            for count in {1, *lanes}
        }
        self._idle = self._python_rdd(self._bases[1], idle, False, False)
        self._partitioners = {
            # The number tells partitioners apart; those of equal size are the same.
            count: jvm.PythonPartitioner(count, count) for count in set(lanes)
        }
        #: First stage -> its lanes, and with more than one stage their pairs of lane and block.
        self._heads: dict[int, Any] = {}

    def _wrapped(
        self, context: SparkContext, function: Callable[[int, Iterator[bytes]], Iterator[bytes]]
    ) -> Any:
        return _wrap_function(context, function, self._noop, self._noop)

    def run(self, first: int) -> list[bytes]:
        """One job, from a stage to the last."""
        last = len(self._lanes) - 1
        rdd = self._head(first)
        for stage in range(first + 1, last + 1):
            # Later stages are made for each job: they hang from a shuffle that is of one job.
            pairs = rdd if stage == first + 1 else self._pairwise(rdd).asJavaPairRDD()
            shuffled = pairs.partitionBy(self._partitioners[self._lanes[stage]])
            shuffled.rdd().setSerializer(self._serializer)
            rdd = self._python_rdd(
                self._value_of_pair(shuffled).rdd(), self._then[stage], False, False
            )
        return self._collected(rdd)

    def run_nothing(self) -> None:
        """One job of one task that does nothing."""
        self._collected(self._idle)

    def _collected(self, rdd: Any) -> list[bytes]:
        with _load_from_socket(self._serve(rdd), self._noop) as blocks:
            return list(blocks)

    def _head(self, first: int) -> Any:
        if first not in self._heads:
            base = self._bases[self._lanes[first]]
            rdd = self._python_rdd(base, self._first[first], False, False)
            is_last = first == len(self._lanes) - 1
            self._heads[first] = rdd if is_last else self._pairwise(rdd).asJavaPairRDD()
        return self._heads[first]


@contextmanager
def job_properties(
    context: SparkContext, group: str, description: str, plan: str
) -> Iterator[None]:
    """What the jobs that this thread starts meanwhile carry; then what was there before.

    Every call goes to the JVM and back, so there are as few as can be.
    """
    before = {name: context.getLocalProperty(name) for name in _GROUP}
    context.setJobGroup(group, description, interruptOnCancel=True)
    context.setLocalProperty(PLAN, plan)
    try:
        yield
    finally:
        try:
            _put_back(context, before)
        except (Py4JError, OSError):
            # What has ended Spark is told by the job, or by the next one.
            log.debug("Spark was gone at the end of a job.", exc_info=True)


def _put_back(context: SparkContext, before: Mapping[str, str | None]) -> None:
    java: Any = context._jsc
    if java is None:
        return
    context.setLocalProperty(PLAN, None)  # type: ignore[arg-type]
    java.clearJobGroup()
    for name, value in before.items():
        if value is not None:
            context.setLocalProperty(name, value)


@contextmanager
def python_of(place: SparkBackend) -> Iterator[None]:
    """The Python and the environment of functions that are wrapped meanwhile."""
    context = place.context
    before = context.pythonExec, context.environment
    context.pythonExec = place.python
    context.environment = {**worker_environment(place), **context.environment}
    try:
        yield
    finally:
        context.pythonExec, context.environment = before
