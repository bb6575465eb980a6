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
from penstock.stores.bytes.rows import Retention, WindowedRows
from penstock.stores.bytes.value_formats import (
    PLAIN,
    SESSION_HEADERS,
    ValueFormat,
    adapter,
    read_headers,
    write_headers,
)
from penstock.stores.cache.cache_layer import RowListener
from penstock.stores.cache.record_cache import CacheEntry
from penstock.stores.typed.store import StoreOptions, TypedStore, null_key
from penstock.windows import Window, Windowed, instant_ms

K = TypeVar("K")
V = TypeVar("V")


class SessionStore(TypedStore, Generic[K, V]):
    """Aggregates by key and session; both ends of a session belong to it.

    Several keys come in the order of their keys if the store is persistent, by the end of their
    sessions if it is in memory.
    """

    #: Whether headers are kept beside the aggregates.
    has_headers = False
    _format: ValueFormat = PLAIN

    def __init__(self, supplier: SessionSupplier, options: StoreOptions) -> None:
        super().__init__(supplier.name, supplier.persistent, options)
        self._supplier = supplier
        self.retention_ms = supplier.retention_ms
        self._layout = _layout(supplier)

    def init(self, context: StoreContext) -> None:
        """Open the store in a task."""
        self._init_serdes(context)
        supplier = self._supplier
        wanted = self._format
        convert = adapter(wanted, supplier.format) if supplier.persistent else None
        interval = supplier.segment_interval_ms
        open_bytes = self._options.open_bytes
        index = None
        if supplier.time_ordered:
            by_key = KeyFirstSchema(interval, sessions=True)
            index = (by_key, Overlay(open_bytes(f"{self.name}.index")))
        kept = WindowedRows(
            self._layout, Overlay(open_bytes(self.name)),
            Retention(supplier.retention_ms, interval if supplier.persistent else None),
            drop=context.drop, convert=convert, index=index,
        )
        self._open(context, kept, (wanted, wanted if convert is None else supplier.format))
        if isinstance(self, SessionStoreWithHeaders):
            self._plain = PlainSessionView(self)

    def put(self, session: Windowed[K], aggregate: V | None) -> None:
        """Write the aggregate of a session; None deletes it."""
        self._rows.put(self._row(session), None if aggregate is None else self._encode(aggregate))

    def remove(self, session: Windowed[K]) -> None:
        """Delete a session."""
        self._rows.remove(self._row(session))

    def fetch_session(self, key: K, start: int, end: int) -> V | None:
        """The aggregate of exactly this session, None if there is none."""
        row = self._layout.encode(self._key(key), instant_ms(end), instant_ms(start))
        stored = self._rows.get(row)
        return None if stored is None else self._decode(stored)

    def fetch(self, key: K, key_to: K | None = None) -> StoreIterator[Windowed[K], V]:
        """All sessions of a key, or of a range of keys."""
        return self._find(self._key_span((key, key_to)), False)

    def backward_fetch(self, key: K, key_to: K | None = None) -> StoreIterator[Windowed[K], V]:
        """The same in the opposite order."""
        return self._find(self._key_span((key, key_to)), True)

    def find_sessions(self, *question: Any) -> StoreIterator[Windowed[K], V]:
        """Sessions by key and time; all bounds are included, None is an open key.

        `find_sessions(key, earliest_end, latest_start)`,
        `find_sessions(key_from, key_to, earliest_end, latest_start)`, and by time alone
        `find_sessions(earliest_end, latest_end)` (stores in memory and for emit on close).
        """
        if len(question) == 2:
            return self._find_by_end(*question)
        return self._find(self._span(question), False)

    def backward_find_sessions(self, *question: Any) -> StoreIterator[Windowed[K], V]:
        """Like `find_sessions` with three or four arguments, in the opposite order."""
        return self._find(self._span(question), True)

    @property
    def plain(self) -> Any:
        """The store as operators use it, without headers."""
        return self

    def _encode(self, value: Any) -> bytes | None:
        return self._serialize_value(value)

    def _decode(self, stored: bytes) -> Any:
        return self._deserialize_value(stored)

    def _plain_value(self, stored: bytes) -> Any:
        return self._deserialize_value(stored)

    def _row(self, session: Windowed[K]) -> bytes:
        if session is None or session.window is None:
            raise null_key(self.name)
        key, (start, end) = session
        return self._layout.encode(self._key(key), end, start)

    def _key_span(self, keys: tuple[K, K | None]) -> WindowRange | None:
        if keys[1] is None:
            key = self._key(keys[0])
            return WindowRange(key, key, 0, MAX_TIME)
        return self._span((*keys, 0, MAX_TIME))

    def _span(self, question: tuple[Any, ...]) -> WindowRange | None:
        """The question as bytes; None if nothing can answer it."""
        if len(question) == 3:
            key = self._key(question[0])
            keys: tuple[bytes | None, bytes | None] = (key, key)
        elif len(question) == 4:
            serialize = self._serialize_key
            low, high = (None if key is None else serialize(key) for key in question[:2])
            if low is not None and high is not None and low > high:
                return None
            keys = (low, high)
        else:
            raise TypeError(
                f"A session store is asked with one or two keys, an earliest end and a latest "
                f"start, not with {len(question)} arguments."
            )
        return WindowRange(*keys, instant_ms(question[-2]), MAX_TIME, instant_ms(question[-1]))

    def _find_by_end(self, earliest: Any, latest: Any) -> StoreIterator[Windowed[K], V]:
        supplier = self._supplier
        if self._cached is not None or (supplier.persistent and not supplier.time_ordered):
            raise NotImplementedError(
                f"Session store '{self.name}' does not find sessions by time alone. "
                "Stores in memory without a cache, and those for emit on close, do."
            )
        span = WindowRange(
            None, None, instant_ms(earliest), instant_ms(latest), clipped=not supplier.time_ordered
        )
        return self._find(span, False)

    def _find(self, span: WindowRange | None, reverse: bool) -> StoreIterator[Windowed[K], V]:
        if span is None:
            return StoreIterator(iter(()))
        rows = self._rows.scan(span, reverse)
        decode, windowed = self._decode, self._windowed_key
        return StoreIterator((windowed(row), decode(stored)) for row, stored in rows)

    def _windowed_key(self, row: bytes) -> Windowed[K]:
        key, end, start = self._layout.decode(row)
        return Windowed(self._deserialize_key(key), Window(start, end))

    def _row_listener(
        self, listener: FlushListener
    ) -> RowListener:
        windowed, value_of = self._windowed_key, self._plain_value

        def hear(row: bytes, new: bytes | None, old: bytes | None, entry: CacheEntry) -> None:
            listener(
                windowed(row), None if new is None else value_of(new),
                None if old is None else value_of(old), entry.timestamp, entry.headers,
            )

        return hear


def _layout(supplier: SessionSupplier) -> KeySchema:
    if not supplier.persistent:
        return InMemorySessionSchema()
    if supplier.time_ordered:
        return TimeFirstSessionSchema()
    return KeyFirstSchema(supplier.segment_interval_ms, sessions=True)


class SessionStoreWithHeaders(SessionStore[K, AggregationWithHeaders[V]]):
    """Aggregates with headers. Operators (`plain`) write none."""

    has_headers = True
    _format = SESSION_HEADERS
    _plain: PlainSessionView[K, V]

    @property
    def plain(self) -> Any:
        """The store as operators use it: aggregates without headers."""
        return self._plain

    def _encode(self, value: AggregationWithHeaders[V]) -> bytes | None:
        if value.aggregation is None:
            return None
        return write_headers(as_headers(value.headers)) + self._serialize_value(value.aggregation)

    def _decode(self, stored: bytes) -> AggregationWithHeaders[V]:
        headers, at = read_headers(stored)
        return AggregationWithHeaders(self._deserialize_value(stored[at:]), headers)

    def _plain_value(self, stored: bytes) -> Any:
        return self._deserialize_value(stored[read_headers(stored)[1] :])


class PlainSessionView(SessionStore[K, V]):
    """A store with headers, seen as one without: what is written has none."""

    has_headers = True

    def __init__(self, store: SessionStoreWithHeaders[K, V]) -> None:
        super().__init__(store._supplier, store._options)
        self._store = store
        self._rows = store._rows
        self._kept = store._kept
        self._cached = store._cached
        self._serialize_key = store._serialize_key
        self._deserialize_key = store._deserialize_key
        self.set_flush_listener = store.set_flush_listener  # type: ignore[method-assign]

    def _encode(self, value: V) -> bytes | None:
        return self._store._encode(AggregationWithHeaders(value))

    def _decode(self, stored: bytes) -> Any:
        return self._store._plain_value(stored)
