"""`SparkBackend`: the SparkContext in which the jobs of an application run.

It is either the user's context, used as it is, or one that penstock creates for all applications
of the process.
"""

from __future__ import annotations

import functools
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext

from penstock.config import StreamsConfig
from penstock.engine.compute_provider import PARALLELISM
from penstock.engine.spark.cluster import wait_for_slots
from penstock.engine.spark.errors import jvm_ended, spark_stopped
from penstock.engine.spark.gateway import forget_jvm, is_jvm_gone
from penstock.engine.spark.keepalive import empty_task
from penstock.engine.spark.placement import TaskHomes
from penstock.engine.spark.pyspark_internals import (
    JvmRdds,
    active_context,
    current_gateway,
    executor_slots,
    has_jvm_exited,
    is_inside_spark_submit,
    is_stopped,
    task_slots,
    worker_python,
    worker_settings,
)
from penstock.engine.spark.settings import (
    SPARE_SLOTS,
    UNIX_SOCKETS,
    check_log,
    has_executors,
    is_local_master,
    python_path,
)
from penstock.engine.spark.shared_context import SharedContext
from penstock.errors import ConfigException, StreamsException

log = logging.getLogger(__name__)

OLDEST_SPARK = (4, 1)

_shared = SharedContext()


class SparkBackend:
    """A SparkContext to run jobs in.

    `owned`: penstock has created it. `given`: the user has passed it as `spark=`.
    """

    def __init__(self, context: SparkContext, *, owned: bool, given: bool = False) -> None:
        self.context = context
        self._owned = owned
        self._given = given
        # PySpark knows one gateway per process, which may be another one later.
        self._gateway = current_gateway()
        self._closed = False
        #: Kept for the applications that run in this context, also while they are reopened.
        self.homes = TaskHomes()

    @property
    def is_lost(self) -> bool:
        """Whether the JVM has ended. Then this backend must be closed and another one opened."""
        return is_jvm_gone(self._gateway)

    def check(self) -> None:
        """Raise if Spark is gone, as far as that is known without a call of the JVM."""
        if has_jvm_exited(self._gateway):
            raise self.jvm_lost_error()
        if is_stopped(self.context):
            raise spark_stopped()

    @contextmanager
    def report_jvm_loss(self) -> Iterator[None]:
        """Replace an exception by `jvm_lost_error` if the JVM has ended."""
        try:
            yield
        except StreamsException:
            raise
        except Exception as error:
            if self.is_lost:
                raise self.jvm_lost_error() from error
            raise

    def jvm_lost_error(self) -> StreamsException:
        """Return the error for a lost JVM, with advice for this kind of backend."""
        if self._owned:
            advice = (
                "Start the application again, or return REPLACE_THREAD from its uncaught exception "
                "handler."
            )
        elif self._given:
            advice = "Close the application, create a new session, and a new Streams with it."
        else:
            advice = "penstock did not create the Spark session: restart the process."
        return jvm_ended(advice)

    @property
    def is_local(self) -> bool:
        """Whether workers run on this host, with the packages of this Python."""
        return is_local_master(self.context.master or "")

    @property
    def control_hosts(self) -> tuple[str, str] | None:
        """The address on which the driver listens for lanes, and the one at which they reach it.

        None if all lanes are on this host, where a Unix socket is enough.
        """
        if self.is_local:
            return None
        conf = self.context.getConf()
        host = conf.get("spark.driver.host") or "127.0.0.1"
        return conf.get("spark.driver.bindAddress") or host, host

    @property
    def python(self) -> str:
        """The Python of the workers. On this host it is the one that runs penstock."""
        return sys.executable if self.is_local else worker_python(self.context)

    @property
    def worker_environment(self) -> dict[str, str]:
        """Additional environment variables of the workers."""
        if not self.is_local:
            return {}
        return {"PYTHONPATH": python_path()}

    @property
    def is_elastic(self) -> bool:
        """Whether executors register later, come and go, or the JVM ends before this process."""
        return has_executors(self.context.master or "") or is_inside_spark_submit()

    def count_slots(self) -> int:
        """Return how many tasks of applications can run at the same time.

        Raise if the JVM has ended.
        """
        if self._dynamic_slots is not None:
            # Spark requests executors for the tasks that wait for a slot.
            return max(self._dynamic_slots, task_slots(self.context))
        return task_slots(self.context) - self._spare_slots

    def slots_by_host(self) -> dict[str, int]:
        """Return the slots of each host. Empty if all tasks run in the driver's JVM."""
        return executor_slots(self.context) if has_executors(self.context.master or "") else {}

    def wait_for_slots(self) -> None:
        """Wait until the executors of a cluster have registered."""
        master = self.context.master or ""
        if has_executors(master):
            wait_for_slots(self.count_slots, master)

    @functools.cached_property
    def _spare_slots(self) -> int:
        """The slots of penstock's own context that are left to other jobs."""
        return int(self.context.getConf().get(SPARE_SLOTS, "0") or 0)

    @functools.cached_property
    def _dynamic_slots(self) -> int | None:
        """The most slots that dynamic allocation may request. None if it is disabled."""
        conf = self.context.getConf()
        if conf.get("spark.dynamicAllocation.enabled", "false") != "true":
            return None
        executors = conf.get("spark.dynamicAllocation.maxExecutors")
        cores = int(conf.get("spark.executor.cores") or 1)
        return sys.maxsize if executors is None else int(executors) * cores

    def warm_up_workers(self) -> None:
        """Start a Python worker for each slot of this host, if the context belongs to penstock.

        The first batch would start them. Another thread runs this while the application starts.
        """
        if not self._owned or not self.is_local:
            return
        rdds = JvmRdds(self.context)
        with worker_settings(self.context, self.python, self.worker_environment):
            function = rdds.wrap_function(empty_task)
        rdds.collect(rdds.map_partitions(rdds.empty(self.count_slots()), function))

    def parallelism(self, config: StreamsConfig) -> int:
        """Return how many lanes a stage may have."""
        given = config.extra.get(PARALLELISM)
        if given is None:
            return max(1, self.count_slots())
        try:
            lanes = int(str(given))
        except ValueError:
            lanes = 0
        if lanes < 1:
            raise ConfigException(f"{PARALLELISM} must be a number of at least 1, not '{given}'.")
        return lanes

    def lane_slots(self, config: StreamsConfig) -> int:
        """Return how many lanes of continuous mode may run at the same time.

        They never free their slots, so one is left for other jobs in a session of the user.
        """
        slots = self.parallelism(config)
        is_chosen = PARALLELISM in config.extra
        return slots if self._owned or is_chosen else max(1, slots - 1)

    def warn_of_starved_jobs(self, config: StreamsConfig) -> None:
        """Log a warning if the lanes of continuous mode leave no slot to the jobs of the user."""
        if not self._owned and self.count_slots() == 1:
            log.warning(
                "Your Spark session has one slot, which application '%s' keeps until it ends. "
                "Other jobs of the session wait for it. Use a master with more cores, such as "
                "local[2], or execution='batch', which frees the slot between batches.",
                config.application_id,
            )

    def close(self) -> None:
        """Release the context.

        A context of the user keeps running. If its JVM has ended, PySpark is reset so that the
        user can create another one.
        """
        if self._closed:
            return
        self._closed = True
        if self._owned:
            _shared.release(self.context)
        elif self._given and self.is_lost:
            forget_jvm(self.context, self._gateway)


def open_backend(
    config: StreamsConfig, *, spark: Any = None, master: str | None = None
) -> SparkBackend:
    """Return a backend for `spark` (a SparkSession or SparkContext), the active SparkContext of
    this process, or a new one on `master`."""
    if spark is not None:
        return _open_users(_context_of(spark), config, given=True)
    with _shared.lock:
        _forget_half_stopped_context()
        active = active_context()
        if active is not None and active is not _shared.context:
            if master is not None and master != active.master:
                raise ConfigException(
                    f"Spark runs on '{active.master}' in this process, so it cannot run on "
                    f"'{master}'. A process has one SparkContext. Pass its session as spark=, or "
                    "stop it first."
                )
            return _open_users(active, config, given=False)
        return SparkBackend(_shared.acquire(config, master), owned=True)


def _context_of(spark: Any) -> SparkContext:
    context = spark if isinstance(spark, SparkContext) else getattr(spark, "sparkContext", None)
    if not isinstance(context, SparkContext):
        raise TypeError(
            f"spark= takes a SparkSession or a SparkContext, not {type(spark).__name__}. "
            "A session of Spark Connect has no SparkContext, which penstock needs."
        )
    return context


def _forget_half_stopped_context() -> None:
    """Forget a context that was stopped after its JVM had ended: PySpark keeps it active."""
    active = active_context()
    if active is not None and is_stopped(active) and is_jvm_gone(current_gateway()):
        forget_jvm(active, current_gateway())


def _open_users(context: SparkContext, config: StreamsConfig, *, given: bool) -> SparkBackend:
    if is_stopped(context):
        raise ConfigException(
            "The Spark session given as spark= is stopped. Create a new session, and a new Streams "
            "with it. Close the application before the session."
        )
    backend = SparkBackend(context, owned=False, given=given)
    if backend.is_lost:
        backend.close()
        raise backend.jvm_lost_error()
    version = tuple(int(part) for part in re.findall(r"\d+", context.version)[:2])
    if version < OLDEST_SPARK:
        oldest = ".".join(map(str, OLDEST_SPARK))
        raise ConfigException(
            f"penstock needs Spark {oldest} or newer. This session is Spark {context.version}. "
            f"Install pyspark>={oldest}, and use a cluster of that version."
        )
    check_log(config, context.master or "")
    if context.getConf().get(UNIX_SOCKETS, "false") != "true":
        log.warning(
            "This Spark session uses TCP for its Python workers, which makes every batch about "
            "40 ms slower per task. Create the session with %s=true.", UNIX_SOCKETS
        )
    return backend
