"""Which stores the DSL uses where the user names none: on disk or in memory, or one's own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.stores.api.stores import Stores, session_supplier, window_supplier
from penstock.stores.api.suppliers import KeyValueSupplier, SessionSupplier, WindowSupplier
from penstock.stores.bytes.value_formats import (
    HEADERS,
    PLAIN,
    SESSION_HEADERS,
    TIMESTAMPED,
    ValueFormat,
)


class DslStoreFormat(Enum):
    """What a store of the DSL keeps beside the value."""

    PLAIN = "PLAIN"
    TIMESTAMPED = "TIMESTAMPED"
    HEADERS = "HEADERS"


_FORMATS: dict[DslStoreFormat, ValueFormat] = {
    DslStoreFormat.PLAIN: PLAIN,
    DslStoreFormat.TIMESTAMPED: TIMESTAMPED,
    DslStoreFormat.HEADERS: HEADERS,
}


@dataclass(frozen=True, slots=True)
class DslKeyValueParams:
    """What is asked of a key-value store."""

    name: str
    format: DslStoreFormat = DslStoreFormat.TIMESTAMPED


@dataclass(frozen=True, slots=True)
class DslWindowParams:
    """What is asked of a window store."""

    name: str
    retention_ms: int
    window_size_ms: int
    retain_duplicates: bool = False
    emit_on_close: bool = False
    is_sliding_window: bool = False
    format: DslStoreFormat = DslStoreFormat.TIMESTAMPED


@dataclass(frozen=True, slots=True)
class DslSessionParams:
    """What is asked of a session store."""

    name: str
    retention_ms: int
    emit_on_close: bool = False
    format: DslStoreFormat = DslStoreFormat.PLAIN


class DslStoreSuppliers(Protocol):
    """Chooses the stores of the DSL."""

    def key_value_store(self, params: DslKeyValueParams) -> KeyValueSupplier:
        """For tables and aggregations."""
        ...

    def window_store(self, params: DslWindowParams) -> WindowSupplier:
        """For windowed aggregations and stream joins."""
        ...

    def session_store(self, params: DslSessionParams) -> SessionSupplier:
        """For session aggregations."""
        ...


@dataclass(frozen=True, slots=True)
class PersistentStoreSuppliers:
    """Stores on disk, with RocksDB's rules of order and expiry."""

    def key_value_store(self, params: DslKeyValueParams) -> KeyValueSupplier:
        """For tables and aggregations."""
        return KeyValueSupplier(params.name, True, _FORMATS[params.format])

    def window_store(self, params: DslWindowParams) -> WindowSupplier:
        """Emit on close wants windows by time, and sliding windows by key as well."""
        kept = _FORMATS[params.format]
        if params.emit_on_close:
            # Whatever the format is called, this store always keeps timestamps.
            kept = HEADERS if kept is HEADERS else TIMESTAMPED
        return window_supplier(
            params.name, params.retention_ms, params.window_size_ms, params.retain_duplicates,
            value_format=kept, time_ordered=params.emit_on_close,
            indexed=params.emit_on_close and params.is_sliding_window,
        )

    def session_store(self, params: DslSessionParams) -> SessionSupplier:
        """Emit on close wants sessions by time and by key."""
        kept = SESSION_HEADERS if params.format is DslStoreFormat.HEADERS else PLAIN
        return session_supplier(
            params.name, params.retention_ms, value_format=kept, time_ordered=params.emit_on_close
        )


@dataclass(frozen=True, slots=True)
class InMemoryStoreSuppliers:
    """Stores in memory, with their own rules of order and expiry."""

    def key_value_store(self, params: DslKeyValueParams) -> KeyValueSupplier:
        """For tables and aggregations."""
        return Stores.in_memory_key_value_store(params.name)

    def window_store(self, params: DslWindowParams) -> WindowSupplier:
        """For windowed aggregations and stream joins."""
        return Stores.in_memory_window_store(
            params.name, params.retention_ms, params.window_size_ms, params.retain_duplicates
        )

    def session_store(self, params: DslSessionParams) -> SessionSupplier:
        """For session aggregations."""
        return Stores.in_memory_session_store(params.name, params.retention_ms)


class BuiltInDslStoreSuppliers:
    """The two that come with penstock."""

    ROCKS_DB: DslStoreSuppliers = PersistentStoreSuppliers()
    IN_MEMORY: DslStoreSuppliers = InMemoryStoreSuppliers()
