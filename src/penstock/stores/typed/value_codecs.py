"""How values are written with their time, or with their time and headers, by key-value stores and
window stores alike."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Generic, TypeVar

from penstock.record import ValueAndTimestamp, as_headers
from penstock.stores.api.results import ValueTimestampHeaders
from penstock.stores.bytes.value_formats import (
    HEADERS,
    TIMESTAMPED,
    ValueFormat,
    read_headers,
    write_headers,
)
from penstock.stores.typed.row_access import FoldRow, LoadRow, SaveRow, folding
from penstock.stores.typed.store import TypedStore

V = TypeVar("V")

_LONG = Struct(">q")
_pack_long = _LONG.pack
_long_at = _LONG.unpack_from


class TimestampedValues(TypedStore, Generic[V]):
    """A value behind the time of the record that wrote it."""

    _format: ValueFormat = TIMESTAMPED

    load_row: LoadRow
    save_row: SaveRow

    def fold_row(
        self, initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any]
    ) -> FoldRow:
        """What folds values into rows of this store; only if it is caching."""
        assert self._cached is not None
        return folding(
            self._cached, (self.load_row, self.save_row),
            self._serdes(), initializer, aggregator,
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


class HeaderedValues(TypedStore, Generic[V]):
    """A value behind the headers and the time of the record that wrote it."""

    _format: ValueFormat = HEADERS

    load_row: LoadRow
    save_row: SaveRow
    #: A `PlainView`, made with what operators call.
    _plain: Any

    @property
    def plain(self) -> Any:
        """The store as operators use it: values with timestamps, no headers."""
        return self._plain

    def _encode(self, value: ValueTimestampHeaders[V]) -> bytes | None:
        if value.value is None:
            return None
        raw = self._serialize_value(value.value)
        return write_headers(as_headers(value.headers)) + _pack_long(value.timestamp) + raw

    def _decode(self, stored: bytes) -> ValueTimestampHeaders[V] | None:
        headers, at = read_headers(stored)
        value = self._deserialize_value(stored[at + 8 :])
        if value is None:
            return None
        return ValueTimestampHeaders(value, _long_at(stored, at)[0], headers)

    def _split(self, stored: bytes) -> tuple[Any, int]:
        _, at = read_headers(stored)
        return self._deserialize_value(stored[at + 8 :]), _long_at(stored, at)[0]


class PlainView(TimestampedValues[V]):
    """A store with headers, seen as one with timestamps only: what is written has no headers."""

    def _see(self, store: Any) -> None:
        self._store = store
        self._rows = store._rows
        self._kept = store._kept
        self._serialize_key = store._serialize_key
        self._deserialize_key = store._deserialize_key
        self._serialize_value = store._serialize_value
        self.load = store.load
        self.save = store.save
        self.row_of, self.load_row, self.save_row = store.row_of, store.load_row, store.save_row
        self.set_flush_listener = store.set_flush_listener  # type: ignore[method-assign]

    def _encode(self, value: ValueAndTimestamp[V]) -> bytes | None:
        raw: bytes | None = self._store._encode(
            ValueTimestampHeaders(value.value, value.timestamp)
        )
        return raw

    def _decode(self, stored: bytes) -> ValueAndTimestamp[V] | None:
        value = self._store._decode(stored)
        return None if value is None else ValueAndTimestamp(value.value, value.timestamp)
