"""Key-value stores: plain, with timestamps, with timestamps and headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from penstock.native import core
from penstock.record import ValueAndTimestamp
from penstock.serdes.builtin import Serde
from penstock.stores.api.results import StoreIterator, ValueTimestampHeaders
from penstock.stores.api.store import FlushListener, StoreContext
from penstock.stores.api.suppliers import KeyValueSupplier
from penstock.stores.bytes.overlay import Overlay
from penstock.stores.bytes.rows import KeyRange, KeyValueRows, LruRows
from penstock.stores.bytes.store import successor
from penstock.stores.bytes.value_formats import PLAIN, ValueFormat, adapter
from penstock.stores.cache.cache_layer import RowListener
from penstock.stores.cache.record_cache import UNKNOWN, CacheEntry
from penstock.stores.typed.row_access import header_rows, timestamped_rows
from penstock.stores.typed.store import StoreOptions, TypedStore
from penstock.stores.typed.value_codecs import HeaderedValues, PlainView, TimestampedValues

K = TypeVar("K")
V = TypeVar("V")


class KeyValueStore(TypedStore, Generic[K, V]):
    """Rows by key, in the order of the keys' bytes.

    `V` is what this kind of store takes and gives; subclasses wrap values in something.
    """

    _format: ValueFormat = PLAIN

    def __init__(self, supplier: KeyValueSupplier, options: StoreOptions) -> None:
        super().__init__(supplier.name, supplier.persistent, options)
        self._supplier = supplier

    def init(self, context: StoreContext) -> None:
        """Open the store in a task."""
        self._init_serdes(context)
        supplier = self._supplier
        overlay = Overlay(self._options.open_bytes(self.name))
        wanted = self._format
        convert = adapter(wanted, supplier.format) if supplier.persistent else None
        kept: KeyValueRows
        if supplier.max_entries is not None:
            kept = LruRows(overlay, supplier.max_entries)
        else:
            kept = KeyValueRows(overlay, convert)
        self._open(context, kept, (wanted, wanted if convert is None else supplier.format))
        self._bind()

    def get(self, key: K) -> V | None:
        """The value of a key, None if there is none."""
        stored = self._rows.get(self._key(key))
        return None if stored is None else self._decode(stored)

    def put(self, key: K, value: V | None) -> None:
        """Write a value; None deletes the key."""
        self._rows.put(self._key(key), None if value is None else self._encode(value))

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Write a value unless the key has one; the one it had."""
        row = self._key(key)
        rows = self._rows
        stored = rows.get(row)
        if stored is None:
            rows.put(row, None if value is None else self._encode(value))
            return None
        existing: V = self._decode(stored)
        return existing

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Write several values; no key may be None, or nothing is written."""
        rows = [
            (self._key(key), None if value is None else self._encode(value))
            for key, value in entries
        ]
        for row, stored in rows:
            self._rows.put(row, stored)

    def delete(self, key: K) -> V | None:
        """Delete a key; the value it had."""
        row = self._key(key)
        stored = self._rows.get(row)
        self._rows.put(row, None)
        return None if stored is None else self._decode(stored)

    def range(self, start: K | None, end: K | None) -> StoreIterator[K, V]:
        """The rows from one key to another, both included; None is open."""
        return self._scan(self._key_range(start, end), False)

    def reverse_range(self, start: K | None, end: K | None) -> StoreIterator[K, V]:
        """The same from the last to the first."""
        return self._scan(self._key_range(start, end), True)

    def all(self) -> StoreIterator[K, V]:
        """All rows in order."""
        return self._scan(KeyRange(None, None), False)

    def reverse_all(self) -> StoreIterator[K, V]:
        """All rows from the last to the first."""
        return self._scan(KeyRange(None, None), True)

    def prefix_scan(
        self, prefix: Any, serializer: Serde[Any] | Callable[[Any], bytes] | None = None
    ) -> StoreIterator[K, V]:
        """The rows whose key bytes begin with those of the prefix.

        The serializer (a serde or a function, by default the key serde) writes the prefix.
        """
        if prefix is None:
            raise TypeError(f"The prefix for store '{self.name}' is None.")
        serialize = self._serialize_key
        if serializer is not None:
            serialize = serializer.serialize if isinstance(serializer, Serde) else serializer
        start = serialize(prefix)
        return self._scan(KeyRange(start, successor(start)), False)

    @property
    def approximate_num_entries(self) -> int:
        """How many rows there are, without what is still in the cache."""
        kept = self._kept
        if kept is None:
            self._refuse(None)
        return kept.overlay.count()

    def __getitem__(self, key: K) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self._rows.get(self._key(key)) is not None

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.all())

    @property
    def plain(self) -> Any:
        """The store as operators use it, without headers."""
        return self

    def _bind(self) -> None:
        """Make what operators call for every record, with everything bound."""

    def _encode(self, value: Any) -> bytes | None:
        return self._serialize_value(value)

    def _decode(self, stored: bytes) -> Any:
        return self._deserialize_value(stored)

    def _key_range(self, start: K | None, end: K | None) -> KeyRange:
        low = None if start is None else self._serialize_key(start)
        high = None if end is None else self._serialize_key(end) + b"\x00"
        if low is not None and high is not None and low >= high:
            return KeyRange(b"", b"")
        return KeyRange(low, high)

    def _scan(self, span: KeyRange, reverse: bool) -> StoreIterator[K, V]:
        rows = self._rows.scan(span, reverse)
        key_of, decode = self._deserialize_key, self._decode
        return StoreIterator((key_of(row), decode(stored)) for row, stored in rows)

    def _row_listener(
        self, listener: FlushListener
    ) -> RowListener:
        key_of, split = self._deserialize_key, self._split
        if core is not None:
            native: RowListener = core.row_listener(
                listener, self.read_key, key_of, split, tuple, tuple, -1
            )
            return native

        def hear(row: bytes, new: bytes | None, old: bytes | None, entry: CacheEntry) -> None:
            if entry.typed is UNKNOWN:
                value, timestamp = (None, None) if new is None else split(new)
            else:
                value, timestamp = entry.typed, entry.time
            listener(
                key_of(row), value, None if old is None else split(old)[0],
                entry.timestamp if timestamp is None else timestamp, entry.headers,
            )

        return hear

    def _split(self, stored: bytes) -> tuple[Any, int | None]:
        """(plain value, its own timestamp if the store keeps one)."""
        return self._deserialize_value(stored), None


class TimestampedKeyValueStore(
    TimestampedValues[V], KeyValueStore[K, ValueAndTimestamp[V]], Generic[K, V]
):
    """Values with the time of the record that wrote them."""

    #: (value, timestamp) of a key, None if there is none; for operators.
    load: Callable[[Any], tuple[Any, int] | None]
    #: Writes (key, value, timestamp); a value of None deletes. For operators.
    save: Callable[[Any, Any, int], None]

    #: The physical key of a key: what `load_row` and `save_row` take. For operators.
    row_of: Callable[[Any], bytes]

    def _bind(self) -> None:
        self.row_of = row_of = self._serialize_key
        self.load_row, self.save_row = load_row, save_row = timestamped_rows(
            self._rows, self._cached, self._serdes()
        )

        write_key = self.write_key
        if core is not None:
            native_load = core.keyed_load(write_key, row_of, load_row)

        def load(key: Any) -> tuple[Any, int] | None:
            try:
                row = write_key(key)
            except Exception:
                row = row_of(key)
            return load_row(row)

        def save(key: Any, value: Any, timestamp: int) -> None:
            save_row(row_of(key), key, value, timestamp)

        self.load = load if core is None else native_load
        self.save = save


class TimestampedKeyValueStoreWithHeaders(
    HeaderedValues[V], KeyValueStore[K, ValueTimestampHeaders[V]], Generic[K, V]
):
    """Values with the time and the headers of the record that wrote them.

    Operators (`load`, `save`, `plain`) write no headers.
    """

    load: Callable[[Any], tuple[Any, int] | None]
    save: Callable[[Any, Any, int], None]
    row_of: Callable[[Any], bytes]

    def _bind(self) -> None:
        self.row_of = row_of = self._serialize_key
        self.load_row, self.save_row = load_row, save_row = header_rows(
            self._rows, self._serialize_value, self._split
        )

        def load(key: Any) -> tuple[Any, int] | None:
            return load_row(row_of(key))

        def save(key: Any, value: Any, timestamp: int) -> None:
            save_row(row_of(key), key, value, timestamp)

        self.load = load
        self.save = save
        self._plain = PlainKeyValueView(self)


class PlainKeyValueView(PlainView[V], TimestampedKeyValueStore[K, V], Generic[K, V]):
    """A store with headers, seen as one with timestamps only: what is written has no headers."""

    def __init__(self, store: TimestampedKeyValueStoreWithHeaders[K, V]) -> None:
        super().__init__(store._supplier, store._options)
        self._see(store)
