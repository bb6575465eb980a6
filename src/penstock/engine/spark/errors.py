"""What Spark raises, in our words: what was lost is run again, what is wrong is said once.

User code never comes this way: its failures are outcomes of tasks. Here are only the failures of
what carries them: workers that die, executors that go, packages that are not where they should be.
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

#: How often a batch is run anew after Spark has lost parts of it. Spark itself has run each task
#: several times by then.
MOST_RERUNS = 3
#: Before the first of them; doubled each time.
FIRST_PAUSE_S = 0.2

_NO_MODULE = re.compile(r"^(?:ModuleNotFoundError|ImportError): (.*)$", re.MULTILINE)
_MODULE_NAME = re.compile(r"No module named '([^']+)'")
_VERSIONS = re.compile(r"\[PYTHON_VERSION_MISMATCH\]\s*(.*)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_REASON = re.compile(r"most recent failure: (?:Lost task [^)]*?\) \([^)]*\): )?([^\n]+)")
#: Releases of Spark put other words before it, and it may be several tracebacks, with empty lines
#: between them. After it comes a state of SQL, the stack of the JVM, or nothing.
_PYTHON_TRACE = re.compile(
    r"Traceback \(most recent call last\):\n.*?"
    r"(?=\s*(?:\n SQLSTATE: |\n\tat |\nJVM stacktrace:|\Z))",
    re.DOTALL,
)
#: In a traceback, the first line that is not indented says what was raised.
_RAISED = re.compile(r"^\S.*", re.MULTILINE)


class JobRetries:
    """How often the job of one batch may still be run again."""

    def __init__(
        self, application_id: str, batch: int, cancelled: threading.Event, python: str
    ) -> None:
        self._application_id = application_id
        self._number = batch
        self._batch = f"Batch {batch} of '{application_id}'"
        self._cancelled = cancelled
        self._python = python
        self._count = 0

    def after(self, error: Exception) -> None:
        """Returns if the job is to be run again; raises what there is to say otherwise."""
        if self._cancelled.is_set():
            raise BatchCancelled(self._application_id, self._number) from error
        text = text_of(error)
        for known in _KNOWN:
            translated = known(text, self._python)
            if translated is not None:
                raise translated from error
        if isinstance(error, Py4JNetworkError | ConnectionError | EOFError):
            raise StreamsException(
                f"{self._batch} lost Spark: the JVM does not answer. It was killed or has crashed "
                "(look for an hs_err file, and for the system's out-of-memory killer). Start the "
                "application again; it goes on from the last batch."
            ) from error
        if not isinstance(error, Py4JJavaError) and not text.startswith("Job aborted"):
            raise error
        if self._count >= MOST_RERUNS:
            raise StreamsException(
                f"{self._batch} was run {self._count + 1} times by us, and its tasks several "
                f"times by Spark, and a part was lost each time: {reason_of(text)} Something "
                "kills the workers: look for the system's out-of-memory killer, native code that "
                "crashes, and full disks."
            ) from error
        pause = FIRST_PAUSE_S * 2**self._count
        self._count += 1
        log.warning("%s is run again: %s", self._batch, reason_of(text))
        self._cancelled.wait(pause)


def text_of(error: BaseException) -> str:
    """What Spark says, without the JVM's stack."""
    if isinstance(error, Py4JJavaError):
        try:
            return str(error.java_exception.getMessage())
        except Exception:
            # The JVM that could tell may be gone.
            return str(error)
    return str(error)


def reason_of(text: str) -> str:
    """One line on why a job was given up."""
    found = _REASON.search(text)
    line = (found[1] if found else text.strip().split("\n", 1)[0]).strip()
    line = re.sub(r"^(?:[a-z]\w*\.)+", "", line)
    return line if line.endswith((".", "!", "?")) else line + "."


def _stopped(text: str, python: str) -> StreamsException | None:
    if not re.search(r"stopped SparkContext|SparkContext was shut ?down|has been shutdown", text):
        return None
    return stopped()


def stopped() -> StreamsException:
    """The session is gone."""
    return StreamsException(
        "Spark was stopped while the application was running. Close the application first, then "
        "the session."
    )


def jvm_has_ended(what_to_do: str) -> StreamsException:
    """The JVM is gone, and with it all that Spark was."""
    return StreamsException(
        "Spark's JVM has ended: it was killed or has crashed (look for an hs_err file, and for the "
        f"system's out-of-memory killer). {what_to_do} The application goes on from the last batch."
    )


def _no_module(text: str, python: str) -> StreamsException | None:
    found = _NO_MODULE.search(text)
    if found is None:
        return None
    name = _MODULE_NAME.search(found[1])
    root = name[1].partition(".")[0] if name else None
    if root == "penstock":
        return ConfigException(
            f"Spark's workers do not have penstock: {found[1]}. They run {python}. Install "
            "penstock for that Python on every executor, or choose another with PYSPARK_PYTHON."
        )
    what = f"the module '{name[1]}'" if name else "something"
    return ConfigException(
        f"A worker of Spark cannot import {what} that the topology uses: {found[1]}. "
        f"Workers run {python}. Install the package there; ship a module of your own with "
        "spark-submit --py-files (or SparkContext.addPyFile); or start the file itself, as in "
        "'penstock run app.py': its functions travel with the topology."
    )


def _versions(text: str, python: str) -> StreamsException | None:
    found = _VERSIONS.search(text)
    if found is None:
        return None
    return ConfigException(
        f"Spark's workers run another Python than the application. {found[1].strip()} Let "
        "PYSPARK_PYTHON name a Python of the driver's version on every executor."
    )


def _no_python(text: str, python: str) -> StreamsException | None:
    found = _NO_PROGRAM.search(text)
    if found is None:
        return None
    return ConfigException(
        f"Spark cannot start Python: there is no '{found[1]}' where the workers run. Let "
        "PYSPARK_PYTHON name one that is there on every executor."
    )


def _python_error(text: str, python: str) -> StreamsException | None:
    """An error in the worker itself: running it again would give it again."""
    found = _PYTHON_TRACE.search(text)
    if found is None:
        return None
    trace = found[0]
    last = trace.rpartition("Traceback (most recent call last):\n")[2]
    raised = _RAISED.search(last)
    error = StreamsException(f"A worker failed: {raised[0] if raised else reason_of(last)}")
    error.add_note(f"In a worker of Spark:\n{trace}")
    return error


_Known = Callable[[str, str], StreamsException | None]
#: In this order: an import that fails is told before the traceback that it is part of.
_KNOWN: tuple[_Known, ...] = (_stopped, _versions, _no_python, _no_module, _python_error)
