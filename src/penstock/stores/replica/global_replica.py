"""Global tables on this host: the rows of all global stores at known offsets of their topics.

One replica holds them all, shared by the processes of the host. It keeps what `replica` promises,
with one difference: the stores are fed through processors, several partitions may feed one store,
so they can only be emptied together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from penstock.record import Rows
from penstock.stores.bytes.lmdb import MAP_SIZE, Environment, Transaction
from penstock.stores.bytes.store import BytesStore, OpenInner, SortedMemory
from penstock.stores.replica.changelog_reader import Piece, Stand, read_piece
from penstock.stores.replica.home import ReplicaHome, zombie
from penstock.stores.replica.protocol import Changelogs, Reached, unheard
from penstock.stores.replica.state import ReplicaState, known_state, write_state

CHUNK_RECORDS = 50_000
CHUNK_BYTES = 32 << 20


class FedStores(Protocol):
    """Global stores and what feeds them (`task.global_state.GlobalState`)."""

    stores: dict[str, Any]

    def update_all(self, rows: Rows) -> None:
        """Take many records of one partition."""
        ...

    def commit(self) -> None:
        """Make what was written part of the stores."""
        ...

    def clocks(self) -> dict[str, dict[str, int]]:
        """What the stores remember besides their rows."""
        ...

    def set_clocks(self, clocks: Mapping[str, Mapping[str, int]]) -> None:
        """Go on from what `clocks` gave."""
        ...

    def close(self) -> None:
        """Close processors and stores."""
        ...


class _MovingRows:
    """Rows of whatever snapshot is the current one; satisfies `BytesStore` for reading."""

    def __init__(self) -> None:
        self.now: BytesStore = SortedMemory()

    def get(self, key: bytes) -> bytes | None:
        return self.now.get(key)

    def scan(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return self.now.scan(start, end, reverse)

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        self.now.write(changes)

    def drop_below(self, key: bytes) -> None:
        self.now.drop_below(key)

    def count(self) -> int:
        return self.now.count()

    def close(self) -> None:
        """Nothing is held open."""


class GlobalReplica:
    """The global stores of an application, as one process uses them.

    `stores_at` is asked before every batch; what it gives may be read until `release` is called or
    it is asked again. Partitions are named `<topic>-<partition>`.
    """

    def __init__(
        self, directory: Path, log_id: str, make: Callable[[OpenInner], FedStores],
        *, map_size: int = MAP_SIZE,
    ) -> None:
        self._make = make
        self._moving: dict[str, _MovingRows] = {}
        #: For reading: its stores lie over the current snapshot. Made anew when that has moved.
        self._fed = make(self._moving_rows)
        self._at: dict[str, int] = {}
        self._databases = [_database(name) for name in self._moving]
        self._home = ReplicaHome(directory, log_id, self._databases, map_size)
        self._snapshot = ExitStack()

    def stores_at(
        self, positions: Mapping[str, int], topics: Changelogs, epoch: int | None = None,
        failpoint: Reached = unheard,
    ) -> dict[str, Any]:
        """The stores as of these offsets, to be read only. `epoch`: as in `Wanted`."""
        self.release()

        def catch_up_and_open(name: str, environment: Environment) -> bool:
            while not self._step((name, environment), positions, topics, epoch, failpoint):
                pass
            return self._open(environment, positions)

        while not self._home.guarded(catch_up_and_open):
            pass
        return self._fed.stores

    def release(self) -> None:
        """Let go of the snapshot."""
        self._snapshot.close()
        for rows in self._moving.values():
            rows.now = SortedMemory()

    def let_go(self) -> None:
        """Let go of the files, too; they are opened again when stores are asked for."""
        self.release()
        self._home.close()

    def close(self) -> None:
        """Let go of everything."""
        self.let_go()
        self._fed.close()

    def _moving_rows(self, name: str) -> BytesStore:
        return self._moving.setdefault(name, _MovingRows())

    def _open(self, environment: Environment, positions: Mapping[str, int]) -> bool:
        """Take a snapshot; False if the stores have moved meanwhile."""
        with ExitStack() as stack:
            transaction = stack.enter_context(environment.reading())
            state = known_state(transaction)
            if any(state.positions.get(name) != at for name, at in positions.items()):
                return False
            for name, rows in self._moving.items():
                rows.now = transaction.rows(_database(name)) or SortedMemory()
            if state.positions != self._at:
                self._fed.close()
                self._fed = self._make(self._moving_rows)
                self._fed.set_clocks(state.clocks)
                self._at = state.positions
            self._snapshot = stack.pop_all()
        return True

    def _step(
        self, place: tuple[str, Environment], positions: Mapping[str, int], topics: Changelogs,
        epoch: int | None, failpoint: Reached,
    ) -> bool:
        """Read and apply a chunk; True when everything is where it is wanted."""
        generation, environment = place
        with environment.reading() as transaction:
            state = known_state(transaction)
        self._refuse_ahead(state, positions, epoch)
        chunk: list[Piece] = []
        room, room_bytes = CHUNK_RECORDS, CHUNK_BYTES
        for name, target in positions.items():
            position = state.positions.get(name)
            if position != target and room > 0 and room_bytes > 0:
                piece = read_piece(
                    name, topics, Stand.of(state, name), target, (room, room_bytes)
                )
                chunk.append(piece)
                room, room_bytes = room - piece.count, room_bytes - piece.bytes
        if not chunk:
            return True

        def work(transaction: Transaction) -> None:
            self._apply(transaction, chunk, positions, epoch, failpoint)

        self._home.write(generation, environment, work)
        return False

    def _apply(
        self, transaction: Transaction, chunk: list[Piece], positions: Mapping[str, int],
        epoch: int | None, failpoint: Reached,
    ) -> None:
        state = known_state(transaction)
        self._refuse_ahead(state, positions, epoch)
        if any(state.positions.get(piece.name) != piece.seen for piece in chunk):
            return
        failpoint("applying")
        if epoch is not None:
            state.epoch = epoch
        if any(piece.seen is not None and piece.emptied is not None for piece in chunk):
            # Records of a partition were missed, so all partitions are read again.
            for database in self._databases:
                transaction.writable(database).empty()
            state.positions, state.emptied, state.clocks = {}, {}, {}
        else:
            self._feed(transaction, state, chunk)
        write_state(transaction, state)

    def _feed(self, transaction: Transaction, state: ReplicaState, chunk: list[Piece]) -> None:
        fed = self._make(lambda name: transaction.writable(_database(name)))
        fed.set_clocks(state.clocks)
        for piece in chunk:
            for rows in piece.records:
                fed.update_all(rows)
            state.positions[piece.name] = piece.end
            state.read_at[piece.name] = piece.read_at
            if piece.emptied is not None:
                state.emptied[piece.name] = piece.emptied
        fed.commit()
        state.clocks = fed.clocks()
        fed.close()

    def _refuse_ahead(
        self, state: ReplicaState, positions: Mapping[str, int], epoch: int | None
    ) -> None:
        if epoch is not None and state.epoch > epoch:
            raise zombie(f"written under epoch {state.epoch}, not {epoch}", self._home.directory)
        for name, target in positions.items():
            if state.positions.get(name, 0) > target:
                raise zombie(
                    f"at offset {state.positions[name]} of '{name}', beyond {target}",
                    self._home.directory,
                )


def _database(name: str) -> str:
    return f"rows/{name}"
