"""`StoreReader`: reads one store of a replica for queries, while other processes write it.

A session is a snapshot of the last commit. Sessions are pooled: between two queries a session keeps
its typed store, but no transaction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import StateStoreNotAvailableException, StreamsRebalancingException
from penstock.stores.bytes.lmdb.environment import MAP_SIZE, EnvironmentClosed
from penstock.stores.bytes.lmdb.reader import LmdbReader
from penstock.stores.bytes.store import OpenBytesStore, open_in_memory
from penstock.stores.replica.databases import (
    changelog_database,
    restore_from_rows,
    rows_database,
)
from penstock.stores.replica.generations import Generations
from penstock.stores.replica.state import (
    FORMAT,
    META,
    ReplicaState,
    read_state,
    require_state,
)

#: How often the name of the current generation is read.
GENERATION_INTERVAL_S = 0.1


def read_replica_state(directory: Path) -> ReplicaState | None:
    """Read the state of the replica in a directory; None if there is none."""
    generations = Generations(directory)
    name = generations.current()
    if name is None or not generations.is_sound(name):
        return None
    try:
        environment = generations.open(name, MAP_SIZE)
    except FileNotFoundError:
        return None
    try:
        with environment.reading([META]) as transaction:
            return read_state(transaction)
    finally:
        environment.close()


class StoreSession:
    """A typed store over the rows of one generation. One caller uses it at a time."""

    __slots__ = (
        "clocks", "generation", "is_ready", "load_value", "name", "number", "owner", "reader",
        "state", "store",
    )

    def __init__(
        self, owner: StoreReader, name: str, generation: str, reader: LmdbReader
    ) -> None:
        self.owner = owner
        self.name = name
        self.generation = generation
        self.reader = reader
        #: The number of the last transaction whose state was read.
        self.number = -1
        #: The clocks that were set last.
        self.clocks: Mapping[str, int] | None = None
        self.is_ready = False
        self.state: ReplicaState
        self.store: Any
        #: The value of a key without its timestamp; None if the store has no timestamps.
        self.load_value: Callable[[Any], Any] | None = None

    @property
    def changelog_offset(self) -> int | None:
        """The offset of the changelog that the rows have reached; None if it has none."""
        return self.state.positions.get(self.name)


class LookupGate:
    """Until when `core.pooled_lookup` can use a free session without calling the reader.

    After that time, after a commit that must be read first, and for other generations it calls the
    reader, which opens the gate again.
    """

    __slots__ = ("commits", "generation", "until")

    def __init__(self) -> None:
        #: The monotonic time.
        self.until = 0.0
        #: The number of commits; None if commits do not matter.
        self.commits: int | None = None
        #: The current generation of the files.
        self.generation: str | None = None


class StoreReader:
    """One store of the replica in a directory. Any thread may use it.

    Invariant: the changelog offsets of a session are never smaller than those of an earlier one,
    also if the files were replaced and are restored again.
    """

    def __init__(
        self, directory: Path, store: str, bytes_stores: list[str],
        build: Callable[[OpenBytesStore], Any], *, keeps_rows: bool = True,
        is_expected: Callable[[ReplicaState], bool] = lambda state: True,
        position_names: Collection[str] = (),
    ) -> None:
        """`build` opens the typed store over given rows. `keeps_rows`: False if the replica holds
        its changelog records instead of rows. `is_expected`: whether the replica belongs to this
        application and its current incarnation. `position_names`: of the changelogs in the state of
        the replica; by default the name of the store."""
        self._generations = Generations(directory)
        self._directory = directory
        self._store = store
        self._build = build
        self._keeps_rows = keeps_rows
        self._is_expected = is_expected
        databases = [rows_database(name) for name in bytes_stores]
        self._databases = [META, *(databases if keeps_rows else [changelog_database(store)])]
        #: Sessions that are not in use.
        self.free: list[StoreSession] = []
        self.gate = LookupGate()
        self._check_at = 0.0
        self._closed = False
        self._clocks: Mapping[str, int] = {}
        #: Name of a changelog -> the largest offset of a session. Replaced, never changed.
        self.reached: Mapping[str, int] = dict.fromkeys(position_names or (store,), -1)
        self._checking = threading.Lock()
        #: The log that the offsets belong to, and the last generation whose rows have reached them.
        self._log_id = ""
        self._checked_generation = ""

    def acquire(self, now: float | None = None) -> StoreSession:
        """Return a session of the last commit. `now`: the monotonic time, if the caller knows it.

        Raises `StreamsRebalancingException` if the rows are missing, or older than those of an
        earlier session.
        """
        if (time.monotonic() if now is None else now) >= self._check_at:
            self.check_generation()
        while True:
            try:
                session = self.free.pop()
            except IndexError:
                session = self._open()
            if session.generation != self.gate.generation:
                session.reader.close()
                continue
            number = session.reader.begin()
            if number == session.number and session.clocks is self._clocks:
                return session
            try:
                self._refresh(session, number)
            except BaseException:
                session.number = -1
                self.release(session)
                raise
            return session

    def release(self, session: StoreSession) -> None:
        """End a session."""
        session.reader.end()
        if session.generation == self.gate.generation:
            self.free.append(session)
        else:
            session.reader.close()

    def open_gate(self, until: float, commits: int | None) -> None:
        """Allow lookups that use free sessions, until a time and a commit."""
        self.gate.commits = commits
        self.gate.until = min(until, self._check_at)

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Set the clocks of the store at the last commit, as far as the caller knows them. Those in
        the files may be older."""
        if clocks != self._clocks:
            self._clocks = clocks

    def check_generation(self) -> None:
        """Find the current generation of the files. Sessions of others are closed."""
        if self._closed:
            return
        self._check_at = time.monotonic() + GENERATION_INTERVAL_S
        name = self._generations.current()
        if name is not None and not self._generations.is_sound(name):
            name = None
        if name != self.gate.generation:
            self.gate.generation = name
            self._close_free()

    def close(self) -> None:
        """Close the free sessions. The others are closed when they are released."""
        self._closed = True
        self.gate.generation = None
        self._close_free()

    def _close_free(self) -> None:
        while self.free:
            try:
                self.free.pop().reader.close()
            except IndexError:
                return

    def _open(self) -> StoreSession:
        name = self.gate.generation
        if name is None:
            self.check_generation()
            name = self.gate.generation
        if self._closed:
            raise StateStoreNotAvailableException(f"Store {self._store} is closed.")
        if name is None:
            raise self._missing("does not exist yet")
        try:
            environment = self._generations.open(name, MAP_SIZE)
        except FileNotFoundError:
            self._check_at = 0.0
            raise self._missing("was deleted") from None
        try:
            environment.prepare(self._databases)
            return StoreSession(self, self._store, name, LmdbReader(environment))
        except EnvironmentClosed:
            raise self._missing("was closed") from None
        except BaseException:
            environment.close()
            raise

    def _refresh(self, session: StoreSession, number: int) -> None:
        """Read the state of a new commit: positions, and the clocks of the store."""
        state = require_state(session.reader.databases(META))
        if state.format != FORMAT or not self._is_expected(state):
            raise self._missing("belongs to another log or an earlier version")
        self._check_offsets(session, state)
        session.state = state
        if not session.is_ready or not self._keeps_rows:
            self._build_store(session)
        known = self._clocks
        for clocks in (state.clocks.get(self._store), known):
            if clocks and hasattr(session.store, "set_clocks"):
                session.store.set_clocks(clocks)
        session.clocks, session.number = known, number

    def _check_offsets(self, session: StoreSession, state: ReplicaState) -> None:
        """Refuse rows that are older than those of an earlier session.

        The offsets of one generation only grow. A new generation starts with an empty store.
        """
        with self._checking:
            if state.log_id != self._log_id:
                self._log_id, self.reached = state.log_id, dict.fromkeys(self.reached, -1)
            offsets = {name: state.positions.get(name, -1) for name in self.reached}
            if session.generation != self._checked_generation:
                for name, before in self.reached.items():
                    if offsets[name] < before:
                        raise self._missing(f"is being restored: at {offsets[name]}, not {before}")
                self._checked_generation = session.generation
            self.reached = {
                name: max(before, offsets[name]) for name, before in self.reached.items()
            }

    def _build_store(self, session: StoreSession) -> None:
        reader = session.reader
        if self._keeps_rows:
            session.store = self._build(lambda name: reader.open(rows_database(name)))
        else:
            session.store = self._build_custom(reader)
        session.load_value = getattr(session.store, "load_value", None)
        session.is_ready = True

    def _build_custom(self, reader: LmdbReader) -> Any:
        """Restore a store that manages its own state from its changelog records."""
        store = self._build(open_in_memory)
        if hasattr(store, "restore"):
            restore_from_rows(store, reader.open(changelog_database(self._store)))
        return store

    def _missing(self, why: str) -> StreamsRebalancingException:
        return StreamsRebalancingException(
            f"Store {self._store} cannot be queried now. Its replica in '{self._directory}' {why}. "
            "Query again later."
        )
