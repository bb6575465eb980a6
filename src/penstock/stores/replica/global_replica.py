"""The rows of all global stores on this host, at known offsets of their topics.

One replica holds all global stores; the processes of the host share it. The invariants of
`task_replica` hold, with one difference: processors write to the stores, and several partitions may
feed one store, so all stores are emptied together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from penstock.record import PartitionColumns
from penstock.stores.bytes.lmdb.environment import MAP_SIZE, LmdbEnvironment, LmdbTransaction
from penstock.stores.bytes.store import BytesStore, InMemoryBytesStore, OpenBytesStore
from penstock.stores.replica.changelog_reader import (
    ChangelogChunk,
    ChunkLimit,
    ReadPosition,
    read_chunk,
)
from penstock.stores.replica.databases import rows_database
from penstock.stores.replica.environment import ReplicaEnvironment, replica_ahead
from penstock.stores.replica.protocol import Changelogs, StepListener, ignore_step
from penstock.stores.replica.state import ReplicaState, require_state, write_state

CHUNK_RECORDS = 50_000
CHUNK_BYTES = 32 << 20


class GlobalStores(Protocol):
    """Global stores and the processors that feed them (`task.global_state.GlobalState`)."""

    stores: dict[str, Any]

    def update_all(self, rows: PartitionColumns) -> None:
        """Process many records of one partition."""
        ...

    def commit(self) -> None:
        """Write all changes to the stores."""
        ...

    def clocks(self) -> dict[str, dict[str, int]]:
        """State of the stores that the rows do not hold."""
        ...

    def set_clocks(self, clocks: Mapping[str, Mapping[str, int]]) -> None:
        """Set the state that `clocks` returned."""
        ...

    def close(self) -> None:
        """Close processors and stores."""
        ...


class _SnapshotRows:
    """A `BytesStore` that delegates to the current snapshot."""

    def __init__(self) -> None:
        self.current: BytesStore = InMemoryBytesStore()

    def get(self, key: bytes) -> bytes | None:
        return self.current.get(key)

    def scan(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return self.current.scan(start, end, reverse)

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        self.current.write(changes)

    def drop_below(self, key: bytes) -> None:
        self.current.drop_below(key)

    def count(self) -> int:
        return self.current.count()

    def close(self) -> None:
        """Nothing to close: the snapshot belongs to the replica."""


@dataclass(frozen=True, slots=True)
class _GlobalCatchUp:
    """One call of `GlobalReplica.stores_at`."""

    offsets: Mapping[str, int]
    topics: Changelogs
    epoch: int | None
    on_step: StepListener


class GlobalReplica:
    """The global stores of an application, as one process uses them.

    `stores_at` is called before every batch. The stores that it returns may be read until `release`
    or the next call. Partitions are named `<topic>-<partition>`.
    """

    def __init__(
        self, directory: Path, log_id: str, make: Callable[[OpenBytesStore], GlobalStores],
        *, map_size: int = MAP_SIZE,
    ) -> None:
        self._make = make
        self._snapshot_rows: dict[str, _SnapshotRows] = {}
        #: The stores to read, over the current snapshot. Created again when positions change.
        self._global_stores = make(self._open_snapshot_rows)
        self._positions: dict[str, int] = {}
        self._databases = [rows_database(name) for name in self._snapshot_rows]
        self._environment = ReplicaEnvironment(directory, log_id, self._databases, map_size)
        self._snapshot = ExitStack()

    def stores_at(
        self, offsets: Mapping[str, int], topics: Changelogs, epoch: int | None = None,
        on_step: StepListener = ignore_step,
    ) -> dict[str, Any]:
        """The stores at these offsets, for reading only. `epoch`: see `ReplicaTarget`."""
        self.release()
        work = _GlobalCatchUp(offsets, topics, epoch, on_step)
        while not self._environment.run(partial(self._catch_up_and_open, work)):
            pass
        return self._global_stores.stores

    def release(self) -> None:
        """Close the snapshot."""
        self._snapshot.close()
        for rows in self._snapshot_rows.values():
            rows.current = InMemoryBytesStore()

    def close_files(self) -> None:
        """Close the snapshot and the files. The next `stores_at` opens them again."""
        self.release()
        self._environment.close()

    def close(self) -> None:
        """Close the files and the stores."""
        self.close_files()
        self._global_stores.close()

    def _open_snapshot_rows(self, name: str) -> BytesStore:
        return self._snapshot_rows.setdefault(name, _SnapshotRows())

    def _catch_up_and_open(
        self, work: _GlobalCatchUp, generation: str, environment: LmdbEnvironment
    ) -> bool:
        while not self._step(work, generation, environment):
            pass
        return self._open(environment, work.offsets)

    def _open(self, environment: LmdbEnvironment, offsets: Mapping[str, int]) -> bool:
        """Open a snapshot; False if the positions have changed since the last step."""
        with ExitStack() as stack:
            transaction = stack.enter_context(environment.reading())
            state = require_state(transaction)
            if any(state.positions.get(name) != offset for name, offset in offsets.items()):
                return False
            for name, rows in self._snapshot_rows.items():
                rows.current = transaction.open(rows_database(name)) or InMemoryBytesStore()
            if state.positions != self._positions:
                self._global_stores.close()
                self._global_stores = self._make(self._open_snapshot_rows)
                self._global_stores.set_clocks(state.clocks)
                self._positions = state.positions
            self._snapshot = stack.pop_all()
        return True

    def _step(self, work: _GlobalCatchUp, generation: str, environment: LmdbEnvironment) -> bool:
        """Read and apply one chunk of each partition; True when all are at their offsets."""
        with environment.reading() as transaction:
            state = require_state(transaction)
        self._refuse_ahead(state, work)
        chunks: list[ChangelogChunk] = []
        limit = ChunkLimit(CHUNK_RECORDS, CHUNK_BYTES)
        for name, offset in work.offsets.items():
            if state.positions.get(name) != offset and not limit.is_reached:
                chunk = read_chunk(name, work.topics, ReadPosition.of(state, name), offset, limit)
                chunks.append(chunk)
                limit = limit.after(chunk)
        if not chunks:
            return True

        def apply(transaction: LmdbTransaction) -> None:
            self._apply(transaction, chunks, work)

        self._environment.write(generation, environment, apply)
        return False

    def _apply(
        self, transaction: LmdbTransaction, chunks: list[ChangelogChunk], work: _GlobalCatchUp
    ) -> None:
        state = require_state(transaction)
        self._refuse_ahead(state, work)
        if any(state.positions.get(chunk.name) != chunk.position for chunk in chunks):
            return
        work.on_step("applying")
        if work.epoch is not None:
            state.epoch = work.epoch
        if any(chunk.position is not None and chunk.restore_from is not None for chunk in chunks):
            # Records of a partition were missed, so all partitions are read again.
            for database in self._databases:
                transaction.open_writable(database).clear()
            state.positions, state.tombstones_removed_to, state.clocks = {}, {}, {}
        else:
            self._feed(transaction, state, chunks)
        write_state(transaction, state)

    def _feed(
        self, transaction: LmdbTransaction, state: ReplicaState, chunks: list[ChangelogChunk]
    ) -> None:
        stores = self._make(lambda name: transaction.open_writable(rows_database(name)))
        stores.set_clocks(state.clocks)
        for chunk in chunks:
            for rows in chunk.records:
                stores.update_all(rows)
            state.positions[chunk.name] = chunk.end
            state.read_at[chunk.name] = chunk.read_at
            if chunk.restore_from is not None:
                state.tombstones_removed_to[chunk.name] = chunk.restore_from
        stores.commit()
        state.clocks = stores.clocks()
        stores.close()

    def _refuse_ahead(self, state: ReplicaState, work: _GlobalCatchUp) -> None:
        directory = self._environment.directory
        if work.epoch is not None and state.epoch > work.epoch:
            raise replica_ahead(f"written under epoch {state.epoch}, not {work.epoch}", directory)
        for name, offset in work.offsets.items():
            if state.positions.get(name, 0) > offset:
                raise replica_ahead(
                    f"at offset {state.positions[name]} of '{name}', beyond {offset}", directory
                )
