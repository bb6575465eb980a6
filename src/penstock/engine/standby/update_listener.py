"""`StandbyUpdateListener`: receives the progress of the stores that a standby keeps up to date."""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass

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


@dataclass
class _StandbyProgress:
    position: int
    end: int


class StandbyUpdateNotifier:
    """Calls a listener for every updated store: once at the start, and once at the end."""

    def __init__(self, listener: StandbyUpdateListener) -> None:
        self._listener = listener
        self._running: dict[tuple[TopicPartition, str], _StandbyProgress] = {}

    def started(self, partition: TopicPartition, store: str, position: int) -> None:
        """The updates of a store start, unless they have started before."""
        if (partition, store) not in self._running:
            self._running[partition, store] = _StandbyProgress(position, position)
            self._notify("on_update_start", partition, store, position)

    def loaded(
        self, partition: TopicPartition, store: str, task_id: TaskId, position: int, records: int,
        end: int,
    ) -> None:
        """A number of records was applied, up to a position."""
        self._running[partition, store] = _StandbyProgress(position, end)
        self._notify("on_batch_loaded", partition, store, task_id, position, records, end)

    def suspended(self, reason: SuspendReason) -> None:
        """All updates have ended."""
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
