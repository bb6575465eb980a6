"""`CommitPacer`: decides when a lane commits."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Without a configured interval, a lane commits as soon as it has processed everything there is.
#: Commits are at least so far apart.
SHORTEST_INTERVAL_S = 0.010
#: The longest time between two commits while there is always something to process.
LONGEST_INTERVAL_S = 0.100


class CommitPacer:
    """Measures the time since the last commit.

    With `commit.interval.ms`, a lane commits at this interval, as Kafka Streams does. Without it, a
    lane commits as soon as it has processed everything there is: latency is low when there is
    little to do, and transactions are large when there is much.
    """

    def __init__(
        self, interval_ms: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._shortest_s = SHORTEST_INTERVAL_S if interval_ms is None else interval_ms / 1000
        self._longest_s = LONGEST_INTERVAL_S if interval_ms is None else interval_ms / 1000
        self._clock = clock
        self._began_at = self._ended_at = clock()
        #: When the first uncommitted work was noticed; None if there is none.
        self._dirty_since: float | None = None

    def is_due(self, has_more: bool, needs_commit: bool) -> bool:
        """Whether to commit now. `has_more`: there are records to process."""
        if not needs_commit:
            return False
        now = self._clock()
        if self._dirty_since is None:
            self._dirty_since = now
        if has_more:
            return now - self._dirty_since >= self._longest_s
        return now - self._began_at >= self._shortest_s

    def is_time_up(self) -> bool:
        """Whether processing should stop, because a commit is due in any case."""
        since = self._dirty_since
        return since is not None and self._clock() - since >= self._longest_s

    def seconds_until_due(self) -> float:
        """The time until a commit of a lane without more records is due."""
        return max(0.0, self._shortest_s - (self._clock() - self._began_at))

    def begin_commit(self) -> float:
        """Note the begin of a commit. Returns the seconds since the end of the last one."""
        self._began_at = self._clock()
        self._dirty_since = None
        return self._began_at - self._ended_at

    def end_commit(self) -> float:
        """Note the end of a commit. Returns its duration."""
        self._ended_at = self._clock()
        return self._ended_at - self._began_at
