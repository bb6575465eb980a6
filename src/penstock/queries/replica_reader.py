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

#: The shortest time between two reads of the log for a bound.
REACH_INTERVAL_S = 0.01
_NEVER: Any = object()


class Inputs(NamedTuple):
    """The input that a replica contains."""

    #: Partition -> the next offset.
    offsets: Mapping[TopicPartition, int] = {}
    #: Topics behind a repartition that the shuffle carries: their records reach all partitions.
    shuffled_topics: frozenset[str] = frozenset()


class StoreChangelogs(NamedTuple):
    """The changelogs that a partition of a store is restored from."""

    #: Name in the state of the replica -> the partition. A global store has several.
    partitions: Mapping[str, TopicPartition] = {}
    #: The changelogs of all stores of the application.
    topics: frozenset[str] = frozenset()


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
        self._changelogs = StoreChangelogs()
        #: Changelog partition -> the first and the last of its offsets that have no records.
        self._vacant: dict[TopicPartition, tuple[int, int]] = {}
        #: The rows contain everything that was committed at this time (monotonic).
        self._caught_up_at = 0.0
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
        for (topic, partition), offset in self._offsets(session.state.positions).items():
            if offset > 0:
                position.with_component(topic, partition, offset - 1)
        return position

    # ---- bounds ------------------------------------------------------------------------------

    @property
    def changelog_topics(self) -> frozenset[str]:
        """The topics that the stores of the application are restored from."""
        return self._changelogs.topics

    def read_offsets(self) -> Mapping[TopicPartition, int]:
        """Return changelog partition -> the next offset after all rows that were read so far."""
        files = self._files
        return {} if files is None else self._offsets(files.reached)

    def _offsets(self, positions: Mapping[str, int]) -> dict[TopicPartition, int]:
        """The next offset of each changelog. Offsets without records are skipped."""
        found = {}
        for name, at in self._changelogs.partitions.items():
            offset = max(0, positions.get(name, 0))
            start, end = self._vacant.get(at, (0, 0))
            found[at] = end if start <= offset < end else offset
        return found

    def reaches(self, session: StoreSession, bound: Position) -> bool:
        """Return whether the rows of a session contain the offsets of a bound."""
        own = {at.topic for at in self._changelogs.partitions.values()}
        inputs = {at.topic for at in self._inputs.offsets} | session.state.inputs.keys()
        return self.position(session).reaches(
            bound, self.partition,
            self._inputs.shuffled_topics | (own if self.partition < 0 else frozenset()),
            self._changelogs.topics - own - inputs,
        )

    def has_reached(self, bound: Position) -> bool:
        """Return whether the rows that were read so far contain the offsets of a bound."""
        read = self.read_offsets()
        return bool(read) and bound.topics <= self._changelogs.topics and all(
            bound.partition_positions(topic).get(partition, -1) < offset
            for (topic, partition), offset in read.items()
        )

    def reach(self, bound: Position) -> bool:
        """Bring the rows to the last commit in the log. Return whether they reach a bound."""
        if self.has_reached(bound) or self._is_at(bound):
            return True
        if self._source.current_state().is_active:
            self._find_vacant(bound)
        else:
            self._require_commits_until(time.monotonic())
        return self._is_at(bound)

    def _require_commits_until(self, asked_at: float) -> None:
        """Let the next session have all commits up to a time. Waits if the log was just read."""
        with self._catching_up:
            # Another caller may have caught up meanwhile.
            if self._caught_up_at < asked_at:
                time.sleep(max(0.0, self._caught_up_at + REACH_INTERVAL_S - time.monotonic()))
                self._version, self._state = _NEVER, None

    def _is_at(self, bound: Position) -> bool:
        session = self.acquire()
        try:
            return self.reaches(session, bound)
        finally:
            self.release(session)

    def _find_vacant(self, bound: Position) -> None:
        """Skip offsets without records. The tasks of this instance do not know them, standbys do.
        The replica must not be moved beyond them here: only its task writes it."""
        for at, offset in self.read_offsets().items():
            end = bound.partition_positions(at.topic).get(at.partition, -1) + 1
            if end > offset and self._source.is_vacant(at, offset, end):
                self._vacant[at] = offset, end

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
        began_at = time.monotonic()
        found = self._source.catch_up(self._store, self.partition)
        self._caught_up_at = began_at
        identity, self._inputs, self._changelogs = found.identity, found.inputs, found.changelogs
        if self._files is None or identity != self._identity:
            # At the first query, and after the application was reset.
            self.close()
            self._files = self._source.store_reader(
                self._store, self.partition, identity, self._changelogs
            )
            self._identity, self._vacant = identity, {}
            if core is not None:
                self.lookup = core.pooled_lookup(
                    self._files.gate, self._files.free, time.monotonic, self._source.commits,
                    self._look_up,
                )
        self._files.set_clocks(found.clocks)
        self._files.check_generation()
