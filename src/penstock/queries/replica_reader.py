"""`ReplicaReader`: one partition of a store, read from a replica of this host."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import StateStoreMigratedException, StreamsRebalancingException
from penstock.log.types import TopicPartition
from penstock.native import core
from penstock.queries.position import Position
from penstock.queries.run_view import RunState
from penstock.queries.source import look_up
from penstock.stores.replica.store_reader import StoreReader, StoreSession

if TYPE_CHECKING:
    from penstock.queries.replicas import ReplicaSource

_NEVER: Any = object()


class Inputs(NamedTuple):
    """The input that a replica contains."""

    #: Partition -> the next offset.
    offsets: Mapping[TopicPartition, int] = {}
    #: Topics behind a repartition that the shuffle carries: their records reach all partitions.
    shuffled_topics: frozenset[str] = frozenset()


class ReplicaReader:
    """One partition of a store in a replica of this host. Any thread may use it."""

    def __init__(
        self, source: ReplicaSource, store: str, partition: int, stale: bool
    ) -> None:
        self.partition = partition
        self._source = source
        self._store = store
        self._stale = stale
        #: The `RunState.version` and the number of commits that the replica has caught up with.
        self._version: object = _NEVER
        self._commits = -1
        #: The state of the last call. The same object needs no second look.
        self._state: RunState | None = None
        self._inputs = Inputs()
        self._catching_up = threading.Lock()
        self._files: StoreReader | None = None
        self._identity = ""
        #: Returns the value of a key without its timestamp.
        self.lookup: Callable[[Any], Any] = self._look_up

    def check(self) -> None:
        """Raise if the partition must not be read on this instance."""
        self._allowed(self._source.current_state())

    @property
    def is_current(self) -> bool:
        """Whether `acquire` does not have to read the log."""
        state = self._source.current_state()
        return state.version == self._version and not (
            state.lags_commits and self._source.commits() != self._commits
        )

    def acquire(self) -> StoreSession:
        """Return a session of the last commit."""
        source = self._source
        now = time.monotonic()
        state = source.state if now < source.valid_until else source.current_state()
        if state is not self._state or (
            state.lags_commits and source.commits() != self._commits
        ):
            self._prepare(state)
        files = self._files
        assert files is not None
        return files.acquire(now)

    def _look_up(self, key: Any) -> Any:
        # Before the call: later, the source may have a state that this reader has not seen.
        until = self._source.valid_until
        found = look_up(self, key)
        files, state = self._files, self._state
        if files is not None and state is not None:
            files.open_gate(until, self._commits if state.lags_commits else None)
        return found

    def release(self, session: StoreSession) -> None:
        """End a session."""
        session.owner.release(session)

    def key_serializer(self) -> Callable[[Any], bytes]:
        """Return the function that serializes the keys of the store."""
        return self._source.key_serializer(self._store)

    def position(self, session: StoreSession) -> Position:
        """Return the input that the rows of a session contain."""
        position = Position()
        for (topic, partition), offset in self._inputs.offsets.items():
            if offset > 0:
                position.with_component(topic, partition, offset - 1)
        for topic, partitions in session.state.inputs.items():
            for partition, offset in partitions.items():
                if offset > 0:
                    position.with_component(topic, partition, offset - 1)
        return position

    @property
    def shuffled_topics(self) -> frozenset[str]:
        """The topics of a position whose records reach all partitions of the store."""
        return self._inputs.shuffled_topics

    def close(self) -> None:
        """Close the files."""
        if self._files is not None:
            self._files.close()

    def _allowed(self, state: RunState) -> None:
        if self._stale:
            return
        if not state.is_active:
            run_by = f" It is run by {state.holder}." if state.holder else ""
            raise StateStoreMigratedException(
                f"The state store, {self._store}, may have migrated to another instance.{run_by} "
                "Query that instance, or allow stale data with stale=True."
            )
        if not state.is_ready:
            raise StreamsRebalancingException(
                f"Cannot get state store {self._store} because the stream thread is {state.name}, "
                "not RUNNING. Its stores are being restored. Query again later."
            )

    def _prepare(self, state: RunState) -> None:
        """Check the state, and bring the replica to the last commit."""
        if not self._stale:
            self._allowed(state)
        with self._catching_up:
            commits = self._source.commits()
            if state.version != self._version or (
                state.lags_commits and commits != self._commits
            ):
                self._catch_up()
                self._version, self._commits = state.version, commits
            self._state = state

    def _catch_up(self) -> None:
        self._inputs, identity, clocks = self._source.catch_up(self._store, self.partition)
        if self._files is None or identity != self._identity:
            # At the first query, and after the application was reset.
            self.close()
            self._files = self._source.store_reader(self._store, self.partition, identity)
            self._identity = identity
            if core is not None:
                self.lookup = core.pooled_lookup(
                    self._files.gate, self._files.free, time.monotonic, self._source.commits,
                    self._look_up,
                )
        self._files.set_clocks(clocks)
        self._files.check_generation()
