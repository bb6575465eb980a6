"""Values with timestamps and headers, for key-value and window stores."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Generic, TypeVar

from penstock.record import NO_HEADERS, Headers, ValueAndTimestamp, as_headers
from penstock.serdes.headers import RecordHeaders
from penstock.stores.api.results import ValueTimestampHeaders
from penstock.stores.api.store import FlushListener, StoreContext
from penstock.stores.bytes.value_formats import (
    HEADERS,
    TIMESTAMPED,
    ValueFormat,
    read_headers,
    write_headers,
)
from penstock.stores.typed.row_access import FoldRow, LoadRow, SaveRow, row_folder
from penstock.stores.typed.store import LayeredStore

V = TypeVar("V")

_LONG = Struct(">q")
_pack_long = _LONG.pack
_long_at = _LONG.unpack_from


class TimestampedValues(LayeredStore, Generic[V]):
    """A mixin for stores of values with timestamps."""

    _format: ValueFormat = TIMESTAMPED

    load_row: LoadRow
    save_row: SaveRow

    def fold_row(
        self, initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any]
    ) -> FoldRow:
        """Returns the function that folds values into rows. The store must be caching."""
        assert self._cache_layer is not None
        return row_folder(
            self._cache_layer, (self.load_row, self.save_row), self._value_codec,
            initializer, aggregator,
        )

    def _encode(self, value: ValueAndTimestamp[V]) -> bytes | None:
        if value.value is None:
            return None
        return _pack_long(value.timestamp) + self._serialize_value(value.value)

    def _decode(self, stored: bytes) -> ValueAndTimestamp[V] | None:
        value = self._deserialize_value(stored[8:])
        return None if value is None else ValueAndTimestamp(value, _long_at(stored, 0)[0])

    def _split(self, stored: bytes) -> tuple[Any, int | None]:
        return self._deserialize_value(stored[8:]), _long_at(stored, 0)[0]


class RowsWithHeaders(LayeredStore):
    """A mixin for stores that keep headers with their values. A serde sees those of the row."""

    _row_headers: RecordHeaders

    def _init_serdes(self, context: StoreContext) -> None:
        self._row_headers = RecordHeaders()
        super()._init_serdes(context)

    def _write(self, value: Any, headers: Headers, timestamp: bytes = b"") -> bytes:
        """The stored form of a value: headers with those that the serde adds, timestamp, value."""
        row = self._row_headers
        row.headers = headers
        raw = self._serialize_value(value)
        return write_headers(row.headers) + timestamp + raw

    def _read(self, stored: bytes, timestamp_size: int) -> tuple[Any, Headers, int]:
        """The value, its headers, and the position after them."""
        headers, at = read_headers(stored)
        self._row_headers.headers = headers
        return self._deserialize_value(stored[at + timestamp_size :]), headers, at


class HeadersValues(RowsWithHeaders, Generic[V]):
    """A mixin for stores of values with timestamps and headers."""

    _format: ValueFormat = HEADERS

    load_row: LoadRow
    save_row: SaveRow
    #: A `HeaderlessView`. Set by `_bind`.
    _plain: Any

    @property
    def plain(self) -> Any:
        """The store as operators use it: values with timestamps, without headers."""
        return self._plain

    def _encode(self, value: ValueTimestampHeaders[V]) -> bytes | None:
        if value.value is None:
            return None
        return self._write(
            value.value, as_headers(value.headers), _pack_long(value.timestamp)
        )

    def _encode_plain(self, value: V, timestamp: int) -> bytes:
        return self._write(value, NO_HEADERS, _pack_long(timestamp))

    def _decode(self, stored: bytes) -> ValueTimestampHeaders[V] | None:
        value, headers, at = self._read(stored, 8)
        if value is None:
            return None
        return ValueTimestampHeaders(value, _long_at(stored, at)[0], headers)

    def _split(self, stored: bytes) -> tuple[Any, int]:
        value, _, at = self._read(stored, 8)
        return value, _long_at(stored, at)[0]


class HeaderlessView(TimestampedValues[V]):
    """A mixin that shows a store with headers as one with timestamps. It writes no headers."""

    def _share_rows(self, store: Any) -> None:
        self._store = store
        self._rows = store._rows
        self._base_rows = store._base_rows
        self._serialize_key = store._serialize_key
        self._deserialize_key = store._deserialize_key
        self._serialize_value = store._serialize_value
        self.load = store.load
        self.save = store.save
        self.row_of, self.load_row, self.save_row = store.row_of, store.load_row, store.save_row

    def set_flush_listener(self, listener: FlushListener, send_old_values: bool) -> bool:
        """Set the listener on the underlying store."""
        has_cache: bool = self._store.set_flush_listener(listener, send_old_values)
        return has_cache

    def _encode(self, value: ValueAndTimestamp[V]) -> bytes | None:
        raw: bytes | None = self._store._encode(
            ValueTimestampHeaders(value.value, value.timestamp)
        )
        return raw

    def _decode(self, stored: bytes) -> ValueAndTimestamp[V] | None:
        value = self._store._decode(stored)
        return None if value is None else ValueAndTimestamp(value.value, value.timestamp)
