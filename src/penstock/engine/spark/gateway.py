"""Starts the JVM, reads its output, and checks whether it still runs.

The JVM and Spark's Python workers write to one pipe: Spark's own messages, and what user code
prints. The messages of Spark's start and shutdown are logged at DEBUG level by `penstock.spark`.
Everything in between goes to standard error.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError

from penstock.engine.spark.pyspark_internals import (
    forget_context,
    forget_gateway,
    has_jvm_exited,
    launch_jvm,
)
from penstock.errors import StreamsException

log = logging.getLogger("penstock.spark")

#: How many lines of output the error shows when the JVM does not start.
_LAST_LINES = 15
_TRACEBACK = "Traceback (most recent call last):"


class JvmOutput:
    """The output of the JVM. While `muted` is set, it is only logged."""

    def __init__(self) -> None:
        self.muted = True
        self.last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._reader: threading.Thread | None = None

    def read(self, stream: IO[bytes]) -> None:
        """Read a stream to its end, in a new thread."""
        self._reader = threading.Thread(
            target=self._read, args=(stream,), name="penstock-spark-output", daemon=True
        )
        self._reader.start()

    def wait(self, timeout: float) -> None:
        """Wait until the stream has ended."""
        if self._reader is not None:
            self._reader.join(timeout)

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            decoded = (data.decode("utf-8", "replace").rstrip("\n") for data in stream)
            for lines in _messages(decoded):
                self.last_lines.extend(lines)
                if self.muted or _is_closed_worker(lines):
                    log.debug("%s", "\n".join(lines))
                else:
                    print("\n".join(lines), file=sys.stderr, flush=True)


def _messages(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield single lines, but a Python traceback as a whole."""
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


def _is_closed_worker(lines: list[str]) -> bool:
    """Whether this is the traceback of a Python worker at shutdown, whose connection is closed."""
    return lines[-1].startswith("BrokenPipeError:") and all(
        "/pyspark/daemon.py" in line for line in lines if line.startswith("  File ")
    )


def start_gateway(launch: Callable[[int], Any]) -> tuple[Any, JvmOutput]:
    """Start a JVM and return its gateway and output. `launch` gets the file descriptor for both.

    The JVM ends with this process. Ctrl-C in a terminal does not reach it or its workers, so that
    a running batch can finish.
    """
    output = JvmOutput()
    read, write = os.pipe()
    output.read(os.fdopen(read, "rb"))
    try:
        gateway = launch(write)
    except PySparkRuntimeError as error:
        os.close(write)
        write = -1
        output.wait(1.0)
        lines = "\n".join(f"    {line}" for line in output.last_lines) or "    (nothing)"
        raise StreamsException(
            f"Spark's JVM ended during its start. Its output:\n{lines}\n"
            "Check JAVA_HOME, SPARK_HOME, SPARK_CONF_DIR and PYSPARK_SUBMIT_ARGS."
        ) from error
    finally:
        if write >= 0:
            os.close(write)
    return gateway, output


def launch_with_spark_submit(
    conf: SparkConf, environment: Mapping[str, str], stderr: int
) -> Any:
    """Start a JVM with additional environment variables. Returns its gateway."""
    with _environment(environment):
        return launch_jvm(conf, stderr)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables temporarily; Spark's launcher passes on those of this process."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def is_jvm_gone(gateway: Any) -> bool:
    """Whether the JVM of a gateway has ended. Calls the JVM if it is not a child process."""
    if gateway is None:
        return False
    if has_jvm_exited(gateway):
        return True
    try:
        getattr(gateway.jvm, "java.lang.System").currentTimeMillis()
    except (Py4JError, OSError):
        return True
    return False


def forget_jvm(context: SparkContext, gateway: Any) -> None:
    """Reset PySpark after its JVM has ended, so that another one can be started."""
    log.debug("Spark's JVM has ended. Resetting PySpark.")
    forget_context(context)
    forget_gateway(gateway)
