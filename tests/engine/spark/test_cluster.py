"""Waiting for the executors of a cluster, and following their number."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from penstock.engine.spark import cluster
from penstock.engine.spark.cluster import ClusterMonitor, wait_for_slots

PATIENCE_S = 180


def readings(*values: int) -> Callable[[], int]:
    """A function that returns these values, and then repeatedly the last one."""
    remaining = list(values)
    return lambda: remaining.pop(0) if len(remaining) > 1 else remaining[0]


def test_start_waits_until_no_more_executors_register() -> None:
    assert wait_for_slots(readings(0, 0, 1, 2, 2, 4), "spark://m", settle_s=0.35) == 4


def test_start_without_executors_gives_up_and_says_what_it_waits_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "REPORT_S", 0.0)
    assert wait_for_slots(lambda: 0, "spark://m", longest_wait_s=0.3) == 0
    assert "Waiting for executors of 'spark://m'" in caplog.text


def test_new_slots_are_reported_once_and_requested_until_close(
    caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    changed = threading.Semaphore(0)
    # A single reading of 3 and executors that are gone for a moment change nothing.
    monitor = ClusterMonitor(
        readings(2, 3, 2, 0, 0, 4), 2, changed.release, interval_s=0.01
    )
    assert changed.acquire(timeout=PATIENCE_S)
    assert changed.acquire(timeout=PATIENCE_S)
    monitor.close()
    lines = [record.message for record in caplog.records if "slots" in record.message]
    assert lines == ["The executors have 4 slots, 2 before. The tasks are distributed again."]


def test_lost_executors_are_a_change_if_they_are_not_replaced() -> None:
    changed = threading.Event()
    readings_left = list(range(cluster.SHRUNK_READINGS))

    def count() -> int:
        if readings_left:
            readings_left.pop()
        return 1

    monitor = ClusterMonitor(count, 2, changed.set, interval_s=0.001)
    assert changed.wait(PATIENCE_S)
    assert readings_left == []
    monitor.close()


def test_lost_jvm_is_a_change() -> None:
    def fail() -> int:
        raise ConnectionError("gone")

    changed = threading.Event()
    monitor = ClusterMonitor(fail, 2, changed.set, interval_s=0.01)
    assert changed.wait(PATIENCE_S)
    monitor.close()
