"""Window stores: plain, with timestamps, with timestamps and headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar

from penstock.native import core
from penstock.record import Headers, PartitionColumns, ValueAndTimestamp
from penstock.stores.api.results import StoreIterator, ValueTimestampHeaders
from penstock.stores.api.store import FlushListener, StoreContext
from penstock.stores.api.suppliers import MIN_SEGMENT_MS, WindowSupplier
from penstock.stores.bytes.key_schema import (
    MAX_TIME,
    KeyFirstSchema,
    KeySchema,
    TimeFirstWindowSchema,
    WindowRange,
)
from penstock.stores.bytes.overlay import Overlay
from penstock.stores.bytes.rows import Retention, WindowedRows
from penstock.stores.bytes.value_formats import PLAIN, ValueFormat, adapter
from penstock.stores.cache.cache_layer import RowListener
from penstock.stores.cache.record_cache import UNKNOWN, CacheEntry
from penstock.stores.typed.row_access import header_rows, timestamped_rows
from penstock.stores.typed.store import StoreOptions, TypedStore
from penstock.stores.typed.value_codecs import HeaderedValues, PlainView, TimestampedValues
from penstock.windows import Window, Windowed, instant_ms

K = TypeVar("K")
V = TypeVar("V")
Instant = int | datetime

# A NamedTuple's own constructor costs twice as much as the tuple it makes.
#: A `Windowed` from (key, window).
windowed_of: Callable[[tuple[Any, Window]], Windowed[Any]] = partial(tuple.__new__, Windowed)

#: So many windows are remembered by who tells of them.
_MANY_WINDOWS = 1024


class WindowStore(TypedStore, Generic[K, V]):
    """Values by key and start of their window.

    Where duplicates are kept each row gets the next sequence number. Numbers go on from batch to
    batch (`clocks`), so a row never takes the place of an earlier one.
    """

    _format: ValueFormat = PLAIN

    def __init__(self, supplier: WindowSupplier, options: StoreOptions) -> None:
        super().__init__(supplier.name, supplier.persistent, options)
        self._supplier = supplier
        self.window_size_ms = supplier.window_size_ms
        self.retention_ms = supplier.retention_ms
        self._layout = _layout(supplier)
        self._sequence = 0
        self._last_put = 0

    def init(self, context: StoreContext) -> None:
        """Open the store in a task."""
        self._init_serdes(context)
        supplier = self._supplier
        wanted = self._format
        convert = adapter(wanted, supplier.format) if supplier.persistent else None
        retention = Retention(
            supplier.retention_ms,
            supplier.segment_interval_ms if supplier.persistent else None,
            # Kafka's time-ordered store shows one millisecond more than the others.
            edge=0 if supplier.time_ordered else 1,
            retain_duplicates=supplier.retain_duplicates,
        )
        open_bytes = self._options.open_bytes
        index = None
        if supplier.indexed or not supplier.persistent:
            by_key = KeyFirstSchema(max(supplier.retention_ms // 2, MIN_SEGMENT_MS), sessions=False)
            index = (by_key, Overlay(open_bytes(f"{self.name}.index")))
        kept = WindowedRows(
            self._layout, Overlay(open_bytes(self.name)), retention,
            drop=context.drop, convert=convert, index=index,
        )
        self._open(context, kept, (wanted, wanted if convert is None else supplier.format))
        self._bind()

    def put(self, key: K, value: V | None, window_start: Instant) -> None:
        """Write the value of a window; None deletes it."""
        stored = None if value is None else self._encode(value)
        start = window_start if type(window_start) is int else instant_ms(window_start)
        self._rows.put(self._new_row(self._key(key), start, stored is not None), stored)

    def fetch(self, *question: Any) -> Any:
        """Windows of a key or of a range of keys; all bounds are included, None is an open key.

        `fetch(key, start)`: the value of one window, None if there is none.
        `fetch(key, start_from, start_to)`: iterator of (start, value).
        `fetch(key_from, key_to, start_from, start_to)`: iterator of (Windowed, value).
        """
        if len(question) == 2:
            return self._fetch_one(*question)
        return self._fetch(question, False)

    def backward_fetch(self, *question: Any) -> Any:
        """Like `fetch` with three or four arguments, in the opposite order."""
        return self._fetch(question, True)

    def fetch_all(
        self, start_from: Instant, start_to: Instant
    ) -> StoreIterator[Windowed[K], V]:
        """All windows that start in a stretch of time."""
        span = WindowRange(None, None, instant_ms(start_from), instant_ms(start_to))
        return self._windowed(span, False)

    def backward_fetch_all(
        self, start_from: Instant, start_to: Instant
    ) -> StoreIterator[Windowed[K], V]:
        """The same in the opposite order."""
        span = WindowRange(None, None, instant_ms(start_from), instant_ms(start_to))
        return self._windowed(span, True)

    def all(self) -> StoreIterator[Windowed[K], V]:
        """All windows."""
        return self._windowed(WindowRange(None, None, 0, MAX_TIME), False)

    def backward_all(self) -> StoreIterator[Windowed[K], V]:
        """All windows in the opposite order."""
        return self._windowed(WindowRange(None, None, 0, MAX_TIME), True)

    def clocks(self) -> dict[str, int]:
        """The observed stream time and the sequence numbers."""
        clocks = super().clocks()
        if self._supplier.retain_duplicates:
            clocks |= {"sequence": self._sequence, "last_put": self._last_put}
        return clocks

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Go on from an earlier batch."""
        super().set_clocks(clocks)
        self._sequence = clocks.get("sequence", self._sequence)
        self._last_put = clocks.get("last_put", self._last_put)

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Take one record of the changelog; new rows get numbers after its."""
        super().restore(key, value, timestamp, headers)
        if self._supplier.retain_duplicates:
            self._sequence = max(self._sequence, int.from_bytes(key[-4:], "big"))

    def restore_all(self, records: PartitionColumns) -> None:
        """Take many records of the changelog; new rows get numbers after theirs."""
        super().restore_all(records)
        if self._supplier.retain_duplicates:
            numbers = (int.from_bytes(key[-4:], "big") for key in records.keys if key is not None)
            self._sequence = max(self._sequence, max(numbers, default=0))

    @property
    def plain(self) -> Any:
        """The store as operators use it, without headers."""
        return self

    def keep(self, key: K, value: Any, timestamp: int, headers: Headers) -> None:
        """Keep a record of a stream for those it will be joined with."""
        self.put(key, value, timestamp)

    def partners(self, key: K, since: int, until: int) -> Iterable[tuple[int, Any]]:
        """The records that were kept for a key: (timestamp, value) by time."""
        found: Iterable[tuple[int, Any]] = self.fetch(key, since, until)
        return found

    def _bind(self) -> None:
        """Make what operators call for every record, with everything bound."""

    def _encode(self, value: Any) -> bytes | None:
        return self._serialize_value(value)

    def _decode(self, stored: bytes) -> Any:
        return self._deserialize_value(stored)

    def _split(self, stored: bytes) -> tuple[Any, int | None]:
        """(plain value, its own timestamp if the store keeps one)."""
        return self._deserialize_value(stored), None

    def _new_row(self, key: bytes, start: int, exists: bool) -> bytes:
        if self._supplier.retain_duplicates:
            self._sequence = (self._sequence + 1) & 0x7FFFFFFF
            if exists:
                self._last_put = self._sequence
        return self._layout.encode(key, start, self._sequence)

    def _fetch_one(self, key: K, start: Instant) -> V | None:
        raw = self._key(key)
        start = instant_ms(start)
        if self._supplier.retain_duplicates and not self.persistent:
            # In memory only a key without a sequence number would be found.
            return None
        stored = self._rows.get(self._layout.encode(raw, start, self._last_put))
        return None if stored is None else self._decode(stored)

    def _fetch(self, question: tuple[Any, ...], reverse: bool) -> Any:
        if len(question) == 3:
            key = self._key(question[0])
            span = WindowRange(key, key, instant_ms(question[1]), instant_ms(question[2]))
            decode = self._decode
            time = self._layout.time
            rows = self._rows.scan(span, reverse)
            return StoreIterator((time(row), decode(stored)) for row, stored in rows)
        if len(question) != 4:
            raise TypeError(
                f"A window store is asked with a key and one or two times, or with two keys and "
                f"two times, not with {len(question)} arguments."
            )
        serialize = self._serialize_key
        low, high = (None if key is None else serialize(key) for key in question[:2])
        times = instant_ms(question[2]), instant_ms(question[3])
        if low is not None and high is not None and low > high:
            return StoreIterator(iter(()))
        return self._windowed(WindowRange(low, high, *times), reverse)

    def _windowed(self, span: WindowRange, reverse: bool) -> StoreIterator[Windowed[K], V]:
        rows = self._rows.scan(span, reverse)
        decode, windowed = self._decode, self._windowed_key
        return StoreIterator((windowed(row), decode(stored)) for row, stored in rows)

    def _windowed_key(self, row: bytes) -> Windowed[K]:
        key, start, _ = self._layout.decode(row)
        end = min(start + self.window_size_ms, MAX_TIME)
        return Windowed(self._deserialize_key(key), Window(start, end))

    def _row_listener(
        self, listener: FlushListener
    ) -> RowListener:
        decode, key_of, split = self._layout.decode, self._deserialize_key, self._split
        size_ms = self.window_size_ms
        if core is not None and isinstance(self._layout, KeyFirstSchema):
            native: RowListener = core.row_listener(
                listener, self.read_key, key_of, split, Windowed, Window, size_ms
            )
            return native
        windows: dict[int, Window] = {}

        def hear(row: bytes, new: bytes | None, old: bytes | None, entry: CacheEntry) -> None:
            if entry.typed is UNKNOWN:
                value, timestamp = (None, None) if new is None else split(new)
            else:
                value, timestamp = entry.typed, entry.time
            key, start, _ = decode(row)
            window = windows.get(start)
            if window is None:
                if len(windows) > _MANY_WINDOWS:
                    windows.clear()
                window = windows[start] = Window(start, min(start + size_ms, MAX_TIME))
            listener(
                windowed_of((key_of(key), window)), value, None if old is None else split(old)[0],
                entry.timestamp if timestamp is None else timestamp, entry.headers,
            )

        return hear


def _layout(supplier: WindowSupplier) -> KeySchema:
    if not supplier.persistent:
        return TimeFirstWindowSchema(sequenced=supplier.retain_duplicates)
    if supplier.time_ordered:
        return TimeFirstWindowSchema(sequenced=True)
    return KeyFirstSchema(supplier.segment_interval_ms, sessions=False)


class TimestampedWindowStore(
    TimestampedValues[V], WindowStore[K, ValueAndTimestamp[V]], Generic[K, V]
):
    """Values with the time of the record that wrote them."""

    #: (value, timestamp) of (key, start), None if there is none; for operators.
    load: Callable[[Any, int], tuple[Any, int] | None]
    #: Writes (key, value, timestamp, start); a value of None deletes. For operators.
    save: Callable[[Any, Any, int, int], None]
    #: The physical key of (key, start): what `load_row` and `save_row` take. For operators.
    row_of: Callable[[Any, int], bytes]

    @property
    def segment_interval_ms(self) -> int | None:
        """The length of a segment, if the physical key of a window begins with its segment."""
        layout = self._layout
        return layout.interval_ms if isinstance(layout, KeyFirstSchema) else None

    def around(self, start: int) -> tuple[bytes, bytes] | None:
        """What stands before and behind the key in the physical key of a window, if it is so."""
        layout = self._layout
        return layout.around(start) if isinstance(layout, KeyFirstSchema) else None

    def _bind(self) -> None:
        serialize_key, encode = self._serialize_key, self._layout.encode
        self.load_row, self.save_row = load_row, save_row = timestamped_rows(
            self._rows, self._cached, self._serdes()
        )

        def row_of(key: Any, start: int) -> bytes:
            return encode(serialize_key(key), start, 0)

        def load(key: Any, start: int) -> tuple[Any, int] | None:
            return load_row(encode(serialize_key(key), start, 0))

        def save(key: Any, value: Any, timestamp: int, start: int) -> None:
            save_row(encode(serialize_key(key), start, 0), key, value, timestamp)

        self.row_of = row_of
        self.load = load
        self.save = save


class TimestampedWindowStoreWithHeaders(
    HeaderedValues[V], WindowStore[K, ValueTimestampHeaders[V]], Generic[K, V]
):
    """Values with the time and the headers of the record that wrote them.

    Operators (`load`, `save`, `plain`) write no headers.
    """

    load: Callable[[Any, int], tuple[Any, int] | None]
    save: Callable[[Any, Any, int, int], None]
    row_of: Callable[[Any, int], bytes]

    def _bind(self) -> None:
        serialize_key, encode = self._serialize_key, self._layout.encode
        self.load_row, self.save_row = load_row, save_row = header_rows(
            self._rows, self._serialize_value, self._split
        )

        def row_of(key: Any, start: int) -> bytes:
            return encode(serialize_key(key), start, 0)

        def load(key: Any, start: int) -> tuple[Any, int] | None:
            return load_row(row_of(key, start))

        def save(key: Any, value: Any, timestamp: int, start: int) -> None:
            save_row(row_of(key, start), key, value, timestamp)

        self.row_of = row_of
        self.load = load
        self.save = save
        self._plain = PlainWindowView(self)


class PlainWindowView(PlainView[V], TimestampedWindowStore[K, V], Generic[K, V]):
    """A store with headers, seen as one with timestamps only: what is written has no headers."""

    def __init__(self, store: TimestampedWindowStoreWithHeaders[K, V]) -> None:
        super().__init__(store._supplier, store._options)
        self._see(store)

    def keep(self, key: K, value: Any, timestamp: int, headers: Headers) -> None:
        """Keep a record of a stream, with its headers."""
        kept = None if value is None else ValueTimestampHeaders(value, timestamp, headers)
        self._store.put(key, kept, timestamp)

    def partners(self, key: K, since: int, until: int) -> Iterable[tuple[int, Any]]:
        """The records that were kept for a key: (timestamp, value) by time."""
        for start, kept in self.fetch(key, since, until):
            yield start, kept.value
