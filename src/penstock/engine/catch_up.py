"""`CatchUpTracker`: lets callers wait until the input that exists now has been processed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.log.types import TopicPartition


class InputProgress(Protocol):
    """The part of an `Engine` that reports how much of its input is processed."""

    @property
    def has_delayed_input(self) -> bool:
        """Whether records wait for other input (`max.task.idle.ms`)."""
        ...

    def end_offsets(self) -> Mapping[TopicPartition, int] | None:
        """Return the ends of the input when the last batch was planned, or None."""
        ...

    def is_behind(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether input before these offsets is not processed yet."""
        ...


@dataclass(slots=True)
class _Waiter:
    #: The round that was running when the wait began. It may have read the log before that.
    since: int
    #: The ends of the input that the caller waits for; None until they are known.
    ends: Mapping[TopicPartition, int] | None = None
    is_done: bool = False


class CatchUpTracker:
    """Counts rounds (attempts to run a batch) and wakes the callers that have caught up.

    Invariants:
    - The stream thread alone counts rounds.
    - A waiter is done only after a round that started after its wait began.
    """

    def __init__(self) -> None:
        #: The number of the round that runs, or ran last.
        self.rounds = 0
        self._waiters: list[_Waiter] = []
        self._progress = threading.Condition()

    @property
    def is_awaited(self) -> bool:
        """Whether a caller waits."""
        return bool(self._waiters)

    def start_round(self) -> None:
        """Count a round."""
        with self._progress:
            self.rounds += 1

    def finish_round(self, progress: InputProgress, *, is_idle: bool) -> None:
        """Wake the callers that have caught up. `is_idle`: the round found nothing to do."""
        with self._progress:
            for waiter in self._waiters:
                if self.rounds <= waiter.since:
                    continue
                if waiter.ends is None:
                    waiter.ends = progress.end_offsets()
                if waiter.ends is not None:
                    waiter.is_done = not progress.is_behind(waiter.ends)
                if is_idle and not progress.has_delayed_input:
                    waiter.is_done = True
            self._progress.notify_all()

    def wait(
        self, timeout: float | None, *, wake: Callable[[], object], has_ended: Callable[[], bool]
    ) -> bool:
        """Wait until the input that exists now is processed, the instance ends, or the timeout.

        Return whether the input is processed. `wake` asks the stream thread for a round.
        """
        with self._progress:
            waiter = _Waiter(self.rounds)
            self._waiters.append(waiter)
            wake()
            self._progress.wait_for(lambda: waiter.is_done or has_ended(), timeout)
            self._waiters.remove(waiter)
            return waiter.is_done

    def wake_all(self) -> None:
        """Let all callers check whether the instance has ended."""
        with self._progress:
            self._progress.notify_all()
