"""How `SparkLanes` reports the ends of its jobs. Without a JVM."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError

from penstock.engine.continuous.lane_handle import WorkerLost
from penstock.engine.spark import lanes
from penstock.engine.spark.lanes import SparkLanes
from penstock.errors import StreamsException


@pytest.mark.parametrize(("text", "expected"), [
    ("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n\tat org",
     "^Spark was stopped while the application was running"),
    ("java.lang.RuntimeException: another one", "another one"),
])
def test_lane_that_cannot_be_cancelled_is_reported(
    monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    """A spark-submit that is terminated stops Spark before its JVM ends."""
    def cancel(*arguments: object) -> None:
        raise Py4JError(text)

    monkeypatch.setattr(lanes, "cancel_group_and_future_jobs", cancel)
    starter = SparkLanes.__new__(SparkLanes)
    starter._context = SimpleNamespace()
    starter._backend = SimpleNamespace(is_lost=False, python="python3")
    starter._application_id, starter._id = "app", "id"
    with pytest.raises((Py4JError, StreamsException), match=expected):
        starter.cancel(1)


@pytest.mark.parametrize(("text", "expected"), [
    ("Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: "
     "Lost task 0.0 in stage 0.0 (TID 0) (vm executor driver): org.apache.spark.SparkException: "
     "Python worker exited unexpectedly (crashed).", True),
    ("Traceback (most recent call last):\nModuleNotFoundError: No module named 'penstock'", False),
])
def test_only_a_lost_worker_may_be_replaced(text: str, expected: bool) -> None:
    """An error of the worker itself would end the next lane, too."""
    ended: list[Exception | None] = []

    def fail(rdd: object) -> None:
        raise Py4JError(text)

    starter = SparkLanes.__new__(SparkLanes)
    starter._context = SimpleNamespace(setJobGroup=lambda *_, **__: None)
    starter._backend = SimpleNamespace(report_jvm_loss=nullcontext, python="python3")
    starter._rdds = SimpleNamespace(collect=fail)
    starter._application_id, starter._id, starter._threads = "app", "id", {}
    starter._on_ended = lambda serial, error: ended.append(error)
    starter._run(1, None)
    (error,) = ended
    assert isinstance(error, WorkerLost) is expected
    assert isinstance(error, StreamsException)


def test_lanes_may_end_while_their_executors_are_looked_up(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lanes of a decommissioned executor are about to end."""
    starter = SparkLanes.__new__(SparkLanes)
    starter._context = SimpleNamespace()
    starter._application_id, starter._id = "app", "id"
    starter._threads = dict.fromkeys(range(3), threading.current_thread())

    def executors_of_group(context: object, group: str) -> set[str]:
        starter._threads.pop(2, None)
        return {group[-1]}

    monkeypatch.setattr(lanes, "leaving_executors", lambda context: {"0", "1"})
    monkeypatch.setattr(lanes, "executors_of_group", executors_of_group)
    assert starter._find_leaving() == {0, 1}
