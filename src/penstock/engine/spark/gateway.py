"""Starts the JVM, listens to what it says, and lets pyspark forget one that has ended.

All that the JVM and Spark's Python workers print comes out of one pipe: Spark's own words, and
what user code printed. Spark starts and stops with many words that help nobody; they are logged as
DEBUG messages of `penstock.spark`. What is said in between goes to standard error, as it would
without us.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from penstock.errors import StreamsException

log = logging.getLogger("penstock.spark")

#: How many of the last words are told when the JVM does not start.
_LAST_LINES = 15


class JvmOutput:
    """What the JVM says. `aside` is set while it is of no interest to the user."""

    def __init__(self) -> None:
        self.aside = True
        self.last: deque[str] = deque(maxlen=_LAST_LINES)
        self._reader: threading.Thread | None = None

    def listen(self, stream: IO[bytes]) -> None:
        """Read to the end of the stream, in a thread of its own."""
        self._reader = threading.Thread(
            target=self._read, args=(stream,), name="penstock-spark-voice", daemon=True
        )
        self._reader.start()

    def wait(self, timeout: float) -> None:
        """Until everything was heard, or the time has passed."""
        if self._reader is not None:
            self._reader.join(timeout)

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for lines in _sayings(data.decode("utf-8", "replace").rstrip("\n") for data in stream):
                self.last.extend(lines)
                if self.aside or _is_farewell(lines):
                    log.debug("%s", "\n".join(lines))
                else:
                    print("\n".join(lines), file=sys.stderr, flush=True)


_TRACEBACK = "Traceback (most recent call last):"


def _sayings(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lines one by one, but a traceback of Python as a whole."""
    trace: list[str] = []
    for line in lines:
        if trace:
            trace.append(line)
            if line.startswith(" "):
                continue
            yield trace
            trace = []
        elif line == _TRACEBACK:
            trace = [line]
        else:
            yield [line]
    if trace:
        yield trace


def _is_farewell(lines: list[str]) -> bool:
    """A worker of Spark that finds its connection closed, as happens at the end of each."""
    return lines[-1].startswith("BrokenPipeError:") and all(
        "/pyspark/daemon.py" in line for line in lines if line.startswith("  File ")
    )


def start_gateway(conf: SparkConf, environment: Mapping[str, str]) -> tuple[Any, JvmOutput]:
    """A gateway to a new JVM. It ends when this process does; ctrl-C in a terminal does not reach
    it, nor the workers, so that a running batch can be finished."""
    voice = JvmOutput()
    read, write = os.pipe()
    voice.listen(os.fdopen(read, "rb"))
    try:
        with _variables(environment):
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                conf, popen_kwargs={"stderr": write}
            )
    except PySparkRuntimeError as error:
        os.close(write)
        write = -1
        voice.wait(1.0)
        said = "\n".join(f"    {line}" for line in voice.last) or "    (nothing)"
        raise StreamsException(
            f"Spark's JVM ended while it was being started. It said:\n{said}\n"
            "Look at JAVA_HOME, SPARK_HOME, SPARK_CONF_DIR and PYSPARK_SUBMIT_ARGS."
        ) from error
    finally:
        if write >= 0:
            os.close(write)
    return gateway, voice


@contextmanager
def _variables(environment: Mapping[str, str]) -> Iterator[None]:
    """Environment variables that are set for a while: Spark's launcher knows no other way."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def has_exited(gateway: Any) -> bool:
    """Whether the JVM of a gateway is a process of ours that has ended; costs next to nothing."""
    process = getattr(gateway, "proc", None)
    return process is not None and process.poll() is not None


def has_ended(gateway: Any) -> bool:
    """Whether the JVM of a gateway is gone; one that may be there is asked."""
    if gateway is None:
        return False
    if has_exited(gateway):
        return True
    try:
        getattr(gateway.jvm, "java.lang.System").currentTimeMillis()
    except (Py4JError, OSError):
        return True
    return False


def forget_context(context: SparkContext) -> None:
    """Do what `stop` does in Python. `stop` itself asks the JVM first, which has ended, and leaves
    a context that is active for ever."""
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


def forget_gateway(gateway: Any) -> None:
    """Let pyspark start another JVM: the one of this gateway has ended."""
    with SparkContext._lock:
        if SparkContext._gateway is gateway:
            SparkContext._gateway = SparkContext._jvm = None
    # Ends the thread that tells the JVM of garbage; that nobody answers is no error.
    gateway.shutdown()


def is_inside_spark_submit() -> bool:
    """Whether spark-submit has started this process: then its JVM is there already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def pyspark_folder() -> str:
    """Where pyspark is installed; the Spark inside it is a whole one."""
    return os.path.dirname(os.path.abspath(pyspark.__file__))
