"""`MovingRows`: the rows of a bytes store whose snapshot is replaced from time to time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from penstock.stores.bytes.store import BytesStore, InMemoryBytesStore

#: Rows are read in chunks of these sizes, because a snapshot may be replaced during a scan.
_FIRST_CHUNK, _CHUNK = 32, 256


class MovingRows:
    """A `BytesStore` that reads the current snapshot. Writes are collected.

    A store keeps this object while the snapshot below it is replaced. A scan continues in the new
    snapshot, behind the last row that it has returned.
    """

    __slots__ = ("changes", "current", "floor")

    def __init__(self) -> None:
        self.current: BytesStore = InMemoryBytesStore()
        #: The writes since the last `take`, and the key below which rows are deleted first.
        self.changes: list[tuple[bytes, bytes | None]] = []
        self.floor = b""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None if the key does not exist."""
        return self.current.get(key)

    def scan(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows with start <= key < end, in ascending or descending order of their keys."""
        size = _FIRST_CHUNK
        while True:
            rows = list(islice(self.current.scan(start, end, reverse), size))
            yield from rows
            if len(rows) < size:
                return
            size = _CHUNK
            if reverse:
                end = rows[-1][0]
            else:
                start = rows[-1][0] + b"\x00"

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Collect changes."""
        self.changes += changes

    def drop_below(self, key: bytes) -> None:
        """Collect the floor. Only called before the changes of the same commit."""
        self.floor = max(self.floor, key)

    def take(self) -> tuple[bytes, list[tuple[bytes, bytes | None]]]:
        """Return the floor and the changes since the last call."""
        taken = self.floor, self.changes
        self.floor, self.changes = b"", []
        return taken

    def count(self) -> int:
        """The number of rows in the current snapshot."""
        return self.current.count()

    def close(self) -> None:
        """Nothing to close: the snapshot belongs to the replica."""
