"""The stores of the tasks of a worker: replicas on this host, at the positions of the plan."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from penstock.engine.failpoints import failpoint
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.plan.batch_plan import BatchPlan, TaskPlan
from penstock.engine.worker.changelog_cache import ChangelogCache
from penstock.engine.worker.changelogs import LogChangelogs, fetch_together
from penstock.engine.worker.outcome import OnRestoring, RestoredStore, RestoringStore
from penstock.errors import StreamsException
from penstock.log.base import Log
from penstock.record import TaskId
from penstock.stores.bytes.store import BytesStore, open_in_memory
from penstock.stores.replica.generations import Generations
from penstock.stores.replica.live_replica import LiveReplica
from penstock.stores.replica.protocol import ReplicaTarget, ignore_progress
from penstock.stores.replica.snapshot import Snapshot
from penstock.stores.replica.task_replica import TaskReplica
from penstock.task.blueprint import Blueprint
from penstock.task.replica_stores import replica_stores

#: How many bytes of replica files a worker keeps mapped between batches.
_MAX_MAPPED_BYTES = 64 << 20
_STATM = Path("/proc/self/statm")


class CatchUp(NamedTuple):
    """How the stores of a task reached the positions of the plan."""

    #: Stores that were restored completely.
    restored: tuple[RestoredStore, ...] = ()
    #: The seconds it took, if it was more than the changes of the last batch on this host.
    extra_seconds: float = 0.0
    #: How many stores read changes from the log, and from the changelog cache of the host.
    from_log: int = 0
    from_host: int = 0


class TaskSnapshot:
    """The stores of one task as of the last commit, open while the task runs."""

    def __init__(
        self, snapshot: Snapshot | None, catch_up: CatchUp,
        changelog_cache: ChangelogCache | None = None,
    ) -> None:
        """`snapshot` is None for a task without stores."""
        self._snapshot = snapshot
        self.catch_up = catch_up
        #: None if the log is local: reading back from it is cheap.
        self.changelog_cache = changelog_cache

    def open_bytes(self, name: str) -> BytesStore:
        """Open the committed rows of a store."""
        return open_in_memory(name) if self._snapshot is None else self._snapshot.open_bytes(name)

    @property
    def clocks(self) -> Mapping[str, Mapping[str, int]]:
        """Store -> its clocks after the restore."""
        return {} if self._snapshot is None else self._snapshot.state.clocks

    def restore_custom_stores(self, stores: Mapping[str, Any]) -> None:
        """Restore the stores that manage their own state. Called before the stores are used."""
        if self._snapshot is not None:
            self._snapshot.restore_custom_stores(stores)

    def stage_writes(self, stores: Mapping[str, Any], batch: int, attempt: int) -> None:
        """Stage the writes of stores without a changelog until the batch is committed."""
        if self._snapshot is not None:
            self._snapshot.stage_writes((batch, attempt), stores)


class ReplicaPool:
    """The replicas of all tasks that ran in this process. They stay open between batches."""

    def __init__(self, log: Log, bundle: Bundle, *, cache_changelogs: bool = False) -> None:
        """`cache_changelogs`: keep the changes of each batch on this host; see `ChangelogCache`."""
        self._log = log
        self._cache_changelogs = cache_changelogs
        self._graph = bundle.graph
        self._stage_of = bundle.stage_of
        self._directory = bundle.directory
        #: Task -> the identity of its rows, and its replica.
        self._replicas: dict[TaskId, tuple[str, TaskReplica]] = {}
        #: Task -> its plan and its changelogs, with what `fetch` has fetched for that plan.
        self._fetched: dict[TaskId, tuple[TaskPlan, LogChangelogs]] = {}

    def fetch(self, tasks: Iterable[tuple[TaskPlan, Blueprint]], batch: BatchPlan) -> bool:
        """Fetch the changelogs of tasks together, before they run one after the other.

        Only for a log on other hosts, where each request takes time. Returns whether changes were
        missing on this host.
        """
        self._fetched = {}
        if not self._cache_changelogs:
            return False
        missing = []
        for plan, blueprint in tasks:
            if not blueprint.stores or plan.task_id in batch.discard_replicas:
                continue
            try:
                replica = self._replica(plan.task_id, blueprint, batch.incarnation)
                positions = replica.positions()
            except StreamsException:
                # The run of the task raises it again, and handles it.
                continue
            changelogs = self._changelogs(plan, self._cache(replica, plan, batch))
            self._fetched[plan.task_id] = (plan, changelogs)
            missing.append((changelogs, changelogs.missing(positions, plan.positions)))
        fetch_together(self._log, missing)
        return any(changes for _, changes in missing)

    @contextmanager
    def open(
        self, plan: TaskPlan, blueprint: Blueprint, batch: BatchPlan
    ) -> Iterator[TaskSnapshot]:
        """Open the stores of a task, caught up to the positions of its plan."""
        if not blueprint.stores:
            yield TaskSnapshot(None, CatchUp())
            return
        replica, target, cache, catch_up = self._catch_up(plan, blueprint, batch)
        with replica.snapshot(target) as snapshot:
            yield TaskSnapshot(snapshot, catch_up, cache)

    def open_live(
        self, plan: TaskPlan, blueprint: Blueprint, batch: BatchPlan, on_restoring: OnRestoring
    ) -> tuple[LiveReplica | None, tuple[RestoredStore, ...]]:
        """Open the stores of a task that runs continuously; None for a task without stores.

        Also returns the stores that were restored completely.
        """
        if not blueprint.stores:
            return None, ()
        replica, target, _, catch_up = self._catch_up(plan, blueprint, batch, on_restoring)
        return replica.open_live(target), catch_up.restored

    def _catch_up(
        self, plan: TaskPlan, blueprint: Blueprint, batch: BatchPlan,
        on_restoring: OnRestoring | None = None,
    ) -> tuple[TaskReplica, ReplicaTarget, ChangelogCache | None, CatchUp]:
        started = time.perf_counter()
        task_id = plan.task_id
        replica = self._replica(task_id, blueprint, batch.incarnation)
        topics = self._graph.restore_partitions(task_id)
        target = ReplicaTarget(
            plan.positions, batch.epoch, plan.state.store_clocks,
            (plan.last_batch, plan.last_attempt),
            batch.number if task_id in batch.discard_replicas else None,
        )
        cache = self._cache(replica, plan, batch)
        fetched = self._fetched.pop(task_id, None)
        if fetched is not None and fetched[0] is plan:
            changelogs = fetched[1]
        else:
            changelogs = self._changelogs(plan, cache)
        restores = replica.catch_up(
            target, changelogs, partial(failpoint, stage=self._stage_of(task_id)),
            ignore_progress if on_restoring is None else lambda stores: on_restoring(tuple(
                RestoringStore(store, *topics[store], start, position, end)
                for store, start, position, end in stores
            )),
        )
        restored = tuple(
            RestoredStore(store, *topics[store], start, end, records, task_id)
            for store, start, end, records in restores
        )
        is_usual = not restored and (cache is None or not changelogs.from_log)
        catch_up = CatchUp(
            restored, 0.0 if is_usual else time.perf_counter() - started,
            len(changelogs.from_log), len(changelogs.from_host),
        )
        return replica, target, cache, catch_up

    def _cache(
        self, replica: TaskReplica, plan: TaskPlan, batch: BatchPlan
    ) -> ChangelogCache | None:
        if not self._cache_changelogs:
            return None
        identity = replica_identity(self._log, self._graph, plan.task_id, batch.incarnation)
        return ChangelogCache(replica.directory, identity)

    def _changelogs(self, plan: TaskPlan, cache: ChangelogCache | None) -> LogChangelogs:
        last_run = plan.last_batch, plan.last_attempt
        load_cached = dict if cache is None else partial(cache.load, last_run)
        return LogChangelogs(
            self._log, self._graph.restore_partitions(plan.task_id), load_cached
        )

    def _replica(self, task_id: TaskId, blueprint: Blueprint, incarnation: str) -> TaskReplica:
        identity = replica_identity(self._log, self._graph, task_id, incarnation)
        opened = self._replicas.get(task_id)
        if opened is not None:
            if opened[0] == identity:
                return opened[1]
            opened[1].close()
        replica = TaskReplica.open(
            self._directory / str(task_id), identity, replica_stores(blueprint, task_id)
        )
        self._replicas[task_id] = (identity, replica)
        return replica

    def close(self) -> None:
        """Close all files."""
        for _, replica in self._replicas.values():
            replica.close()
        self._replicas.clear()


def find_replicas(directory: Path, graph: ExecutionGraph) -> dict[TaskId, int]:
    """Return the tasks with a replica on this host, and when each was last written, in
    milliseconds since the epoch. `directory`: that of all replicas of the application."""
    found = {
        task_id: Generations(directory / str(task_id)).changed_ms() for task_id in graph.tasks
    }
    return {task_id: changed for task_id, changed in found.items() if changed is not None}


def replica_identity(
    log: Log, graph: ExecutionGraph, task_id: TaskId, incarnation: str
) -> str:
    """Identify the rows of a task by log, incarnation of the application, and store layout."""
    return f"{log.id}/{incarnation}/{graph.subtopologies[task_id.subtopology].layout}"


class MappedMemory:
    """Tells when the replicas that a process has mapped should be closed.

    Every page of a mapped file that was ever touched counts as memory of the process until the
    file is closed, although the kernel would cache it anyway. Without a limit a worker seems to
    grow with its stores, and is killed where its memory is limited. To map a page again that the
    kernel still caches takes about a microsecond.
    """

    def __init__(self, max_bytes: int = _MAX_MAPPED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._initial_bytes = _mapped_bytes()

    def exceeds_limit(self) -> bool:
        """Whether too much is mapped. False on systems that do not report it."""
        return _mapped_bytes() - self._initial_bytes > self._max_bytes


def _mapped_bytes() -> int:
    """Return the resident bytes of mapped files, code included; 0 if the system has no /proc."""
    try:
        _, _, shared, *_ = _STATM.read_text().split()
    except OSError:
        return 0
    return int(shared) * os.sysconf("SC_PAGESIZE")
