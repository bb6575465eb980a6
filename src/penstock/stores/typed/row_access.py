"""Fast reads and writes of the rows of timestamped stores, for operators.

An operator encodes the row key once, reads the row as (value, timestamp) and writes it back. The
cache keeps immutable values beside their bytes, so a value that was written is returned without
deserializing it.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from penstock.errors import StoreSerdeException
from penstock.native import core
from penstock.stores.bytes.rows import RowLayer
from penstock.stores.cache.cache_layer import CacheLayer
from penstock.stores.cache.record_cache import PENDING, UNKNOWN

#: (value, timestamp) of a row key; None if the row does not exist.
LoadRow = Callable[[bytes], "tuple[Any, int] | None"]
#: Writes (row key, typed key, value, timestamp); a value of None deletes the row.
SaveRow = Callable[[bytes, Any, Any, int], None]
#: Folds (row key, typed key, value, timestamp) into a row.
FoldRow = Callable[[bytes, Any, Any, int], None]


class ValueCodec(NamedTuple):
    """The functions that read and write the values of a store. Native code unpacks it.

    The fast functions handle values of the usual type. If one raises, use the complete function.
    """

    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]
    fast_serialize: Callable[[Any], bytes]
    fast_deserialize: Callable[[bytes], Any]
    #: int or float if all values are numbers of this type, in 8 bytes each.
    number: type | None
    #: Whether the values are plain JSON.
    is_plain_json: bool


#: Values of these types are immutable.
IMMUTABLE = frozenset((int, str, float, bool, bytes))

_LIMIT = 2**63
_LONG = Struct(">q")
_pack_long = _LONG.pack
_long_at = _LONG.unpack_from


def timestamped_access(
    rows: RowLayer, cache_layer: CacheLayer | None, codec: ValueCodec
) -> tuple[LoadRow, SaveRow]:
    """`load_row` and `save_row` over the uppermost layer of a store."""
    if cache_layer is not None:
        return _cached_access(cache_layer, codec)
    serialize, deserialize, _, read, *_ = codec
    get, put = rows.get, rows.put

    def load_row(row_key: bytes) -> tuple[Any, int] | None:
        stored = get(row_key)
        if stored is None:
            return None
        try:
            value = read(stored[8:])
        except StoreSerdeException:
            raise
        except Exception:
            value = deserialize(stored[8:])
        return None if value is None else (value, _long_at(stored, 0)[0])

    def save_row(row_key: bytes, key: Any, value: Any, timestamp: int) -> None:
        put(row_key, None if value is None else _pack_long(timestamp) + serialize(value))

    return load_row if core is None else core.timestamped_load(get, read, deserialize), save_row


def value_access(rows: RowLayer, codec: ValueCodec) -> Callable[[bytes], Any]:
    """The value of a row key without its timestamp, in a store without a cache. Native only."""
    assert core is not None
    return core.value_load(rows.get, codec.fast_deserialize, codec.deserialize)


def headers_access(
    rows: RowLayer, encode: Callable[[Any, int], bytes],
    split: Callable[[bytes], tuple[Any, int]],
) -> tuple[LoadRow, SaveRow]:
    """`load_row` and `save_row` of a store with headers. `save_row` writes no headers, except those
    of the serde."""
    get, put = rows.get, rows.put

    def load_row(row_key: bytes) -> tuple[Any, int] | None:
        stored = get(row_key)
        if stored is None:
            return None
        found = split(stored)
        return None if found[0] is None else found

    def save_row(row_key: bytes, key: Any, value: Any, timestamp: int) -> None:
        put(row_key, None if value is None else encode(value, timestamp))

    return load_row, save_row


def _cached_access(cache_layer: CacheLayer, codec: ValueCodec) -> tuple[LoadRow, SaveRow]:
    """`load_row` and `save_row` over a cache.

    The size of a number is known in advance, so a number is serialized only when it is flushed.
    """
    serialize, deserialize, _, read, number, _ = codec
    cache, current = cache_layer.cache, cache_layer.current
    if number is not None:
        cache.pend(number)
    if core is not None:
        native: tuple[LoadRow, SaveRow] = core.timestamped_rows(
            cache, current, cache_layer.below.get, codec, cache_layer.key_schema is None
        )
        return native
    find, use, stored_of = cache.entries.get, cache.use, cache.stored
    get, put, put_typed = cache_layer.get, cache_layer.put, cache.put

    def load_row(row_key: bytes) -> tuple[Any, int] | None:
        entry = find(row_key)
        if entry is None:
            stored = get(row_key)
        else:
            use(entry)
            if entry.typed is not UNKNOWN:
                return entry.typed, entry.time
            stored = entry.value
            if stored is PENDING:
                stored = stored_of(entry)
        if stored is None:
            return None
        try:
            value = read(stored[8:])
        except StoreSerdeException:
            raise
        except Exception:
            value = deserialize(stored[8:])
        return None if value is None else (value, _long_at(stored, 0)[0])

    def save_row(row_key: bytes, key: Any, value: Any, timestamp: int) -> None:
        kind = value.__class__
        if kind is number and (kind is float or -_LIMIT <= value < _LIMIT):
            put_typed(row_key, PENDING, 16, current, value, timestamp)
        elif value is None:
            put(row_key, None)
        else:
            stored = _pack_long(timestamp) + serialize(value)
            typed = value if kind in IMMUTABLE else UNKNOWN
            put_typed(row_key, stored, len(stored), current, typed, timestamp)

    return load_row, save_row


def row_folder(
    cache_layer: CacheLayer, access: tuple[LoadRow, SaveRow], codec: ValueCodec,
    initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any],
) -> FoldRow:
    """`fold_row` over a cache: aggregates a value into the row of a row key.

    A row that an earlier record of the same batch wrote is updated in place: it is looked up once
    and not put into the cache again.
    """
    if core is not None:
        native: FoldRow = core.folding(
            cache_layer.cache, cache_layer.current, cache_layer.below.get, codec,
            cache_layer.key_schema is None, initializer, aggregator,
        )
        return native
    return _row_folder_in_python(cache_layer, access, codec, initializer, aggregator)


def _row_folder_in_python(
    cache_layer: CacheLayer, access: tuple[LoadRow, SaveRow], codec: ValueCodec,
    initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any],
) -> FoldRow:
    load_row, save_row = access
    serialize, deserialize, write, read, number, _ = codec
    cache, current = cache_layer.cache, cache_layer.current
    find, rewrite = cache.entries.get, cache.rewrite

    def fold_row(row_key: bytes, key: Any, value: Any, timestamp: int) -> None:
        entry = find(row_key)
        if (
            entry is None or not entry.writes or entry.rows is not current.rows
            or entry.headers is not current.headers or entry.value is None or entry.time < 0
        ):
            fold_slowly(row_key, key, value, timestamp)
            return
        old = entry.typed
        if old is UNKNOWN:
            try:
                old = read(entry.value[8:])
            except StoreSerdeException:
                raise
            except Exception:
                old = deserialize(entry.value[8:])
            if old is None:
                # The serde reads these bytes as null, so the row does not exist.
                fold_slowly(row_key, key, value, timestamp)
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
            save_row(row_key, key, new, timestamp)
        else:
            try:
                stored = _pack_long(timestamp) + write(new)
            except StoreSerdeException:
                raise
            except Exception:
                stored = _pack_long(timestamp) + serialize(new)
            growth = len(stored) - len(entry.value)
            entry.typed = new if kind in IMMUTABLE else UNKNOWN
            entry.value = stored
            entry.time = timestamp
            rewrite(entry, current, growth)

    def fold_slowly(row_key: bytes, key: Any, value: Any, timestamp: int) -> None:
        found = load_row(row_key)
        if found is None:
            save_row(row_key, key, aggregator(key, value, initializer()), timestamp)
            return
        old, time = found
        new = aggregator(key, value, old)
        save_row(row_key, key, new, timestamp if timestamp > time else time)

    return fold_row
