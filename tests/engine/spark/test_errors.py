"""Exceptions of Spark become one error of penstock, or a retry."""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any

import pytest

from engine.spark.test_job import mapping
from penstock import ConfigException, StreamsException
from penstock.engine.spark import errors
from penstock.engine.spark.errors import JobRetries, reason_of

ABORTED = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: "
    "Lost task 0.3 in stage 3.0 (TID 9) (localhost executor driver): "
)
CRASHED = ABORTED + (
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\tat org.x.Y"
)
TRACE = ABORTED + (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "a.py", line 1, in f\n{}\n\n\tat org.apache.X(Y.scala:1)\n'
)
#: The message of Spark 4.3, without a SparkSession and with one.
NEW_TRACE = (
    "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
    'Traceback (most recent call last):\n  File "a.py", line 1, in f\n{}\n SQLSTATE: 38000'
)
CAPTURED_TRACE = (
    "An exception was thrown from the Python worker:\n"
    'Traceback (most recent call last):\n  File "a.py", line 1, in f\n{}'
)


class FromSpark(Exception):
    """Stands for an exception of Spark."""


@pytest.fixture
def retries(monkeypatch: pytest.MonkeyPatch) -> JobRetries:
    monkeypatch.setattr(errors, "FIRST_PAUSE_S", 0.0)
    return JobRetries("app", 7, threading.Event(), "/usr/bin/python3")


def test_job_with_lost_workers_is_retried_a_few_times(retries: JobRetries) -> None:
    for _ in range(errors.MAX_RETRIES):
        retries.after(FromSpark(CRASHED))
    message = r"Batch 7 of 'app' failed in each of 4 runs.*crashed"
    with pytest.raises(StreamsException, match=message):
        retries.after(FromSpark(CRASHED))


def test_reason_of_an_aborted_job_is_one_line() -> None:
    assert reason_of(CRASHED) == "SparkException: Python worker exited unexpectedly (crashed)."


@pytest.mark.parametrize(("text", "kind", "message"), [
    (TRACE.format("ModuleNotFoundError: No module named 'scoring'"), ConfigException,
     r"cannot import the module 'scoring'.*--py-files"),
    (TRACE.format("ModuleNotFoundError: No module named 'penstock'"), ConfigException,
     r"workers cannot import penstock.*Install penstock"),
    (TRACE.format("pyspark.errors.E: [PYTHON_VERSION_MISMATCH] Python in worker has different "
                  "version: 3.9 than that in driver: 3.11, PySpark cannot run."),
     ConfigException, r"another Python.*3\.9.*PYSPARK_PYTHON"),
    (ABORTED + 'java.io.IOException: Cannot run program "python9": error=2', ConfigException,
     r"'python9' does not exist.*PYSPARK_PYTHON"),
    (TRACE.format("AssertionError: that cannot be"), StreamsException,
     r"A worker failed: AssertionError: that cannot be"),
    ("Job aborted: Cannot call methods on a stopped SparkContext.", StreamsException,
     r"Spark was stopped"),
])
def test_permanent_error_is_raised_without_a_retry(
    text: str, kind: type[Exception], message: str, retries: JobRetries
) -> None:
    with pytest.raises(kind, match=message):
        retries.after(FromSpark(text))


@pytest.mark.parametrize("form", [
    TRACE, NEW_TRACE, CAPTURED_TRACE, CAPTURED_TRACE + "\n\nJVM stacktrace:\norg.x.Y\n\tat org.x.Y",
])
def test_worker_failure_carries_its_whole_traceback(
    form: str, retries: JobRetries
) -> None:
    tail = (
        "KeyError: 'k'\n\nDuring handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "b.py", line 2, in g\n'
        "RuntimeError: no licence\n\nAsk for one."
    )
    with pytest.raises(StreamsException) as caught:
        retries.after(FromSpark(form.format(tail)))
    assert str(caught.value) == "A worker failed: RuntimeError: no licence"
    assert caught.value.__notes__ == [
        'In a Spark worker:\nTraceback (most recent call last):\n  File "a.py", line 1, in f\n'
        + tail
    ]


def test_other_exceptions_are_raised_unchanged(retries: JobRetries) -> None:
    with pytest.raises(ZeroDivisionError):
        retries.after(ZeroDivisionError("ours"))


@pytest.mark.spark
def test_missing_module_on_the_workers_is_named(start: Any) -> None:
    module = ModuleType("a_module_of_the_driver")
    exec("def shout(value):\n    return value.upper()", module.__dict__)
    sys.modules["a_module_of_the_driver"] = module
    try:
        app = start(mapping(module.shout), {"in": 1, "out": 1})
        app.send("in", ("k", "a", 1))
        with pytest.raises(ConfigException, match="cannot import the module 'a_module_of_the_d"):
            app.run()
    finally:
        del sys.modules["a_module_of_the_driver"]


class Licence:
    """Cannot be unpickled, which happens only in workers."""

    def __setstate__(self, state: object) -> None:
        raise RuntimeError("no licence on this machine")

    def __reduce__(self) -> Any:
        return Licence, (), {"used": True}


@pytest.mark.spark
def test_failure_of_the_worker_itself_is_not_retried(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    licence = Licence()
    app = start(mapping(lambda value: f"{value} {licence}"), {"in": 1, "out": 1})
    app.send("in", ("k", "a", 1))
    with pytest.raises(StreamsException) as caught:
        app.run()
    assert str(caught.value) == "A worker failed: RuntimeError: no licence on this machine"
    assert "in __setstate__" in caught.value.__notes__[0]
    assert "Retrying" not in caplog.text
