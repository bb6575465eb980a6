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
from penstock.stores.bytes.windowed_rows import Retention, RowIndex, WindowedRows
from penstock.stores.cache.cache_layer import RowListener
from penstock.stores.cache.record_cache import UNKNOWN, CacheEntry
from penstock.stores.typed.row_access import headers_access, timestamped_access
from penstock.stores.typed.store import LayeredStore, StoreOptions
from penstock.stores.typed.value_codecs import HeaderlessView, HeadersValues, TimestampedValues
from penstock.windows import Window, Windowed, instant_ms

K = TypeVar("K")
V = TypeVar("V")
Instant = int | datetime

# The constructor of a NamedTuple takes twice as long as the tuple that it creates.
#: Creates a `Windowed` from (key, window).
new_windowed: Callable[[tuple[Any, Window]], Windowed[Any]] = partial(tuple.__new__, Windowed)

#: A flush listener caches up to this many windows.
_MAX_CACHED_WINDOWS = 1024


#: Reads (value, timestamp) of (key, start), and writes (key, value, timestamp, start).
Load = Callable[[Any, int], "tuple[Any, int] | None"]
Save = Callable[[Any, Any, int, int], None]


class WindowStore(LayeredStore, Generic[K, V]):
    """Values by key and window start.

    If the store retains duplicates, each row gets the next sequence number. The numbers continue
    from batch to batch (`clocks`), so a row never replaces an earlier one.

    Example:
        >>> from penstock import Stores
        >>> from penstock.testing import MockProcessorContext
        >>> supplier = Stores.in_memory_window_store("counts", retention=60_000, window_size=1_000)
        >>> store = Stores.window_store_builder(supplier, str, int).with_logging_disabled().build()
        >>> store.init(MockProcessorContext().state_store_context)
        >>> store.put("tea", 3, 1_000)
        >>> store.put("tea", 5, 2_000)
        >>> store.fetch("tea", 1_000)
        3
        >>> with store.fetch("tea", 0, 9_000) as windows:
        ...     list(windows)
        [(1000, 3), (2000, 5)]
    """

    _scope_suffix = "-window"

    def __init__(self, supplier: WindowSupplier, options: StoreOptions) -> None:
        super().__init__(supplier.name, supplier.persistent, options)
        self._supplier = supplier
        self.window_size_ms = supplier.window_size_ms
        self.retention_ms = supplier.retention_ms
        self._key_schema = _key_schema(supplier)
        self._sequence = 0
        self._last_put = 0

    def init(self, context: StoreContext) -> None:
        """Open the store in a task.

        Args:
            context: The context of the task.
        """
        self._init_serdes(context)
        supplier = self._supplier
        converters = self._converters(supplier)
        retention = Retention(
            supplier.retention_ms,
            supplier.segment_interval_ms if supplier.persistent else None,
            # Kafka's time-ordered store returns rows for one millisecond longer than the others.
            edge=0 if supplier.time_ordered else 1,
            retain_duplicates=supplier.retain_duplicates,
        )
        open_bytes = self._options.open_bytes
        index = None
        if supplier.indexed or not supplier.persistent:
            by_key = KeyFirstSchema(
                max(supplier.retention_ms // 2, MIN_SEGMENT_MS), sessions=False
            )
            index = RowIndex(by_key, Overlay(open_bytes(f"{self.name}.index")))
        rows = WindowedRows(
            self._key_schema, Overlay(open_bytes(self.name)), retention,
            drop=context.drop, converters=converters, index=index,
        )
        self._stack_layers(context, rows, supplier.format if converters else self._format)

    def put(self, key: K, value: V | None, window_start: Instant) -> None:
        """Write the value of a window; None deletes it.

        Args:
            key: The key.
            value: The value; None deletes the window.
            window_start: The start of the window.

        Kafka: WindowStore#put
        """
        stored = None if value is None else self._encode(value)
        start = window_start if type(window_start) is int else instant_ms(window_start)
        self._rows.put(self._new_row_key(self._key(key), start, stored is not None), stored)

    def fetch(self, *arguments: Any) -> Any:
        """Windows of a key or of a range of keys. All bounds are inclusive; None is unbounded.

        `fetch(key, start)`: the value of one window; None if it does not exist.
        `fetch(key, start_from, start_to)`: an iterator of (start, value).
        `fetch(key_from, key_to, start_from, start_to)`: an iterator of (Windowed, value).

        Args:
            arguments: A key and bounds; see above.

        Returns:
            The value for a key and one time; otherwise an iterator of (start, value) or (windowed
                key, value) pairs.

        Kafka: ReadOnlyWindowStore#fetch, WindowStore#fetch
        """
        if len(arguments) == 2:
            return self._fetch_one(*arguments)
        return self._fetch(arguments, False)

    def backward_fetch(self, *arguments: Any) -> Any:
        """`fetch` with three or four arguments, in the opposite order.

        Args:
            arguments: A key and bounds; see above.

        Returns:
            An iterator of (start, value) or (windowed key, value) pairs.

        Kafka: ReadOnlyWindowStore#backwardFetch, WindowStore#backwardFetch
        """
        return self._fetch(arguments, True)

    def fetch_all(
        self, start_from: Instant, start_to: Instant
    ) -> StoreIterator[Windowed[K], V]:
        """Return all windows that start in a range of time.

        Args:
            start_from: The earliest start of a window.
            start_to: The latest start of a window.

        Kafka: ReadOnlyWindowStore#fetchAll, WindowStore#fetchAll
        """
        bounds = WindowRange(None, None, instant_ms(start_from), instant_ms(start_to))
        return self._scan_windowed(bounds, False)

    def backward_fetch_all(
        self, start_from: Instant, start_to: Instant
    ) -> StoreIterator[Windowed[K], V]:
        """`fetch_all` in the opposite order.

        Args:
            start_from: The earliest start of a window.
            start_to: The latest start of a window.

        Returns:
            An iterator of (windowed key, value) pairs.

        Kafka: ReadOnlyWindowStore#backwardFetchAll, WindowStore#backwardFetchAll
        """
        bounds = WindowRange(None, None, instant_ms(start_from), instant_ms(start_to))
        return self._scan_windowed(bounds, True)

    def all(self) -> StoreIterator[Windowed[K], V]:
        """Return all windows.

        Kafka: ReadOnlyWindowStore#all
        """
        return self._scan_windowed(WindowRange(None, None, 0, MAX_TIME), False)

    def backward_all(self) -> StoreIterator[Windowed[K], V]:
        """Return all windows in the opposite order.

        Kafka: ReadOnlyWindowStore#backwardAll
        """
        return self._scan_windowed(WindowRange(None, None, 0, MAX_TIME), True)

    def clocks(self) -> dict[str, int]:
        """Return the observed stream time and the sequence numbers."""
        clocks = super().clocks()
        if self._supplier.retain_duplicates:
            clocks |= {"sequence": self._sequence, "last_put": self._last_put}
        return clocks

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Set the state of an earlier batch.

        Args:
            clocks: The result of `clocks` in an earlier batch.
        """
        super().set_clocks(clocks)
        self._sequence = clocks.get("sequence", self._sequence)
        self._last_put = clocks.get("last_put", self._last_put)

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers) -> None:
        """Apply one changelog record. New rows get larger sequence numbers.

        Args:
            key: The key.
            value: The value; None deletes the window.
            timestamp: The timestamp, in milliseconds since the epoch.
            headers: The headers: pairs of a name and bytes or None.
        """
        super().restore(key, value, timestamp, headers)
        if self._supplier.retain_duplicates:
            self._sequence = max(self._sequence, int.from_bytes(key[-4:], "big"))

    def restore_all(self, records: PartitionColumns) -> None:
        """Apply many changelog records. New rows get larger sequence numbers.

        Args:
            records: The records.
        """
        super().restore_all(records)
        if self._supplier.retain_duplicates:
            numbers = (int.from_bytes(key[-4:], "big") for key in records.keys if key is not None)
            self._sequence = max(self._sequence, max(numbers, default=0))

    def put_join_record(self, key: K, value: Any, timestamp: int, headers: Headers) -> None:
        """Keep a stream record for later records of the other side of a join.

        Args:
            key: The key.
            value: The value; None deletes the window.
            timestamp: The timestamp, in milliseconds since the epoch.
            headers: The headers: pairs of a name and bytes or None.
        """
        self.put(key, value, timestamp)

    def fetch_join_records(self, key: K, since: int, until: int) -> Iterable[tuple[int, Any]]:
        """Return the records of a key that `put_join_record` kept: (timestamp, value), by time.

        Args:
            key: The key.
            since: The earliest timestamp.
            until: The latest timestamp.
        """
        found: Iterable[tuple[int, Any]] = self.fetch(key, since, until)
        return found

    def _access_to_duplicates(
        self, load_row: Callable[[bytes], tuple[Any, int] | None],
        save_row: Callable[[bytes, Any, Any, int], None],
    ) -> tuple[Load, Save]:
        """`load` and `save` of a store that retains duplicates: of the last row, and a new row."""
        def load_last(key: Any, start: int) -> tuple[Any, int] | None:
            # As in `_fetch_one`.
            if not self.persistent:
                return None
            return load_row(
                self._key_schema.encode(self._serialize_key(key), start, self._last_put)
            )

        def save_next(key: Any, value: Any, timestamp: int, start: int) -> None:
            row_key = self._new_row_key(self._serialize_key(key), start, value is not None)
            save_row(row_key, key, value, timestamp)

        return load_last, save_next

    def _new_row_key(self, key: bytes, start: int, exists: bool) -> bytes:
        if self._supplier.retain_duplicates:
            self._sequence = (self._sequence + 1) & 0x7FFFFFFF
            if exists:
                self._last_put = self._sequence
        return self._key_schema.encode(key, start, self._sequence)

    def _fetch_one(self, key: K, start: Instant) -> V | None:
        raw = self._key(key)
        start = instant_ms(start)
        if self._supplier.retain_duplicates and not self.persistent:
            # Kafka's in-memory store looks up a key without a sequence number, which never exists.
            return None
        stored = self._rows.get(self._key_schema.encode(raw, start, self._last_put))
        return None if stored is None else self._decode(stored)

    def _fetch(self, arguments: tuple[Any, ...], reverse: bool) -> Any:
        if len(arguments) == 3:
            key = self._key(arguments[0])
            bounds = WindowRange(key, key, instant_ms(arguments[1]), instant_ms(arguments[2]))
            decode = self._decode
            time_of = self._key_schema.time_of
            rows = self._rows.scan(bounds, reverse)
            return StoreIterator((time_of(row_key), decode(stored)) for row_key, stored in rows)
        if len(arguments) != 4:
            raise TypeError(
                f"A fetch from a window store takes 2 to 4 arguments, not {len(arguments)}. "
                "Give a key and one or two times, or two keys and two times."
            )
        serialize = self._serialize_key
        low, high = (None if key is None else serialize(key) for key in arguments[:2])
        times = instant_ms(arguments[2]), instant_ms(arguments[3])
        if low is not None and high is not None and low > high:
            return StoreIterator(iter(()))
        return self._scan_windowed(WindowRange(low, high, *times), reverse)

    def _scan_windowed(
        self, bounds: WindowRange, reverse: bool
    ) -> StoreIterator[Windowed[K], V]:
        rows = self._rows.scan(bounds, reverse)
        decode, windowed_key = self._decode, self._windowed_key
        return StoreIterator((windowed_key(row_key), decode(stored)) for row_key, stored in rows)

    def _windowed_key(self, row_key: bytes) -> Windowed[K]:
        key, start, _ = self._key_schema.decode(row_key)
        end = min(start + self.window_size_ms, MAX_TIME)
        return Windowed(self._deserialize_key(key), Window(start, end))

    def _row_listener(self, listener: FlushListener) -> RowListener:
        decode, key_of, split = self._key_schema.decode, self._deserialize_key, self._split
        size_ms = self.window_size_ms
        if core is not None and isinstance(self._key_schema, KeyFirstSchema):
            native: RowListener = core.row_listener(
                listener, self.read_key, key_of, split, Windowed, Window, size_ms
            )
            return native
        windows: dict[int, Window] = {}

        def on_flush(
            row_key: bytes, new: bytes | None, old: bytes | None, entry: CacheEntry
        ) -> None:
            if entry.typed is UNKNOWN:
                value, timestamp = (None, None) if new is None else split(new)
            else:
                value, timestamp = entry.typed, entry.time
            key, start, _ = decode(row_key)
            window = windows.get(start)
            if window is None:
                if len(windows) > _MAX_CACHED_WINDOWS:
                    windows.clear()
                window = windows[start] = Window(start, min(start + size_ms, MAX_TIME))
            listener(
                new_windowed((key_of(key), window)), value, None if old is None else split(old)[0],
                entry.timestamp if timestamp is None else timestamp, entry.headers,
            )

        return on_flush


def _key_schema(supplier: WindowSupplier) -> KeySchema:
    if not supplier.persistent:
        return TimeFirstWindowSchema(sequenced=supplier.retain_duplicates)
    if supplier.time_ordered:
        return TimeFirstWindowSchema(sequenced=True)
    return KeyFirstSchema(supplier.segment_interval_ms, sessions=False)


class TimestampedWindowStore(
    TimestampedValues[V], WindowStore[K, ValueAndTimestamp[V]], Generic[K, V]
):
    """Values with the timestamp of the record that wrote them.

    Example:
        >>> from penstock import Stores
        >>> from penstock.testing import MockProcessorContext
        >>> supplier = Stores.in_memory_window_store("counts", retention=60_000, window_size=1_000)
        >>> builder = Stores.timestamped_window_store_builder(supplier, str, int)
        >>> store = builder.with_logging_disabled().build()
        >>> store.init(MockProcessorContext().state_store_context)
        >>> store.put("tea", ValueAndTimestamp(3, 1_500), 1_000)
        >>> store.fetch("tea", 1_000)
        ValueAndTimestamp(value=3, timestamp=1500)
    """

    #: (value, timestamp) of (key, start); None if the window does not exist. For operators.
    load: Callable[[Any, int], tuple[Any, int] | None]
    #: Writes (key, value, timestamp, start); a value of None deletes the window. For operators.
    save: Callable[[Any, Any, int, int], None]
    #: The row key of (key, start), as `load_row` and `save_row` take it. For operators.
    row_of: Callable[[Any, int], bytes]

    @property
    def segment_interval_ms(self) -> int | None:
        """The length of a segment; None if row keys do not start with a segment."""
        key_schema = self._key_schema
        return key_schema.interval_ms if isinstance(key_schema, KeyFirstSchema) else None

    def key_affixes(self, start: int) -> tuple[bytes, bytes] | None:
        """Return the bytes before and after the key in the row key of a window.

        None if row keys do not have this form.

        Args:
            start: The start of the window.
        """
        key_schema = self._key_schema
        return key_schema.key_affixes(start) if isinstance(key_schema, KeyFirstSchema) else None

    def _bind(self) -> None:
        serialize_key, encode = self._serialize_key, self._key_schema.encode
        self.load_row, self.save_row = load_row, save_row = timestamped_access(
            self._rows, self._cache_layer, self._value_codec
        )

        def row_of(key: Any, start: int) -> bytes:
            return encode(serialize_key(key), start, 0)

        def load(key: Any, start: int) -> tuple[Any, int] | None:
            return load_row(encode(serialize_key(key), start, 0))

        def save(key: Any, value: Any, timestamp: int, start: int) -> None:
            save_row(encode(serialize_key(key), start, 0), key, value, timestamp)

        self.row_of = row_of
        self.load, self.save = load, save
        if self._supplier.retain_duplicates:
            self.load, self.save = self._access_to_duplicates(load_row, save_row)


class TimestampedWindowStoreWithHeaders(
    HeadersValues[V], WindowStore[K, ValueTimestampHeaders[V]], Generic[K, V]
):
    """Values with the timestamp and the headers of the record that wrote them.

    The functions for operators (`load`, `save`, `plain`) write no headers.
    """

    load: Callable[[Any, int], tuple[Any, int] | None]
    save: Callable[[Any, Any, int, int], None]
    row_of: Callable[[Any, int], bytes]

    def _bind(self) -> None:
        serialize_key, encode = self._serialize_key, self._key_schema.encode
        self.load_row, self.save_row = load_row, save_row = headers_access(
            self._rows, self._encode_plain, self._split
        )

        def row_of(key: Any, start: int) -> bytes:
            return encode(serialize_key(key), start, 0)

        def load(key: Any, start: int) -> tuple[Any, int] | None:
            return load_row(row_of(key, start))

        def save(key: Any, value: Any, timestamp: int, start: int) -> None:
            save_row(row_of(key, start), key, value, timestamp)

        self.row_of = row_of
        self.load, self.save = load, save
        if self._supplier.retain_duplicates:
            self.load, self.save = self._access_to_duplicates(load_row, save_row)
        self._plain = HeaderlessWindowView(self)


class HeaderlessWindowView(HeaderlessView[V], TimestampedWindowStore[K, V], Generic[K, V]):
    """A store with headers, shown as one with timestamps. It writes no headers."""

    def __init__(self, store: TimestampedWindowStoreWithHeaders[K, V]) -> None:
        super().__init__(store._supplier, store._options)
        self._share_rows(store)

    def put_join_record(self, key: K, value: Any, timestamp: int, headers: Headers) -> None:
        """Keep a stream record, with its headers."""
        kept = None if value is None else ValueTimestampHeaders(value, timestamp, headers)
        self._store.put(key, kept, timestamp)

    def fetch_join_records(self, key: K, since: int, until: int) -> Iterable[tuple[int, Any]]:
        """The records of a key that `put_join_record` kept: (timestamp, value), by time."""
        for start, kept in self.fetch(key, since, until):
            yield start, kept.value
