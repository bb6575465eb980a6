"""Rows that an instance keeps while it stands by, and who wants to hear of them."""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass

from penstock.log.types import TopicPartition
from penstock.record import TaskId

log = logging.getLogger(__name__)


class SuspendReason(enum.Enum):
    """Why a store is not followed any more."""

    #: The instance ends; another one has the rows.
    MIGRATED = "MIGRATED"
    #: The instance runs the application from now on.
    PROMOTED = "PROMOTED"


class StandbyUpdateListener:
    """Hears of stores that are kept up to date by an instance that stands by; any of the methods
    may be overridden.

    They are called by threads of penstock's own, one at a time. `partition` is that of the
    changelog, or of the source topic that serves as one.
    """

    def on_update_start(
        self, partition: TopicPartition, store: str, starting_offset: int
    ) -> None:
        """A store is followed from now on; it stands at that offset."""

    def on_batch_loaded(
        self, partition: TopicPartition, store: str, task_id: TaskId, batch_end_offset: int,
        batch_size: int, current_end_offset: int,
    ) -> None:
        """So many more records are in it."""

    def on_update_suspended(
        self, partition: TopicPartition, store: str, store_offset: int, current_end_offset: int,
        reason: SuspendReason,
    ) -> None:
        """It is not followed any more."""


@dataclass
class _Followed:
    position: int
    end: int


class StandbyUpdateNotifier:
    """Tells a listener of every store that is followed: once of its beginning and of its end."""

    def __init__(self, listener: StandbyUpdateListener) -> None:
        self._listener = listener
        self._followed: dict[tuple[TopicPartition, str], _Followed] = {}

    def began(self, partition: TopicPartition, store: str, position: int) -> None:
        """A store is followed from now on, unless it was already."""
        if (partition, store) not in self._followed:
            self._followed[partition, store] = _Followed(position, position)
            self._tell("on_update_start", partition, store, position)

    def loaded(
        self, partition: TopicPartition, store: str, task_id: TaskId, position: int, records: int,
        end: int,
    ) -> None:
        """A store has come so far, with so many records."""
        self._followed[partition, store] = _Followed(position, end)
        self._tell("on_batch_loaded", partition, store, task_id, position, records, end)

    def ended(self, reason: SuspendReason) -> None:
        """Nothing is followed any more."""
        for (partition, store), at in self._followed.items():
            self._tell("on_update_suspended", partition, store, at.position, at.end, reason)
        self._followed.clear()

    def _tell(self, what: str, *facts: object) -> None:
        try:
            getattr(self._listener, what)(*facts)
        except Exception:
            log.exception("The standby listener failed; the application goes on.")
