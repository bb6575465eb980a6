"""The rows of a task's stores on this host, at known positions of their changelogs.

A replica is a cache of the changelogs: it can be deleted at any time. All processes of the host
share it. Invariants:

- The rows of a store are exactly the rows that its changelog defines up to `positions[store]`.
  Rows, positions, clocks and epoch change in one transaction.
- Positions only grow, and a writer continues only from the position that it has read. If two
  processes catch up at the same time, one writes; the other finds a new position and continues
  from there.
- A batch reads a snapshot at the positions of its plan. The writes of a batch reach the replica
  only through the changelog, or through this host's copy of it, after the commit.
- A replica that cannot be trusted (another log, another format, a corrupt file, commits lost in a
  crash of the host, an order of a plan) is not repaired: a new generation of files replaces it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from penstock.errors import TaskCorruptedException
from penstock.stores.bytes.lmdb.environment import MAP_SIZE, LmdbEnvironment, LmdbTransaction
from penstock.stores.replica.changelog_reader import (
    ChangelogChunk,
    ChunkLimit,
    ReadPosition,
    read_chunk,
)
from penstock.stores.replica.databases import (
    bytes_store_names,
    changelog_database,
    changelog_rows,
    rows_database,
)
from penstock.stores.replica.environment import ReplicaEnvironment, replica_ahead
from penstock.stores.replica.files import RunId
from penstock.stores.replica.live_replica import LiveReplica
from penstock.stores.replica.protocol import (
    Changelogs,
    ProgressListener,
    ReplicaStore,
    ReplicaTarget,
    StepListener,
    StoreProgress,
    StoreRestore,
    ignore_progress,
    ignore_step,
    layouts_of,
)
from penstock.stores.replica.snapshot import Snapshot
from penstock.stores.replica.staged import delete_staged, read_staged
from penstock.stores.replica.state import ReplicaState, require_state, write_state

#: How much is read before it is written. Limits the memory that catching up needs.
CHUNK_RECORDS = 100_000
CHUNK_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class _TaskCatchUp:
    """One call of `TaskReplica.catch_up`."""

    target: ReplicaTarget
    changelogs: Changelogs
    on_step: StepListener
    on_progress: ProgressListener
    #: Store -> its complete restore, if it needed one.
    restores: dict[str, StoreRestore] = field(default_factory=dict)
    #: Store -> the start of its changelog, for those whose restore has not begun.
    starts: dict[str, int] = field(default_factory=dict)

    def count(self, chunk: ChangelogChunk) -> None:
        """Add an applied chunk to the restore of its store."""
        name = chunk.name
        if chunk.restore_from is not None:
            self.restores[name] = StoreRestore(name, chunk.start, chunk.end, chunk.count)
        elif name in self.restores:
            before = self.restores[name]
            self.restores[name] = before._replace(
                end=chunk.end, records=before.records + chunk.count
            )


    def report(self, state: ReplicaState) -> None:
        """Report the progress, unless no store is restored or all are complete.

        `state`: as of before the last chunks.
        """
        found = []
        for name, end in self.target.offsets.items():
            if name in self.restores:
                restore = self.restores[name]
                found.append(StoreProgress(name, restore.start, restore.end, end))
            elif name not in state.positions:
                if name not in self.starts:
                    self.starts[name] = min(self.changelogs.start(name).offset, end)
                found.append(StoreProgress(name, self.starts[name], self.starts[name], end))
        if self.restores and any(each.position < each.end for each in found):
            self.on_progress(found)


class TaskReplica:
    """The replica of one task, as one process uses it. `open` creates it."""

    def __init__(
        self, directory: Path, log_id: str, stores: tuple[ReplicaStore, ...],
        map_size: int = MAP_SIZE,
    ) -> None:
        self.directory = directory
        self._stores = {store.name: store for store in stores}
        self._bytes_stores = {store.name: bytes_store_names(store) for store in stores}
        databases = [name for store in stores for name in self._databases_of(store)]
        self._environment = ReplicaEnvironment(directory, log_id, databases, map_size)

    @classmethod
    def open(
        cls, directory: Path, log_id: str, stores: tuple[ReplicaStore, ...],
        *, map_size: int = MAP_SIZE,
    ) -> TaskReplica:
        """Open the replica in a directory. Creates the directory if necessary."""
        replica = cls(directory, log_id, stores, map_size)
        replica._environment.state()
        return replica

    # ---- catching up -------------------------------------------------------------------------

    def positions(self) -> dict[str, int]:
        """The changelog offset of each store. A store that was never restored is missing."""
        return dict(self._environment.state().positions)

    def catch_up(
        self, target: ReplicaTarget, changelogs: Changelogs, on_step: StepListener = ignore_step,
        on_progress: ProgressListener = ignore_progress,
    ) -> list[StoreRestore]:
        """Bring all stores to the target. Returns the stores that were restored completely."""
        if target.rebuild_batch is not None:
            self._environment.rebuild(target.rebuild_batch)
        work = _TaskCatchUp(self._complete(target), changelogs, on_step, on_progress)
        while not self._environment.run(partial(self._step, work)):
            pass
        return list(work.restores.values())

    def _step(self, work: _TaskCatchUp, generation: str, environment: LmdbEnvironment) -> bool:
        """Read and apply one chunk of each store; True when all stores are at the target."""
        target = work.target
        with environment.reading() as transaction:
            state = require_state(transaction)
        _refuse_ahead(state, target, self.directory)
        chunks = self._read_chunks(state, work)
        if not chunks and not self._lacks_staged(state, target):
            return True

        def apply(transaction: LmdbTransaction) -> bool:
            return self._apply(transaction, chunks, work)

        if self._environment.write(generation, environment, apply):
            for chunk in chunks:
                work.count(chunk)
            if work.on_progress is not ignore_progress:
                work.report(state)
            if self._lacks_staged(state, target):
                delete_staged(self.directory, target.last_run)
        return False

    def _read_chunks(self, state: ReplicaState, work: _TaskCatchUp) -> list[ChangelogChunk]:
        chunks: list[ChangelogChunk] = []
        limit = ChunkLimit(CHUNK_RECORDS, CHUNK_BYTES)
        for name, offset in work.target.offsets.items():
            position = state.positions.get(name)
            if position == offset or limit.is_reached:
                continue
            if position is None or name in work.restores:
                work.on_step("restoring")
            chunk = read_chunk(name, work.changelogs, ReadPosition.of(state, name), offset, limit)
            chunks.append(chunk)
            limit = limit.after(chunk)
        return chunks

    def _apply(
        self, transaction: LmdbTransaction, chunks: list[ChangelogChunk], work: _TaskCatchUp
    ) -> bool:
        """Write the chunks; False if another process has moved the positions."""
        target = work.target
        state = require_state(transaction)
        _refuse_ahead(state, target, self.directory)
        if any(state.positions.get(chunk.name) != chunk.position for chunk in chunks):
            return False
        work.on_step("applying")
        for chunk in chunks:
            self._apply_chunk(transaction, state, chunk, target)
        if self._lacks_staged(state, target):
            self._apply_staged(transaction, state, target.last_run)
        if target.epoch is not None:
            state.epoch = target.epoch
        state.layouts |= layouts_of(self._stores)
        write_state(transaction, state)
        return True

    def _apply_chunk(
        self, transaction: LmdbTransaction, state: ReplicaState, chunk: ChangelogChunk,
        target: ReplicaTarget,
    ) -> None:
        name, store = chunk.name, self._stores[chunk.name]
        if chunk.restore_from is not None:
            for database in self._databases_of(store):
                transaction.open_writable(database).clear()
            state.tombstones_removed_to[name] = chunk.restore_from
            state.clocks.pop(name, None)
        if store.build is None:
            rows = transaction.open_writable(changelog_database(name))
            for records in chunk.records:
                rows.write(changelog_rows(records))
        else:
            built = store.build(lambda each: transaction.open_writable(rows_database(each)))
            built.resume_restore(state.clocks.get(name, {}), target.clocks.get(name))
            for records in chunk.records:
                built.restore_all(records)
            built.advance()
            state.clocks[name] = built.restored_clocks()
            built.close()
        state.positions[name] = chunk.end
        state.read_at[name] = chunk.read_at

    # ---- stores without a changelog ----------------------------------------------------------

    def _lacks_staged(self, state: ReplicaState, target: ReplicaTarget) -> bool:
        unlogged = any(not store.logged for store in self._stores.values())
        return unlogged and tuple(state.staged_run) != target.last_run

    def _apply_staged(
        self, transaction: LmdbTransaction, state: ReplicaState, last_run: RunId
    ) -> None:
        writes = read_staged(self.directory, last_run)
        if writes is not None and tuple(writes.parent) != tuple(state.staged_run):
            writes = None
        for store in self._stores.values():
            for database in () if store.logged else self._databases_of(store):
                rows = transaction.open_writable(database)
                staged = None if writes is None else writes.databases.get(database)
                if staged is None:
                    rows.clear()
                else:
                    rows.drop_below(staged.floor)
                    rows.write(staged.changes)
        state.staged_run = last_run

    # ---- reading -----------------------------------------------------------------------------

    def snapshot(self, target: ReplicaTarget | None = None) -> Snapshot:
        """Open a snapshot of the rows. With a target, the rows must be exactly at the target.

        With a target, the rows of the last `catch_up` are used even if their files were deleted.
        """
        if target is None:
            return self._environment.run(lambda name, environment: self._snapshot(environment))
        snapshot = self._environment.run_on_last(self._snapshot)
        try:
            self._check(snapshot, self._complete(target))
        except BaseException:
            snapshot.close()
            raise
        return snapshot

    def _snapshot(self, environment: LmdbEnvironment) -> Snapshot:
        stores = [(store, self._bytes_stores[name]) for name, store in self._stores.items()]
        stack = ExitStack()
        transaction = stack.enter_context(environment.reading())
        try:
            state = require_state(transaction)
        except BaseException:
            stack.close()
            raise
        return Snapshot(self.directory, stores, transaction, state, stack)

    def _check(self, snapshot: Snapshot, target: ReplicaTarget) -> None:
        _refuse_ahead(snapshot.state, target, self.directory)
        lagging = [
            name for name, offset in target.offsets.items()
            if snapshot.state.positions.get(name) != offset
        ]
        if lagging or self._lacks_staged(snapshot.state, target):
            # Another process has replaced the files since `catch_up`.
            raise TaskCorruptedException(
                f"The replica in '{self.directory}' is not at the positions of the plan. "
                f"Stores: {', '.join(lagging)}. Catch up again, then run the task."
            )

    def open_live(self, target: ReplicaTarget) -> LiveReplica:
        """Return the rows for a task that runs continuously. They must be at the target."""
        with self.snapshot(target):
            return LiveReplica(self._environment, self._stores)

    # ---- closing -----------------------------------------------------------------------------

    def sync(self) -> None:
        """Sync the rows to disk, so that they are valid after a reboot of the host."""
        self._environment.sync()

    def close(self) -> None:
        """Close the files once this process has no open snapshot."""
        self._environment.close()

    def _complete(self, target: ReplicaTarget) -> ReplicaTarget:
        """Add offset 0 for every logged store that the target does not name."""
        return replace(target, offsets={
            name: target.offsets.get(name, 0)
            for name, store in self._stores.items() if store.logged
        })

    def _databases_of(self, store: ReplicaStore) -> list[str]:
        if store.build is None:
            return [changelog_database(store.name)]
        return [rows_database(name) for name in self._bytes_stores[store.name]]


def _refuse_ahead(state: ReplicaState, target: ReplicaTarget, directory: Path) -> None:
    if target.epoch is not None and state.epoch > target.epoch:
        raise replica_ahead(f"written under epoch {state.epoch}, not {target.epoch}", directory)
    for name, offset in target.offsets.items():
        position = state.positions.get(name)
        if position is not None and position > offset:
            raise replica_ahead(
                f"at offset {position} of store '{name}', beyond {offset}", directory
            )
