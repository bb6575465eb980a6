"""Translates Spark exceptions into penstock's, and retries jobs that Spark has lost.

Failures of user code are outcomes of tasks and do not pass through here. These are the failures
below them: workers that die, executors that are lost, packages that are missing.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable

from py4j.protocol import (  # type: ignore[import-untyped]
    Py4JJavaError,
    Py4JNetworkError,
)

from penstock.engine.compute import BatchCancelled
from penstock.errors import ConfigException, StreamsException

log = logging.getLogger(__name__)

#: How often a batch is retried after Spark has lost parts of it. Spark has retried each task
#: several times by then.
MAX_RETRIES = 3
#: The pause before the first retry; it doubles each time.
FIRST_PAUSE_S = 0.2

_NO_MODULE = re.compile(r"^(?:ModuleNotFoundError|ImportError): (.*)$", re.MULTILINE)
_MODULE_NAME = re.compile(r"No module named '([^']+)'")
_VERSIONS = re.compile(r"\[PYTHON_VERSION_MISMATCH\]\s*(.*)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_REASON = re.compile(r"most recent failure: (?:Lost task [^)]*?\) \([^)]*\): )?([^\n]+)")
_STOPPED = re.compile(r"stopped SparkContext|SparkContext was shut ?down|has been shutdown")
#: The text before the traceback differs between Spark versions. There may be several tracebacks,
#: separated by empty lines, followed by an SQL state, the JVM's stack, or nothing.
_PYTHON_TRACE = re.compile(
    r"Traceback \(most recent call last\):\n.*?"
    r"(?=\s*(?:\n SQLSTATE: |\n\tat |\nJVM stacktrace:|\Z))",
    re.DOTALL,
)
#: The first line of a traceback that is not indented names the exception.
_RAISED = re.compile(r"^\S.*", re.MULTILINE)


class JobRetries:
    """Decides whether the job of a batch is retried."""

    def __init__(
        self, application_id: str, batch: int, cancelled: threading.Event, python: str
    ) -> None:
        """`python` is the Python of the workers, for error messages."""
        self._application_id = application_id
        self._number = batch
        self._batch = f"Batch {batch} of '{application_id}'"
        self._cancelled = cancelled
        self._python = python
        self._count = 0

    def after(self, error: Exception) -> None:
        """Return, after a pause, if the job is to be retried. Otherwise raise the final error."""
        if self._cancelled.is_set():
            raise BatchCancelled(self._application_id, self._number) from error
        text = text_of(error)
        translated = translate_error(text, self._python)
        if translated is not None:
            raise translated from error
        if isinstance(error, Py4JNetworkError | ConnectionError | EOFError):
            raise StreamsException(
                f"{self._batch} lost the connection to Spark: the JVM was killed or has crashed. "
                "Look for an hs_err file and for messages of the system's out-of-memory killer. "
                "Start the application again; it resumes after the last committed batch."
            ) from error
        if not isinstance(error, Py4JJavaError) and not text.startswith("Job aborted"):
            raise error
        if self._count >= MAX_RETRIES:
            raise StreamsException(
                f"{self._batch} failed in each of {self._count + 1} runs because Spark lost its "
                f"tasks: {reason_of(text)} Look for messages of the system's out-of-memory killer, "
                "for native code that crashes, and for full disks."
            ) from error
        pause = FIRST_PAUSE_S * 2**self._count
        self._count += 1
        log.warning("Retrying %s: %s", self._batch, reason_of(text))
        self._cancelled.wait(pause)


def translate_error(text: str, python: str) -> StreamsException | None:
    """Return the error for a message of Spark that a retry would repeat; None for others.

    `python` is the Python of the workers.
    """
    for translate in _TRANSLATIONS:
        translated = translate(text, python)
        if translated is not None:
            return translated
    return None


def text_of(error: BaseException) -> str:
    """Return Spark's message, without the JVM's stack."""
    if isinstance(error, Py4JJavaError):
        try:
            return str(error.java_exception.getMessage())
        except Exception:
            # The JVM may have ended.
            return str(error)
    return str(error)


def reason_of(text: str) -> str:
    """Return the reason why a job was aborted, in one line."""
    found = _REASON.search(text)
    line = (found[1] if found else text.strip().split("\n", 1)[0]).strip()
    line = re.sub(r"^(?:[a-z]\w*\.)+", "", line)
    return line if line.endswith((".", "!", "?")) else line + "."


def spark_stopped() -> StreamsException:
    """Return the error for a session that was stopped while the application runs."""
    return StreamsException(
        "Spark was stopped while the application was running. Close the application first, then "
        "the session."
    )


def jvm_ended(advice: str) -> StreamsException:
    """Return the error for a lost JVM."""
    return StreamsException(
        "Spark's JVM has ended: it was killed or has crashed. Look for an hs_err file and for "
        f"messages of the system's out-of-memory killer. {advice} The application resumes after "
        "the last committed batch."
    )


def _stopped(text: str, python: str) -> StreamsException | None:
    return spark_stopped() if _STOPPED.search(text) else None


def _missing_module(text: str, python: str) -> StreamsException | None:
    found = _NO_MODULE.search(text)
    if found is None:
        return None
    name = _MODULE_NAME.search(found[1])
    root = name[1].partition(".")[0] if name else None
    if root == "penstock":
        return ConfigException(
            f"Spark's workers cannot import penstock: {found[1]}. They run {python}. Install "
            "penstock for that Python on every executor, or choose another with PYSPARK_PYTHON."
        )
    what = f"the module '{name[1]}'" if name else "a module"
    return ConfigException(
        f"A Spark worker cannot import {what} that the topology uses: {found[1]}. "
        f"Workers run {python}. Install the package there; ship a module of your own with "
        "spark-submit --py-files (or SparkContext.addPyFile); or start the file itself with "
        "'penstock run app.py', which sends its functions to the workers."
    )


def _version_mismatch(text: str, python: str) -> StreamsException | None:
    found = _VERSIONS.search(text)
    if found is None:
        return None
    return ConfigException(
        f"Spark's workers run another Python version than the application. {found[1].strip()} Set "
        "PYSPARK_PYTHON to a Python of the driver's version that exists on every executor."
    )


def _missing_python(text: str, python: str) -> StreamsException | None:
    found = _NO_PROGRAM.search(text)
    if found is None:
        return None
    return ConfigException(
        f"Spark cannot start Python: '{found[1]}' does not exist on the workers. Set "
        "PYSPARK_PYTHON to a Python that exists on every executor."
    )


def _worker_failure(text: str, python: str) -> StreamsException | None:
    """Translate an error of the worker itself, which a retry would repeat."""
    found = _PYTHON_TRACE.search(text)
    if found is None:
        return None
    trace = found[0]
    last = trace.rpartition("Traceback (most recent call last):\n")[2]
    raised = _RAISED.search(last)
    error = StreamsException(f"A worker failed: {raised[0] if raised else reason_of(last)}")
    error.add_note(f"In a Spark worker:\n{trace}")
    return error


#: In this order: a failed import is also a traceback.
_TRANSLATIONS: tuple[Callable[[str, str], StreamsException | None], ...] = (
    _stopped, _version_mismatch, _missing_python, _missing_module, _worker_failure,
)
