"""Key-value stores: plain, with timestamps, with timestamps and headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from penstock.errors import StoreSerdeException
from penstock.native import core
from penstock.record import ValueAndTimestamp
from penstock.serdes.builtin import Serde
from penstock.stores.api.results import StoreIterator, ValueTimestampHeaders
from penstock.stores.api.store import FlushListener, StoreContext
from penstock.stores.api.suppliers import KeyValueSupplier
from penstock.stores.bytes.overlay import Overlay
from penstock.stores.bytes.rows import KeyRange, KeyValueRows, LruRows
from penstock.stores.bytes.store import successor
from penstock.stores.cache.cache_layer import RowListener
from penstock.stores.cache.record_cache import UNKNOWN, CacheEntry
from penstock.stores.typed.row_access import headers_access, timestamped_access, value_access
from penstock.stores.typed.store import LayeredStore, StoreOptions
from penstock.stores.typed.value_codecs import HeaderlessView, HeadersValues, TimestampedValues

K = TypeVar("K")
V = TypeVar("V")


class KeyValueStore(LayeredStore, Generic[K, V]):
    """Values by key, in the order of the serialized keys.

    `V` is the type of the values that this kind of store reads and writes. Subclasses add
    timestamps and headers to it.

    Example:
        >>> from penstock import Stores
        >>> from penstock.testing import MockProcessorContext
        >>> supplier = Stores.in_memory_key_value_store("stock")
        >>> builder = Stores.key_value_store_builder(supplier, str, int)
        >>> store = builder.with_logging_disabled().build()
        >>> store.init(MockProcessorContext().state_store_context)
        >>> store.put("tea", 3)
        >>> store["milk"] = 5
        >>> store.get("tea")
        3
        >>> with store.range("m", "z") as rows:
        ...     list(rows)
        [('milk', 5), ('tea', 3)]
        >>> store.delete("tea")
        3
    """

    def __init__(self, supplier: KeyValueSupplier, options: StoreOptions) -> None:
        super().__init__(supplier.name, supplier.persistent, options)
        self._supplier = supplier
        if supplier.max_entries is not None:
            self._scope_suffix = "-lru"

    def init(self, context: StoreContext) -> None:
        """Open the store in a task.

        Args:
            context: The context of the task.
        """
        self._init_serdes(context)
        supplier = self._supplier
        overlay = Overlay(self._options.open_bytes(self.name))
        converters = self._converters(supplier)
        rows: KeyValueRows
        if supplier.max_entries is not None:
            rows = LruRows(overlay, supplier.max_entries)
        else:
            rows = KeyValueRows(overlay, converters)
        self._stack_layers(context, rows, supplier.format if converters else self._format)

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if the key does not exist.

        Args:
            key: The key.

        Kafka: ReadOnlyKeyValueStore#get
        """
        stored = self._rows.get(self._key(key))
        return None if stored is None else self._decode(stored)

    def put(self, key: K, value: V | None) -> None:
        """Write a value; None deletes the key.

        Args:
            key: The key.
            value: The value; None deletes the key.

        Kafka: KeyValueStore#put
        """
        self._rows.put(self._key(key), None if value is None else self._encode(value))

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Write a value unless the key has one. Returns the existing value.

        Args:
            key: The key.
            value: The value; None deletes the key.

        Returns:
            The existing value; None if the key had none and the value was written.

        Kafka: KeyValueStore#putIfAbsent
        """
        row_key = self._key(key)
        rows = self._rows
        stored = rows.get(row_key)
        if stored is None:
            rows.put(row_key, None if value is None else self._encode(value))
            return None
        existing: V = self._decode(stored)
        return existing

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Write several values. If a key is None, nothing is written.

        Args:
            entries: Pairs of a key and a value; None deletes the key.

        Kafka: KeyValueStore#putAll
        """
        rows = [
            (self._key(key), None if value is None else self._encode(value))
            for key, value in entries
        ]
        for row_key, stored in rows:
            self._rows.put(row_key, stored)

    def delete(self, key: K) -> V | None:
        """Delete a key. Returns its last value.

        Args:
            key: The key.

        Returns:
            The deleted value; None if the key did not exist.

        Kafka: KeyValueStore#delete
        """
        row_key = self._key(key)
        stored = self._rows.get(row_key)
        self._rows.put(row_key, None)
        return None if stored is None else self._decode(stored)

    def range(self, start: K | None, end: K | None) -> StoreIterator[K, V]:
        """Return the entries from `start` to `end`, both included; None is unbounded.

        Args:
            start: The first key; None for no bound.
            end: The last key; None for no bound.

        Kafka: ReadOnlyKeyValueStore#range
        """
        return self._scan(self._key_range(start, end), False)

    def reverse_range(self, start: K | None, end: K | None) -> StoreIterator[K, V]:
        """The entries of `range`, in descending order.

        Args:
            start: The first key; None for no bound.
            end: The last key; None for no bound.

        Returns:
            An iterator of (key, value) pairs.

        Kafka: ReadOnlyKeyValueStore#reverseRange
        """
        return self._scan(self._key_range(start, end), True)

    def all(self) -> StoreIterator[K, V]:
        """Return all entries, in ascending order.

        Kafka: ReadOnlyKeyValueStore#all
        """
        return self._scan(KeyRange(None, None), False)

    def reverse_all(self) -> StoreIterator[K, V]:
        """Return all entries, in descending order.

        Kafka: ReadOnlyKeyValueStore#reverseAll
        """
        return self._scan(KeyRange(None, None), True)

    def prefix_scan(
        self, prefix: Any, serializer: Serde[Any] | Callable[[Any], bytes] | None = None
    ) -> StoreIterator[K, V]:
        """Return the entries whose serialized keys start with the serialized prefix.

        The serializer is a serde or a function; the default is the key serde.

        Args:
            prefix: The prefix, before it is serialized.
            serializer: A serde or a function for the prefix; None for the key serde.

        Kafka: ReadOnlyKeyValueStore#prefixScan
        """
        if prefix is None:
            raise TypeError(f"The prefix for store '{self.name}' is None.")
        serialize = self._serialize_key
        if serializer is not None:
            serialize = serializer.serialize if isinstance(serializer, Serde) else serializer
            if not callable(serialize):
                raise TypeError(
                    "serializer must be a serde such as Serdes.string(), or a function that "
                    f"returns bytes, not {serializer!r}."
                )
        start = serialize(prefix)
        return self._scan(KeyRange(start, successor(start)), False)

    def serialized_range(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False
    ) -> StoreIterator[K, V]:
        """Return the entries between two serialized keys, which need not be complete keys.

        Args:
            start: The first serialized key, included; None for no bound.
            end: The last serialized key, not included; None for no bound.
            reverse: Whether the entries are in descending order.
        """
        return self._scan(KeyRange(start, end), reverse)

    @property
    def approximate_num_entries(self) -> int:
        """The approximate number of entries, without unflushed entries of the cache."""
        return self.num_rows()

    def __getitem__(self, key: K) -> V:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: K, value: V | None) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        row_key = self._key(key)
        if self._rows.get(row_key) is None:
            raise KeyError(key)
        self._rows.put(row_key, None)

    def __contains__(self, key: object) -> bool:
        return self._rows.get(self._key(key)) is not None

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.all())

    def _key_range(self, start: K | None, end: K | None) -> KeyRange:
        low = None if start is None else self._serialize_key(start)
        high = None if end is None else self._serialize_key(end) + b"\x00"
        if low is not None and high is not None and low >= high:
            return KeyRange(b"", b"")
        return KeyRange(low, high)

    def _scan(self, bounds: KeyRange, reverse: bool) -> StoreIterator[K, V]:
        rows = self._rows.scan(bounds, reverse)
        key_of, decode = self._deserialize_key, self._decode
        return StoreIterator((key_of(row_key), decode(stored)) for row_key, stored in rows)

    def _row_listener(self, listener: FlushListener) -> RowListener:
        key_of, split = self._deserialize_key, self._split
        if core is not None:
            native: RowListener = core.row_listener(
                listener, self.read_key, key_of, split, tuple, tuple, -1
            )
            return native

        def on_flush(
            row_key: bytes, new: bytes | None, old: bytes | None, entry: CacheEntry
        ) -> None:
            if entry.typed is UNKNOWN:
                value, timestamp = (None, None) if new is None else split(new)
            else:
                value, timestamp = entry.typed, entry.time
            listener(
                key_of(row_key), value, None if old is None else split(old)[0],
                entry.timestamp if timestamp is None else timestamp, entry.headers,
            )

        return on_flush


class TimestampedKeyValueStore(
    TimestampedValues[V], KeyValueStore[K, ValueAndTimestamp[V]], Generic[K, V]
):
    """Values with the timestamp of the record that wrote them.

    Example:
        >>> from penstock import Stores
        >>> from penstock.testing import MockProcessorContext
        >>> supplier = Stores.in_memory_key_value_store("stock")
        >>> builder = Stores.timestamped_key_value_store_builder(supplier, str, int)
        >>> store = builder.with_logging_disabled().build()
        >>> store.init(MockProcessorContext().state_store_context)
        >>> store.put("tea", ValueAndTimestamp(3, 1_000))
        >>> store.get("tea")
        ValueAndTimestamp(value=3, timestamp=1000)
    """

    #: (value, timestamp) of a key; None if the key does not exist. For operators.
    load: Callable[[Any], tuple[Any, int] | None]
    #: Writes (key, value, timestamp); a value of None deletes the key. For operators.
    save: Callable[[Any, Any, int], None]
    #: The row key of a key, as `load_row` and `save_row` take it. For operators.
    row_of: Callable[[Any], bytes]

    def _bind(self) -> None:
        self.row_of = row_of = self._serialize_key
        self.load_row, self.save_row = load_row, save_row = timestamped_access(
            self._rows, self._cache_layer, self._value_codec
        )

        write_key = self.write_key
        if core is not None:
            native_load = core.keyed_load(write_key, row_of, load_row)

        def load(key: Any) -> tuple[Any, int] | None:
            try:
                row_key = write_key(key)
            except StoreSerdeException:
                raise
            except Exception:
                row_key = row_of(key)
            return load_row(row_key)

        def save(key: Any, value: Any, timestamp: int) -> None:
            save_row(row_of(key), key, value, timestamp)

        self.load = load if core is None else native_load
        self.save = save
        if core is not None and self._cache_layer is None:
            self.load_value = core.keyed_load(  # type: ignore[method-assign, assignment]
                write_key, row_of, value_access(self._rows, self._value_codec)
            )

    def load_value(self, key: K) -> V | None:
        """Return the value of a key without its timestamp; None if it does not exist. For queries.

        Args:
            key: The key.
        """
        found = self.load(key)
        return None if found is None else found[0]


class TimestampedKeyValueStoreWithHeaders(
    HeadersValues[V], KeyValueStore[K, ValueTimestampHeaders[V]], Generic[K, V]
):
    """Values with the timestamp and the headers of the record that wrote them.

    The functions for operators (`load`, `save`, `plain`) write no headers.
    """

    load: Callable[[Any], tuple[Any, int] | None]
    save: Callable[[Any, Any, int], None]
    row_of: Callable[[Any], bytes]

    def _bind(self) -> None:
        self.row_of = row_of = self._serialize_key
        self.load_row, self.save_row = load_row, save_row = headers_access(
            self._rows, self._encode_plain, self._split
        )

        def load(key: Any) -> tuple[Any, int] | None:
            return load_row(row_of(key))

        def save(key: Any, value: Any, timestamp: int) -> None:
            save_row(row_of(key), key, value, timestamp)

        self.load = load
        self.save = save
        self._plain = HeaderlessKeyValueView(self)


class HeaderlessKeyValueView(HeaderlessView[V], TimestampedKeyValueStore[K, V], Generic[K, V]):
    """A store with headers, shown as one with timestamps. It writes no headers."""

    def __init__(self, store: TimestampedKeyValueStoreWithHeaders[K, V]) -> None:
        super().__init__(store._supplier, store._options)
        self._share_rows(store)
