"""`FollowedReplicas`: the replicas of this host, brought to what the log has committed.

Only the changelogs are read, so state that no changelog contains (the order of an LRU map, stores
without logging) is left to the process that runs the task.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph, build_graph_for_log
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.worker.changelogs import LogChangelogs
from penstock.engine.worker.replica_pool import replica_identity
from penstock.log.base import Log
from penstock.log.types import TopicPartition
from penstock.record import TaskId
from penstock.stores.replica.protocol import (
    ChangelogBatch,
    ReplicaAhead,
    ReplicaTarget,
    StepListener,
    ignore_step,
)
from penstock.stores.replica.task_replica import TaskReplica
from penstock.task.blueprint import Blueprint
from penstock.task.replica_stores import replica_stores
from penstock.topology.topology import Topology

#: The pause between two checks for new topics and partitions.
GRAPH_INTERVAL_S = 60.0


class FollowedTask(NamedTuple):
    """A task whose stores are restored from changelogs."""

    replica: TaskReplica
    #: Store -> the partition that it is restored from.
    partitions: dict[str, TopicPartition]
    #: See `replica_identity`.
    identity: str


class CaughtUp(NamedTuple):
    """The stores that `catch_up` has changed."""

    #: Store -> its position before.
    before: dict[str, int]
    #: Store -> its position now.
    after: dict[str, int]
    #: Store -> the number of records that were read.
    records: Counter[str]


class FollowedReplicas:
    """The replicas of all tasks with logged stores. One thread uses it at a time."""

    def __init__(self, source: Log, topology: Topology, config: StreamsConfig) -> None:
        self._log = source
        self._topology = topology
        self._config = config
        #: The incarnation of the application whose replicas are open; empty if none are.
        self.incarnation = ""
        self.graph: ExecutionGraph | None = None
        self._graph_checked_at = 0.0
        self.tasks: dict[TaskId, FollowedTask] = {}

    def refresh(self) -> None:
        """Open the replicas again if the application was reset, or if its tasks have changed.

        Raises `UnknownTopic` if the application has never run on this log, or is being reset.
        """
        # A reset recreates the topic, so its id identifies the incarnation.
        incarnation = self._log.topic(tasks_topic(self._config.application_id)).id
        if incarnation != self.incarnation or self._graph_has_changed():
            self.close()
            self._open(incarnation)

    def _graph_has_changed(self) -> bool:
        if time.monotonic() < self._graph_checked_at + GRAPH_INTERVAL_S:
            return False
        self._graph_checked_at = time.monotonic()
        return build_graph_for_log(self._log, self._topology, self._config) != self.graph

    def committed_positions(
        self, tasks: Iterable[TaskId] | None = None
    ) -> dict[TaskId, dict[str, int]]:
        """Return task -> store -> the position up to which its topic is committed.

        Changelogs count up to their end, because a read returns committed records only. Source
        topics count up to their committed offset. A task whose offsets are unknown is missing.
        """
        assert self.graph is not None
        chosen = {task_id: self.tasks[task_id] for task_id in tasks or self.tasks}
        partitions = {at for task in chosen.values() for at in task.partitions.values()}
        changelogs = {at for at in partitions if at.topic in self.graph.changelogs}
        committed = self._log.committed(self._config.application_id, partitions - changelogs)
        positions = {
            **{at: bounds.end for at, bounds in self._log.offsets(changelogs).items()},
            **{at: each.offset for at, each in committed.items()},
        }
        found = {}
        for task_id, task in chosen.items():
            targets = {
                store: positions[at] for store, at in task.partitions.items() if at in positions
            }
            if len(targets) == len(task.partitions):
                found[task_id] = targets
        return found

    def catch_up(
        self, task_id: TaskId, targets: dict[str, int], on_step: StepListener = ignore_step
    ) -> CaughtUp | None:
        """Bring the stores of a task to these positions. None if there was nothing to do."""
        task = self.tasks[task_id]
        before = task.replica.positions()
        if all(before.get(store, -1) >= target for store, target in targets.items()):
            return None
        changelogs = _CountingChangelogs(LogChangelogs(self._log, task.partitions))
        try:
            task.replica.catch_up(ReplicaTarget(targets), changelogs, on_step)
        except ReplicaAhead:
            # Workers on this host have advanced the replica in the meantime.
            return None
        return CaughtUp(before, targets, changelogs.records)

    def _open(self, incarnation: str) -> None:
        self.graph = graph = build_graph_for_log(self._log, self._topology, self._config)
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
                self.tasks[task_id] = FollowedTask(
                    replica, {store.name: partitions[store.name] for store in stores}, identity
                )
        self.incarnation = incarnation

    def close(self) -> None:
        """Close the files."""
        for task in self.tasks.values():
            task.replica.close()
        self.tasks = {}
        self.incarnation = ""


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
