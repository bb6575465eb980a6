"""`Follower`: keeps the replicas of a standby up to date, so that a failover takes less time.

The follower applies the changelogs to the replicas of this host, up to the last commit. Nothing
depends on it: an instance that takes over catches up, or restores what is missing. State that no
changelog contains (the order of an LRU map, stores without logging) is left to that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.config import StreamsConfig
from penstock.engine.standby.followed_replicas import FollowedReplicas
from penstock.engine.standby.update_listener import StandbyUpdateNotifier, SuspendReason
from penstock.errors import StreamsException
from penstock.log import open_log
from penstock.log.errors import LogError, UnknownTopic
from penstock.log.types import TopicPartition
from penstock.record import TaskId
from penstock.topology.topology import Topology

log = logging.getLogger(__name__)

#: The pause between two reads of the changelogs.
POLL_INTERVAL_S = 0.25
#: The pause after an error.
ERROR_PAUSE_S = 5.0


class _Stopped(Exception):
    """The follower is closed. Records that were read last are not written."""


class Follower:
    """Follows the changelogs of an application in a separate thread, until it is closed.

    Only that thread reads the log and writes the replicas.
    """

    def __init__(
        self, topology: Topology, config: StreamsConfig, notifier: StandbyUpdateNotifier,
        is_paused: Callable[[], bool] = lambda: False,
    ) -> None:
        self._topology = topology
        self._config = config
        self._notifier = notifier
        self._is_paused = is_paused
        self._replicas: FollowedReplicas | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-standby", daemon=True)
        self._thread.start()

    @property
    def tasks(self) -> dict[TaskId, frozenset[TopicPartition]]:
        """The followed tasks -> the partitions that they read from the log."""
        replicas = self._replicas
        graph = None if replicas is None else replicas.graph
        if replicas is None or graph is None:
            return {}
        return {
            task_id: frozenset(
                TopicPartition(topic, task_id.partition) for topic in graph.log_topics(task_id)
            )
            for task_id in tuple(replicas.tasks)
        }

    def close(self, reason: SuspendReason) -> None:
        """Stop, and wait until nothing is written any more."""
        self._stopped.set()
        self._thread.join()
        self._notifier.suspended(reason)

    # ---- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        address, connection = self._config.log, self._config.connection_settings()
        assert address is not None
        while not self._stopped.is_set():
            try:
                with open_log(address, connection=connection) as source:
                    replicas = FollowedReplicas(source, self._topology, self._config)
                    self._replicas = replicas
                    self._follow_until_stopped(replicas)
            except _Stopped:
                log.debug("The records that were read last are not written: the follower stops.")
            except (LogError, StreamsException, OSError) as error:
                log.warning("The replicas of this standby are not updated: %s", error)
                self._stopped.wait(ERROR_PAUSE_S)
            finally:
                opened, self._replicas = self._replicas, None
                if opened is not None:
                    opened.close()

    def _follow_until_stopped(self, replicas: FollowedReplicas) -> None:
        while not self._stopped.is_set():
            try:
                if not self._is_paused():
                    self._follow(replicas)
            except UnknownTopic:
                # The application has never run on this log, or is being reset.
                replicas.close()
            self._stopped.wait(POLL_INTERVAL_S)

    def _follow(self, replicas: FollowedReplicas) -> None:
        """Bring all replicas to the current positions."""
        replicas.refresh()
        for task_id, targets in replicas.committed_positions().items():
            task = replicas.tasks[task_id]
            before = task.replica.positions()
            self._notifier.measured(task_id, sum(
                max(0, target - before.get(store, 0)) for store, target in targets.items()
            ))
            if any(before.get(store, -1) < target for store, target in targets.items()):
                for store, at in task.partitions.items():
                    self._notifier.started(at, store, before.get(store, 0))
            caught_up = replicas.catch_up(task_id, targets, self._check_stopped)
            self._notifier.measured(task_id, 0)
            if caught_up is None:
                continue
            for store, target in targets.items():
                if caught_up.before.get(store) != target:
                    self._notifier.loaded(
                        task.partitions[store], store, task_id, target,
                        caught_up.records[store], target,
                    )

    def _check_stopped(self, step: str) -> None:
        if self._stopped.is_set():
            raise _Stopped
