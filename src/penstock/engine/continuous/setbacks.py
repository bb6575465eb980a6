"""`Setbacks`: counts the lanes that are lost, and delays tasks that are retried.

- Lanes that end in succession before any has committed are a failure: none can start.
- So are lanes that end in succession with the same task for `task.timeout.ms`, before it has
  processed a record: one of its records may end the process. The other tasks of these lanes may
  make progress meanwhile. The time is for tasks without records, whose lanes end for other reasons.
- A task whose error may pass (RETRY of the production handler) is granted again after a pause, for
  at most `task.timeout.ms`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence

from penstock.engine.worker.outcome import TaskOutcome
from penstock.errors import StreamsException
from penstock.record import TaskId

log = logging.getLogger(__name__)

#: So many lanes may end in succession without progress before that is a failure.
MAX_LOST_LANES = 10
#: A task that has run for so long in a lane is not the reason why the lane has ended.
LONG_RUN_S = 60.0
#: The pause before a task is retried. It doubles each time.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 5.0


class _Losses:
    """The lanes that have ended with a task since it has last processed a record."""

    def __init__(self, now: float) -> None:
        self.since = now
        self.number = 0


class _Retry:
    """The retries of a task since it has last processed a record."""

    def __init__(self, now: float) -> None:
        self.since = self.resumes_at = now
        self.pause_s = FIRST_PAUSE_S


class Setbacks:
    """The setbacks of an application, as long as it makes no progress. Holds no durable state."""

    def __init__(
        self, application_id: str, task_timeout_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._application_id = application_id
        self._timeout_s = task_timeout_ms / 1000
        self._clock = clock
        self._lost_lanes = 0
        self._losses: dict[TaskId, _Losses] = {}
        #: When each task began to run in its lane.
        self._running_since: dict[TaskId, float] = {}
        self._retries: dict[TaskId, _Retry] = {}

    def task_started(self, task_id: TaskId) -> None:
        """A lane runs a task."""
        self._running_since[task_id] = self._clock()

    def committed(self, outcomes: Sequence[TaskOutcome]) -> None:
        """A lane has committed tasks."""
        self._lost_lanes = 0
        for outcome in outcomes:
            if outcome.records_consumed:
                self._losses.pop(outcome.task_id, None)
                self._retries.pop(outcome.task_id, None)

    def lane_lost(self, tasks: Collection[TaskId]) -> StreamsException | None:
        """A lane has ended unexpectedly with these tasks. Returns the failure, if it is one."""
        now = self._clock()
        self._lost_lanes += 1
        for task_id in tasks:
            started_at = self._running_since.pop(task_id, now)
            if now - started_at >= LONG_RUN_S:
                self._losses.pop(task_id, None)
            self._losses.setdefault(task_id, _Losses(now)).number += 1
        number, reason = self._lost_lanes, "without a commit."
        if number <= MAX_LOST_LANES:
            stuck = sorted(task_id for task_id in tasks if self._is_stuck(task_id, now))
            if not stuck:
                return None
            number = self._losses[stuck[0]].number
            names = ", ".join(map(str, stuck))
            reason = f"before they had processed a record of these tasks: {names}."
        return StreamsException(
            f"{number} lanes of application '{self._application_id}' ended in succession {reason} "
            "The log lines before this one name the reasons. If there are none, look for native "
            "code that crashes, and for messages of the system's out-of-memory killer."
        )

    def _is_stuck(self, task_id: TaskId, now: float) -> bool:
        losses = self._losses[task_id]
        return losses.number > MAX_LOST_LANES and now - losses.since >= self._timeout_s

    def retry(self, task_id: TaskId, error: Exception) -> bool:
        """Delay a task that has failed. Returns False if it has been retried for too long."""
        now = self._clock()
        retry = self._retries.setdefault(task_id, _Retry(now))
        if now - retry.since >= self._timeout_s:
            return False
        log.warning("Task %s is retried: %s", task_id, error)
        retry.resumes_at = now + retry.pause_s
        retry.pause_s = min(retry.pause_s * 2, LAST_PAUSE_S)
        return True

    def may_run(self, task_id: TaskId) -> bool:
        """Whether a task can be granted now."""
        retry = self._retries.get(task_id)
        return retry is None or self._clock() >= retry.resumes_at
