"""Rows of timestamped stores as operators use them: by physical key, as (value, timestamp).

An operator that reads a row and writes it back asks for the physical key once. Over a cache, keys
and values that cannot change are kept beside their bytes, so that what was written is given back
without deserializing it.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from penstock.record import NO_HEADERS
from penstock.stores.caching import CachedRows
from penstock.stores.formats import write_headers
from penstock.stores.rows import Rows

#: (value, timestamp) of a physical key, None if there is none.
LoadRow = Callable[[bytes], "tuple[Any, int] | None"]
#: Writes (physical key, typed key, value, timestamp); a value of None deletes.
SaveRow = Callable[[bytes, Any, Any, int], None]

#: Values of these types cannot change.
UNCHANGING = frozenset((int, str, float, bool, bytes))

_LONG = Struct(">q")
_pack_long = _LONG.pack
_long_at = _LONG.unpack_from


def timestamped_rows(
    rows: Rows, cached: CachedRows | None, serialize: Callable[[Any], bytes],
    deserialize: Callable[[bytes], Any],
) -> tuple[LoadRow, SaveRow]:
    """`load_row` and `save_row` over the top layer of a store."""
    if cached is not None:
        return _over_cache(cached, serialize, deserialize)
    get, put = rows.get, rows.put

    def load_row(row: bytes) -> tuple[Any, int] | None:
        stored = get(row)
        if stored is None:
            return None
        value = deserialize(stored[8:])
        return None if value is None else (value, _long_at(stored, 0)[0])

    def save_row(row: bytes, key: Any, value: Any, timestamp: int) -> None:
        put(row, None if value is None else _pack_long(timestamp) + serialize(value))

    return load_row, save_row


def header_rows(
    rows: Rows, serialize: Callable[[Any], bytes],
    split: Callable[[bytes], tuple[Any, int]],
) -> tuple[LoadRow, SaveRow]:
    """The same of a store that keeps headers: what is written has none."""
    get, put = rows.get, rows.put
    no_headers = write_headers(NO_HEADERS)

    def load_row(row: bytes) -> tuple[Any, int] | None:
        stored = get(row)
        if stored is None:
            return None
        found = split(stored)
        return None if found[0] is None else found

    def save_row(row: bytes, key: Any, value: Any, timestamp: int) -> None:
        stored = None
        if value is not None:
            stored = no_headers + _pack_long(timestamp) + serialize(value)
        put(row, stored)

    return load_row, save_row


def _over_cache(
    cached: CachedRows, serialize: Callable[[Any], bytes], deserialize: Callable[[bytes], Any]
) -> tuple[LoadRow, SaveRow]:
    find, tick = cached.cache.entries.get, cached.cache.tick
    get, put = cached.get, cached.put

    def load_row(row: bytes) -> tuple[Any, int] | None:
        entry = find(row)
        if entry is None:
            stored = get(row)
        else:
            entry.used = tick()
            if entry.row is not None:
                return entry.row
            stored = entry.value
        if stored is None:
            return None
        value = deserialize(stored[8:])
        return None if value is None else (value, _long_at(stored, 0)[0])

    def save_row(row: bytes, key: Any, value: Any, timestamp: int) -> None:
        if value is None:
            put(row, None)
            return
        entry = put(row, _pack_long(timestamp) + serialize(value))
        if key.__class__ in UNCHANGING:
            entry.key = key
        if value.__class__ in UNCHANGING:
            entry.row = (value, timestamp)

    return load_row, save_row
