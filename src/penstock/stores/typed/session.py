"""Session stores: plain, and with headers."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from penstock.record import as_headers
from penstock.stores.api.results import AggregationWithHeaders, StoreIterator
from penstock.stores.api.store import FlushListener, StoreContext
from penstock.stores.api.suppliers import SessionSupplier
from penstock.stores.bytes.key_schema import (
    MAX_TIME,
    InMemorySessionSchema,
    KeyFirstSchema,
    KeySchema,
    TimeFirstSessionSchema,
    WindowRange,
)
from penstock.stores.bytes.overlay import Overlay
from penstock.stores.bytes.value_formats import SESSION_HEADERS
from penstock.stores.bytes.windowed_rows import Retention, RowIndex, WindowedRows
from penstock.stores.cache.cache_layer import RowListener
from penstock.stores.cache.record_cache import CacheEntry
from penstock.stores.typed.store import LayeredStore, StoreOptions, null_key
from penstock.stores.typed.value_codecs import RowsWithHeaders
from penstock.windows import Window, Windowed, instant_ms

K = TypeVar("K")
V = TypeVar("V")

#: The default of `key_to`: None stands for an open end.
_NO_RANGE: Any = object()


class SessionStore(LayeredStore, Generic[K, V]):
    """Aggregates by key and session. Both ends of a session are inclusive.

    A persistent store returns sessions of several keys in the order of the keys, an in-memory store
    in the order of their ends.

    Example:
        >>> from penstock import SessionWindow, Stores
        >>> from penstock.testing import MockProcessorContext
        >>> supplier = Stores.in_memory_session_store("visits", retention=60_000)
        >>> store = Stores.session_store_builder(supplier, str, int).with_logging_disabled().build()
        >>> store.init(MockProcessorContext().state_store_context)
        >>> session = Windowed("ann", SessionWindow(1_000, 4_000))
        >>> store.put(session, 7)
        >>> store.fetch_session("ann", 1_000, 4_000)
        7
        >>> with store.find_sessions("ann", 2_000, 3_000) as sessions:
        ...     [found.window for found, clicks in sessions]
        [Window(start=1000, end=4000)]
    """

    #: Whether the store keeps headers.
    has_headers = False

    _scope_suffix = "-session"

    def __init__(self, supplier: SessionSupplier, options: StoreOptions) -> None:
        super().__init__(supplier.name, supplier.persistent, options)
        self._supplier = supplier
        self.retention_ms = supplier.retention_ms
        self._key_schema = _key_schema(supplier)

    def init(self, context: StoreContext) -> None:
        """Open the store in a task.

        Args:
            context: The context of the task.
        """
        self._init_serdes(context)
        supplier = self._supplier
        converters = self._converters(supplier)
        interval = supplier.segment_interval_ms
        open_bytes = self._options.open_bytes
        index = None
        if supplier.time_ordered:
            by_key = KeyFirstSchema(interval, sessions=True)
            index = RowIndex(by_key, Overlay(open_bytes(f"{self.name}.index")))
        rows = WindowedRows(
            self._key_schema, Overlay(open_bytes(self.name)),
            Retention(supplier.retention_ms, interval if supplier.persistent else None),
            drop=context.drop, converters=converters, index=index,
        )
        self._stack_layers(context, rows, supplier.format if converters else self._format)

    def put(self, session: Windowed[K], aggregate: V | None) -> None:
        """Write the aggregate of a session; None deletes it.

        Args:
            session: The key and its session window.
            aggregate: The aggregate of the session; None deletes it.

        Kafka: SessionStore#put
        """
        stored = None if aggregate is None else self._encode(aggregate)
        self._rows.put(self._row_key(session), stored)

    def remove(self, session: Windowed[K]) -> None:
        """Delete a session.

        Args:
            session: The key and its session window.

        Kafka: SessionStore#remove
        """
        self._rows.remove(self._row_key(session))

    def fetch_session(self, key: K, start: int, end: int) -> V | None:
        """Return the aggregate of exactly this session; None if it does not exist.

        Args:
            key: The key, or the first key of a range; None for no bound.
            start: The start of the session.
            end: The end of the session.

        Kafka: ReadOnlySessionStore#fetchSession, SessionStore#fetchSession
        """
        row_key = self._key_schema.encode(self._key(key), instant_ms(end), instant_ms(start))
        stored = self._rows.get(row_key)
        return None if stored is None else self._decode(stored)

    def fetch(
        self, key: K | None, key_to: K | None = _NO_RANGE
    ) -> StoreIterator[Windowed[K], V]:
        """Return all sessions of a key, or of a range of keys. In a range, None is unbounded.

        Args:
            key: The key, or the first key of a range; None for no bound.
            key_to: The last key of a range of keys.

        Kafka: ReadOnlySessionStore#fetch
        """
        return self._scan(self._key_bounds(key, key_to), False)

    def backward_fetch(
        self, key: K | None, key_to: K | None = _NO_RANGE
    ) -> StoreIterator[Windowed[K], V]:
        """`fetch` in the opposite order.

        Args:
            key: The key, or the first key of a range; None for no bound.
            key_to: The last key of a range of keys.

        Returns:
            An iterator of (windowed key, aggregate) pairs.

        Kafka: ReadOnlySessionStore#backwardFetch
        """
        return self._scan(self._key_bounds(key, key_to), True)

    def find_sessions(self, *arguments: Any) -> StoreIterator[Windowed[K], V]:
        """Sessions by key and time. All bounds are inclusive; a key of None is unbounded.

        `find_sessions(key, earliest_end, latest_start)`,
        `find_sessions(key_from, key_to, earliest_end, latest_start)`, and by time alone
        `find_sessions(earliest_end, latest_end)` (in-memory stores and stores for emit on close).

        Args:
            arguments: A key and bounds; see above.

        Returns:
            An iterator of (windowed key, aggregate) pairs.

        Kafka: ReadOnlySessionStore#findSessions, SessionStore#findSessions
        """
        if len(arguments) == 2:
            return self._find_by_end(*arguments)
        return self._scan(self._bounds(arguments), False)

    def backward_find_sessions(self, *arguments: Any) -> StoreIterator[Windowed[K], V]:
        """`find_sessions` with three or four arguments, in the opposite order.

        Args:
            arguments: A key and bounds; see above.

        Returns:
            An iterator of (windowed key, aggregate) pairs.

        Kafka: ReadOnlySessionStore#backwardFindSessions, SessionStore#backwardFindSessions
        """
        return self._scan(self._bounds(arguments), True)

    def _plain_value(self, stored: bytes) -> Any:
        return self._deserialize_value(stored)

    def _row_key(self, session: Windowed[K]) -> bytes:
        if session is None or session.window is None:
            raise null_key(self.name)
        key, (start, end) = session
        return self._key_schema.encode(self._key(key), end, start)

    def _key_bounds(self, key: K | None, key_to: K | None) -> WindowRange | None:
        if key_to is _NO_RANGE:
            raw_key = self._key(key)
            return WindowRange(raw_key, raw_key, 0, MAX_TIME)
        return self._bounds((key, key_to, 0, MAX_TIME))

    def _bounds(self, arguments: tuple[Any, ...]) -> WindowRange | None:
        """The bounds of a scan; None if they are empty."""
        if len(arguments) == 3:
            key = self._key(arguments[0])
            keys: tuple[bytes | None, bytes | None] = (key, key)
        elif len(arguments) == 4:
            serialize = self._serialize_key
            low, high = (None if key is None else serialize(key) for key in arguments[:2])
            if low is not None and high is not None and low > high:
                return None
            keys = (low, high)
        else:
            raise TypeError(
                f"find_sessions takes 2 to 4 arguments, not {len(arguments)}. "
                "Give one or two keys, an earliest end and a latest start."
            )
        return WindowRange(*keys, instant_ms(arguments[-2]), MAX_TIME, instant_ms(arguments[-1]))

    def _find_by_end(self, earliest: Any, latest: Any) -> StoreIterator[Windowed[K], V]:
        supplier = self._supplier
        if self._cache_layer is not None or (supplier.persistent and not supplier.time_ordered):
            raise NotImplementedError(
                f"Session store '{self.name}' cannot find sessions by time alone. "
                "Only in-memory stores without a cache and stores for emit on close can."
            )
        bounds = WindowRange(
            None, None, instant_ms(earliest), instant_ms(latest),
            hide_expired=not supplier.time_ordered,
        )
        return self._scan(bounds, False)

    def _scan(self, bounds: WindowRange | None, reverse: bool) -> StoreIterator[Windowed[K], V]:
        if bounds is None:
            return StoreIterator(iter(()))
        rows = self._rows.scan(bounds, reverse)
        decode, windowed_key = self._decode, self._windowed_key
        return StoreIterator((windowed_key(row_key), decode(stored)) for row_key, stored in rows)

    def _windowed_key(self, row_key: bytes) -> Windowed[K]:
        key, end, start = self._key_schema.decode(row_key)
        return Windowed(self._deserialize_key(key), Window(start, end))

    def _row_listener(self, listener: FlushListener) -> RowListener:
        windowed_key, value_of = self._windowed_key, self._plain_value

        def on_flush(
            row_key: bytes, new: bytes | None, old: bytes | None, entry: CacheEntry
        ) -> None:
            listener(
                windowed_key(row_key), None if new is None else value_of(new),
                None if old is None else value_of(old), entry.timestamp, entry.headers,
            )

        return on_flush


def _key_schema(supplier: SessionSupplier) -> KeySchema:
    if not supplier.persistent:
        return InMemorySessionSchema()
    if supplier.time_ordered:
        return TimeFirstSessionSchema()
    return KeyFirstSchema(supplier.segment_interval_ms, sessions=True)


class SessionStoreWithHeaders(RowsWithHeaders, SessionStore[K, AggregationWithHeaders[V]]):
    """Aggregates with headers. The store for operators (`plain`) writes no headers."""

    has_headers = True
    _format = SESSION_HEADERS
    _plain: HeaderlessSessionView[K, V]

    @property
    def plain(self) -> Any:
        """The store as operators use it: aggregates without headers."""
        return self._plain

    def _bind(self) -> None:
        self._plain = HeaderlessSessionView(self)

    def _encode(self, value: AggregationWithHeaders[V]) -> bytes | None:
        if value.aggregation is None:
            return None
        return self._write(value.aggregation, as_headers(value.headers))

    def _decode(self, stored: bytes) -> AggregationWithHeaders[V]:
        aggregation, headers, _ = self._read(stored, 0)
        return AggregationWithHeaders(aggregation, headers)

    def _plain_value(self, stored: bytes) -> Any:
        return self._read(stored, 0)[0]


class HeaderlessSessionView(SessionStore[K, V]):
    """A store with headers, shown as one without. It writes no headers."""

    has_headers = True

    def __init__(self, store: SessionStoreWithHeaders[K, V]) -> None:
        super().__init__(store._supplier, store._options)
        self._store = store
        self._rows = store._rows
        self._base_rows = store._base_rows
        self._cache_layer = store._cache_layer
        self._serialize_key = store._serialize_key
        self._deserialize_key = store._deserialize_key

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        """Set the listener on the underlying store."""
        return self._store.set_flush_listener(listener, send_old_values)

    def _encode(self, value: V) -> bytes | None:
        return self._store._encode(AggregationWithHeaders(value))

    def _decode(self, stored: bytes) -> Any:
        return self._store._plain_value(stored)
