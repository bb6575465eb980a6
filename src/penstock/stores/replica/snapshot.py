"""A replica as it was at one moment: what a batch reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.stores.bytes.lmdb import LmdbRows, Transaction
from penstock.stores.bytes.raw_rows import fill
from penstock.stores.bytes.store import BytesStore, SortedMemory
from penstock.stores.replica.protocol import FollowedStore
from penstock.stores.replica.run_files import Run
from penstock.stores.replica.staged import CapturingRows, Staged, StagedRows, put_aside
from penstock.stores.replica.state import ReplicaState


class Snapshot:
    """What a replica held at one moment: what the stores of a task lie over during a batch.

    Holds one of LMDB's reader slots until it is closed; rows and scans cannot be used after that.
    """

    def __init__(
        self, directory: Path, stores: Iterable[tuple[FollowedStore, list[str]]],
        transaction: Transaction, state: ReplicaState, stack: ExitStack,
    ) -> None:
        self.state = state
        self._directory = directory
        self._stores = [store for store, _ in stores]
        self._transaction = transaction
        self._stack = stack
        self._unlogged = {
            inner for store, names in stores if not store.logged for inner in names
        }
        self._captured: dict[str, StagedRows] = {}

    def inner(self, name: str) -> BytesStore:
        """The rows of that name, as a store's `open_inner`; a name that is not known has none."""
        if name in self._unlogged:
            rows = self._transaction.rows_of_kind(CapturingRows, rows_database(name))
            if rows is not None:
                self._captured[rows_database(name)] = rows.hold().captured
                return rows
        found: LmdbRows | None = self._transaction.rows(rows_database(name))
        return SortedMemory() if found is None else found

    def fill(self, stores: Mapping[str, Any]) -> None:
        """Give stores that keep no rows the records that they would be restored from.

        To be called once, when the stores of a task are open.
        """
        for store in self._stores:
            if store.build is None and hasattr(stores[store.name], "restore"):
                rows = self._transaction.rows(raw_database(store.name))
                if rows is not None:
                    fill(stores[store.name], rows)

    def put_aside(self, run: Run, stores: Mapping[str, Any]) -> None:
        """Keep what a finished batch wrote to stores that have no changelog.

        To be called after the task's commit, and before its result is handed over. Does nothing
        if all stores have one.
        """
        unlogged = [store for store in self._stores if not store.logged]
        if not unlogged:
            return
        for store in unlogged:
            if store.build is not None:
                stores[store.name].advance()
        put_aside(self._directory, run, Staged(self.state.aside, self._captured))

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


def inner_names(store: FollowedStore) -> list[str]:
    """Under which names a store opens its rows."""
    names: list[str] = []

    def note(name: str) -> BytesStore:
        names.append(name)
        return SortedMemory()

    if store.build is not None:
        store.build(note).close()
    return names


def rows_database(inner: str) -> str:
    """Where rows rest that a store opens under that name."""
    return f"rows/{inner}"


def raw_database(store: str) -> str:
    """Where the changelog records of a store rest that keeps no rows."""
    return f"raw/{store}"
