"""`SparkPlace`: where the jobs of an application run. Either the user's session, as it is, or a
SparkContext that penstock makes for itself, shared by all applications of the process."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping
from typing import Any

from pyspark import SparkConf, SparkContext

from penstock.config import StreamsConfig
from penstock.engine.spark.gateway import (
    Voice,
    is_inside_spark_submit,
    pyspark_folder,
    start_gateway,
)
from penstock.engine.spark.java import check_java
from penstock.errors import ConfigException

log = logging.getLogger(__name__)

OLDEST_SPARK = (4, 1)
SOCKETS = "spark.python.unix.domain.socket.enabled"
#: The setting that says how many lanes a stage may have; otherwise, what Spark has cores for.
PARALLELISM = "penstock.parallelism"

_LOCAL = re.compile(r"local(\[[^\]]*\])?")
#: The master of a standalone cluster that no other machine can reach, so all of it is here.
_ON_THIS_MACHINE = re.compile(r"spark://(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")

#: For every context of penstock's own; the user's settings, `spark.*` in the configuration, win.
_SETTINGS = {
    # A connection over TCP waits 40 ms for an acknowledgement in each task.
    SOCKETS: "true",
    "spark.python.worker.reuse": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Nobody looks at what jobs were: what Spark remembers of them costs time in each.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "200",
    # The files of a shuffle go when Java notices that nobody needs it any more.
    "spark.cleaner.periodicGC.interval": "2min",
    "spark.task.maxFailures": "4",
    "spark.locality.wait": "0",
    # Blocks are Arrow, and stay on one disk for a moment.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.driver.maxResultSize": "0",
}
_ON_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
#: Spark's code is run a few thousand times an hour and never gets hot: what the second compiler
#: of the JVM costs is not won back (measured: half of the processor time of the first minute).
#: The plain collector keeps the heap near what is in use, some 50 MB; the default one lets it grow
#: to its limit (measured: 60 MB more every thousand batches).
_SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class SparkPlace:
    """A SparkContext to run jobs in, and what is known of it."""

    def __init__(self, context: SparkContext, *, owned: bool) -> None:
        self.context = context
        self._owned = owned
        self._closed = False

    @property
    def is_local(self) -> bool:
        """Whether the workers run on this machine, from this Python's packages."""
        return is_one_host(master_of(self.context))

    @property
    def python(self) -> str:
        """The Python that workers are to run: on this machine the one that runs penstock."""
        python: str = self.context.pythonExec
        return sys.executable if self.is_local else python

    def parallelism(self, config: StreamsConfig) -> int:
        """How many lanes a stage may have."""
        given = config.extra.get(PARALLELISM)
        if given is None:
            return max(1, self.context.defaultParallelism)
        try:
            lanes = int(str(given))
        except ValueError:
            lanes = 0
        if lanes < 1:
            raise ConfigException(f"{PARALLELISM} must be a number of at least 1, not '{given}'.")
        return lanes

    def close(self) -> None:
        """Nothing runs here any more. A context of the user's stays as it is."""
        if self._owned and not self._closed:
            self._closed = True
            _own.let_go()


def spark_place(
    config: StreamsConfig, *, spark: Any = None, master: str | None = None
) -> SparkPlace:
    """Where the application runs: in `spark` (a SparkSession or SparkContext), in the context
    that is active in this process, or in a new one on `master`."""
    if spark is not None:
        return _users(_context_of(spark), config)
    with _own.lock:
        active = SparkContext._active_spark_context
        if active is not None and active is not _own.context:
            if master is not None and master != active.master:
                raise ConfigException(
                    f"Spark runs in this process on '{active.master}' already, not on "
                    f"'{master}', and a process has one Spark. Give the session as spark=, or "
                    "stop it first."
                )
            return _users(active, config)
        return SparkPlace(_own.take(config, master), owned=True)


def worker_environment(place: SparkPlace) -> dict[str, str]:
    """What Python workers find in their environment, beside what the session gives them."""
    if not place.is_local:
        return {}
    # What the application can import, its functions can.
    return {"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}


def master_of(context: SparkContext) -> str:
    """The master, as it was given to Spark."""
    assert context.master is not None
    return context.master


def is_one_host(master: str) -> bool:
    """Whether penstock starts everything of a master itself, on this machine."""
    return bool(_LOCAL.fullmatch(master) or _LOCAL_CLUSTER.fullmatch(master))


def is_on_loopback(master: str) -> bool:
    """Whether a master is one host, or a cluster that cannot be seen from any other."""
    return is_one_host(master) or bool(_ON_THIS_MACHINE.fullmatch(master))


class _Own:
    """The SparkContext that penstock has made in this process; there is one at most.

    `lock` guards it. `users` counts the places that are not closed: the last one stops it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.context: SparkContext | None = None
        self._users = 0
        #: A process has one JVM: a second context lives in the JVM of the first.
        self._voice: Voice | None = None

    def take(self, config: StreamsConfig, master: str | None) -> SparkContext:
        if self.context is None:
            self.context = self._start(config, master)
        elif master is not None and _with_retries(master) != self.context.master:
            raise ConfigException(
                f"Another application of this process runs Spark on '{self.context.master}': "
                f"'{config.application_id}' cannot run on '{master}'. Use one master for both, or "
                "two processes."
            )
        self._check(config, self.context)
        self._users += 1
        return self.context

    def let_go(self) -> None:
        with self.lock:
            self._users -= 1
            if self._users or self.context is None:
                return
            context, self.context = self.context, None
            if self._voice is not None:
                self._voice.aside = True
            context.stop()

    def _start(self, config: StreamsConfig, master: str | None) -> SparkContext:
        submitted = is_inside_spark_submit()
        if master is None and not submitted:
            master = default_master(config)
        if master is not None:
            check_log(config, master)
        conf = own_settings(config, master)
        gateway = None
        if not submitted and SparkContext._gateway is None:
            check_java()
            gateway, self._voice = start_gateway(conf, _environment(master))
        context = _new_context(conf, gateway)
        # What fails is told by penstock, once; on a cluster Spark knows more than we do.
        chosen = config.extra.get("spark.log.level")
        context.setLogLevel(chosen or ("OFF" if is_one_host(master_of(context)) else "WARN"))
        if self._voice is not None:
            self._voice.aside = False
        return context

    def _check(self, config: StreamsConfig, context: SparkContext) -> None:
        try:
            check_log(config, master_of(context))
        except ConfigException:
            if not self._users:
                context.stop()
                self.context = None
            raise


_own = _Own()


def _new_context(conf: SparkConf, gateway: Any) -> SparkContext:
    handler = signal.getsignal(signal.SIGINT)
    with warnings.catch_warnings():
        # pyspark imports pandas, if it is there, with the first call and may find it too new.
        warnings.simplefilter("ignore", FutureWarning)
        context = SparkContext(conf=conf, gateway=gateway)
    if threading.current_thread() is threading.main_thread():
        # Spark's own handler would cancel the running batch.
        signal.signal(signal.SIGINT, handler)
    return context


def default_master(config: StreamsConfig) -> str:
    """This machine: with `num_stream_threads` cores, or with all if that was left at one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = config.num_stream_threads
    return f"local[{threads if threads > 1 else cores or 1}]"


def own_settings(config: StreamsConfig, master: str | None) -> SparkConf:
    """The settings of a context of penstock's own; without a master, spark-submit has one."""
    conf = SparkConf(loadDefaults=is_inside_spark_submit())
    settings = dict(_SETTINGS)
    if master is not None:
        conf.setMaster(_with_retries(master))
        if is_on_loopback(master):
            settings |= _ON_LOOPBACK
        if is_one_host(master):
            settings["spark.driver.extraJavaOptions"] = _SMALL_JVM
    for name, value in settings.items():
        conf.setIfMissing(name, value)
    conf.setIfMissing("spark.app.name", config.application_id)
    for name, value in config.extra.items():
        if name.startswith("spark."):
            conf.set(name, str(value))
    return conf


def check_log(config: StreamsConfig, master: str) -> None:
    """An embedded log is a file: workers of other machines cannot see it."""
    if config.log is None or config.log.startswith("kafka://") or is_on_loopback(master):
        return
    raise ConfigException(
        f"The embedded log {config.log} cannot be used with the Spark master '{master}': it is a "
        "file of this machine, and tasks on others could not read it. Use log='kafka://host:9092', "
        "or a master on this machine: local[n], local-cluster[n,c,m]."
    )


def _with_retries(master: str) -> str:
    """A task whose worker dies is run again by Spark; `local[n]` would give up the job at once."""
    found = re.fullmatch(r"local(?:\[\s*(\d+|\*)\s*\])?", master)
    if found is None:
        return master
    return f"local[{found[1] or 1},{_SETTINGS['spark.task.maxFailures']}]"


def _environment(master: str | None) -> Mapping[str, str]:
    if master is None or not is_one_host(master):
        return {}
    found = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    if _LOCAL_CLUSTER.fullmatch(master):
        # Its executors are started as on a cluster: from an installation, into a folder.
        found["SPARK_HOME"] = os.environ.get("SPARK_HOME") or pyspark_folder()
        folder = tempfile.mkdtemp(prefix="penstock-spark-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        found["SPARK_WORKER_DIR"] = folder
    return found


def _context_of(spark: Any) -> SparkContext:
    context = spark if isinstance(spark, SparkContext) else getattr(spark, "sparkContext", None)
    if not isinstance(context, SparkContext):
        raise TypeError(
            f"spark= takes a SparkSession or a SparkContext, not {type(spark).__name__}. "
            "A session of Spark Connect has no SparkContext, and penstock needs one."
        )
    return context


def _users(context: SparkContext, config: StreamsConfig) -> SparkPlace:
    version = tuple(int(part) for part in re.findall(r"\d+", context.version)[:2])
    if version < OLDEST_SPARK:
        oldest = ".".join(map(str, OLDEST_SPARK))
        raise ConfigException(
            f"penstock needs Spark {oldest} or newer; this session is Spark {context.version}. "
            f"Install pyspark>={oldest}, and use a cluster of that version."
        )
    check_log(config, master_of(context))
    if context.getConf().get(SOCKETS, "false") != "true":
        log.warning(
            "This Spark session talks to its Python workers over TCP, which makes every batch some "
            "40 ms slower for each task. Make the session with %s=true.", SOCKETS
        )
    return SparkPlace(context, owned=False)
