"""A job without progress is reported, with the lanes that it waits for."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from penstock.engine.spark.job_watch import JobWatch, describe_wait
from penstock.engine.spark.pyspark_internals import StageInfo, TaskInfo

PATIENCE_S = 180
DONE = StageInfo(3, 1, (TaskInfo(0, "0", "host-a", "SUCCESS", 0),))
WAITING = StageInfo(4, 3, (
    TaskInfo(0, "0", "host-a", "SUCCESS", 0), TaskInfo(1, "1", "host-b", "FAILED", 0),
    TaskInfo(1, "2", "host-c", "RUNNING", 5_000),
))


def test_wait_names_lanes_and_executors() -> None:
    assert describe_wait([DONE, WAITING], 17_000) == (
        "stage 2: lane 1 on executor 2 (host-c), started 12 s ago; lane 2, which has no slot"
    )
    assert describe_wait([], 0) == "Spark to schedule its stages"


class Stages:
    """Returns the stages of a job, and tells how often it was asked."""

    def __init__(self, *readings: Sequence[StageInfo]) -> None:
        self._readings = list(readings)
        self.asked = threading.Semaphore(0)

    def __call__(self) -> Sequence[StageInfo]:
        self.asked.release()
        return self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]

    def wait(self, times: int) -> None:
        for _ in range(times):
            assert self.asked.acquire(timeout=PATIENCE_S)


def test_job_without_progress_is_reported_repeatedly(
    caplog: pytest.LogCaptureFixture
) -> None:
    stages = Stages([DONE, WAITING])
    watch = JobWatch("app", stages, "20s", report_s=0.01)
    with watch.job(7):
        stages.wait(3)
    watch.close()
    assert "Batch 7 of 'app' has run for 0 s and waits for stage 2: lane 1" in caplog.text
    assert "no heartbeat for 20s" in caplog.text
    assert len(caplog.records) >= 2


def test_job_with_progress_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    stages = Stages([], [DONE], [DONE, WAITING], [DONE, WAITING, DONE])
    watch = JobWatch("progress", stages, "20s", report_s=0.01)
    with watch.job(7):
        stages.wait(5)
    watch.close()
    # The first reading has nothing to compare with. The thread may still log the fifth one, which
    # finds no progress, and so may the thread of an earlier test.
    first, *later = [each.message for each in caplog.records if "'progress'" in each.message]
    assert "waits for Spark to schedule its stages" in first
    assert len(later) <= 1


def test_lost_spark_ends_the_watch_of_a_job_only() -> None:
    asked = threading.Semaphore(0)

    def fail() -> Sequence[StageInfo]:
        asked.release()
        raise ConnectionError("gone")

    watch = JobWatch("app", fail, "20s", report_s=0.01)
    for batch in range(2):
        with watch.job(batch):
            assert asked.acquire(timeout=PATIENCE_S)
    watch.close()
