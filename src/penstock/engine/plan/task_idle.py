"""Tasks that wait for a partition which has no records (`max.task.idle.ms`, M3)."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.log.types import TopicPartition


class TaskIdle:
    """Since when partitions have been empty, and who waits for them.

    0, the default, waits for known lag only: a task stops where a range that was cut runs empty.
    -1 does not even do that. With more, a task of several partitions stops where any of them runs
    empty, and goes on without it when it has been empty for so long.
    """

    def __init__(self, idle_ms: int) -> None:
        self._idle_ms = idle_ms
        #: Empty partition -> when it was first found so.
        self._empty_since: dict[TopicPartition, int] = {}
        self._waiting_until: dict[TopicPartition, int] = {}

    @property
    def next_due(self) -> int | None:
        """When the first of the tasks that wait goes on; None if nobody waits."""
        return min(self._waiting_until.values(), default=None)

    def waits(self, lags: Mapping[TopicPartition, int], now: int) -> bool:
        """Whether a task whose partitions have these lags waits for one of them."""
        if self._idle_ms <= 0 or len(lags) < 2:
            return False
        until = 0
        for at, lag in lags.items():
            self._waiting_until.pop(at, None)
            if lag > 0:
                self._empty_since.pop(at, None)
            else:
                until = max(until, self._empty_since.setdefault(at, now) + self._idle_ms)
        if until <= now or not any(lags.values()):
            return False
        self._waiting_until[next(iter(lags))] = until
        return True

    def is_cut(self, partitions: int, has_more: bool) -> bool:
        """Whether the end of a range stops a task that reads so many partitions."""
        if self._idle_ms < 0:
            return False
        return has_more or (self._idle_ms > 0 and partitions > 1)
