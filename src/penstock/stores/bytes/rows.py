"""The interface of all row layers, and the lowest layer of key-value stores.

A store is a stack of layers with the same interface: the rows (here, in `windowed_rows` and in
`versioned_rows`), the changelog layer above them, and the cache layer on top. The typed store uses
the uppermost layer. Rows own their overlay.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from penstock.stores.bytes.overlay import Overlay
from penstock.stores.bytes.value_formats import Converter, Converters

#: (row key, stored value)
Row = tuple[bytes, bytes]


class KeyRange(NamedTuple):
    """The bounds of a scan of a key-value store: start <= key < end; None is unbounded."""

    start: bytes | None
    end: bytes | None


#: Writes many rows: row keys and stored values.
PutAll = Callable[[list[bytes], list[bytes]], None]


class RowLayer(Protocol):
    """A layer of a store below the typed store. It takes row keys and stored values.

    A layer can also have `put_all: PutAll | None`, which writes many rows without deletions.
    """

    def get(self, row_key: bytes) -> bytes | None:
        """The stored value; None if the row does not exist."""
        ...

    def put(self, row_key: bytes, value: bytes | None) -> None:
        """Write a row; None deletes it."""
        ...

    def remove(self, row_key: bytes) -> None:
        """Delete the row of a session."""
        ...

    def scan(self, bounds: Any, reverse: bool) -> Iterator[Row]:
        """The rows within a `KeyRange` or `WindowRange`, in order."""
        ...


class KeyValueRows:
    """The rows of a key-value store. They do not expire."""

    def __init__(self, overlay: Overlay, converters: Converters | None = None) -> None:
        self.overlay = overlay
        self._to_kept: Converter | None = None
        self._from_kept: Converter | None = None
        #: Writes many rows; None if values are converted or rows are evicted.
        self.put_all: PutAll | None = None
        if converters is None:
            self.get = overlay.get
            self.put = overlay.put
            self.put_all = overlay.put_all
        else:
            self._to_kept, self._from_kept = converters
            self.get = self._get_converted
            self.put = self._put_converted

    get: Callable[[bytes], bytes | None]
    put: Callable[[bytes, bytes | None], None]

    def remove(self, row_key: bytes) -> None:
        """Delete a row."""
        self.put(row_key, None)

    def scan(self, bounds: KeyRange, reverse: bool) -> Iterator[Row]:
        """The rows of a key range."""
        rows = self.overlay.scan(bounds.start, bounds.end, reverse)
        convert = self._from_kept
        return rows if convert is None else ((key, convert(value)) for key, value in rows)

    def restore(self, row_key: bytes, value: bytes | None) -> None:
        """Write a row whose value has the kept format already."""
        self.overlay.put(row_key, value)

    def restore_all(self, row_keys: Iterable[bytes], values: Iterable[bytes | None]) -> None:
        """Write many rows. The last value of a row key wins."""
        self.overlay.restore(dict(zip(row_keys, values, strict=True)))

    def advance(self) -> None:
        """Apply the writes to the committed rows."""
        self.overlay.advance()

    def close(self) -> None:
        """Release the rows."""
        self.overlay.close()

    def clocks(self) -> dict[str, int]:
        """Empty: a key-value store has no stream time."""
        return {}

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Nothing to set: a key-value store has no stream time."""

    def _get_converted(self, row_key: bytes) -> bytes | None:
        value = self.overlay.get(row_key)
        return value if value is None or self._from_kept is None else self._from_kept(value)

    def _put_converted(self, row_key: bytes, value: bytes | None) -> None:
        if value is not None and self._to_kept is not None:
            value = self._to_kept(value)
        self.overlay.put(row_key, value)


class LruRows(KeyValueRows):
    """The rows of an LRU map: the most recently used keys, up to a maximum number.

    `_order` holds every row key, least recently used first. The clocks of the store carry it from
    batch to batch: reads change the order, and the changelog does not hold reads.
    """

    def __init__(self, overlay: Overlay, max_entries: int) -> None:
        super().__init__(overlay)
        self._max_entries = max_entries
        self._order: OrderedDict[bytes, None] = OrderedDict(
            (key, None) for key, _ in overlay.scan(None, None)
        )
        #: True once `set_clocks` was called: then `_order` defines which rows exist.
        self._has_committed_order = False
        #: Called with the key of each evicted row.
        self.on_evict: Callable[[bytes], None] | None = None
        self.get = self._get_recent
        self.put = self._put_recent
        self.put_all = None

    def restore(self, row_key: bytes, value: bytes | None) -> None:
        """Write a row without reporting evictions."""
        if self._has_committed_order:
            self.overlay.put(row_key, value if row_key in self._order else None)
            return
        on_evict, self.on_evict = self.on_evict, None
        self._put_recent(row_key, value)
        self.on_evict = on_evict

    def restore_all(self, row_keys: Iterable[bytes], values: Iterable[bytes | None]) -> None:
        """Write many rows, in order."""
        for row_key, value in zip(row_keys, values, strict=True):
            self.restore(row_key, value)

    def clocks(self) -> dict[str, int]:
        """The position of every row key, as latin-1 text, in the order of use."""
        return {row_key.decode("latin-1"): at for at, row_key in enumerate(self._order)}

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Set the order of an earlier batch. Rows that are missing in it are deleted."""
        order = OrderedDict.fromkeys(
            row_key.encode("latin-1") for row_key in sorted(clocks, key=clocks.__getitem__)
        )
        for row_key in self._order.keys() - order.keys():
            self.overlay.put(row_key, None)
        self._order = order
        self._has_committed_order = True

    def _get_recent(self, row_key: bytes) -> bytes | None:
        value = self.overlay.get(row_key)
        if value is not None:
            self._order.move_to_end(row_key)
        return value

    def _put_recent(self, row_key: bytes, value: bytes | None) -> None:
        order = self._order
        self.overlay.put(row_key, value)
        if value is None:
            order.pop(row_key, None)
            return
        order[row_key] = None
        order.move_to_end(row_key)
        if len(order) > self._max_entries:
            eldest, _ = order.popitem(last=False)
            if self.on_evict is not None:
                self.on_evict(eldest)
            self.overlay.put(eldest, None)
