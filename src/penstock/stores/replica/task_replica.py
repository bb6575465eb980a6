"""The rows of a task's stores on this host, at known positions of their changelogs.

A replica is never the truth: what it holds was read from changelogs, and it can be deleted at any
time. It is shared by all processes of the host. What holds at every moment:

- The rows of a store are exactly those that its changelog gives up to `positions[store]`. Rows,
  positions, clocks and epoch change in one transaction.
- Positions only grow, and only from the one that the writer had read on from. Of two processes that
  catch up at once one writes; the other finds the position moved and goes on from there.
- A batch reads a snapshot that stands where its plan says. What it writes never comes here: it
  comes back through the changelog, or this host's copy of that, once it is committed.
- What cannot be trusted (another log, another format, a damaged file, writes that a crash of the
  host may have lost, an order in a plan) is not mended: a new generation of files takes its place.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from penstock.errors import TaskCorruptedException
from penstock.stores.bytes.lmdb import MAP_SIZE, Environment, Transaction
from penstock.stores.bytes.raw_rows import raw_changes
from penstock.stores.replica.changelog_reader import Piece, Stand, read_piece
from penstock.stores.replica.home import ReplicaHome, zombie
from penstock.stores.replica.protocol import (
    Changelogs,
    Filled,
    FollowedStore,
    Reached,
    Wanted,
    unheard,
)
from penstock.stores.replica.run_files import Run
from penstock.stores.replica.snapshot import (
    Snapshot,
    inner_names,
    raw_database,
    rows_database,
)
from penstock.stores.replica.staged import sweep_aside, take_aside
from penstock.stores.replica.state import ReplicaState, known_state, write_state

#: What is read before it is written: the memory that catching up takes.
CHUNK_RECORDS = 100_000
CHUNK_BYTES = 32 << 20


class TaskReplica:
    """The replica of one task, as one process uses it. Cheap to keep; `open` is the way to one."""

    def __init__(
        self, directory: Path, log_id: str, stores: tuple[FollowedStore, ...],
        map_size: int = MAP_SIZE,
    ) -> None:
        self.directory = directory
        self._stores = {store.name: store for store in stores}
        self._inner = {store.name: inner_names(store) for store in stores}
        databases = [name for store in stores for name in self._databases_of(store)]
        self._home = ReplicaHome(directory, log_id, databases, map_size)

    @classmethod
    def open(
        cls, directory: Path, log_id: str, stores: tuple[FollowedStore, ...],
        *, map_size: int = MAP_SIZE,
    ) -> TaskReplica:
        """The replica in a directory, which is made if need be."""
        replica = cls(directory, log_id, stores, map_size)
        replica._home.state()
        return replica

    # ---- catching up -------------------------------------------------------------------------

    def positions(self) -> dict[str, int]:
        """Where the stores stand; those that were never filled are not in it."""
        return dict(self._home.state().positions)

    def catch_up(
        self, wanted: Wanted, changelogs: Changelogs, failpoint: Reached = unheard
    ) -> list[Filled]:
        """Bring all stores to where they are wanted; tells which were filled from nothing."""
        if wanted.anew is not None:
            self._home.begin_anew(wanted.anew)
        wanted = self._complete(wanted)
        filled: dict[str, Filled] = {}
        while not self._home.guarded(partial(self._step, wanted, changelogs, failpoint, filled)):
            pass
        return list(filled.values())

    def _step(
        self, wanted: Wanted, changelogs: Changelogs, failpoint: Reached,
        filled: dict[str, Filled], name: str, environment: Environment,
    ) -> bool:
        """Read and apply a chunk; True when everything is where it is wanted."""
        with environment.reading() as transaction:
            state = known_state(transaction)
        _refuse_ahead(state, wanted, self.directory)
        chunk = self._read_chunk(state, wanted, changelogs, filled, failpoint)
        if not chunk and not self._lacks_aside(state, wanted):
            return True

        def work(transaction: Transaction) -> bool:
            return self._apply(transaction, chunk, wanted, failpoint)

        if self._home.write(name, environment, work):
            for piece in chunk:
                _count(filled, piece)
            if self._lacks_aside(state, wanted):
                sweep_aside(self.directory, wanted.last)
        return False

    def _read_chunk(
        self, state: ReplicaState, wanted: Wanted, changelogs: Changelogs,
        filled: dict[str, Filled], failpoint: Reached,
    ) -> list[Piece]:
        chunk: list[Piece] = []
        room, room_bytes = CHUNK_RECORDS, CHUNK_BYTES
        for name, target in wanted.targets.items():
            position = state.positions.get(name)
            if position == target or room <= 0 or room_bytes <= 0:
                continue
            if position is None or name in filled:
                failpoint("restoring")
            piece = read_piece(
                name, changelogs, Stand.of(state, name), target, (room, room_bytes)
            )
            chunk.append(piece)
            room -= piece.count
            room_bytes -= piece.bytes
        return chunk

    def _apply(
        self, transaction: Transaction, chunk: list[Piece], wanted: Wanted, failpoint: Reached
    ) -> bool:
        """Write a chunk, unless another process was faster."""
        state = known_state(transaction)
        _refuse_ahead(state, wanted, self.directory)
        if any(state.positions.get(piece.name) != piece.seen for piece in chunk):
            return False
        failpoint("applying")
        for piece in chunk:
            self._apply_piece(transaction, state, piece, wanted)
        if self._lacks_aside(state, wanted):
            self._apply_aside(transaction, state, wanted.last)
        if wanted.epoch is not None:
            state.epoch = wanted.epoch
        write_state(transaction, state)
        return True

    def _apply_piece(
        self, transaction: Transaction, state: ReplicaState, piece: Piece, wanted: Wanted
    ) -> None:
        name, store = piece.name, self._stores[piece.name]
        if piece.emptied is not None:
            for database in self._databases_of(store):
                transaction.writable(database).empty()
            state.emptied[name] = piece.emptied
            state.clocks.pop(name, None)
        if store.build is None:
            rows = transaction.writable(raw_database(name))
            for records in piece.records:
                rows.write(raw_changes(records))
        else:
            built = store.build(lambda inner: transaction.writable(rows_database(inner)))
            built.go_on_restoring(state.clocks.get(name, {}), wanted.clocks.get(name))
            for records in piece.records:
                built.restore_all(records)
            built.advance()
            state.clocks[name] = built.restored_clocks()
            built.close()
        state.positions[name] = piece.end
        state.read_at[name] = piece.read_at

    # ---- stores without a changelog ----------------------------------------------------------

    def _lacks_aside(self, state: ReplicaState, wanted: Wanted) -> bool:
        unlogged = any(not store.logged for store in self._stores.values())
        return unlogged and tuple(state.aside) != wanted.last

    def _apply_aside(self, transaction: Transaction, state: ReplicaState, last: Run) -> None:
        aside = take_aside(self.directory, last)
        if aside is not None and tuple(aside.parent) != tuple(state.aside):
            aside = None
        for store in self._stores.values():
            for database in () if store.logged else self._databases_of(store):
                rows = transaction.writable(database)
                changes = None if aside is None else aside.databases.get(database)
                if changes is None:
                    rows.empty()
                else:
                    rows.drop_below(changes.floor)
                    rows.write(changes.changes)
        state.aside = last

    # ---- reading -----------------------------------------------------------------------------

    def snapshot(self, wanted: Wanted | None = None) -> Snapshot:
        """The rows as they are; if something is wanted, they must stand exactly there.

        What was just caught up is given even if its files have been deleted since.
        """
        if wanted is None:
            return self._home.guarded(lambda name, environment: self._snapshot(environment))
        snapshot = self._home.as_it_was(self._snapshot)
        try:
            self._check(snapshot, self._complete(wanted))
        except BaseException:
            snapshot.close()
            raise
        return snapshot

    def _snapshot(self, environment: Environment) -> Snapshot:
        stores = [(store, self._inner[name]) for name, store in self._stores.items()]
        stack = ExitStack()
        transaction = stack.enter_context(environment.reading())
        try:
            state = known_state(transaction)
        except BaseException:
            stack.close()
            raise
        return Snapshot(self.directory, stores, transaction, state, stack)

    def _check(self, snapshot: Snapshot, wanted: Wanted) -> None:
        _refuse_ahead(snapshot.state, wanted, self.directory)
        lagging = [
            name for name, target in wanted.targets.items()
            if snapshot.state.positions.get(name) != target
        ]
        if lagging or self._lacks_aside(snapshot.state, wanted):
            # The files were replaced since they were caught up.
            raise TaskCorruptedException(
                f"The replica in '{self.directory}' does not stand where it is wanted. "
                f"Stores: {', '.join(lagging)}. Catch up again, then run the task."
            )

    # ---- life --------------------------------------------------------------------------------

    def settle(self) -> None:
        """Bring the rows to the disk, so that they are good after the host was started anew."""
        self._home.settle()

    def close(self) -> None:
        """Let go of the files, as soon as no snapshot of this process is open."""
        self._home.close()

    def _complete(self, wanted: Wanted) -> Wanted:
        """With a target for every logged store: one that is not named has nothing to read yet."""
        return replace(wanted, targets={
            name: wanted.targets.get(name, 0)
            for name, store in self._stores.items() if store.logged
        })

    def _databases_of(self, store: FollowedStore) -> list[str]:
        if store.build is None:
            return [raw_database(store.name)]
        return [rows_database(inner) for inner in self._inner[store.name]]


def _count(filled: dict[str, Filled], piece: Piece) -> None:
    """Add a piece to what is told of stores that were filled from nothing."""
    name = piece.name
    if piece.emptied is not None:
        filled[name] = Filled(name, piece.start, piece.end, piece.count)
    elif name in filled:
        before = filled[name]
        filled[name] = before._replace(end=piece.end, records=before.records + piece.count)


def _refuse_ahead(state: ReplicaState, wanted: Wanted, directory: Path) -> None:
    if wanted.epoch is not None and state.epoch > wanted.epoch:
        raise zombie(f"written under epoch {state.epoch}, not {wanted.epoch}", directory)
    for name, target in wanted.targets.items():
        position = state.positions.get(name)
        if position is not None and position > target:
            raise zombie(f"at offset {position} of store '{name}', beyond {target}", directory)
