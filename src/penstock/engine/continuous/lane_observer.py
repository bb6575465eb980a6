"""`LaneObserver`: receives the reports of lanes that are not commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.record import TaskId

if TYPE_CHECKING:
    from penstock.engine.continuous.lane_handle import LaneStatus
    from penstock.engine.continuous.messages import PartitionLag, TimeSpent
    from penstock.engine.worker.outcome import RestoredStore, RestoringStore


class LaneObserver:
    """Receives the progress of restores, and the times and the lag of lanes. Ignores all of it."""

    def task_granted(self, task_id: TaskId) -> None:
        """A lane is asked to run a task."""

    def task_released(self, task_id: TaskId) -> None:
        """A lane is asked to give up a task."""

    def task_restoring(self, task_id: TaskId, stores: Sequence[RestoringStore]) -> None:
        """A lane restores the stores of a task."""

    def task_restored(
        self, task_id: TaskId, restored: Sequence[RestoredStore], seconds: float, *,
        lane: LaneStatus, is_last: bool,
    ) -> None:
        """A lane has restored the stores of a task. `is_last`: no other restore runs."""

    def task_stopped(self, task_id: TaskId) -> None:
        """No lane runs or restores a task."""

    def time_spent(self, spent: TimeSpent) -> None:
        """A lane has reported how it spends its time."""

    def lag_measured(self, lag: Sequence[PartitionLag]) -> None:
        """A lane has reported the unread records of its partitions."""

    def lane_lost(self) -> None:
        """A lane has ended unexpectedly."""
