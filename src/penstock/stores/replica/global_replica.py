"""The rows of all global stores on this host, at known offsets of their topics.

One replica holds all global stores; the processes of the host share it. The invariants of
`task_replica` hold, with one difference: processors write to the stores, and several partitions may
feed one store, so all stores are emptied together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

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
from penstock.stores.replica.moving_rows import MovingRows
from penstock.stores.replica.protocol import (
    Changelogs,
    StepListener,
    StoreRestore,
    ignore_step,
)
from penstock.stores.replica.state import ReplicaState, require_state, write_state

CHUNK_RECORDS = 50_000
CHUNK_BYTES = 32 << 20
#: The directory of the global stores, among those of the tasks.
GLOBAL_DIRECTORY = "global"


def position_name(topic: str, partition: int) -> str:
    """The name of a partition in the state of the replica."""
    return f"{topic}-{partition}"


class GlobalStores(Protocol):
    """Global stores and the processors that feed them (`task.global_state.GlobalState`)."""

    stores: dict[str, Any]

    @property
    def dropped(self) -> int:
        """The number of records that were dropped so far."""
        ...

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


class GlobalUpdates(NamedTuple):
    """Complete restores, and the number of dropped records, by one process.

    The name in a `StoreRestore` is that of a partition.
    """

    restores: tuple[StoreRestore, ...] = ()
    dropped: int = 0


@dataclass(slots=True)
class _GlobalCatchUp:
    """One call of `GlobalReplica.stores_at`."""

    offsets: Mapping[str, int]
    topics: Changelogs
    epoch: int | None
    on_step: StepListener
    #: Partition -> its complete restore, if it needed one.
    restores: dict[str, StoreRestore] = field(default_factory=dict)
    dropped: int = 0

    def count(self, chunk: ChangelogChunk, dropped: int) -> None:
        """Add an applied chunk, of which so many records were dropped."""
        self.dropped += dropped
        name, records = chunk.name, chunk.count - dropped
        before = self.restores.get(name)
        if chunk.restore_from is not None:
            self.restores[name] = StoreRestore(name, chunk.start, chunk.end, records)
        elif before is not None:
            self.restores[name] = before._replace(
                end=chunk.end, records=before.records + records
            )


class GlobalReplica:
    """The global stores of an application, as one process uses them.

    `stores_at` is called before every batch. The stores that it returns may be read until `release`
    or the next call. `position_name` returns the names of partitions.
    """

    def __init__(
        self, directory: Path, log_id: str, make: Callable[[OpenBytesStore], GlobalStores],
        *, make_readers: Callable[[OpenBytesStore], GlobalStores] | None = None,
        map_size: int = MAP_SIZE,
    ) -> None:
        """`make` creates the stores that are updated, and `make_readers` those that are read. The
        latter must not cache rows, because the rows move below them. The default is `make`."""
        self._make = make
        self._snapshot_rows: dict[str, MovingRows] = {}
        #: The stores to read, over the current snapshot. They stay valid when it is replaced.
        self._global_stores = (make_readers or make)(self._open_snapshot_rows)
        self._positions: dict[str, int] = {}
        self._databases = [rows_database(name) for name in self._snapshot_rows]
        self._environment = ReplicaEnvironment(directory, log_id, self._databases, map_size)
        self._snapshot = ExitStack()
        self._updates = GlobalUpdates()

    def stores_at(
        self, offsets: Mapping[str, int], topics: Changelogs, epoch: int | None = None,
        on_step: StepListener = ignore_step,
    ) -> dict[str, Any]:
        """The stores at these offsets, for reading only. `epoch`: see `ReplicaTarget`."""
        self.release()
        work = _GlobalCatchUp(offsets, topics, epoch, on_step)
        while not self._environment.run(partial(self._catch_up_and_open, work)):
            pass
        restores, dropped = self._updates
        self._updates = GlobalUpdates(
            (*restores, *work.restores.values()), dropped + work.dropped
        )
        return self._global_stores.stores

    def take_updates(self) -> GlobalUpdates:
        """Return what `stores_at` has read since the last call of this method."""
        updates, self._updates = self._updates, GlobalUpdates()
        return updates

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
        return self._snapshot_rows.setdefault(name, MovingRows())

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

        def apply(transaction: LmdbTransaction) -> list[int] | None:
            return self._apply(transaction, chunks, work)

        dropped = self._environment.write(generation, environment, apply)
        if dropped is not None:
            for chunk, number in zip(chunks, dropped, strict=True):
                work.count(chunk, number)
        return False

    def _apply(
        self, transaction: LmdbTransaction, chunks: list[ChangelogChunk], work: _GlobalCatchUp
    ) -> list[int] | None:
        """Write the chunks. Returns how many records of each were dropped.

        Returns None if nothing was fed: another process has moved the positions, or all partitions
        are read again.
        """
        state = require_state(transaction)
        self._refuse_ahead(state, work)
        if any(state.positions.get(chunk.name) != chunk.position for chunk in chunks):
            return None
        work.on_step("applying")
        if work.epoch is not None:
            state.epoch = work.epoch
        if any(chunk.position is not None and chunk.restore_from is not None for chunk in chunks):
            # Records of a partition were missed, so all partitions are read again.
            for database in self._databases:
                transaction.open_writable(database).clear()
            state.positions, state.tombstones_removed_to, state.clocks = {}, {}, {}
            dropped = None
        else:
            dropped = self._feed(transaction, state, chunks)
        write_state(transaction, state)
        return dropped

    def _feed(
        self, transaction: LmdbTransaction, state: ReplicaState, chunks: list[ChangelogChunk]
    ) -> list[int]:
        dropped: list[int] = []
        stores = self._make(lambda name: transaction.open_writable(rows_database(name)))
        stores.set_clocks(state.clocks)
        for chunk in chunks:
            before = stores.dropped
            for rows in chunk.records:
                stores.update_all(rows)
            dropped.append(stores.dropped - before)
            state.positions[chunk.name] = chunk.end
            state.read_at[chunk.name] = chunk.read_at
            if chunk.restore_from is not None:
                state.tombstones_removed_to[chunk.name] = chunk.restore_from
        stores.commit()
        state.clocks = stores.clocks()
        stores.close()
        return dropped

    def _refuse_ahead(self, state: ReplicaState, work: _GlobalCatchUp) -> None:
        directory = self._environment.directory
        if work.epoch is not None and state.epoch > work.epoch:
            raise replica_ahead(f"written under epoch {state.epoch}, not {work.epoch}", directory)
        for name, offset in work.offsets.items():
            if state.positions.get(name, 0) > offset:
                raise replica_ahead(
                    f"at offset {state.positions[name]} of '{name}', beyond {offset}", directory
                )
