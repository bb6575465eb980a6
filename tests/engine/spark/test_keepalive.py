"""The job that keeps idle workers alive."""

from __future__ import annotations

import threading
import time

from penstock.engine.spark.keepalive import Keepalive


def test_job_runs_after_each_idle_time_until_close() -> None:
    ran = threading.Semaphore(0)
    keepalive = Keepalive(ran.release, idle_s=0.01)
    assert ran.acquire(timeout=180)
    assert ran.acquire(timeout=180)
    keepalive.close()
    assert not keepalive._thread.is_alive()


def test_no_job_runs_while_workers_are_busy() -> None:
    jobs: list[float] = []
    keepalive = Keepalive(lambda: jobs.append(time.monotonic()), idle_s=3600)
    keepalive.job_done()
    keepalive.close()
    assert jobs == []


def test_lost_spark_ends_the_thread_silently() -> None:
    def fail() -> None:
        raise ConnectionError("gone")

    keepalive = Keepalive(fail, idle_s=0.0)
    keepalive._thread.join(30)
    assert not keepalive._thread.is_alive()
    keepalive.close()
