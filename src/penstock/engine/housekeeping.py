"""What the lease holder does for the log between batches: cleaning, and emptying its own topics.

Nothing here changes what is committed: records that no task will read again go, and the log is
told to keep house. A log that cleans itself (Kafka) has nothing to do when asked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.layout.internal_topics import expired_changelogs
from penstock.engine.plan.task_records import TaskRecord
from penstock.log.base import Log
from penstock.log.errors import LogError
from penstock.record import TaskId

log = logging.getLogger(__name__)

CLEAN_EVERY_SECONDS = 300.0


class Housekeeping:
    """Runs beside the batches, in a thread of its own, one round at a time."""

    def __init__(self, target: Log, graph: ExecutionGraph, purge_every_ms: int) -> None:
        self._log = target
        self._graph = graph
        #: Topics that only this application reads: what it has committed may go (`purge`).
        self._purged = frozenset(graph.repartition_topics)
        self._purge_every = purge_every_ms / 1000
        self._purge_at = time.monotonic() + self._purge_every
        self._clean_at = time.monotonic() + CLEAN_EVERY_SECONDS
        self._round: threading.Thread | None = None

    def after_commit(
        self, offsets: Mapping[tuple[str, int], int], records: Mapping[TaskId, TaskRecord]
    ) -> None:
        """A batch was committed; starts a round if one is due.

        `offsets` and `records`: of all source partitions and tasks, as they stand.
        """
        now = time.monotonic()
        if self._round is not None and self._round.is_alive():
            return
        purge = {}
        if now >= self._purge_at:
            self._purge_at = now + self._purge_every
            purge = {at: offset for at, offset in offsets.items() if at[0] in self._purged}
        clean = now >= self._clean_at
        if clean:
            self._clean_at = now + CLEAN_EVERY_SECONDS
        if purge or clean:
            self._round = threading.Thread(
                target=self._keep_house, args=(purge, dict(records) if clean else None),
                name="penstock-housekeeping", daemon=True,
            )
            self._round.start()

    def close(self) -> None:
        """Wait for the round that is going on."""
        if self._round is not None:
            self._round.join()

    def _keep_house(
        self, purge: Mapping[tuple[str, int], int], records: Mapping[TaskId, TaskRecord] | None
    ) -> None:
        """`records`: None if it is not yet time to clean."""
        try:
            for (topic, partition), offset in purge.items():
                self._log.delete_records(topic, partition, offset)
            if records is not None:
                for at, offset in expired_changelogs(self._log, self._graph, records).items():
                    self._log.delete_records(*at, offset)
                self._log.clean()
        except LogError as error:
            log.warning("Keeping house in the log failed, it will be tried again: %s", error)
