"""`Housekeeping`: purges and cleans the log between batches, on behalf of the lease holder.

It deletes only records that no task will read again, and runs the cleaner of a log that has none
of its own. Kafka cleans itself, so its `clean` does nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.layout.internal_topics import find_expired_changelogs
from penstock.engine.plan.task_records import TaskRecord
from penstock.log.base import Log
from penstock.log.errors import LogError
from penstock.record import TaskId

log = logging.getLogger(__name__)

CLEAN_INTERVAL_S = 300.0


class Housekeeping:
    """Runs beside the batches in a separate thread, one round at a time."""

    def __init__(self, target: Log, graph: ExecutionGraph, purge_interval_ms: int) -> None:
        self._log = target
        self._graph = graph
        #: Topics that only this application reads. Their consumed records are purged.
        self._purged_topics = frozenset(graph.repartition_topics)
        self._purge_interval = purge_interval_ms / 1000
        self._purge_at = time.monotonic() + self._purge_interval
        #: Source partition -> the offset up to which it was purged.
        self._purged: dict[Any, int] = {}
        self._clean_at = time.monotonic() + CLEAN_INTERVAL_S
        self._round: threading.Thread | None = None

    def after_commit(
        self, offsets: Mapping[Any, int], records: Mapping[TaskId, TaskRecord]
    ) -> None:
        """Start a round if one is due.

        `offsets` and `records` are the committed ones of all source partitions and tasks.
        """
        if self._is_running():
            return
        now = time.monotonic()
        clean = now >= self._clean_at
        if clean:
            self._clean_at = now + CLEAN_INTERVAL_S
        self._start(self._due_purges(offsets), dict(records) if clean else None)

    def between_commits(self, offsets: Mapping[Any, int]) -> None:
        """Purge what the last commits have consumed, if a round is due: there may be no further
        commit for long."""
        if self._purged_topics and not self._is_running():
            self._start(self._due_purges(offsets), None)

    def _is_running(self) -> bool:
        return self._round is not None and self._round.is_alive()

    def _due_purges(self, offsets: Mapping[Any, int]) -> dict[Any, int]:
        """Return the partitions that have records to purge, if it is time."""
        now = time.monotonic()
        if now < self._purge_at:
            return {}
        self._purge_at = now + self._purge_interval
        return {
            at: offset for at, offset in offsets.items()
            if at[0] in self._purged_topics and self._purged.get(at) != offset
        }

    def _start(
        self, purge: Mapping[Any, int], records: Mapping[TaskId, TaskRecord] | None
    ) -> None:
        if purge or records is not None:
            self._round = threading.Thread(
                target=self._run_round, args=(purge, records), name="penstock-housekeeping",
                daemon=True,
            )
            self._round.start()

    def close(self) -> None:
        """Wait for the running round."""
        if self._round is not None:
            self._round.join()

    def _run_round(
        self, purge: Mapping[Any, int], records: Mapping[TaskId, TaskRecord] | None
    ) -> None:
        """Purge, and also clean if `records` is not None."""
        try:
            for (topic, partition), offset in purge.items():
                self._log.delete_records(topic, partition, offset)
                self._purged[topic, partition] = offset
            if records is not None:
                expired = find_expired_changelogs(self._log, self._graph, records)
                for at, offset in expired.items():
                    self._log.delete_records(*at, offset)
                self._log.clean()
        except LogError as error:
            log.warning("Housekeeping failed and is retried later: %s", error)
