"""`StandbyUpdateListener`: receives the progress of the stores that a standby keeps up to date."""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass
from typing import Protocol

from penstock.log.types import TopicPartition
from penstock.record import TaskId

log = logging.getLogger(__name__)


class SuspendReason(enum.Enum):
    """Why the updates of a store have ended."""

    #: The instance ends.
    MIGRATED = "MIGRATED"
    #: The instance takes over and runs the application.
    PROMOTED = "PROMOTED"


class StandbyUpdateListener:
    """Receives the updates of a standby's stores. Override any of the methods.

    penstock's threads call them, one at a time. `partition` is a partition of the changelog, or of
    the source topic that serves as one.
    """

    def on_update_start(
        self, partition: TopicPartition, store: str, starting_offset: int
    ) -> None:
        """The updates of a store start at an offset.

        Args:
            partition: The partition of the changelog, or of the source topic that serves as one.
            store: The name of the store.
            starting_offset: The offset of the first record.

        Kafka: StandbyUpdateListener#onUpdateStart
        """

    def on_batch_loaded(
        self, partition: TopicPartition, store: str, task_id: TaskId, batch_end_offset: int,
        batch_size: int, current_end_offset: int,
    ) -> None:
        """A number of records was applied to a store.

        Args:
            partition: The partition of the changelog, or of the source topic that serves as one.
            store: The name of the store.
            task_id: The task of the store.
            batch_end_offset: The offset of the last record of the batch.
            batch_size: The number of records of the batch.
            current_end_offset: The end of the changelog.

        Kafka: StandbyUpdateListener#onBatchLoaded
        """

    def on_update_suspended(
        self, partition: TopicPartition, store: str, store_offset: int, current_end_offset: int,
        reason: SuspendReason,
    ) -> None:
        """The updates of a store have ended.

        Args:
            partition: The partition of the changelog, or of the source topic that serves as one.
            store: The name of the store.
            store_offset: The position of the store.
            current_end_offset: The end of the changelog.
            reason: Why the updates end.

        Kafka: StandbyUpdateListener#onUpdateSuspended
        """


class StandbyMeter(Protocol):
    """Measures the updates of a standby's stores."""

    def set_lag(self, task_id: TaskId, offsets: int) -> None:
        """The changelogs of a task have so many offsets that are not applied yet."""
        ...

    def add(self, task_id: TaskId, records: int) -> None:
        """Records were applied to the stores of a task."""
        ...

    def stop(self) -> None:
        """No task is followed any more."""
        ...


@dataclass
class _StandbyProgress:
    position: int
    end: int


class StandbyUpdateNotifier:
    """Calls a listener for every updated store: once at the start, and once at the end."""

    def __init__(
        self, listener: StandbyUpdateListener, metrics: StandbyMeter | None = None
    ) -> None:
        self._listener = listener
        self._metrics = metrics
        self._running: dict[tuple[TopicPartition, str], _StandbyProgress] = {}

    def started(self, partition: TopicPartition, store: str, position: int) -> None:
        """The updates of a store start, unless they have started before."""
        if (partition, store) not in self._running:
            self._running[partition, store] = _StandbyProgress(position, position)
            self._notify("on_update_start", partition, store, position)

    def measured(self, task_id: TaskId, lag: int) -> None:
        """The changelogs of a task have `lag` offsets that are not applied yet."""
        if self._metrics is not None:
            self._metrics.set_lag(task_id, lag)

    def loaded(
        self, partition: TopicPartition, store: str, task_id: TaskId, position: int, records: int,
        end: int,
    ) -> None:
        """A number of records was applied, up to a position."""
        self._running[partition, store] = _StandbyProgress(position, end)
        if self._metrics is not None:
            self._metrics.add(task_id, records)
        self._notify("on_batch_loaded", partition, store, task_id, position, records, end)

    def suspended(self, reason: SuspendReason) -> None:
        """All updates have ended."""
        if self._metrics is not None:
            self._metrics.stop()
        for (partition, store), progress in self._running.items():
            self._notify(
                "on_update_suspended", partition, store, progress.position, progress.end, reason
            )
        self._running.clear()

    def _notify(self, method: str, *arguments: object) -> None:
        try:
            getattr(self._listener, method)(*arguments)
        except Exception:
            log.exception("The standby update listener failed; the application continues.")
