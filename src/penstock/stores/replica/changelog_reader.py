"""Reads changelogs in chunks, and detects records that the log has removed in the meantime."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.clock import wall_clock_ms
from penstock.record import PartitionColumns
from penstock.stores.replica.protocol import Changelogs, ChangelogTruncated
from penstock.stores.replica.state import ReplicaState


class ReadPosition(NamedTuple):
    """The position of a store before the next read."""

    #: None if the store holds no rows.
    offset: int | None
    #: `tombstones_removed_to` of the last complete restore.
    tombstones_removed_to: int
    read_at: int

    @classmethod
    def of(cls, state: ReplicaState, store: str) -> ReadPosition:
        """The position of a store in a replica."""
        return cls(
            state.positions.get(store), state.tombstones_removed_to.get(store, 0),
            state.read_at.get(store, 0),
        )


class ChunkLimit(NamedTuple):
    """How much to read before it is applied. A read ends with the batch that reaches a limit."""

    records: int
    bytes: int

    @property
    def is_reached(self) -> bool:
        """Whether nothing more fits."""
        return self.records <= 0 or self.bytes <= 0

    def after(self, chunk: ChangelogChunk) -> ChunkLimit:
        """The limit that is left after a chunk."""
        return ChunkLimit(self.records - chunk.count, self.bytes - chunk.bytes)


@dataclass(slots=True)
class ChangelogChunk:
    """Records of one changelog that were read but not applied yet."""

    name: str
    #: The position of the store when the chunk was read; None if it held no rows.
    position: int | None
    start: int
    end: int
    #: Not None for the first chunk of a complete restore: the store is emptied before the chunk is
    #: applied, and this is `tombstones_removed_to` at the time of the read.
    restore_from: int | None
    #: When the chunk was read, in epoch milliseconds.
    read_at: int
    records: list[PartitionColumns] = field(default_factory=list)
    count: int = 0
    bytes: int = 0


def read_chunk(
    name: str, changelogs: Changelogs, position: ReadPosition, target: int, limit: ChunkLimit
) -> ChangelogChunk:
    """Read the next records of a store, up to the offset `target`.

    If the log has removed records that the store has not read, the restore starts from the
    beginning of the changelog.
    """
    offset = position.offset
    removed_to = position.tombstones_removed_to
    restore_from: int | None = None
    now = wall_clock_ms()
    while True:
        if offset is None:
            start = changelogs.start(name)
            offset = min(start.offset, target)
            restore_from = removed_to = start.tombstones_removed_to
        chunk = ChangelogChunk(name, position.offset, offset, offset, restore_from, now)
        since = position.read_at if restore_from is None else None
        try:
            _read_into(chunk, changelogs, (removed_to, since), target, limit)
        except ChangelogTruncated:
            # Only a complete restore finds what was missed.
            offset = None
        else:
            return chunk


def _read_into(
    chunk: ChangelogChunk, changelogs: Changelogs, reader: tuple[int, int | None], target: int,
    limit: ChunkLimit,
) -> None:
    name = chunk.name
    removed_to, since = reader
    if chunk.end < target:
        for batch in changelogs.read(name, chunk.start, target, since):
            if batch.tombstones_removed_to > max(chunk.end, removed_to):
                raise ChangelogTruncated
            rows = batch.columns()
            chunk.records.append(rows)
            chunk.end = batch.next_offset
            chunk.count += len(rows)
            chunk.bytes += _size(rows)
            if chunk.count >= limit.records or chunk.bytes >= limit.bytes:
                return
        # The rest of the range holds no records. It may have held tombstones that were removed.
        if chunk.end < target and changelogs.start(name).tombstones_removed_to > max(
            chunk.end, removed_to
        ):
            raise ChangelogTruncated
        chunk.end = target


def _size(rows: PartitionColumns) -> int:
    return sum(map(len, filter(None, rows.keys))) + sum(map(len, filter(None, rows.values)))
