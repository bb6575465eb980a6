"""What a batch has written over the committed rows, and the merge of two ordered views.

An overlay is the truth about a store inside a batch. The rows under it are not touched before
`advance`, so a batch that fails leaves nothing behind, and a scan that is being read keeps seeing
what was there when it began.
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
    """Uncommitted writes over an inner store; None is a deletion, which is not an absence.

    Every key of `_writes` is in exactly one of `_sorted` and `_unsorted`. Rows below `_floor` are
    expired: nobody may ask for them any more, and they go when the overlay advances.
    """

    __slots__ = ("_floor", "_inner", "_sorted", "_unsorted", "_writes", "get")

    #: The value of a key as the batch sees it.
    get: Callable[[bytes], bytes | None]

    def __init__(self, inner: BytesStore) -> None:
        self._inner = inner
        self._writes: dict[bytes, bytes | None] = {}
        self._sorted = SortedList()
        self._unsorted: list[bytes] = []
        self._floor = b""
        self.get = (
            self._get if core is None else core.overlay_get(self._writes, inner.get)
        )

    def _get(self, key: bytes) -> bytes | None:
        value = self._writes.get(key, _MISSING)
        if value is _MISSING:
            return self._inner.get(key)
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
        """Take rows that are committed already: they need not wait for `advance`."""
        if self._writes:
            self.put_all(list(rows), list(rows.values()))
        else:
            self._inner.write(rows.items())

    def scan(
        self, start: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows of a range as they are now; later writes are not seen."""
        writes = self._writes
        if not writes:
            return self._inner.scan(start, end, reverse)
        if self._unsorted:
            self._sorted.update(self._unsorted)
            self._unsorted.clear()
        mine = [
            (key, writes[key])
            for key in self._sorted.irange(start, end, inclusive=(True, False), reverse=reverse)
        ]
        lower = self._inner.scan(start, end, reverse)
        return merged(mine, lower, reverse) if mine else lower

    def drop_below(self, key: bytes) -> None:
        """Rows with smaller keys have expired."""
        if key > self._floor:
            self._floor = key

    def count(self) -> int:
        """How many rows there are, roughly: rows that are overwritten count once."""
        inner = self._inner
        count = inner.count()
        for key, value in self._writes.items():
            count += (value is not None) - (inner.get(key) is not None)
        return count

    def advance(self) -> None:
        """Make the writes part of the inner store."""
        floor = self._floor
        if floor:
            self._inner.drop_below(floor)
            self._floor = b""
        if self._writes:
            writes = self._writes
            changes = writes.items()
            self._inner.write(
                [change for change in changes if change[0] >= floor] if floor else changes
            )
            self._forget()

    def close(self) -> None:
        """Forget what was not advanced."""
        self._forget()
        self._inner.close()

    def _forget(self) -> None:
        # The same dictionary for good: whoever reads has it.
        self._writes.clear()
        self._sorted.clear()
        self._unsorted.clear()


def merged(
    upper: list[tuple[bytes, bytes | None]], lower: Iterator[tuple[bytes, bytes]], reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Both views as one; a row of the upper one hides the lower row of its key."""
    position = 0
    size = len(upper)
    for row in lower:
        key = row[0]
        while position < size:
            mine, value = upper[position]
            if mine == key:
                break
            if (mine > key) is not reverse:
                break
            position += 1
            if value is not None:
                yield mine, value
        else:
            yield row
            continue
        if mine == key:
            position += 1
            if value is not None:
                yield mine, value
        else:
            yield row
    for mine, value in upper[position:]:
        if value is not None:
            yield mine, value
