"""The types of the extension, for `penstock.native.core`.

The extension may be missing, and type checkers have no type for a module or None. Its functions
are therefore the methods of a protocol. The classes have the interface of their Python twins.
`tests/unit/native/test_stub.py` compares this file with the extension.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from penstock.record import CurrentRecord, Headers
from penstock.stores.bytes.lmdb.reader import LmdbReader
from penstock.stores.cache import entries as twins
from penstock.stores.replica.store_reader import LookupGate, StoreSession

_V = TypeVar("_V")

# A node takes key, value, timestamp and headers.
_Forward = Callable[[Any, Any, int, Headers], None]


class _CountingForward(Protocol):
    calls: int

    def __call__(self, key: Any, value: Any, timestamp: int, headers: Headers, /) -> None: ...


# The same after the error that a node raised.
_Failed = Callable[[Exception, Any, Any, int, Headers], None]
_Drop = Callable[[str], None]

_Write = Callable[[Any], bytes]
_Read = Callable[[bytes], Any]
# Careful functions, fast functions, int or float for numbers, and whether values are plain JSON.
_Serdes = tuple[_Write, _Read, _Write, _Read, type | None, bool]

_Get = Callable[[bytes], bytes | None]
_LoadRow = Callable[[bytes], tuple[Any, int] | None]
# Row key, typed key, value, timestamp.
_SaveRow = Callable[[bytes, Any, Any, int], None]
# Row key, new and old stored value, and the entry.
_RowListener = Callable[[bytes, bytes | None, bytes | None, twins.CacheEntry], None]
# Key, new and old value, timestamp, headers.
_ChangeListener = Callable[[Any, Any, Any, int, Headers], None]
# Store, key, value, timestamp, headers.
_Change = tuple[str, bytes, bytes, int, Headers]

class Core(Protocol):
    SOURCES: str
    PENDING: Any
    UNKNOWN: Any
    HAS_FAST_CRC32: bool
    CacheEntry: type[twins.CacheEntry]
    CacheBudget: type[twins.CacheBudget]
    CacheEntries: type[twins.CacheEntries]

    # rows.c
    def timestamped_rows(
        self, cache: twins.CacheEntries, current: CurrentRecord, below: _Get, serdes: _Serdes,
        keeps: bool, /,
    ) -> tuple[_LoadRow, _SaveRow]: ...
    def folding(
        self, cache: twins.CacheEntries, current: CurrentRecord, below: _Get, serdes: _Serdes,
        keeps: bool, initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any], /,
    ) -> _SaveRow: ...
    def keyed_load(
        self, write_key: _Write, row_of: _Write, load_row: Callable[[bytes], _V], /
    ) -> Callable[[Any], _V]: ...
    def overlay_get(self, writes: dict[bytes, bytes | None], inner_get: _Get, /) -> _Get: ...
    def timed_get(self, clock: object, get: _Get, time_at: int, reach: int, /) -> _Get: ...

    # lookup.c
    def snapshot_get(
        self, reader: LmdbReader, database: object, prefix: bytes, longest: int, get_long: _Get, /
    ) -> _Get: ...
    def timestamped_load(
        self, get: _Get, read: _Read, deserialize: _Read, /
    ) -> _LoadRow: ...
    def value_load(
        self, get: _Get, read: _Read, deserialize: _Read, /
    ) -> Callable[[bytes], Any]: ...
    def pooled_lookup(
        self, gate: LookupGate, free: list[StoreSession], monotonic: Callable[[], float],
        commits: Callable[[], int], careful: Callable[[Any], Any], /,
    ) -> Callable[[Any], Any]: ...

    # flush.c
    def stored_rows(
        self, cache: twins.CacheEntries, entries: list[twins.CacheEntry], /
    ) -> tuple[list[bytes], list[bytes]] | None: ...
    def write_rows(
        self, writes: dict[bytes, bytes | None], unsorted: list[bytes], rows: list[bytes],
        values: Sequence[bytes | None], /,
    ) -> None: ...
    def times_of_rows(self, rows: list[bytes], time_at: int, /) -> tuple[int, int]: ...
    def timestamped_changes(
        self, store: str, rows: list[bytes], values: list[bytes], cut: int, headers: Headers, /
    ) -> list[_Change]: ...
    def tell_changes(
        self, entries: list[twins.CacheEntry], current: CurrentRecord, listener: _RowListener, /
    ) -> None: ...
    def row_listener(
        self, listener: _ChangeListener, read_key: _Read, careful_key: _Read,
        split: Callable[[bytes], tuple[Any, int | None]], windowed: type[tuple[Any, ...]],
        window: type[tuple[Any, ...]], size_ms: int, /,
    ) -> _RowListener: ...
    def change_listener(
        self, forward: _Forward, change: type[tuple[Any, ...]], /
    ) -> _ChangeListener: ...

    # restore.c
    def segmented_rows(
        self, keys: list[bytes], time_at: int, interval_ms: int, /
    ) -> list[bytes]: ...
    def timestamped_values(
        self, values: Sequence[bytes | None], timestamps: Sequence[int], /
    ) -> list[bytes | None]: ...

    # groups.c
    def group_columns(
        self, rows: Sequence[tuple[Any, ...]], /
    ) -> dict[tuple[Any, ...], tuple[list[Any], list[Any], list[int], list[Headers] | None]]: ...

    # measure.c
    def measure_columns(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None],
        timestamps: Sequence[int], headers: Sequence[Headers] | None, span: tuple[int, int],
        now: int, /,
    ) -> tuple[int, int, float, int, int]: ...
    def measure_outputs(
        self, outputs: list[tuple[Any, ...]], first: int, now: int, /
    ) -> dict[str, tuple[int, int, float, int, int]]: ...

    # sorting.c
    def sorted_changes(
        self, changes: Sequence[tuple[bytes, bytes | None]], prefix: bytes, longest: int, /
    ) -> tuple[list[tuple[bytes, bytes]], list[bytes]] | None: ...

    # flow.c
    def process_rows(
        self, queue: object, runtime: object, rows: object, span: tuple[int, int],
        readers: tuple[_Read, _Read], times: tuple[bool, int, Headers],
        set_head: Callable[[Any, int], bool], now: int, /,
    ) -> tuple[int, int, int, float, int, int]: ...
    def switching(self, to_all: _Forward, current: CurrentRecord, /) -> _Forward: ...
    def guarded(self, process: _Forward, judge: _Failed, /) -> _CountingForward: ...
    def counted(self, process: _Forward, /) -> _CountingForward: ...
    def sink(
        self, topic: str, writers: tuple[_Write, _Write],
        encode: Callable[..., tuple[bytes | None, bytes | None] | None],
        append_checked: Callable[..., None], current: CurrentRecord,
        outputs: tuple[list[Any], list[int] | None, list[Any] | None], partitions: int,
        limit: int, tail: int, earliest: int = ..., latest: int = ..., /,
    ) -> _Forward: ...
    def limit_sink(self, sink: _Forward, limit: int, earliest: int, latest: int, /) -> None: ...

    # stateless.c
    def filtering(
        self, predicate: Callable[[Any, Any], object], forward: _Forward, failed: _Failed,
        negate: bool, /,
    ) -> _Forward: ...
    def mapping_values(
        self, mapper: Callable[..., Any], forward: _Forward, failed: _Failed, with_key: bool, /
    ) -> _Forward: ...
    def selecting_key(
        self, selector: Callable[[Any, Any], Any], forward: _Forward, failed: _Failed, /
    ) -> _Forward: ...
    def null_key_filter(self, forward: _Forward, /) -> _Forward: ...

    # operators.c
    def count_up(self, key: object, value: object, count: int, /) -> int: ...
    def zero(self) -> int: ...
    def new_value(self, forward: _Forward, /) -> _Forward: ...
    def keyed_fold(
        self, drop: _Drop, write_key: _Write, row_of: _Write, fold_row: _SaveRow, /
    ) -> _Forward: ...
    def window_fold(
        self, drop: _Drop, clock: object,
        row_functions: tuple[_Write, Callable[[Any, int], bytes], _SaveRow],
        windows: tuple[int, int, int, int], /,
    ) -> _Forward: ...
    def table_join(
        self, get: Callable[[Any], Any], joiner: Callable[[Any, Any], Any], forward: _Forward,
        drop: tuple[_Drop, str], tallies: tuple[object, object], left: bool, /,
    ) -> _Forward: ...

    # serdes.c
    def write_long(self, value: int, /) -> bytes: ...
    def read_long(self, data: bytes, /) -> int: ...
    def write_double(self, value: float, /) -> bytes: ...
    def read_double(self, data: bytes, /) -> float: ...
    def murmur2(self, data: bytes, /) -> int: ...
    def windowed_writer(
        self, write_key: _Write, windowed: type[tuple[Any, ...]], sequenced: bool, /
    ) -> _Write: ...

    # crc.c; the twin is zlib.crc32
    def crc32(self, data: Any, start: int, /) -> int: ...
