"""`Restorer`: restores the stores of granted tasks in a thread, while a lane runs its other tasks.

The changelogs of the tasks that wait are fetched together: a consumer for each store would cost
several requests for each.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from penstock.engine.continuous.lane_task import RestoredReplica, restore_replica
from penstock.engine.continuous.messages import Grant
from penstock.engine.plan.batch_plan import BatchPlan
from penstock.engine.worker.outcome import OnRestoring, RestoringStore
from penstock.engine.worker.worker import Worker
from penstock.errors import StreamsException
from penstock.record import TaskId

#: How often the progress of a restore is reported. A restore in one chunk has none.
PROGRESS_INTERVAL_S = 1.0
#: At most so many tasks are fetched together, so that the first ones start early.
TASKS_PER_FETCH = 16
#: How long `close` waits for the current chunk of a restore.
CLOSE_S = 5.0


class RestoreStopped(StreamsException):
    """The lane ends during a restore. The next owner of the task continues it."""


@dataclass(frozen=True, slots=True)
class RestoreDone:
    """The stores of a task are restored, or could not be."""

    grant: Grant
    restored: RestoredReplica | None = None
    error: Exception | None = None


class Restorer:
    """Restores tasks in the order of their grants. The lane's thread calls its methods."""

    def __init__(
        self, worker: Worker, on_done: Callable[[RestoreDone], object],
        on_progress: Callable[[TaskId, tuple[RestoringStore, ...]], object],
    ) -> None:
        """The callbacks are called in the thread of the restorer."""
        self._worker = worker
        self._on_done = on_done
        self._on_progress = on_progress
        self._waiting: deque[tuple[Grant, BatchPlan]] = deque()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="penstock-restore")
        self._closed = threading.Event()
        #: Held while the thread restores.
        self._restoring = threading.Lock()

    def add(self, grant: Grant, context: BatchPlan) -> None:
        """Restore a task. `context`: epoch and incarnation."""
        self._waiting.append((grant, context))
        self._executor.submit(self._restore_next)

    def _restore_next(self) -> None:
        """Restore the tasks that wait, up to a limit. Called once for each task."""
        with self._restoring:
            self._restore_waiting()

    def _restore_waiting(self) -> None:
        chosen: list[tuple[Grant, BatchPlan]] = []
        while self._waiting and len(chosen) < TASKS_PER_FETCH:
            chosen.append(self._waiting.popleft())
        if len(chosen) > 1:
            self._fetch([grant for grant, _ in chosen], chosen[0][1])
        for grant, context in chosen:
            try:
                started = time.perf_counter()
                restored = restore_replica(
                    self._worker, grant, context, self._progress_of(grant.plan.task_id)
                )
                done = RestoreDone(
                    grant, replace(restored, seconds=time.perf_counter() - started)
                )
            except Exception as error:
                done = RestoreDone(grant, error=error)
            self._on_done(done)

    def _progress_of(self, task_id: TaskId) -> OnRestoring:
        """A function that reports the progress of a task, unless the last report is too recent. It
        is called after each chunk, and ends the restore of a lane that ends."""
        reported = -PROGRESS_INTERVAL_S

        def report(stores: tuple[RestoringStore, ...]) -> None:
            nonlocal reported
            if self._closed.is_set():
                raise RestoreStopped(f"The restore of task {task_id} is stopped.")
            now = time.monotonic()
            if now - reported >= PROGRESS_INTERVAL_S:
                reported = now
                self._on_progress(task_id, stores)

        return report

    def _fetch(self, grants: list[Grant], context: BatchPlan) -> None:
        tasks = [
            (grant.plan, self._worker.blueprint(grant.plan.task_id.subtopology))
            for grant in grants if not grant.discard_replica
        ]
        self._worker.replicas.fetch(tasks, context)

    def close(self) -> None:
        """Restore no more tasks, and stop the current restore: the replicas are closed next."""
        self._closed.set()
        self._waiting.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._restoring.acquire(timeout=CLOSE_S):
            self._restoring.release()
