"""`SparkLanes` without Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError

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
