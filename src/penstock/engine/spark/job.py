"""`SparkCompute`: runs a batch as one Spark job.

    lanes of stage 0 ──(lane, block)──► shuffle ──► lanes of stage 1 ── ... ──► outcomes, collected

The job is built from JVM objects. Functions are pickled once. Each batch creates only new shuffles,
because Spark would reuse the files of an old one. Blocks travel from worker to worker as
bytes that neither Python's pickle nor the JVM decodes.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from penstock.engine.packaging.bundle import Bundle
from penstock.engine.plan.batch_plan import BatchPlan, encode_plan
from penstock.engine.spark.backend import SparkBackend
from penstock.engine.spark.errors import JobRetries
from penstock.engine.spark.job_watch import JobWatch
from penstock.engine.spark.keepalive import Keepalive, empty_task
from penstock.engine.spark.lane import PLAN, LaneFunction, LaneRunner, load_worker
from penstock.engine.spark.placement import Hosts, Placement
from penstock.engine.spark.pyspark_internals import (
    JOB_GROUP_PROPERTIES,
    JvmRdds,
    cancel_group_and_future_jobs,
    clear_job_group,
    is_stopped,
    last_job_stages,
    worker_settings,
)
from penstock.engine.spark.settings import NETWORK_TIMEOUT, has_executors

log = logging.getLogger(__name__)

#: A lane waits at most for `spark.locality.wait` for its preferred host. After a job of this
#: duration the driver checks where the lanes have run.
_LOCALITY_WAIT_S = 3.0


class SparkCompute:
    """A `Compute` on Spark. One thread computes. Any thread may cancel."""

    def __init__(
        self, backend: SparkBackend, bundle: Bundle, packed: bytes, *,
        load: Callable[[bytes], LaneRunner] = load_worker,
    ) -> None:
        """`packed` is the encoded bundle, from which `load` creates a worker."""
        self._backend = backend
        self._context = backend.context
        self._application_id = bundle.config.application_id
        self._stages = bundle.stages
        #: How many lanes a stage may have.
        self.parallelism = bundle.parallelism
        self._cancelled = threading.Event()
        self._closed = False
        fingerprint = hashlib.sha256(packed).hexdigest()
        # A cancelled group never runs a job again, so its name must be unique.
        self._group = f"penstock-{self._application_id}-{uuid.uuid4().hex}"
        self._packed = self._context.broadcast(packed)
        self._chain = _StageChain(
            backend, bundle.lanes,
            lambda stage, is_first: LaneFunction(
                self._application_id, fingerprint, self._packed, stage, is_first,
                stage == len(bundle.lanes) - 1, load,
            ),
        )
        self._keepalive = Keepalive(self._chain.run_empty)
        self._placement = Placement(bundle, backend.homes, backend.slots_by_host)
        self._watch: JobWatch | None = None
        if has_executors(self._context.master or ""):
            self._watch = JobWatch(
                self._application_id, lambda: last_job_stages(self._context, self._group),
                self._context.getConf().get(NETWORK_TIMEOUT, "120s"),
            )

    def compute(self, plan: BatchPlan) -> list[bytes]:
        """Run all tasks of the plan and return their encoded outcomes.

        If Spark loses workers, the job is retried a few times.
        """
        return self._run(plan, self._first_stage(plan))

    def warm_up(self) -> None:
        """Run a batch without work. It starts the workers, which load the application."""
        self._run(BatchPlan(0, 0, 0, {}), 0)

    def _run(self, plan: BatchPlan, first: int) -> list[bytes]:
        self._backend.check()
        description = f"penstock {self._application_id} batch {plan.number}"
        retries = JobRetries(
            self._application_id, plan.number, self._cancelled, self._backend.python
        )
        properties = job_properties(self._context, self._group, description, encode_plan(plan))
        with self._backend.report_jvm_loss(), properties:
            while True:
                try:
                    with self._backend.report_jvm_loss():
                        return self._run_job(plan.number, first)
                except Exception as error:
                    retries.after(error)
                finally:
                    self._keepalive.job_done()

    def _run_job(self, batch: int, first: int) -> list[bytes]:
        self._chain.place(self._placement.hosts())
        started = time.monotonic()
        with nullcontext() if self._watch is None else self._watch.job(batch):
            outcomes = self._chain.run(first)
        took_long = time.monotonic() - started > _LOCALITY_WAIT_S
        if self._watch is not None and (took_long or log.isEnabledFor(logging.DEBUG)):
            self._observe_hosts(batch, first)
        return outcomes

    def _observe_hosts(self, batch: int, first: int) -> None:
        """Change the preferred host of lanes that ran elsewhere: that host holds their state now,
        and the preferred one may be busy for longer."""
        runs = [
            (first + number, task.partition, task.host)
            for number, stage in enumerate(last_job_stages(self._context, self._group))
            for task in stage.tasks if task.status == "SUCCESS"
        ]
        moved = sum(self._placement.observe(*run) for run in runs)
        log.debug(
            "Batch %d: %d of %d lanes did not run on their preferred host. Hosts: %s",
            batch, moved, len(runs), ", ".join(f"{s}/{lane} {host}" for s, lane, host in runs),
        )

    def _first_stage(self, plan: BatchPlan) -> int:
        """Return the first stage with work. The stages before it send nothing."""
        for stage, tasks in enumerate(self._stages):
            for task_id in tasks:
                planned = plan.tasks.get(task_id)
                if planned is not None and (planned.ranges or planned.punctuate):
                    return stage
        return len(self._stages) - 1

    def cancel(self) -> None:
        """Cancel the running job and all later ones. `compute` raises `BatchCancelled`."""
        self._cancelled.set()
        try:
            cancel_group_and_future_jobs(self._context, self._group)
        except (Py4JError, OSError):
            if not self._backend.is_lost:
                raise

    def close(self) -> None:
        """Release the resources of the application. May be called again."""
        if self._closed:
            return
        self._closed = True
        try:
            self.cancel()
            self._keepalive.close()
            if self._watch is not None:
                self._watch.close()
            if not is_stopped(self._context):
                self._packed.destroy()
        except (Py4JError, OSError):
            log.debug("Spark ended before the application was closed.", exc_info=True)


class _StageChain:
    """The stages of the job as JVM objects. Those that do not depend on a batch are reused."""

    def __init__(
        self, backend: SparkBackend, lanes: Sequence[int],
        function: Callable[[int, bool], LaneFunction],
    ) -> None:
        """`function` returns the function of a stage, as the first stage of a job or as a later
        one."""
        self._rdds = rdds = JvmRdds(backend.context)
        self._lanes = lanes
        stages = range(len(lanes))
        with worker_settings(backend.context, backend.python, backend.worker_environment):
            self._first = [rdds.wrap_function(function(stage, True)) for stage in stages]
            self._later = [rdds.wrap_function(function(stage, False)) for stage in stages]
            keepalive = rdds.wrap_function(empty_task)
        self._inputs = {count: rdds.empty(count) for count in {1, *lanes}}
        self._keepalive = rdds.map_partitions(self._inputs[1], keepalive)
        self._partitioners = {count: rdds.partitioner(count) for count in set(lanes)}
        #: First stage -> its RDD; of pairs, if there is another stage.
        self._heads: dict[int, Any] = {}
        self._hosts: Hosts | None = None
        #: Stage -> an RDD whose partitions prefer the hosts of its lanes.
        self._placed: list[Any] = []
        self._diagonals: dict[int, Any] = {}

    def place(self, hosts: Hosts | None) -> None:
        """Set the preferred hosts of the lanes, for the jobs that follow. None: no preferences."""
        if hosts == self._hosts:
            return
        self._hosts = hosts
        self._heads = {}
        self._placed = [self._rdds.placed(stage) for stage in hosts or ()]
        self._diagonals = {count: self._rdds.diagonal(count) for count in set(self._lanes)}

    def run(self, first: int) -> list[bytes]:
        """Run a job from stage `first` to the last stage."""
        rdd = self._head(first)
        # Later stages are created for each job, because they depend on a shuffle of the job.
        for stage in range(first + 1, len(self._lanes)):
            pairs = rdd if stage == first + 1 else self._rdds.as_pairs(rdd)
            lanes = self._lanes[stage]
            values = self._rdds.shuffle_values(pairs, self._partitioners[lanes])
            if self._placed:
                values = self._rdds.place(values, self._placed[stage], self._diagonals[lanes])
            rdd = self._rdds.map_partitions(values, self._later[stage])
        return self._rdds.collect(rdd)

    def run_empty(self) -> None:
        """Run the keepalive job."""
        self._rdds.collect(self._keepalive)

    def _head(self, first: int) -> Any:
        if first not in self._heads:
            source = self._placed[first] if self._placed else self._inputs[self._lanes[first]]
            rdd = self._rdds.map_partitions(source, self._first[first])
            is_last = first == len(self._lanes) - 1
            self._heads[first] = rdd if is_last else self._rdds.as_pairs(rdd)
        return self._heads[first]


@contextmanager
def job_properties(
    context: SparkContext, group: str, description: str, plan: str
) -> Iterator[None]:
    """Set the job group and the plan of the jobs that this thread starts meanwhile.

    Restores the properties afterwards. Each property costs a call of the JVM.
    """
    before = {name: context.getLocalProperty(name) for name in JOB_GROUP_PROPERTIES}
    context.setJobGroup(group, description, interruptOnCancel=True)
    context.setLocalProperty(PLAN, plan)
    try:
        yield
    finally:
        try:
            _restore_properties(context, before)
        except (Py4JError, OSError):
            # The job or the next one reports why Spark has ended.
            log.debug("Spark ended before the job did.", exc_info=True)


def _restore_properties(context: SparkContext, before: Mapping[str, str | None]) -> None:
    if is_stopped(context):
        return
    context.setLocalProperty(PLAN, None)  # type: ignore[arg-type]
    clear_job_group(context)
    for name, value in before.items():
        if value is not None:
            context.setLocalProperty(name, value)
