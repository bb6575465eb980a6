"""The SparkContext that penstock creates in this process, shared by its applications."""

from __future__ import annotations

import functools
import signal
import threading
import warnings
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext

from penstock.config import StreamsConfig
from penstock.engine.spark.class_archive import archive_options
from penstock.engine.spark.errors import jvm_ended
from penstock.engine.spark.gateway import (
    JvmOutput,
    forget_jvm,
    is_jvm_gone,
    launch_with_spark_submit,
    start_gateway,
)
from penstock.engine.spark.jvm import needs_spark_submit, start_jvm
from penstock.engine.spark.pyspark_internals import (
    connect_to_submitted_jvm,
    current_gateway,
    forget_gateway,
    is_inside_spark_submit,
)
from penstock.engine.spark.settings import (
    build_conf,
    check_log,
    default_master,
    has_executors,
    is_local_master,
    launch_environment,
    own_master,
)
from penstock.errors import ConfigException
from penstock.java import find_java


class SharedContext:
    """At most one SparkContext, with a reference count.

    `lock` guards all fields. The last `release` stops the context. `acquire` replaces a context
    whose JVM has ended; the references to the old one no longer count.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.context: SparkContext | None = None
        self._references = 0
        #: The master that was asked for.
        self._master = ""
        #: The gateway of `context`.
        self._gateway: Any = None
        #: Outlives the context: a process has one JVM, and a second context runs in it, too.
        self._output: JvmOutput | None = None

    def acquire(self, config: StreamsConfig, master: str | None) -> SparkContext:
        """Return the context, created on first use. The caller holds the lock."""
        if self.context is not None and is_jvm_gone(self._gateway):
            self._drop()
        if self.context is None:
            self.context = self._start(config, master)
        elif master is not None and own_master(master) != self.context.master:
            raise ConfigException(
                f"Another application of this process runs Spark on '{self._master}', so "
                f"'{config.application_id}' cannot run on '{master}'. Use one master for both, or "
                "two processes."
            )
        self._check_log(config, self.context)
        self._references += 1
        return self.context

    def release(self, context: SparkContext) -> None:
        """Give up a reference."""
        with self.lock:
            if context is not self.context:
                return
            self._references -= 1
            if self._references:
                return
            if self._output is not None:
                self._output.muted = True
            if is_jvm_gone(self._gateway):
                self._drop()
                return
            self.context = None
            try:
                context.stop()
            except (Py4JError, OSError):
                # The JVM has ended in the meantime.
                forget_jvm(context, self._gateway)

    def _drop(self) -> None:
        assert self.context is not None
        context, self.context = self.context, None
        self._references = 0
        forget_jvm(context, self._gateway)

    def _start(self, config: StreamsConfig, master: str | None) -> SparkContext:
        is_submitted = is_inside_spark_submit()
        if is_jvm_gone(current_gateway()):
            # Before the JVM is used, which SparkConf does, too.
            forget_gateway(current_gateway())
            if is_submitted:
                raise jvm_ended("It belonged to spark-submit: submit the application again.")
        if is_submitted:
            connect_to_submitted_jvm()
        elif master is None:
            master = default_master(config)
        if master is not None:
            check_log(config, master)
        conf = build_conf(config, master)
        gateway = None
        if not is_submitted and current_gateway() is None:
            java = find_java("Spark", ConfigException)
            environment = launch_environment(master)
            launch = functools.partial(launch_with_spark_submit, conf, environment)
            is_local = master is not None and not has_executors(master)
            if is_local and not needs_spark_submit(config.extra):
                launch = functools.partial(start_jvm, java, archive_options(), conf, environment)
            gateway, self._output = start_gateway(launch)
        context = _create_context(conf, gateway)
        self._master = master or context.master or ""
        self._gateway = current_gateway()
        # penstock reports failures itself, once. A cluster knows more about its hosts.
        level = "OFF" if is_local_master(context.master or "") else "WARN"
        context.setLogLevel(config.extra.get("spark.log.level") or level)
        if self._output is not None:
            self._output.muted = False
        return context

    def _check_log(self, config: StreamsConfig, context: SparkContext) -> None:
        try:
            check_log(config, context.master or "")
        except ConfigException:
            if not self._references:
                context.stop()
                self.context = None
            raise


def _create_context(conf: SparkConf, gateway: Any) -> SparkContext:
    handler = signal.getsignal(signal.SIGINT)
    with warnings.catch_warnings():
        # PySpark imports pandas on the first call and may warn about its version.
        warnings.simplefilter("ignore", FutureWarning)
        context = SparkContext(conf=conf, gateway=gateway)
    if threading.current_thread() is threading.main_thread():
        # Spark's handler would cancel the running batch.
        signal.signal(signal.SIGINT, handler)
    return context
