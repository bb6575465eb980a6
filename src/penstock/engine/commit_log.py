"""`CommitLog`: log lines about restored stores and slow commits."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable

from penstock.engine.batch_report import BatchReport

log = logging.getLogger(__name__)

#: A commit that takes longer is slow.
SLOW_COMMIT_S = 1.0
#: Slow commits are logged at most this often.
INTERVAL_S = 30.0


class CommitLog:
    """Logs the stores that were restored before a batch, and summaries of slow commits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: The slow commits that no line has reported.
        self._slow: list[BatchReport] = []
        self._silent_until = 0.0

    def add(self, report: BatchReport) -> None:
        """Log the restores of a batch, and its commit if it was slow."""
        if any(each.records for each in report.restored):
            _log_restores(report)
        if report.commit_seconds >= SLOW_COMMIT_S:
            self._slow.append(report)
        if self._slow and self._clock() >= self._silent_until:
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


def _log_restores(report: BatchReport) -> None:
    partitions: dict[str, int] = defaultdict(int)
    records: dict[str, int] = defaultdict(int)
    for each in (each for each in report.restored if each.records):
        partitions[each.store] += 1
        records[each.store] += each.records
    stores = ", ".join(
        f"{store} ({records[store]:,} records in {count} partition{'s' if count > 1 else ''})"
        for store, count in partitions.items()
    )
    log.info("Restored from changelogs in %.1f s: %s.", report.restore_seconds, stores)
