"""Keeps Spark's Python workers alive while the application is idle.

Spark ends idle workers after a minute without a task. The next batch would wait for new ones
(measured: 0.9 s instead of 0.07 s). An empty job from time to time prevents that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

#: Spark checks every ten seconds whether a worker was idle for a minute.
IDLE_S = 40.0


class Keepalive:
    """A thread that runs a job whenever no other job has run for `idle_s` seconds."""

    def __init__(self, run_job: Callable[[], object], idle_s: float = IDLE_S) -> None:
        self._run_job = run_job
        self._idle_s = idle_s
        self._last_job = time.monotonic()
        self._closed = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="penstock-keepalive", daemon=True
        )
        self._thread.start()

    def job_done(self) -> None:
        """Restart the idle time. Called after every other job."""
        self._last_job = time.monotonic()

    def close(self) -> None:
        """Stop the thread and wait for its job."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(max(0.0, self._last_job + self._idle_s - time.monotonic())):
            if time.monotonic() - self._last_job < self._idle_s:
                continue
            try:
                self._run_job()
            except Exception:
                # Spark was stopped or lost, which the next batch reports.
                log.debug("The keepalive of the workers has ended.", exc_info=True)
                return
            self._last_job = time.monotonic()


def empty_task(lane: int, received: Iterator[bytes]) -> Iterator[bytes]:
    """The task of a keepalive job. Reads its input, or Spark would not reuse the worker."""
    for _ in received:
        pass
    return iter(())
