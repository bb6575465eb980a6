"""Reading changelogs in pieces, without missing what the log has forgotten meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.clock import wall_clock_ms
from penstock.record import Rows
from penstock.stores.replica.protocol import Changelogs, Overtaken
from penstock.stores.replica.state import ReplicaState


class Stand(NamedTuple):
    """Where a store stands before it is read on."""

    #: None: it holds nothing.
    position: int | None
    emptied: int
    read_at: int

    @classmethod
    def of(cls, state: ReplicaState, name: str) -> Stand:
        """A store in a replica."""
        return cls(
            state.positions.get(name), state.emptied.get(name, 0), state.read_at.get(name, 0)
        )


@dataclass(slots=True)
class Piece:
    """Records of one changelog that were read and are to be applied."""

    name: str
    #: The position that the rows had when it was read; None: they had none.
    seen: int | None
    start: int
    end: int
    #: Not None: the rows are to be emptied first; `tombstones_removed_to` of that moment.
    emptied: int | None
    #: When it was read, in epoch milliseconds.
    read_at: int
    records: list[Rows] = field(default_factory=list)
    count: int = 0
    bytes: int = 0


def read_piece(
    name: str, changelogs: Changelogs, stand: Stand, target: int, room: tuple[int, int],
) -> Piece:
    """What comes next for a store."""
    seen = position = stand.position
    emptied = stand.emptied
    fresh: int | None = None
    now = wall_clock_ms()
    while True:
        if position is None:
            oldest = changelogs.oldest(name)
            position, fresh = min(oldest.start, target), oldest.tombstones_removed_to
            emptied = fresh
        piece = Piece(name, seen, position, position, fresh, now)
        since = stand.read_at if fresh is None else None
        try:
            _read_into(piece, changelogs, (emptied, since), target, room)
        except Overtaken:
            # What was missed can only be found by reading everything again.
            position = None
        else:
            return piece


def _read_into(
    piece: Piece, changelogs: Changelogs, stand: tuple[int, int | None], target: int,
    room: tuple[int, int],
) -> None:
    name = piece.name
    emptied, since = stand
    if piece.end < target:
        for batch in changelogs.read(name, piece.start, target, since):
            if batch.tombstones_removed_to > max(piece.end, emptied):
                raise Overtaken
            rows = batch.rows()
            piece.records.append(rows)
            piece.end = batch.next_offset
            piece.count += len(rows)
            piece.bytes += _size(rows)
            if piece.count >= room[0] or piece.bytes >= room[1]:
                return
        # What is left of the range holds no records; they may have been tombstones.
        if piece.end < target and changelogs.oldest(name).tombstones_removed_to > max(
            piece.end, emptied
        ):
            raise Overtaken
        piece.end = target


def _size(rows: Rows) -> int:
    return sum(map(len, filter(None, rows.keys))) + sum(map(len, filter(None, rows.values)))
