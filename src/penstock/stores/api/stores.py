"""`Stores`: the ways to say which store is wanted, with the checks Kafka Streams makes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.serdes.builtin import Serde
from penstock.stores.api.builder import StoreBuilder
from penstock.stores.api.suppliers import (
    MIN_SEGMENT_MS,
    KeyValueSupplier,
    SessionSupplier,
    VersionedSupplier,
    WindowSupplier,
)
from penstock.stores.bytes.value_formats import (
    HEADERS,
    PLAIN,
    SESSION_HEADERS,
    TIMESTAMPED,
    ValueFormat,
)
from penstock.windows import to_ms

Duration = timedelta | int
AnySerde = Serde[Any] | None


class Stores:
    """Suppliers say what a store holds, builders make a typed store of a supplier.

    Durations are `timedelta` or int milliseconds. A serde of None is the application's default.
    """

    @staticmethod
    def persistent_key_value_store(name: str) -> KeyValueSupplier:
        """On disk. Under a table it keeps no timestamps: they are read as -1."""
        return KeyValueSupplier(_named(name), True, PLAIN)

    @staticmethod
    def persistent_timestamped_key_value_store(name: str) -> KeyValueSupplier:
        """On disk, with timestamps."""
        return KeyValueSupplier(_named(name), True, TIMESTAMPED)

    @staticmethod
    def persistent_timestamped_key_value_store_with_headers(name: str) -> KeyValueSupplier:
        """On disk, with timestamps and headers."""
        return KeyValueSupplier(_named(name), True, HEADERS)

    @staticmethod
    def in_memory_key_value_store(name: str) -> KeyValueSupplier:
        """In memory; keeps whatever the builder wants kept."""
        return KeyValueSupplier(_named(name), False)

    @staticmethod
    def lru_map(name: str, max_cache_size: int) -> KeyValueSupplier:
        """In memory, the most recently used keys only."""
        if max_cache_size < 0:
            raise ValueError("maxCacheSize cannot be negative")
        return KeyValueSupplier(_named(name), False, max_entries=max_cache_size)

    @staticmethod
    def persistent_versioned_key_value_store(
        name: str, history_retention: Duration, segment_interval: Duration | None = None
    ) -> VersionedSupplier:
        """On disk, with all versions as long as the history is kept."""
        history_ms = _not_negative(history_retention, "historyRetention")
        if segment_interval is None:
            return VersionedSupplier(_named(name), history_ms, _history_segment_ms(history_ms))
        interval_ms = to_ms(segment_interval, "segmentInterval")
        if interval_ms < 1:
            raise ValueError("segmentInterval cannot be zero or negative")
        return VersionedSupplier(_named(name), history_ms, interval_ms)

    @staticmethod
    def persistent_window_store(
        name: str, retention: Duration, window_size: Duration, retain_duplicates: bool = False
    ) -> WindowSupplier:
        """On disk. Under an aggregation it keeps no timestamps: they are read as -1."""
        return window_supplier(name, retention, window_size, retain_duplicates)

    @staticmethod
    def persistent_timestamped_window_store(
        name: str, retention: Duration, window_size: Duration, retain_duplicates: bool = False
    ) -> WindowSupplier:
        """On disk, with timestamps."""
        return window_supplier(
            name, retention, window_size, retain_duplicates, value_format=TIMESTAMPED
        )

    @staticmethod
    def persistent_timestamped_window_store_with_headers(
        name: str, retention: Duration, window_size: Duration, retain_duplicates: bool = False
    ) -> WindowSupplier:
        """On disk, with timestamps and headers."""
        return window_supplier(
            name, retention, window_size, retain_duplicates, value_format=HEADERS
        )

    @staticmethod
    def in_memory_window_store(
        name: str, retention: Duration, window_size: Duration, retain_duplicates: bool = False
    ) -> WindowSupplier:
        """In memory, with expiry exact to the millisecond."""
        retention_ms, size_ms = _window_times(name, retention, window_size)
        return WindowSupplier(_named(name), False, retention_ms, size_ms, retain_duplicates)

    @staticmethod
    def persistent_session_store(name: str, retention: Duration) -> SessionSupplier:
        """On disk."""
        return session_supplier(name, retention)

    @staticmethod
    def persistent_session_store_with_headers(name: str, retention: Duration) -> SessionSupplier:
        """On disk, with headers."""
        return session_supplier(name, retention, value_format=SESSION_HEADERS)

    @staticmethod
    def in_memory_session_store(name: str, retention: Duration) -> SessionSupplier:
        """In memory, with expiry exact to the millisecond."""
        return SessionSupplier(_named(name), False, _not_negative(retention, "retentionPeriod"))

    @staticmethod
    def key_value_store_builder(
        supplier: KeyValueSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """A `KeyValueStore`."""
        return _builder("key_value", supplier, key, value)

    @staticmethod
    def timestamped_key_value_store_builder(
        supplier: KeyValueSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """A `TimestampedKeyValueStore`."""
        return _builder("timestamped_key_value", supplier, key, value)

    @staticmethod
    def timestamped_key_value_store_with_headers_builder(
        supplier: KeyValueSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """A `TimestampedKeyValueStoreWithHeaders`."""
        return _builder("timestamped_key_value_with_headers", supplier, key, value)

    @staticmethod
    def versioned_key_value_store_builder(
        supplier: VersionedSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """A `VersionedKeyValueStore`."""
        return _builder("versioned_key_value", supplier, key, value)

    @staticmethod
    def window_store_builder(
        supplier: WindowSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """A `WindowStore`."""
        return _builder("window", supplier, key, value)

    @staticmethod
    def timestamped_window_store_builder(
        supplier: WindowSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """A `TimestampedWindowStore`."""
        return _builder("timestamped_window", supplier, key, value)

    @staticmethod
    def timestamped_window_store_with_headers_builder(
        supplier: WindowSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """A `TimestampedWindowStoreWithHeaders`."""
        return _builder("timestamped_window_with_headers", supplier, key, value)

    @staticmethod
    def session_store_builder(
        supplier: SessionSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """A `SessionStore`."""
        return _builder("session", supplier, key, value)

    @staticmethod
    def session_store_with_headers_builder(
        supplier: SessionSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """A `SessionStoreWithHeaders`."""
        return _builder("session_with_headers", supplier, key, value)


def window_supplier(
    name: str, retention: Duration, window_size: Duration, retain_duplicates: bool = False, *,
    value_format: ValueFormat = PLAIN, time_ordered: bool = False, indexed: bool = False,
) -> WindowSupplier:
    """A window store on disk; in order of time, with or without an index, for emit on close."""
    retention_ms, size_ms = _window_times(name, retention, window_size)
    return WindowSupplier(
        _named(name), True, retention_ms, size_ms, retain_duplicates,
        segment_interval_ms=_segment_ms(retention_ms), format=value_format,
        time_ordered=time_ordered, indexed=indexed,
    )


def session_supplier(
    name: str, retention: Duration, *, value_format: ValueFormat = PLAIN, time_ordered: bool = False
) -> SessionSupplier:
    """A session store on disk; in order of time, with an index, for emit on close."""
    retention_ms = _not_negative(retention, "retentionPeriod")
    return SessionSupplier(
        _named(name), True, retention_ms, segment_interval_ms=_segment_ms(retention_ms),
        format=value_format, time_ordered=time_ordered,
    )


def _builder(kind: str, supplier: Any, key: AnySerde, value: AnySerde) -> StoreBuilder:
    if supplier is None:
        raise TypeError("supplier cannot be null")
    return StoreBuilder(supplier.name, kind, supplier, key, value)


def _named(name: str) -> str:
    if name is None:
        raise TypeError("name cannot be null")
    return name


def _not_negative(duration: Duration, what: str) -> int:
    duration_ms = to_ms(duration, what)
    if duration_ms < 0:
        raise ValueError(f"{what} cannot be negative")
    return duration_ms


def _window_times(name: str, retention: Duration, window_size: Duration) -> tuple[int, int]:
    retention_ms = _not_negative(retention, "retentionPeriod")
    size_ms = _not_negative(window_size, "windowSize")
    if size_ms > retention_ms:
        raise ValueError(
            f"The retention period of the window store {name} must be no smaller than its window "
            f"size. Got size=[{size_ms}], retention=[{retention_ms}]"
        )
    return retention_ms, size_ms


def _segment_ms(retention_ms: int) -> int:
    return max(retention_ms // 2, MIN_SEGMENT_MS)


def _history_segment_ms(history_ms: int) -> int:
    """Kafka's choice: more segments for a longer history."""
    if history_ms <= 60_000:
        return max(history_ms // 3, 2_000)
    if history_ms <= 300_000:
        return max(history_ms // 5, 20_000)
    if history_ms <= 3_600_000:
        return max(history_ms // 12, 60_000)
    return max(history_ms // 24, 300_000)
