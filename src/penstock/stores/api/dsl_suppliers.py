"""The default stores of the DSL: persistent, in memory, or chosen by the application."""

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
    """The data that a store of the DSL keeps besides the value."""

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
    """The requirements for a key-value store."""

    name: str
    format: DslStoreFormat = DslStoreFormat.TIMESTAMPED


@dataclass(frozen=True, slots=True)
class DslWindowParams:
    """The requirements for a window store."""

    name: str
    retention_ms: int
    window_size_ms: int
    retain_duplicates: bool = False
    emit_on_close: bool = False
    is_sliding_window: bool = False
    format: DslStoreFormat = DslStoreFormat.TIMESTAMPED


@dataclass(frozen=True, slots=True)
class DslSessionParams:
    """The requirements for a session store."""

    name: str
    retention_ms: int
    emit_on_close: bool = False
    format: DslStoreFormat = DslStoreFormat.PLAIN


class DslStoreSuppliers(Protocol):
    """Creates the suppliers of the DSL's stores."""

    def key_value_store(self, params: DslKeyValueParams) -> KeyValueSupplier:
        """The store of a table or an aggregation.

        Args:
            params: The requirements for the store.

        Returns:
            The supplier.

        Kafka: DslStoreSuppliers#keyValueStore
        """
        ...

    def window_store(self, params: DslWindowParams) -> WindowSupplier:
        """The store of a windowed aggregation or a stream-stream join.

        Args:
            params: The requirements for the store.

        Returns:
            The supplier.

        Kafka: DslStoreSuppliers#windowStore
        """
        ...

    def session_store(self, params: DslSessionParams) -> SessionSupplier:
        """The store of a session aggregation.

        Args:
            params: The requirements for the store.

        Returns:
            The supplier.

        Kafka: DslStoreSuppliers#sessionStore
        """
        ...


@dataclass(frozen=True, slots=True)
class PersistentStoreSuppliers:
    """Stores on disk, with the order and expiry of Kafka's RocksDB stores."""

    def key_value_store(self, params: DslKeyValueParams) -> KeyValueSupplier:
        """The store of a table or an aggregation."""
        return KeyValueSupplier(params.name, True, _FORMATS[params.format])

    def window_store(self, params: DslWindowParams) -> WindowSupplier:
        """For emit on close, windows are ordered by time; sliding windows have an index by key."""
        kept = _FORMATS[params.format]
        if params.emit_on_close:
            # This store keeps timestamps in every format.
            kept = HEADERS if kept is HEADERS else TIMESTAMPED
        return window_supplier(
            params.name, params.retention_ms, params.window_size_ms, params.retain_duplicates,
            value_format=kept, time_ordered=params.emit_on_close,
            indexed=params.emit_on_close and params.is_sliding_window,
        )

    def session_store(self, params: DslSessionParams) -> SessionSupplier:
        """For emit on close, sessions are ordered by time and have an index by key."""
        kept = SESSION_HEADERS if params.format is DslStoreFormat.HEADERS else PLAIN
        return session_supplier(
            params.name, params.retention_ms, value_format=kept, time_ordered=params.emit_on_close
        )


@dataclass(frozen=True, slots=True)
class InMemoryStoreSuppliers:
    """Stores in memory, with the order and expiry of Kafka's in-memory stores."""

    def key_value_store(self, params: DslKeyValueParams) -> KeyValueSupplier:
        """The store of a table or an aggregation."""
        return Stores.in_memory_key_value_store(params.name)

    def window_store(self, params: DslWindowParams) -> WindowSupplier:
        """The store of a windowed aggregation or a stream-stream join."""
        return Stores.in_memory_window_store(
            params.name, params.retention_ms, params.window_size_ms, params.retain_duplicates
        )

    def session_store(self, params: DslSessionParams) -> SessionSupplier:
        """The store of a session aggregation."""
        return Stores.in_memory_session_store(params.name, params.retention_ms)


class BuiltInDslStoreSuppliers:
    """The built-in suppliers."""

    ROCKS_DB: DslStoreSuppliers = PersistentStoreSuppliers()
    IN_MEMORY: DslStoreSuppliers = InMemoryStoreSuppliers()
