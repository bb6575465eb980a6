"""Rows of timestamped stores as operators use them: by physical key, as (value, timestamp).

An operator that reads a row and writes it back asks for the physical key once. Over a cache, keys
and values that cannot change are kept beside their bytes, so that what was written is given back
without deserializing it.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from penstock.native import core
from penstock.record import NO_HEADERS
from penstock.stores.bytes.rows import Rows
from penstock.stores.bytes.value_formats import write_headers
from penstock.stores.cache.cache_layer import CacheLayer
from penstock.stores.cache.record_cache import PENDING, UNKNOWN

#: (value, timestamp) of a physical key, None if there is none.
LoadRow = Callable[[bytes], "tuple[Any, int] | None"]
#: Writes (physical key, typed key, value, timestamp); a value of None deletes.
SaveRow = Callable[[bytes, Any, Any, int], None]

Write = Callable[[Any], bytes]
Read = Callable[[bytes], Any]
#: Careful functions, fast functions (what one of them raises says only to ask the careful one), int
#: or float if that is what values are, in 8 bytes each, and whether they are plain JSON.
Serdes = tuple[Write, Read, Write, Read, "type | None", bool]

#: Folds (physical key, typed key, value, timestamp) into a row.
FoldRow = Callable[[bytes, Any, Any, int], None]

#: Values of these types cannot change.
UNCHANGING = frozenset((int, str, float, bool, bytes))

_LIMIT = 2**63
_LONG = Struct(">q")
_pack_long = _LONG.pack
_long_at = _LONG.unpack_from


def timestamped_rows(
    rows: Rows, cached: CacheLayer | None, serdes: Serdes
) -> tuple[LoadRow, SaveRow]:
    """`load_row` and `save_row` over the top layer of a store."""
    if cached is not None:
        return _over_cache(cached, serdes)
    serialize, deserialize, _, read, *_ = serdes
    get, put = rows.get, rows.put

    def load_row(row: bytes) -> tuple[Any, int] | None:
        stored = get(row)
        if stored is None:
            return None
        try:
            value = read(stored[8:])
        except Exception:
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
    cached: CacheLayer, serdes: Serdes
) -> tuple[LoadRow, SaveRow]:
    """The size of a number is known beforehand: it is not serialized before it must be."""
    serialize, deserialize, _, read, number, _ = serdes
    cache, current = cached.cache, cached.current
    if number is not None:
        cache.pend(number)
    if core is not None:
        both: tuple[LoadRow, SaveRow] = core.timestamped_rows(
            cache, current, cached.below.get, serdes, cached.layout is None
        )
        return both
    find, stored_of = cache.entries.get, cache.stored
    get, put, put_typed = cached.get, cached.put, cache.put

    def load_row(row: bytes) -> tuple[Any, int] | None:
        entry = find(row)
        if entry is None:
            stored = get(row)
        else:
            entry.uses += 1
            cache.used.append(entry)
            if entry.typed is not UNKNOWN:
                return entry.typed, entry.time
            stored = entry.value
            if stored is PENDING:
                stored = stored_of(entry)
        if stored is None:
            return None
        try:
            value = read(stored[8:])
        except Exception:
            value = deserialize(stored[8:])
        return None if value is None else (value, _long_at(stored, 0)[0])

    def save_row(row: bytes, key: Any, value: Any, timestamp: int) -> None:
        kind = value.__class__
        if kind is number and (kind is float or -_LIMIT <= value < _LIMIT):
            put_typed(row, PENDING, 16, current, value, timestamp)
        elif value is None:
            put(row, None)
        else:
            stored = _pack_long(timestamp) + serialize(value)
            known = value if kind in UNCHANGING else UNKNOWN
            put_typed(row, stored, len(stored), current, known, timestamp)

    return load_row, save_row


def folding(
    cached: CacheLayer, rows: tuple[LoadRow, SaveRow],
    serdes: Serdes,
    initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any],
) -> FoldRow:
    """Folds a value into the row of a physical key, over a cache.

    A row that was written by an earlier record of the same batch is folded where it stands: it is
    looked up once, and not put into the cache again.
    """
    if core is not None:
        fold: FoldRow = core.folding(
            cached.cache, cached.current, cached.below.get, serdes, cached.layout is None,
            initializer, aggregator,
        )
        return fold
    return _folding_in_python(cached, rows, serdes, initializer, aggregator)


def _folding_in_python(
    cached: CacheLayer, rows: tuple[LoadRow, SaveRow],
    serdes: Serdes,
    initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any],
) -> FoldRow:
    load_row, save_row = rows
    serialize, deserialize, write, read, number, _ = serdes
    cache, current = cached.cache, cached.current
    find, rewrite = cache.entries.get, cache.rewrite
    below, put_typed = cached.below.get, cache.put

    def fold_row(row: bytes, key: Any, value: Any, timestamp: int) -> None:
        entry = find(row)
        if entry is None and below(row) is None:
            new = aggregator(key, value, initializer())
            if new.__class__ is int is number and -_LIMIT <= new < _LIMIT:
                put_typed(row, PENDING, 16, current, new, timestamp)
            else:
                save_row(row, key, new, timestamp)
            return
        if (
            entry is None or not entry.writes or entry.rows is not current.rows
            or entry.headers is not current.headers or entry.value is None or entry.time < 0
        ):
            fold_slowly(row, key, value, timestamp)
            return
        old = entry.typed
        if old is UNKNOWN:
            try:
                old = read(entry.value[8:])
            except Exception:
                old = deserialize(entry.value[8:])
            if old is None:
                # The serde reads these bytes as null: there is no row.
                fold_slowly(row, key, value, timestamp)
                return
        if entry.time > timestamp:
            timestamp = entry.time
        new = aggregator(key, value, old)
        kind = new.__class__
        if kind is number and (kind is float or -_LIMIT <= new < _LIMIT):
            entry.typed = new
            entry.value = PENDING
            entry.time = timestamp
            rewrite(entry, current, 0)
        elif new is None or entry.value is PENDING:
            save_row(row, key, new, timestamp)
        else:
            try:
                stored = _pack_long(timestamp) + write(new)
            except Exception:
                stored = _pack_long(timestamp) + serialize(new)
            growth = len(stored) - len(entry.value)
            entry.typed = new if kind in UNCHANGING else UNKNOWN
            entry.value = stored
            entry.time = timestamp
            rewrite(entry, current, growth)

    def fold_slowly(row: bytes, key: Any, value: Any, timestamp: int) -> None:
        found = load_row(row)
        if found is None:
            save_row(row, key, aggregator(key, value, initializer()), timestamp)
            return
        old, time = found
        save_row(row, key, aggregator(key, value, old), timestamp if timestamp > time else time)

    return fold_row
