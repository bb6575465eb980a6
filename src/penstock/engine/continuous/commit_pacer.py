"""`CommitPacer`: decides when a lane commits."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Without a configured interval, a lane commits as soon as it has processed everything there is.
#: Commits are at least so far apart.
SHORTEST_INTERVAL_S = 0.010
#: The longest time between two commits while there is always something to process.
LONGEST_INTERVAL_S = 0.100
#: A lane that is behind commits less often: commits should take this share of its time.
COMMIT_SHARE = 0.1
#: The longest time between two commits of a lane that is behind.
LONGEST_BACKLOG_INTERVAL_S = 1.0


class CommitPacer:
    """Measures the time since the last commit.

    With `commit.interval.ms`, a lane commits at this interval, as Kafka Streams does. Without it, a
    lane commits as soon as it has processed everything there is: latency is low when there is
    little to do, and transactions are large when there is much. A lane that is behind has no low
    latency to lose: the more its commits cost, the larger they get.
    """

    #: How long the log needs to rest between two commits (`Writer.settle_s`).
    settle_s = 0.0

    def __init__(
        self, interval_ms: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_ms = interval_ms
        self.set_early(False)
        #: Whether the lane processes a backlog. The lane sets it after each poll.
        self.is_behind = False
        #: How long the last commit took.
        self._commit_s = 0.0
        self._clock = clock
        self._began_at = self._ended_at = clock()
        #: When the first uncommitted work was noticed; None if there is none.
        self._dirty_since: float | None = None
        #: When the work for the next commit began.
        self._working_since: float | None = None

    def set_early(self, is_early: bool) -> None:
        """Set whether the lane commits as if no interval were configured: a caller waits until the
        input is processed."""
        interval_ms = None if is_early else self._interval_ms
        self._shortest_s = SHORTEST_INTERVAL_S if interval_ms is None else interval_ms / 1000
        self._longest_s = LONGEST_INTERVAL_S if interval_ms is None else interval_ms / 1000
        self._is_adaptive = interval_ms is None

    def begin_work(self) -> None:
        """Note that there is something to process."""
        if self._working_since is None:
            self._working_since = self._clock()

    def is_due(self, has_more: bool, needs_commit: bool) -> bool:
        """Whether to commit now. `has_more`: there are records to process."""
        if not needs_commit:
            return False
        now = self._clock()
        if self._dirty_since is None:
            self._dirty_since = now
        if has_more:
            return now - self._dirty_since >= self._interval_s()
        return self.seconds_until_due() <= 0.0

    def is_time_up(self) -> bool:
        """Whether processing should stop, because a commit is due in any case."""
        since = self._dirty_since
        return since is not None and self._clock() - since >= self._interval_s()

    def _interval_s(self) -> float:
        """The time between two commits while there is something to process."""
        if not (self._is_adaptive and self.is_behind):
            return self._longest_s
        between = self._commit_s * (1 / COMMIT_SHARE - 1)
        return min(max(between, self._longest_s), LONGEST_BACKLOG_INTERVAL_S)

    def seconds_until_due(self) -> float:
        """The time until a commit of a lane without more records is due."""
        now = self._clock()
        return max(
            0.0, self._shortest_s - (now - self._began_at), self.settle_s - (now - self._ended_at)
        )

    def begin_commit(self) -> float:
        """Note the begin of a commit. Returns the seconds since the work for it began."""
        self._began_at = self._clock()
        since = self._began_at if self._working_since is None else self._working_since
        self._dirty_since = self._working_since = None
        return self._began_at - since

    def end_commit(self) -> float:
        """Note the end of a commit. Returns its duration."""
        self._ended_at = self._clock()
        self._commit_s = self._ended_at - self._began_at
        return self._commit_s
