"""Logs what a running job waits for, if none of its lanes has finished for a while.

A host that disappears does not close its connections. Spark notices it only when heartbeats are
missing, and says nothing until then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from penstock.clock import wall_clock_ms
from penstock.engine.spark.pyspark_internals import StageInfo

log = logging.getLogger(__name__)

#: The first report follows after this time without progress. Then the time doubles, up to a limit.
REPORT_S, LONGEST_PAUSE_S = 8.0, 60.0


class JobWatch:
    """A thread that watches the job of the current batch."""

    def __init__(
        self, application_id: str, read_stages: Callable[[], Sequence[StageInfo]],
        heartbeat_timeout: str, *, report_s: float = REPORT_S,
    ) -> None:
        """`read_stages` returns the stages of the running job, `heartbeat_timeout` is the time
        after which Spark gives up an executor."""
        self._application_id = application_id
        self._read_stages = read_stages
        self._heartbeat_timeout = heartbeat_timeout
        self._report_s = report_s
        self._changed = threading.Condition()
        #: The running job: its batch and its start. Guarded by `_changed`, like `_closed`.
        self._job: tuple[int, float] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="penstock-job-watch", daemon=True)
        self._thread.start()

    @contextmanager
    def job(self, batch: int) -> Iterator[None]:
        """Watch the job that runs meanwhile."""
        self._set(job=(batch, time.monotonic()))
        try:
            yield
        finally:
            self._set(job=None)

    def close(self) -> None:
        """Stop the thread. Returns at once."""
        self._set(job=None, closed=True)

    def _set(self, *, job: tuple[int, float] | None, closed: bool = False) -> None:
        with self._changed:
            self._job = job
            self._closed = self._closed or closed
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._job is not None)
                job = self._job
                if self._closed:
                    return
            if job is not None:
                self._watch(job)

    def _watch(self, job: tuple[int, float]) -> None:
        finished = -1
        pause = self._report_s
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._job is not job, pause):
                    return
            try:
                stages = self._read_stages()
            except Exception:
                # The job reports that Spark has ended.
                log.debug("Cannot read the progress of a job.", exc_info=True)
                return
            count = sum(task.status == "SUCCESS" for stage in stages for task in stage.tasks)
            if finished >= 0 and count > finished:
                pause = self._report_s
            else:
                log.warning(
                    "Batch %d of '%s' has run for %.0f s and waits for %s. Spark gives up an "
                    "executor that sends no heartbeat for %s.",
                    job[0], self._application_id, time.monotonic() - job[1],
                    describe_wait(stages, wall_clock_ms()), self._heartbeat_timeout,
                )
                pause = min(pause * 2, LONGEST_PAUSE_S)
            finished = count


def describe_wait(stages: Sequence[StageInfo], now_ms: int) -> str:
    """Describe the unfinished lanes of the first unfinished stage."""
    for number, stage in enumerate(stages, 1):
        done = {task.partition for task in stage.tasks if task.status == "SUCCESS"}
        running = {task.partition: task for task in stage.tasks if task.status == "RUNNING"}
        lanes = [
            f"lane {lane} on executor {running[lane].executor} ({running[lane].host}), started "
            f"{max(0, now_ms - running[lane].launched_at) / 1000:.0f} s ago"
            if lane in running else f"lane {lane}, which has no slot"
            for lane in range(stage.partitions) if lane not in done
        ]
        if lanes:
            return f"stage {number}: {'; '.join(lanes)}"
    return "Spark to schedule its stages"
