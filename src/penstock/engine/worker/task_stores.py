"""The rows that a task starts a batch with: its replica on this host, where its plan wants it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from penstock.engine.failpoints import failpoint
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.plan.batch_plan import BatchPlan, TaskPlan
from penstock.engine.worker.changelog_cache import ChangelogCache
from penstock.engine.worker.changelogs import LogChangelogs
from penstock.engine.worker.outcome import Restored
from penstock.log.base import Log
from penstock.record import TaskId
from penstock.stores.bytes.store import BytesStore, open_in_memory
from penstock.stores.replica.protocol import ReplicaTarget
from penstock.stores.replica.snapshot import Snapshot
from penstock.stores.replica.task_replica import TaskReplica
from penstock.task.blueprint import Blueprint
from penstock.task.replica_stores import replica_stores


class TaskStores:
    """The rows of one task while it runs; a task without stores has none."""

    def __init__(
        self, snapshot: Snapshot | None, restored: tuple[Restored, ...],
        own_changes: ChangelogCache | None = None,
    ) -> None:
        #: Stores that had to be filled from nothing.
        self.restored = restored
        #: Where changes are kept for the next run; None if that is not worth it.
        self.own_changes = own_changes
        self._snapshot = snapshot

    def open_bytes(self, name: str) -> BytesStore:
        """The rows of that name."""
        return open_in_memory(name) if self._snapshot is None else self._snapshot.open_bytes(name)

    def fill(self, stores: Mapping[str, Any]) -> None:
        """Give stores that keep no rows of their own what they held; called before their use."""
        if self._snapshot is not None:
            self._snapshot.restore_custom_stores(stores)

    def put_aside(self, stores: Mapping[str, Any], batch: int, attempt: int) -> None:
        """Keep the writes of stores that are not logged until it is known whether they count."""
        if self._snapshot is not None:
            self._snapshot.stage_writes((batch, attempt), stores)


class Replicas:
    """The replicas of all tasks that were met in this process; they stay open between batches."""

    def __init__(self, log: Log, bundle: Bundle, *, keep_changes: bool = False) -> None:
        """`keep_changes`: to read changelogs is dear."""
        self._log = log
        self._keep_changes = keep_changes
        self._graph = bundle.graph
        self._stage_of = bundle.stage_of
        self._directory = bundle.directory
        #: Task -> what its rows are known by, and its replica.
        self._open: dict[TaskId, tuple[str, TaskReplica]] = {}

    @contextmanager
    def open(
        self, plan: TaskPlan, blueprint: Blueprint, batch: BatchPlan
    ) -> Iterator[TaskStores]:
        """The rows of a task, caught up to where its plan wants them."""
        if not blueprint.stores:
            yield TaskStores(None, ())
            return
        task_id = plan.task_id
        replica = self._replica(task_id, blueprint, batch.incarnation)
        topics = self._graph.restore_partitions(task_id)
        wanted = ReplicaTarget(
            plan.positions, batch.epoch, plan.state.store_clocks,
            (plan.last_batch, plan.last_attempt),
            batch.number if task_id in batch.discard_replicas else None,
        )
        own: ChangelogCache | None = None
        if self._keep_changes:
            identity = rows_identity(self._log, self._graph, task_id, batch.incarnation)
            own = ChangelogCache(replica.directory, identity)
        filled = replica.catch_up(
            wanted,
            LogChangelogs(
                self._log, topics, dict if own is None else partial(own.of, wanted.last_run)
            ),
            partial(failpoint, stage=self._stage_of(task_id)),
        )
        restored = tuple(
            Restored(store, *topics[store], start, end, records)
            for store, start, end, records in filled
        )
        with replica.snapshot(wanted) as snapshot:
            yield TaskStores(snapshot, restored, own)

    def _replica(self, task_id: TaskId, blueprint: Blueprint, life: str) -> TaskReplica:
        identity = rows_identity(self._log, self._graph, task_id, life)
        opened = self._open.get(task_id)
        if opened is not None:
            if opened[0] == identity:
                return opened[1]
            opened[1].close()
        replica = TaskReplica.open(
            self._directory / str(task_id), identity, replica_stores(blueprint, task_id)
        )
        self._open[task_id] = (identity, replica)
        return replica

    def close(self) -> None:
        """Let go of all files."""
        for _, replica in self._open.values():
            replica.close()
        self._open.clear()


def rows_identity(log: Log, graph: ExecutionGraph, task_id: TaskId, life: str) -> str:
    """What the rows of a task are known by: of which log, which life of the application, which
    stores."""
    return f"{log.id}/{life}/{graph.subtopologies[task_id.subtopology].layout}"
