"""The interface of the committed rows of a store, and its in-memory version.

Keys and values are bytes; rows are ordered by the unsigned bytes of their keys. Ranges are half
open: the start is included, the end is excluded, and None means unbounded. All keys with prefix p
are `scan(p, successor(p))`; an inclusive end is `end + b"\\x00"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Protocol

from sortedcontainers import SortedList

_CHUNK = 256


class BytesStore(Protocol):
    """Committed rows. Only `write` and `drop_below` change them, between batches."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if the key does not exist.

        Args:
            key: The key.
        """
        ...

    def scan(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the rows with start <= key < end, in ascending or descending order of their keys.

        Args:
            start: The first key; None for the first of all.
            end: The key after the last one; None for no bound.
            reverse: Whether the rows come in descending order.
        """
        ...

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply changes in order; None deletes a row.

        Args:
            changes: Pairs of a key and a value; None deletes the row.
        """
        ...

    def drop_below(self, key: bytes) -> None:
        """Delete all rows with smaller keys.

        Args:
            key: The key.
        """
        ...

    def count(self) -> int:
        """Return the number of rows; may be approximate."""
        ...

    def close(self) -> None:
        """Release resources."""
        ...


#: Opens the bytes store of that name. A store opens one, and a second one for an index.
OpenBytesStore = Callable[[str], BytesStore]


def successor(prefix: bytes) -> bytes | None:
    """The smallest key above all keys with this prefix; None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None


class InMemoryBytesStore:
    """Rows in memory.

    Every key of `_rows` is in exactly one of `_sorted` and `_unsorted`. New keys stay in
    `_unsorted` until the next scan, so a single write costs only a dictionary write.
    """

    __slots__ = ("_rows", "_sorted", "_unsorted")

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._sorted = SortedList()
        self._unsorted: set[bytes] = set()

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None if the key does not exist."""
        return self._rows.get(key)

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply changes in order; None deletes a row."""
        rows = self._rows
        unsorted = self._unsorted
        for key, value in changes:
            if value is None:
                if rows.pop(key, None) is not None:
                    self._remove_key(key)
            else:
                if key not in rows:
                    unsorted.add(key)
                rows[key] = value

    def scan(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows of a range. Rows written during the scan may or may not be included."""
        return self._descending(start, end) if reverse else self._ascending(start, end)

    def drop_below(self, key: bytes) -> None:
        """Delete all rows with smaller keys."""
        self._sort()
        stop = self._sorted.bisect_left(key)
        for old in self._sorted[:stop]:
            del self._rows[old]
        del self._sorted[:stop]

    def count(self) -> int:
        """The number of rows."""
        return len(self._rows)

    def close(self) -> None:
        """Nothing to release. The rows stay valid for other users of the object."""

    def _remove_key(self, key: bytes) -> None:
        if key in self._unsorted:
            self._unsorted.discard(key)
        else:
            self._sorted.remove(key)

    def _sort(self) -> None:
        if self._unsorted:
            self._sorted.update(self._unsorted)
            self._unsorted.clear()

    # Scans read keys in chunks, so they stay valid when rows are written during the scan.

    def _ascending(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        rows = self._rows
        include_start = True
        while True:
            self._sort()
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

    def _descending(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        rows = self._rows
        while True:
            self._sort()
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
    """An `OpenBytesStore` that creates a new, empty in-memory store."""
    return InMemoryBytesStore()
