"""`Stores`: creates suppliers and builders, with the checks of Kafka Streams."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.java_names import JavaNames
from penstock.serdes.arguments import given_serde
from penstock.serdes.base import SerdeOrType
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
AnySerde = SerdeOrType[Any] | None


class Stores(JavaNames):
    """The factory of suppliers and builders.

    A supplier defines what a store keeps. A builder creates a typed store over a supplier.
    Durations are `timedelta` or int milliseconds. A serde is a `Serde` or a type that has one; None
    means the default of the application.

    Example:
        >>> from penstock import StreamsBuilder
        >>> builder = StreamsBuilder()
        >>> supplier = Stores.persistent_key_value_store("stock")
        >>> _ = builder.add_state_store(Stores.key_value_store_builder(supplier, str, int))
    """

    @staticmethod
    def persistent_key_value_store(name: str) -> KeyValueSupplier:
        """A persistent store without timestamps. A table on it reads timestamps as -1.

        Args:
            name: The name of the store.

        Returns:
            The supplier, for a store builder or `Materialized(supplier=...)`.

        Kafka: Stores#persistentKeyValueStore
        """
        return KeyValueSupplier(_checked_name(name), True, PLAIN)

    @staticmethod
    def persistent_timestamped_key_value_store(name: str) -> KeyValueSupplier:
        """A persistent store with timestamps.

        Args:
            name: The name of the store.

        Returns:
            The supplier, for a store builder or `Materialized(supplier=...)`.

        Kafka: Stores#persistentTimestampedKeyValueStore
        """
        return KeyValueSupplier(_checked_name(name), True, TIMESTAMPED)

    @staticmethod
    def persistent_timestamped_key_value_store_with_headers(name: str) -> KeyValueSupplier:
        """A persistent store with timestamps and headers.

        Args:
            name: The name of the store.

        Returns:
            The supplier, for a store builder or `Materialized(supplier=...)`.

        Kafka: Stores#persistentTimestampedKeyValueStoreWithHeaders
        """
        return KeyValueSupplier(_checked_name(name), True, HEADERS)

    @staticmethod
    def in_memory_key_value_store(name: str) -> KeyValueSupplier:
        """An in-memory store. It keeps timestamps and headers if the builder needs them.

        Args:
            name: The name of the store.

        Returns:
            The supplier, for a store builder or `Materialized(supplier=...)`.

        Kafka: Stores#inMemoryKeyValueStore
        """
        return KeyValueSupplier(_checked_name(name), False)

    @staticmethod
    def lru_map(name: str, max_cache_size: int) -> KeyValueSupplier:
        """An in-memory store that keeps only the most recently used keys.

        Args:
            name: The name of the store.
            max_cache_size: The maximum number of keys.

        Returns:
            The supplier, for a store builder or `Materialized(supplier=...)`.

        Kafka: Stores#lruMap
        """
        if max_cache_size < 0:
            raise ValueError("maxCacheSize cannot be negative")
        return KeyValueSupplier(_checked_name(name), False, max_entries=max_cache_size)

    @staticmethod
    def persistent_versioned_key_value_store(
        name: str, history_retention: Duration, segment_interval: Duration | None = None
    ) -> VersionedSupplier:
        """A persistent store that keeps all versions for the history retention.

        Args:
            name: The name of the store.
            history_retention: How long old versions are kept.
            segment_interval: Versions expire in segments of this length; None for Kafka's default.

        Returns:
            The supplier, for a store builder or `Materialized(supplier=...)`.

        Kafka: Stores#persistentVersionedKeyValueStore
        """
        history_ms = _not_negative(history_retention, "historyRetention")
        if segment_interval is None:
            interval_ms = _history_segment_ms(history_ms)
            return VersionedSupplier(_checked_name(name), history_ms, interval_ms)
        interval_ms = to_ms(segment_interval, "segmentInterval")
        if interval_ms < 1:
            raise ValueError("segmentInterval cannot be zero or negative")
        return VersionedSupplier(_checked_name(name), history_ms, interval_ms)

    @staticmethod
    def persistent_window_store(
        name: str, retention: Duration, window_size: Duration, retain_duplicates: bool = False
    ) -> WindowSupplier:
        """A persistent store without timestamps. An aggregation on it reads timestamps as -1.

        Args:
            name: The name of the store.
            retention: How long rows are kept.
            window_size: The size of a window.
            retain_duplicates: Whether several rows may have the same key and time.

        Returns:
            The supplier, for a store builder or `Materialized(supplier=...)`.

        Kafka: Stores#persistentWindowStore
        """
        return window_supplier(name, retention, window_size, retain_duplicates)

    @staticmethod
    def persistent_timestamped_window_store(
        name: str, retention: Duration, window_size: Duration, retain_duplicates: bool = False
    ) -> WindowSupplier:
        """A persistent store with timestamps.

        Args:
            name: The name of the store.
            retention: How long rows are kept.
            window_size: The size of a window.
            retain_duplicates: Whether several rows may have the same key and time.

        Returns:
            The supplier, for a store builder or `Materialized(supplier=...)`.

        Kafka: Stores#persistentTimestampedWindowStore
        """
        return window_supplier(
            name, retention, window_size, retain_duplicates, value_format=TIMESTAMPED
        )

    @staticmethod
    def persistent_timestamped_window_store_with_headers(
        name: str, retention: Duration, window_size: Duration, retain_duplicates: bool = False
    ) -> WindowSupplier:
        """A persistent store with timestamps and headers.

        Args:
            name: The name of the store.
            retention: How long rows are kept.
            window_size: The size of a window.
            retain_duplicates: Whether several rows may have the same key and time.

        Returns:
            The supplier, for a store builder or `Materialized(supplier=...)`.

        Kafka: Stores#persistentTimestampedWindowStoreWithHeaders
        """
        return window_supplier(
            name, retention, window_size, retain_duplicates, value_format=HEADERS
        )

    @staticmethod
    def in_memory_window_store(
        name: str, retention: Duration, window_size: Duration, retain_duplicates: bool = False
    ) -> WindowSupplier:
        """An in-memory store. Expiry is exact to the millisecond.

        Args:
            name: The name of the store.
            retention: How long rows are kept.
            window_size: The size of a window.
            retain_duplicates: Whether several rows may have the same key and time.

        Returns:
            The supplier, for a store builder or `Materialized(supplier=...)`.

        Kafka: Stores#inMemoryWindowStore
        """
        retention_ms, size_ms = _window_times(name, retention, window_size)
        return WindowSupplier(_checked_name(name), False, retention_ms, size_ms, retain_duplicates)

    @staticmethod
    def persistent_session_store(name: str, retention: Duration) -> SessionSupplier:
        """A persistent store without headers.

        Args:
            name: The name of the store.
            retention: How long rows are kept.

        Returns:
            The supplier, for a store builder or `Materialized(supplier=...)`.

        Kafka: Stores#persistentSessionStore
        """
        return session_supplier(name, retention)

    @staticmethod
    def persistent_session_store_with_headers(name: str, retention: Duration) -> SessionSupplier:
        """A persistent store with headers.

        Args:
            name: The name of the store.
            retention: How long rows are kept.

        Returns:
            The supplier, for a store builder or `Materialized(supplier=...)`.

        Kafka: Stores#persistentSessionStoreWithHeaders
        """
        return session_supplier(name, retention, value_format=SESSION_HEADERS)

    @staticmethod
    def in_memory_session_store(name: str, retention: Duration) -> SessionSupplier:
        """An in-memory store. Expiry is exact to the millisecond.

        Args:
            name: The name of the store.
            retention: How long rows are kept.

        Returns:
            The supplier, for a store builder or `Materialized(supplier=...)`.

        Kafka: Stores#inMemorySessionStore
        """
        retention_ms = _not_negative(retention, "retentionPeriod")
        return SessionSupplier(_checked_name(name), False, retention_ms)

    @staticmethod
    def key_value_store_builder(
        supplier: KeyValueSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """Builds a `KeyValueStore`.

        Args:
            supplier: The supplier of the store.
            key: The serde of the keys; None for the default of the application.
            value: The serde of the values; None for the default of the application.

        Returns:
            The builder, for `add_state_store`.

        Kafka: Stores#keyValueStoreBuilder
        """
        return _builder("key_value", supplier, key, value)

    @staticmethod
    def timestamped_key_value_store_builder(
        supplier: KeyValueSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """Builds a `TimestampedKeyValueStore`.

        Args:
            supplier: The supplier of the store.
            key: The serde of the keys; None for the default of the application.
            value: The serde of the values; None for the default of the application.

        Returns:
            The builder, for `add_state_store`.

        Kafka: Stores#timestampedKeyValueStoreBuilder
        """
        return _builder("timestamped_key_value", supplier, key, value)

    @staticmethod
    def timestamped_key_value_store_with_headers_builder(
        supplier: KeyValueSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """Builds a `TimestampedKeyValueStoreWithHeaders`.

        Args:
            supplier: The supplier of the store.
            key: The serde of the keys; None for the default of the application.
            value: The serde of the values; None for the default of the application.

        Returns:
            The builder, for `add_state_store`.

        Kafka: Stores#timestampedKeyValueStoreWithHeadersBuilder
        """
        return _builder("timestamped_key_value_with_headers", supplier, key, value)

    @staticmethod
    def versioned_key_value_store_builder(
        supplier: VersionedSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """Builds a `VersionedKeyValueStore`.

        Args:
            supplier: The supplier of the store.
            key: The serde of the keys; None for the default of the application.
            value: The serde of the values; None for the default of the application.

        Returns:
            The builder, for `add_state_store`.

        Kafka: Stores#versionedKeyValueStoreBuilder
        """
        return _builder("versioned_key_value", supplier, key, value)

    @staticmethod
    def window_store_builder(
        supplier: WindowSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """Builds a `WindowStore`.

        Args:
            supplier: The supplier of the store.
            key: The serde of the keys; None for the default of the application.
            value: The serde of the values; None for the default of the application.

        Returns:
            The builder, for `add_state_store`.

        Kafka: Stores#windowStoreBuilder
        """
        return _builder("window", supplier, key, value)

    @staticmethod
    def timestamped_window_store_builder(
        supplier: WindowSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """Builds a `TimestampedWindowStore`.

        Args:
            supplier: The supplier of the store.
            key: The serde of the keys; None for the default of the application.
            value: The serde of the values; None for the default of the application.

        Returns:
            The builder, for `add_state_store`.

        Kafka: Stores#timestampedWindowStoreBuilder
        """
        return _builder("timestamped_window", supplier, key, value)

    @staticmethod
    def timestamped_window_store_with_headers_builder(
        supplier: WindowSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """Builds a `TimestampedWindowStoreWithHeaders`.

        Args:
            supplier: The supplier of the store.
            key: The serde of the keys; None for the default of the application.
            value: The serde of the values; None for the default of the application.

        Returns:
            The builder, for `add_state_store`.

        Kafka: Stores#timestampedWindowStoreWithHeadersBuilder
        """
        return _builder("timestamped_window_with_headers", supplier, key, value)

    @staticmethod
    def session_store_builder(
        supplier: SessionSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """Builds a `SessionStore`.

        Args:
            supplier: The supplier of the store.
            key: The serde of the keys; None for the default of the application.
            value: The serde of the values; None for the default of the application.

        Returns:
            The builder, for `add_state_store`.

        Kafka: Stores#sessionStoreBuilder
        """
        return _builder("session", supplier, key, value)

    @staticmethod
    def session_store_with_headers_builder(
        supplier: SessionSupplier, key: AnySerde = None, value: AnySerde = None
    ) -> StoreBuilder:
        """Builds a `SessionStoreWithHeaders`.

        Args:
            supplier: The supplier of the store.
            key: The serde of the keys; None for the default of the application.
            value: The serde of the values; None for the default of the application.

        Returns:
            The builder, for `add_state_store`.

        Kafka: Stores#sessionStoreWithHeadersBuilder
        """
        return _builder("session_with_headers", supplier, key, value)


def window_supplier(
    name: str, retention: Duration, window_size: Duration, retain_duplicates: bool = False, *,
    value_format: ValueFormat = PLAIN, time_ordered: bool = False, indexed: bool = False,
) -> WindowSupplier:
    """A persistent window store. Time order and index are for emit on close."""
    retention_ms, size_ms = _window_times(name, retention, window_size)
    return WindowSupplier(
        _checked_name(name), True, retention_ms, size_ms, retain_duplicates,
        segment_interval_ms=_segment_ms(retention_ms), format=value_format,
        time_ordered=time_ordered, indexed=indexed,
    )


def session_supplier(
    name: str, retention: Duration, *, value_format: ValueFormat = PLAIN, time_ordered: bool = False
) -> SessionSupplier:
    """A persistent session store. Time order, which includes an index, is for emit on close."""
    retention_ms = _not_negative(retention, "retentionPeriod")
    return SessionSupplier(
        _checked_name(name), True, retention_ms, segment_interval_ms=_segment_ms(retention_ms),
        format=value_format, time_ordered=time_ordered,
    )


def _builder(kind: str, supplier: Any, key: AnySerde, value: AnySerde) -> StoreBuilder:
    if supplier is None:
        raise TypeError("supplier cannot be null")
    where = f"Store '{supplier.name}'"
    return StoreBuilder(
        supplier.name, kind, supplier, given_serde(key, "key", where=where),
        given_serde(value, "value", where=where),
    )


def _checked_name(name: str) -> str:
    if name is None:
        raise TypeError("name cannot be null")
    return name


def _not_negative(duration: Duration, parameter: str) -> int:
    duration_ms = to_ms(duration, parameter)
    if duration_ms < 0:
        raise ValueError(f"{parameter} cannot be negative")
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
    """Kafka's default: more segments for a longer history."""
    if history_ms <= 60_000:
        return max(history_ms // 3, 2_000)
    if history_ms <= 300_000:
        return max(history_ms // 5, 20_000)
    if history_ms <= 3_600_000:
        return max(history_ms // 12, 60_000)
    return max(history_ms // 24, 300_000)
