"""`SparkBackend`: where the jobs of an application run. Either the user's session, as it is, or a
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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext

from penstock.config import StreamsConfig
from penstock.engine.spark.errors import jvm_has_ended, stopped
from penstock.engine.spark.gateway import (
    JvmOutput,
    forget_context,
    forget_gateway,
    has_ended,
    has_exited,
    is_inside_spark_submit,
    pyspark_folder,
    start_gateway,
)
from penstock.errors import ConfigException, StreamsException
from penstock.java import find_java
from penstock.log import scheme_of

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


class SparkBackend:
    """A SparkContext to run jobs in, and what is known of it.

    `owned`: penstock has made it. `given`: the user has, and gave it as `spark=`.
    """

    def __init__(self, context: SparkContext, *, owned: bool, given: bool = False) -> None:
        self.context = context
        self._owned = owned
        self._given = given
        # pyspark knows one gateway, and that may be another one by the time we ask.
        self._gateway: Any = SparkContext._gateway
        self._closed = False

    @property
    def is_lost(self) -> bool:
        """Whether the JVM is gone: nothing will ever run here again. Close the place, and open
        another."""
        return has_ended(self._gateway)

    def check(self) -> None:
        """Raise if Spark is gone, as far as that can be seen without asking the JVM."""
        if has_exited(self._gateway):
            raise self.loss()
        if self.context._jsc is None:
            raise stopped()

    @contextmanager
    def telling_loss(self) -> Iterator[None]:
        """What fails meanwhile because the JVM is gone says so."""
        try:
            yield
        except StreamsException:
            raise
        except Exception as error:
            if self.is_lost:
                raise self.loss() from error
            raise

    def loss(self) -> StreamsException:
        """What there is to say when the JVM is gone."""
        if self._owned:
            what = "Start the application again, or let its exception handler answer REPLACE_THREAD"
        elif self._given:
            what = "Close the application, make a new session, and start a new Streams with it"
        else:
            what = "The session was not made by penstock: start the process again"
        return jvm_has_ended(what + ".")

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
        """Nothing runs here any more. A context of the user's stays as it is, unless its JVM has
        ended: then pyspark forgets one that was given to us, so that another can be made."""
        if self._closed:
            return
        self._closed = True
        if self._owned:
            _own.let_go(self.context)
        elif self._given and self.is_lost:
            _forget(self.context, self._gateway)


def open_backend(
    config: StreamsConfig, *, spark: Any = None, master: str | None = None
) -> SparkBackend:
    """Where the application runs: in `spark` (a SparkSession or SparkContext), in the context
    that is active in this process, or in a new one on `master`."""
    if spark is not None:
        return _users(_context_of(spark), config, given=True)
    with _own.lock:
        _end_half_stopped()
        active = SparkContext._active_spark_context
        if active is not None and active is not _own.context:
            if master is not None and master != active.master:
                raise ConfigException(
                    f"Spark runs in this process on '{active.master}' already, not on "
                    f"'{master}', and a process has one Spark. Give the session as spark=, or "
                    "stop it first."
                )
            return _users(active, config, given=False)
        return SparkBackend(_own.take(config, master), owned=True)


def worker_environment(place: SparkBackend) -> dict[str, str]:
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

    `lock` guards it. `users` counts the places that are not closed: the last one stops it. A
    context whose JVM has ended is dropped when the next place is taken; its places count no more.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.context: SparkContext | None = None
        self._users = 0
        #: That of the context.
        self._gateway: Any = None
        #: A process has one JVM: a second context lives in the JVM of the first.
        self._voice: JvmOutput | None = None

    def take(self, config: StreamsConfig, master: str | None) -> SparkContext:
        if self.context is not None and has_ended(self._gateway):
            self._drop()
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

    def let_go(self, context: SparkContext) -> None:
        with self.lock:
            if context is not self.context:
                return
            self._users -= 1
            if self._users:
                return
            if self._voice is not None:
                self._voice.aside = True
            if has_ended(self._gateway):
                self._drop()
                return
            self.context = None
            try:
                context.stop()
            except (Py4JError, OSError):
                # The JVM has ended just now.
                _forget(context, self._gateway)

    def _drop(self) -> None:
        assert self.context is not None
        context, self.context = self.context, None
        self._users = 0
        _forget(context, self._gateway)

    def _start(self, config: StreamsConfig, master: str | None) -> SparkContext:
        submitted = is_inside_spark_submit()
        if has_ended(SparkContext._gateway):
            # Before anything is asked of it, settings too.
            forget_gateway(SparkContext._gateway)
            if submitted:
                raise jvm_has_ended("It was spark-submit's: submit the application again.")
        if master is None and not submitted:
            master = default_master(config)
        if master is not None:
            check_log(config, master)
        conf = own_settings(config, master)
        gateway = None
        if not submitted and SparkContext._gateway is None:
            find_java("Spark", ConfigException)
            gateway, self._voice = start_gateway(conf, _environment(master))
        context = _new_context(conf, gateway)
        self._gateway = SparkContext._gateway
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
    if config.log is None or is_on_loopback(master):
        return
    if scheme_of(config.log).capabilities.is_remote:
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


def _end_half_stopped() -> None:
    """A context that the user has stopped when its JVM had ended is still active for pyspark."""
    active = SparkContext._active_spark_context
    # One that another thread is about to make has no such attribute yet.
    if active is None or getattr(active, "_jsc", active) is not None:
        return
    if has_ended(SparkContext._gateway):
        _forget(active, SparkContext._gateway)


def _forget(context: SparkContext, gateway: Any) -> None:
    log.debug("Spark's JVM has ended: pyspark forgets it.")
    forget_context(context)
    forget_gateway(gateway)


def _users(context: SparkContext, config: StreamsConfig, *, given: bool) -> SparkBackend:
    if context._jsc is None:
        raise ConfigException(
            "The Spark session given as spark= is stopped. Make a new session, and a new Streams "
            "with it; close the application before the session."
        )
    place = SparkBackend(context, owned=False, given=given)
    if place.is_lost:
        place.close()
        raise place.loss()
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
    return place
