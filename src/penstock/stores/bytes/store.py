"""Where rows of a store rest: the small interface under all layers, and the memory one.

Rows are bytes under bytes, ordered by the unsigned bytes of their keys. Ranges are half open
(start included, end excluded; None is no bound), so that "everything that begins with p" is
`scan(p, successor(p))` and an included end is `end + b"\\x00"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol

from sortedcontainers import SortedList

_CHUNK = 256


class BytesStore(Protocol):
    """Committed rows. Written only by `write` and `drop_below`, between batches."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None if there is none."""
        ...

    def scan(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows with start <= key < end in order of their keys, or in the opposite order."""
        ...

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply changes in the order given; None deletes."""
        ...

    def drop_below(self, key: bytes) -> None:
        """Forget every row whose key is smaller."""
        ...

    def count(self) -> int:
        """How many rows there are, perhaps roughly."""
        ...

    def close(self) -> None:
        """Release what the store holds open."""
        ...


#: Opens the rows of that name. A store has one, and a second for its index if it keeps one.
OpenBytesStore = Callable[[str], BytesStore]


def successor(prefix: bytes) -> bytes | None:
    """The smallest key that is larger than all keys with that prefix; None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None


class InMemoryBytesStore:
    """Rows in memory.

    `_rows` is the truth. Every key of it is in exactly one of `_sorted` and `_unsorted`: new keys
    wait in the latter until someone scans, so that a point write costs a dictionary write.
    """

    __slots__ = ("_rows", "_sorted", "_unsorted")

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._sorted = SortedList()
        self._unsorted: set[bytes] = set()

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None if there is none."""
        return self._rows.get(key)

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply changes in the order given; None deletes."""
        rows = self._rows
        unsorted = self._unsorted
        for key, value in changes:
            if value is None:
                if rows.pop(key, None) is not None:
                    self._forget(key)
            else:
                if key not in rows:
                    unsorted.add(key)
                rows[key] = value

    def scan(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows of a range; rows written while it is read may or may not be seen."""
        return self._backward(start, end) if reverse else self._forward(start, end)

    def drop_below(self, key: bytes) -> None:
        """Forget every row whose key is smaller."""
        self._settle()
        stop = self._sorted.bisect_left(key)
        for old in self._sorted[:stop]:
            del self._rows[old]
        del self._sorted[:stop]

    def count(self) -> int:
        """How many rows there are."""
        return len(self._rows)

    def close(self) -> None:
        """Nothing is held open; the rows stay for whoever shares the object."""

    def _forget(self, key: bytes) -> None:
        if key in self._unsorted:
            self._unsorted.discard(key)
        else:
            self._sorted.remove(key)

    def _settle(self) -> None:
        if self._unsorted:
            self._sorted.update(self._unsorted)
            self._unsorted.clear()

    # Reading in chunks keeps a scan valid when rows are written while it is being read.

    def _forward(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        rows = self._rows
        include_start = True
        while True:
            self._settle()
            keys = list(islice(
                self._sorted.irange(start, end, inclusive=(include_start, False)), _CHUNK
            ))
            for key in keys:
                value = rows.get(key)
                if value is not None:
                    yield key, value
            if len(keys) < _CHUNK:
                return
            start, include_start = keys[-1], False

    def _backward(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        rows = self._rows
        while True:
            self._settle()
            keys = list(islice(
                self._sorted.irange(start, end, inclusive=(True, False), reverse=True), _CHUNK
            ))
            for key in keys:
                value = rows.get(key)
                if value is not None:
                    yield key, value
            if len(keys) < _CHUNK:
                return
            end = keys[-1]


def open_in_memory(name: str) -> BytesStore:
    """Rows in memory, new for every store."""
    return InMemoryBytesStore()
