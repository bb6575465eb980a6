"""Spark masters, and the settings of the SparkContext that penstock creates."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping

from pyspark import SparkConf

from penstock.config import StreamsConfig
from penstock.engine.spark.pyspark_internals import is_inside_spark_submit, pyspark_directory
from penstock.errors import ConfigException
from penstock.log import scheme_of

UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
NETWORK_TIMEOUT = "spark.network.timeout"

_LOCAL = re.compile(r"local(\[[^\]]*\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
#: A standalone cluster that other hosts cannot reach, so that all of it is on this host.
_LOOPBACK_CLUSTER = re.compile(r"spark://(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")

#: Defaults of a SparkContext that penstock creates. `spark.*` in the configuration overrides them.
_SETTINGS = {
    # A TCP connection to a Python worker waits 40 ms for an acknowledgement in each task.
    UNIX_SOCKETS: "true",
    "spark.python.worker.reuse": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Every job pays for the history of earlier jobs.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "200",
    # Spark deletes the files of a shuffle after Java has collected its object.
    "spark.cleaner.periodicGC.interval": "2min",
    "spark.task.maxFailures": "4",
    # Blocks are Arrow data that stay on a local disk for a moment.
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.driver.maxResultSize": "0",
}
#: `local[n]` has one host.
_LOCAL_SETTINGS = {"spark.locality.wait": "0"}
_EXECUTOR_SETTINGS = {
    # A lane waits for a slot on the host that holds its state. On another host it reads the
    # changelogs first.
    "spark.locality.wait": "3s",
}
#: Spark puts the sockets of Python workers into the temporary directory of the JVM. In a container
#: of YARN that is far below the disks of the node, and the path of a socket has at most 107 bytes.
_YARN_SETTINGS = {"spark.python.unix.domain.socket.dir": "/tmp"}
#: Without --name, spark-submit uses the name of the file, which is that of penstock.
_UNNAMED = {None, "__main__.py"}
#: Used together or not at all: Spark refuses a heartbeat interval above the timeout.
_EXECUTOR_TIMEOUTS = {
    # A host that disappears without closing its connections stops the application for this long,
    # and for as long as Spark checks this: by default 2 minutes, checked once a minute.
    NETWORK_TIMEOUT: "20s",
    "spark.network.timeoutInterval": "4s",
    "spark.executor.heartbeatInterval": "2s",
}
_LOCAL_WITHOUT_RETRIES = re.compile(r"local(?:\[\s*(\d+|\*)\s*\])?")
#: The setting of a context for its slots that are left to other jobs, see `own_master`.
SPARE_SLOTS = "spark.penstock.spare.slots"
_LOOPBACK_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
}
#: Spark's code runs a few thousand times an hour, which does not repay the JVM's second compiler
#: (measured: half of the CPU time of the first minute). The serial collector keeps the heap near
#: the memory in use, about 50 MB; the default one lets it grow to its limit (measured: 60 MB per
#: thousand batches).
_JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def is_local_master(master: str) -> bool:
    """Whether penstock itself starts all processes of a master, on this host."""
    return bool(_LOCAL.fullmatch(master) or _LOCAL_CLUSTER.fullmatch(master))


def has_executors(master: str) -> bool:
    """Whether tasks run in executors, which register after the start, and not in the driver's JVM:
    any master but `local[n]`."""
    return not _LOCAL.fullmatch(master)


def is_loopback_master(master: str) -> bool:
    """Whether all workers of a master are on this host."""
    return is_local_master(master) or bool(_LOOPBACK_CLUSTER.fullmatch(master))


def default_master(config: StreamsConfig) -> str:
    """Return a master on this host, with `num_stream_threads` cores if set, else with all."""
    threads = config.num_stream_threads
    return f"local[{threads if threads > 1 else _cores()}]"


def _cores() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return cores or 1


def own_master(master: str) -> str:
    """Return the master of penstock's own context.

    `local[n]` gets a slot more, for other jobs than those of the application: the lanes of
    continuous mode never free theirs, and `Streams.table` would wait forever. Its tasks are
    retried, which Spark does not do by default.
    """
    found = _LOCAL_WITHOUT_RETRIES.fullmatch(master)
    if found is None:
        return master
    slots = (_cores() if found[1] == "*" else int(found[1] or 1)) + 1
    return f"local[{slots},{_SETTINGS['spark.task.maxFailures']}]"


def build_conf(config: StreamsConfig, master: str | None) -> SparkConf:
    """Build the settings of a SparkContext. `master` is None if spark-submit has set it."""
    conf = SparkConf(loadDefaults=is_inside_spark_submit())
    settings = dict(_SETTINGS)
    actual = master or conf.get("spark.master") or ""
    if not has_executors(actual):
        settings |= _LOCAL_SETTINGS
    else:
        settings |= _EXECUTOR_SETTINGS
        if not any(name in config.extra or conf.contains(name) for name in _EXECUTOR_TIMEOUTS):
            settings |= _EXECUTOR_TIMEOUTS
    if actual == "yarn":
        settings |= _YARN_SETTINGS
    if master is not None:
        conf.setMaster(own_master(master))
        if _LOCAL_WITHOUT_RETRIES.fullmatch(master):
            conf.set(SPARE_SLOTS, "1")
        if is_loopback_master(master):
            settings |= _LOOPBACK_SETTINGS
        if is_local_master(master):
            settings["spark.driver.extraJavaOptions"] = _JVM_OPTIONS
    for name, value in settings.items():
        conf.setIfMissing(name, value)
    if conf.get("spark.app.name") in _UNNAMED:
        conf.set("spark.app.name", config.application_id)
    for name, value in config.extra.items():
        if name.startswith("spark."):
            conf.set(name, str(value))
    return conf


def python_path() -> str:
    """Return the PYTHONPATH of workers on this host: they can import what this process can."""
    return os.pathsep.join(os.path.abspath(path) for path in sys.path)


def launch_environment(master: str | None) -> Mapping[str, str]:
    """Return the environment variables with which the JVM is started."""
    if master is None or not is_local_master(master):
        return {}
    variables = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    if _LOCAL_CLUSTER.fullmatch(master):
        # The executors start as on a cluster: from an installation, in a working directory.
        variables["SPARK_HOME"] = os.environ.get("SPARK_HOME") or pyspark_directory()
        directory = tempfile.mkdtemp(prefix="penstock-spark-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        variables["SPARK_WORKER_DIR"] = directory
    return variables


def check_log(config: StreamsConfig, master: str) -> None:
    """Raise `ConfigException` if workers on other hosts could not open the log."""
    if config.log is None or is_loopback_master(master):
        return
    if scheme_of(config.log).capabilities.is_remote:
        return
    raise ConfigException(
        f"The embedded log {config.log} cannot be used with the Spark master '{master}'. It is a "
        "file on this host, which workers on other hosts cannot open. Use log='kafka://host:9092', "
        "or a master on this host: local[n], local-cluster[n,c,m]."
    )
