"""Fetched records of one partition that were not returned yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.log.kafka.encoding import columns_size
from penstock.record import NO_HEADERS, PartitionColumns


class ColumnBuffer:
    """Pieces of consecutive records, in the order of their offsets."""

    __slots__ = ("_pieces", "_records")

    def __init__(self) -> None:
        self._pieces: deque[PartitionColumns] = deque()
        self._records = 0

    def __len__(self) -> int:
        return self._records

    @property
    def size(self) -> int:
        """The bytes of the records."""
        return sum(map(columns_size, self._pieces))

    def add(self, columns: PartitionColumns, start: int) -> bool:
        """Add records; those below the offset `start` were fetched earlier and are dropped.

        Returns whether records are left.
        """
        if columns.offsets[0] < start:
            columns = slice_columns(
                columns, sum(offset < start for offset in columns.offsets), len(columns)
            )
            if not len(columns):
                return False
        self._pieces.append(columns)
        self._records += len(columns)
        return True

    def take(self, max_records: int, end: int | None = None) -> PartitionColumns | None:
        """Remove and return records, below the offset `end` if it is given; None without any."""
        taken: list[PartitionColumns] = []
        left = max_records
        while left > 0 and self._pieces:
            piece = self._pieces.popleft()
            count = min(left, len(piece))
            if end is not None and piece.offsets[count - 1] >= end:
                count = sum(offset < end for offset in piece.offsets[:count])
            if count < len(piece):
                self._pieces.appendleft(slice_columns(piece, count, len(piece)))
                left = count
                piece = slice_columns(piece, 0, count)
            if count:
                taken.append(piece)
            left -= count
            self._records -= count
        return concatenate(taken) if taken else None

    def push_back(self, columns: PartitionColumns) -> None:
        """Return records that were taken last."""
        if len(columns):
            self._pieces.appendleft(columns)
            self._records += len(columns)

    def clear(self) -> None:
        """Drop all records."""
        self._pieces.clear()
        self._records = 0


def slice_columns(columns: PartitionColumns, begin: int, end: int) -> PartitionColumns:
    """Return a part of the records."""
    if begin == 0 and end >= len(columns):
        return columns
    return PartitionColumns(
        topic=columns.topic,
        partition=columns.partition,
        offsets=columns.offsets[begin:end],
        timestamps=columns.timestamps[begin:end],
        keys=columns.keys[begin:end],
        values=columns.values[begin:end],
        headers=None if columns.headers is None else columns.headers[begin:end],
    )


def concatenate(pieces: Sequence[PartitionColumns]) -> PartitionColumns:
    """Return consecutive records of one partition as one object."""
    if len(pieces) == 1:
        return pieces[0]
    headers = None
    if any(piece.headers is not None for piece in pieces):
        headers = [
            one for piece in pieces
            for one in (piece.headers if piece.headers is not None else [NO_HEADERS] * len(piece))
        ]
    return PartitionColumns(
        topic=pieces[0].topic,
        partition=pieces[0].partition,
        offsets=[one for piece in pieces for one in piece.offsets],
        timestamps=[one for piece in pieces for one in piece.timestamps],
        keys=[one for piece in pieces for one in piece.keys],
        values=[one for piece in pieces for one in piece.values],
        headers=headers,
    )
