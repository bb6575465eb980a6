"""A replica at one moment, as a batch reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.stores.bytes.lmdb.environment import LmdbTransaction
from penstock.stores.bytes.store import BytesStore, InMemoryBytesStore
from penstock.stores.replica.databases import changelog_database, restore_from_rows, rows_database
from penstock.stores.replica.files import RunId
from penstock.stores.replica.protocol import ReplicaStore
from penstock.stores.replica.staged import (
    StagedChanges,
    StagedWrites,
    StagingBytesStore,
    write_staged,
)
from penstock.stores.replica.state import ReplicaState


class Snapshot:
    """The rows of a replica at one moment. The stores of a task read them during a batch.

    Holds a reader slot of LMDB until it is closed. Rows and scans cannot be used after that.
    """

    def __init__(
        self, directory: Path, stores: Iterable[tuple[ReplicaStore, list[str]]],
        transaction: LmdbTransaction, state: ReplicaState, stack: ExitStack,
    ) -> None:
        self.state = state
        self._directory = directory
        self._stores = [store for store, _ in stores]
        self._transaction = transaction
        self._stack = stack
        self._unlogged = {
            name for store, names in stores if not store.logged for name in names
        }
        self._staged: dict[str, StagedChanges] = {}

    def open_bytes(self, name: str) -> BytesStore:
        """The rows of a bytes store; an `OpenBytesStore`. An unknown name has no rows."""
        database = rows_database(name)
        if name in self._unlogged:
            staging = self._transaction.open_as(StagingBytesStore, database)
            if staging is not None:
                self._staged[database] = staging.start().staged
                return staging
        return self._transaction.open(database) or InMemoryBytesStore()

    def restore_custom_stores(self, stores: Mapping[str, Any]) -> None:
        """Restore the stores that manage their own state from their changelog records.

        Called once, when the stores of a task are open.
        """
        for store in self._stores:
            if store.build is None and hasattr(stores[store.name], "restore"):
                rows = self._transaction.open(changelog_database(store.name))
                if rows is not None:
                    restore_from_rows(stores[store.name], rows)

    def stage_writes(self, run: RunId, stores: Mapping[str, Any]) -> None:
        """Stage the writes of a finished batch to stores without a changelog.

        Called after the commit of the task, before its result is handed over. Does nothing if all
        stores have a changelog.
        """
        unlogged = [store for store in self._stores if not store.logged]
        if not unlogged:
            return
        for store in unlogged:
            if store.build is not None:
                stores[store.name].advance()
        write_staged(self._directory, run, StagedWrites(self.state.staged_run, self._staged))

    def close(self) -> None:
        """Release the reader slot."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
