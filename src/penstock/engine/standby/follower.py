"""`Follower`: keeps the replicas of a standby up to date, so that a failover takes less time.

The follower applies the changelogs to the replicas of this host, up to the last commit. Nothing
depends on it: an instance that takes over catches up, or restores what is missing. State that no
changelog contains (the order of an LRU map, stores without logging) is left to that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph, build_graph_for_log
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.standby.update_listener import StandbyUpdateNotifier, SuspendReason
from penstock.engine.worker.changelogs import LogChangelogs
from penstock.engine.worker.replica_pool import replica_identity
from penstock.errors import StreamsException
from penstock.log import open_log
from penstock.log.base import Log
from penstock.log.errors import LogError, UnknownTopic
from penstock.log.types import TopicPartition
from penstock.record import TaskId
from penstock.stores.replica.protocol import ChangelogBatch, ReplicaAhead, ReplicaTarget
from penstock.stores.replica.task_replica import TaskReplica
from penstock.task.blueprint import Blueprint
from penstock.task.replica_stores import replica_stores
from penstock.topology.topology import Topology

log = logging.getLogger(__name__)

#: The pause between two reads of the changelogs.
POLL_INTERVAL_S = 0.25
#: The pause between two checks for new topics and partitions.
GRAPH_INTERVAL_S = 60.0
#: The pause after an error.
ERROR_PAUSE_S = 5.0


class _Stopped(Exception):
    """The follower is closed. Records that were read last are not written."""


class _FollowedTask(NamedTuple):
    replica: TaskReplica
    #: Store -> the partition that it is restored from.
    partitions: dict[str, TopicPartition]


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
        self._log: Log
        #: The incarnation of the application whose replicas are open; empty if none are.
        self._incarnation = ""
        self._graph: ExecutionGraph | None = None
        self._graph_checked_at = 0.0
        self._tasks: dict[TaskId, _FollowedTask] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-standby", daemon=True)
        self._thread.start()

    @property
    def tasks(self) -> dict[TaskId, frozenset[TopicPartition]]:
        """The followed tasks -> the partitions that they read from the log."""
        graph = self._graph
        if graph is None:
            return {}
        return {
            task_id: frozenset(
                TopicPartition(topic, task_id.partition) for topic in graph.log_topics(task_id)
            )
            for task_id in tuple(self._tasks)
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
                with open_log(address, connection=connection) as self._log:
                    self._follow_until_stopped()
            except _Stopped:
                log.debug("The records that were read last are not written: the follower stops.")
            except (LogError, StreamsException, OSError) as error:
                log.warning("The replicas of this standby are not updated: %s", error)
                self._stopped.wait(ERROR_PAUSE_S)
            finally:
                self._close_replicas()

    def _follow_until_stopped(self) -> None:
        while not self._stopped.is_set():
            try:
                if not self._is_paused():
                    self._follow()
            except UnknownTopic:
                # The application has never run on this log, or is being reset.
                self._close_replicas()
            self._stopped.wait(POLL_INTERVAL_S)

    def _follow(self) -> None:
        """Bring all replicas to the current positions."""
        # A reset recreates the topic, so its id identifies the incarnation.
        incarnation = self._log.topic(tasks_topic(self._config.application_id)).id
        if incarnation != self._incarnation or self._graph_has_changed():
            self._close_replicas()
            self._open_replicas(incarnation)
        positions = self._committed_positions()
        for task_id, task in self._tasks.items():
            targets = {
                store: positions[at] for store, at in task.partitions.items() if at in positions
            }
            if len(targets) == len(task.partitions):
                self._catch_up(task_id, task, targets)

    def _graph_has_changed(self) -> bool:
        if time.monotonic() < self._graph_checked_at + GRAPH_INTERVAL_S:
            return False
        self._graph_checked_at = time.monotonic()
        return build_graph_for_log(self._log, self._topology, self._config) != self._graph

    def _committed_positions(self) -> dict[TopicPartition, int]:
        """Return the position up to which each followed partition is committed.

        Changelogs count up to their end, because a read returns committed records only. Source
        topics count up to their committed offset.
        """
        assert self._graph is not None
        partitions = {at for task in self._tasks.values() for at in task.partitions.values()}
        changelogs = {at for at in partitions if at.topic in self._graph.changelogs}
        committed = self._log.committed(self._config.application_id, partitions - changelogs)
        return {
            **{at: bounds.end for at, bounds in self._log.offsets(changelogs).items()},
            **{at: each.offset for at, each in committed.items()},
        }

    def _catch_up(self, task_id: TaskId, task: _FollowedTask, targets: dict[str, int]) -> None:
        before = task.replica.positions()
        if all(before.get(store) == target for store, target in targets.items()):
            return
        for store, at in task.partitions.items():
            self._notifier.started(at, store, before.get(store, 0))
        changelogs = _CountingChangelogs(LogChangelogs(self._log, task.partitions))
        try:
            task.replica.catch_up(ReplicaTarget(targets), changelogs, self._check_stopped)
        except ReplicaAhead:
            # Workers on this host have advanced the replica in the meantime.
            return
        for store, target in targets.items():
            if before.get(store) != target:
                self._notifier.loaded(
                    task.partitions[store], store, task_id, target, changelogs.records[store],
                    target,
                )

    def _check_stopped(self, step: str) -> None:
        if self._stopped.is_set():
            raise _Stopped

    # ---- replicas ----------------------------------------------------------------------------

    def _open_replicas(self, incarnation: str) -> None:
        self._graph = graph = build_graph_for_log(self._log, self._topology, self._config)
        self._graph_checked_at = time.monotonic()
        directory = Path(self._config.state_dir).absolute() / self._config.application_id
        for task_id in graph.tasks:
            blueprint = Blueprint.of(self._topology, self._config, [task_id.subtopology])
            stores = tuple(
                store for store in replica_stores(blueprint, task_id)
                if store.logged and store.restores_from_changelog
            )
            if stores:
                identity = replica_identity(self._log, graph, task_id, incarnation)
                replica = TaskReplica.open(directory / str(task_id), identity, stores)
                partitions = graph.restore_partitions(task_id)
                self._tasks[task_id] = _FollowedTask(
                    replica, {store.name: partitions[store.name] for store in stores}
                )
        self._incarnation = incarnation

    def _close_replicas(self) -> None:
        for task in self._tasks.values():
            task.replica.close()
        self._tasks = {}
        self._incarnation = ""


class _CountingChangelogs:
    """Implements `Changelogs` and counts the records that were read of each store."""

    def __init__(self, changelogs: LogChangelogs) -> None:
        self._changelogs = changelogs
        self.start = changelogs.start
        self.records: Counter[str] = Counter()

    def read(
        self, store: str, start: int, end: int, since: int | None = None
    ) -> Iterator[ChangelogBatch]:
        """Read records; see `LogChangelogs.read`."""
        for batch in self._changelogs.read(store, start, end, since):
            self.records[store] += len(batch)
            yield batch
