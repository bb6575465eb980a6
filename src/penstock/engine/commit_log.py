"""`CommitLog`: log lines about slow commits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from penstock.engine.batch_report import BatchReport

log = logging.getLogger(__name__)

#: A commit that takes longer is slow.
SLOW_COMMIT_S = 1.0
#: Slow commits are logged at most this often.
INTERVAL_S = 30.0


class CommitLog:
    """Logs summaries of slow commits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: The slow commits that no line has reported.
        self._slow: list[BatchReport] = []
        self._silent_until = 0.0

    def add(self, report: BatchReport) -> None:
        """Log the commit of a batch if it was slow."""
        if report.commit_seconds >= SLOW_COMMIT_S:
            self._slow.append(report)
        if self._slow and self._clock() >= self._silent_until:
            self._log_slow_commits()

    def close(self) -> None:
        """Log the slow commits that no line has reported, because the instance ends."""
        if self._slow:
            self._log_slow_commits()

    def _log_slow_commits(self) -> None:
        slow, self._slow = self._slow, []
        self._silent_until = self._clock() + INTERVAL_S
        longest = max(slow, key=lambda report: report.commit_seconds)
        number = "A commit" if len(slow) == 1 else f"{len(slow)} commits"
        log.warning(
            "%s took more than %g s, the longest one %.1f s for %s records and %s changes of "
            "stores. Check the load of the log and the disk of the state.",
            number, SLOW_COMMIT_S, longest.commit_seconds, f"{longest.outputs:,}",
            f"{longest.changes:,}",
        )
