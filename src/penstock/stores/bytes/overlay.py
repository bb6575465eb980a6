"""The writes of a batch over the committed rows, and the merge of two ordered views.

During a batch, an overlay holds the content of a store. The committed rows change only in
`advance`: a batch that fails leaves nothing behind, and a scan keeps the rows of its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sortedcontainers import SortedList

from penstock.native import core
from penstock.stores.bytes.store import BytesStore


class _Missing:
    __slots__ = ()


_MISSING = _Missing()


class Overlay:
    """Uncommitted writes over a bytes store; a value of None is a deletion.

    Every key of `_writes` is in exactly one of `_sorted` and `_unsorted`. Rows below `_floor` have
    expired: they are no longer read, and `advance` deletes them.
    """

    __slots__ = ("_committed", "_floor", "_sorted", "_unsorted", "_writes", "get")

    #: The value of a key as the batch sees it.
    get: Callable[[bytes], bytes | None]

    def __init__(self, committed: BytesStore) -> None:
        self._committed = committed
        self._writes: dict[bytes, bytes | None] = {}
        self._sorted = SortedList()
        self._unsorted: list[bytes] = []
        self._floor = b""
        self.get = (
            self._get if core is None else core.overlay_get(self._writes, committed.get)
        )

    def _get(self, key: bytes) -> bytes | None:
        value = self._writes.get(key, _MISSING)
        if value is _MISSING:
            return self._committed.get(key)
        return value  # type: ignore[return-value]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a row; None deletes it."""
        writes = self._writes
        if key not in writes:
            self._unsorted.append(key)
        writes[key] = value

    def put_all(self, keys: list[bytes], values: Sequence[bytes | None]) -> None:
        """Write many rows."""
        if core is not None:
            core.write_rows(self._writes, self._unsorted, keys, values)
            return
        writes = self._writes
        self._unsorted += [key for key in keys if key not in writes]
        writes.update(zip(keys, values, strict=True))

    def restore(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Write rows that are committed already, without waiting for `advance` if possible."""
        if self._writes:
            self.put_all(list(rows), list(rows.values()))
        else:
            self._committed.write(rows.items())

    def scan(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The current rows of a range. Later writes are not included."""
        writes = self._writes
        if not writes:
            return self._committed.scan(start, end, reverse)
        if self._unsorted:
            self._sorted.update(self._unsorted)
            self._unsorted.clear()
        uncommitted = [
            (key, writes[key])
            for key in self._sorted.irange(start, end, inclusive=(True, False), reverse=reverse)
        ]
        committed = self._committed.scan(start, end, reverse)
        return merge_scans(uncommitted, committed, reverse) if uncommitted else committed

    def drop_below(self, key: bytes) -> None:
        """Mark rows with smaller keys as expired."""
        if key > self._floor:
            self._floor = key

    def count(self) -> int:
        """The approximate number of rows."""
        committed = self._committed
        count = committed.count()
        for key, value in self._writes.items():
            count += (value is not None) - (committed.get(key) is not None)
        return count

    def advance(self) -> None:
        """Apply the writes to the committed rows."""
        floor = self._floor
        if floor:
            self._committed.drop_below(floor)
            self._floor = b""
        if self._writes:
            writes = self._writes
            changes = writes.items()
            self._committed.write(
                [change for change in changes if change[0] >= floor] if floor else changes
            )
            self._clear()

    def close(self) -> None:
        """Discard the writes since the last `advance`."""
        self._clear()
        self._committed.close()

    def _clear(self) -> None:
        # The native `get` holds this dictionary, so it must not be replaced.
        self._writes.clear()
        self._sorted.clear()
        self._unsorted.clear()


def merge_scans(
    upper: list[tuple[bytes, bytes | None]], lower: Iterator[tuple[bytes, bytes]], reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Merge two ordered views. A row of the upper view hides the lower row with the same key."""
    position = 0
    size = len(upper)
    for row in lower:
        key = row[0]
        while position < size:
            upper_key, value = upper[position]
            if upper_key == key:
                break
            if (upper_key > key) is not reverse:
                break
            position += 1
            if value is not None:
                yield upper_key, value
        else:
            yield row
            continue
        if upper_key == key:
            position += 1
            if value is not None:
                yield upper_key, value
        else:
            yield row
    for upper_key, value in upper[position:]:
        if value is not None:
            yield upper_key, value
