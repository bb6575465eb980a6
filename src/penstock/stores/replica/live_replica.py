"""`LiveReplica`: the replica of a task in the process that runs the task continuously.

The stores of the task stay open. After each commit of the log, `apply` writes their changes to the
replica, together with the new changelog positions, in one transaction: the changelog is not read
back. A process that dies before `apply` leaves a replica that is behind the log, and the next
owner of the task catches up from the changelog.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.clock import wall_clock_ms
from penstock.errors import TaskCorruptedException
from penstock.record import PartitionColumns
from penstock.stores.bytes.lmdb.environment import LmdbEnvironment, LmdbTransaction
from penstock.stores.bytes.store import BytesStore, InMemoryBytesStore
from penstock.stores.replica.databases import (
    changelog_database,
    changelog_rows,
    restore_from_rows,
    rows_database,
)
from penstock.stores.replica.environment import ReplicaEnvironment, replica_ahead
from penstock.stores.replica.files import RunId
from penstock.stores.replica.moving_rows import MovingRows
from penstock.stores.replica.protocol import ReplicaStore, layouts_of
from penstock.stores.replica.state import ReplicaState, require_state, write_state


@dataclass(frozen=True, slots=True)
class CommittedChanges:
    """The changes of a commit, besides the rows."""

    epoch: int
    run: RunId
    #: Store -> its changelog position after the commit, for every logged store.
    positions: Mapping[str, int]
    #: Store that manages its own state -> its changelog records, with their offsets.
    records: Mapping[str, PartitionColumns] = field(default_factory=dict)
    #: (input topic, partition) -> the next offset to read after the commit.
    inputs: Mapping[tuple[str, int], int] = field(default_factory=dict)


class LiveReplica:
    """The rows of one task. Only the process that runs the task uses it.

    Invariants:
    - The rows of the snapshot are those of the last commit, at `positions`.
    - A follower on the same host may apply changelog records of these commits, too. So positions
      in the file may be ahead of `positions`, but never of the commit that is applied. Applying
      changes a second time has no effect.
    """

    def __init__(
        self, environment: ReplicaEnvironment, stores: Mapping[str, ReplicaStore]
    ) -> None:
        self._environment = environment
        self._stores = stores
        self._rows: dict[str, MovingRows] = {}
        self._snapshot = ExitStack()
        #: Store -> the changelog position of the rows.
        self.positions: dict[str, int] = {}
        self._state = environment.run_on_last(self._open)
        self.positions = dict(self._state.positions)

    @property
    def directory(self) -> Path:
        """The directory of the files."""
        return self._environment.directory

    @property
    def state(self) -> ReplicaState:
        """The state of the replica when it was opened."""
        return self._state

    def manages_own_state(self, store: str) -> bool:
        """Whether the replica keeps changelog records for a store, instead of its rows."""
        return self._stores[store].build is None

    def open_bytes(self, name: str) -> BytesStore:
        """The rows of a bytes store; an `OpenBytesStore`."""
        rows = self._rows[name] = MovingRows()
        self._environment.run_on_last(self._open)
        return rows

    def restore_custom_stores(self, stores: Mapping[str, Any]) -> None:
        """Restore the stores that manage their own state. Called once, before they are used."""
        custom = [
            store.name for store in self._stores.values()
            if store.build is None and hasattr(stores[store.name], "restore")
        ]

        def restore(environment: LmdbEnvironment) -> None:
            with environment.reading() as transaction:
                for name in custom:
                    rows = transaction.open(changelog_database(name))
                    if rows is not None:
                        restore_from_rows(stores[name], rows)

        if custom:
            self._environment.run_on_last(restore)

    def apply(self, stores: Mapping[str, Any], committed: CommittedChanges) -> None:
        """Write the changes of a commit to the rows, and open a snapshot of the result.

        Raises `TaskCorruptedException` or `ReplicaDeleted` if the files were replaced or deleted:
        the task must be opened again.
        """
        clocks = {}
        for name, store in stores.items():
            if hasattr(store, "advance"):
                store.advance()
            if name in self._stores and hasattr(store, "restored_clocks"):
                clocks[name] = store.restored_clocks()
        changes = {rows_database(name): rows.take() for name, rows in self._rows.items()}

        def write(transaction: LmdbTransaction) -> None:
            state = require_state(transaction)
            self._check(state, committed)
            for database, (floor, rows) in changes.items():
                if floor or rows:
                    writable = transaction.open_writable(database)
                    if floor:
                        writable.drop_below(floor)
                    writable.write(rows)
            for name, records in committed.records.items():
                writable = transaction.open_writable(changelog_database(name))
                writable.write(changelog_rows(records))
            self._update(state, committed, clocks)
            write_state(transaction, state)

        # An open snapshot of this process would keep the map from growing.
        self._release()
        self._environment.write_last(write)
        self.positions = dict(committed.positions)
        self._environment.run_on_last(self._open)

    def _check(self, state: ReplicaState, committed: CommittedChanges) -> None:
        if state.epoch > committed.epoch:
            raise replica_ahead(
                f"written under epoch {state.epoch}, not {committed.epoch}", self.directory
            )
        for name, end in committed.positions.items():
            position = state.positions.get(name, -1)
            if not self.positions.get(name, 0) <= position <= end:
                raise TaskCorruptedException(
                    f"The replica in '{self.directory}' is at offset {position} of store "
                    f"'{name}', not between {self.positions.get(name, 0)} and {end}. Another "
                    "process has replaced its files."
                )

    def _update(
        self, state: ReplicaState, committed: CommittedChanges,
        clocks: Mapping[str, dict[str, int]],
    ) -> None:
        now = wall_clock_ms()
        state.epoch = committed.epoch
        state.layouts |= layouts_of(self._stores)
        for (topic, partition), offset in committed.inputs.items():
            state.inputs.setdefault(topic, {})[partition] = offset
        state.staged_run = committed.run
        for name, position in committed.positions.items():
            state.positions[name] = position
            state.read_at[name] = now
            if name in clocks:
                state.clocks[name] = clocks[name]

    def _open(self, environment: LmdbEnvironment) -> ReplicaState:
        """Open a snapshot of the current rows."""
        self._release()
        with ExitStack() as stack:
            transaction = stack.enter_context(environment.reading())
            state = require_state(transaction)
            for name, rows in self._rows.items():
                rows.current = transaction.open(rows_database(name)) or InMemoryBytesStore()
            self._snapshot = stack.pop_all()
        return state

    def _release(self) -> None:
        self._snapshot.close()
        for rows in self._rows.values():
            rows.current = InMemoryBytesStore()

    def close(self) -> None:
        """Close the snapshot. The files stay open in the replica."""
        self._release()
