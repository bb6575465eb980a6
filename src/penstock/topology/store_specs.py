"""The stores of the DSL: specified and checked before the configuration is known.

Each spec resolves to a `StoreBuilder` when the configuration is known, which selects the
implementation and the format of the stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.config import StreamsConfig
from penstock.processors.foreign_key_wire import subscription_serde
from penstock.serdes.builtin import Serde, Serdes
from penstock.stores.api.builder import StoreBuilder
from penstock.stores.api.dsl_suppliers import (
    BuiltInDslStoreSuppliers,
    DslKeyValueParams,
    DslSessionParams,
    DslStoreFormat,
    DslStoreSuppliers,
    DslWindowParams,
)
from penstock.stores.api.stores import Stores
from penstock.stores.api.suppliers import (
    KeyValueSupplier,
    SessionSupplier,
    VersionedSupplier,
    WindowSupplier,
)
from penstock.stores.buffers.join_grace import JoinGraceBufferBuilder
from penstock.stores.buffers.suppress import SuppressBufferBuilder
from penstock.topology.default_serdes import DefaultSerdes
from penstock.windows import (
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    Windows,
    to_ms,
)

if TYPE_CHECKING:
    from penstock.dsl.options import Materialized

AnySerde = Serde[Any] | None
_BUILT_IN: dict[str, DslStoreSuppliers] = {
    "rocksdb": BuiltInDslStoreSuppliers.ROCKS_DB,
    "in_memory": BuiltInDslStoreSuppliers.IN_MEMORY,
}


def dsl_suppliers(chosen: DslStoreSuppliers | None, config: StreamsConfig) -> DslStoreSuppliers:
    """Return the suppliers that the step chose, or those of the configuration."""
    if chosen is not None:
        return chosen
    configured: Any = config.dsl_store_suppliers
    return _BUILT_IN[configured] if isinstance(configured, str) else configured


def _format(default: DslStoreFormat, config: StreamsConfig) -> DslStoreFormat:
    return DslStoreFormat.HEADERS if config.dsl_store_format == "HEADERS" else default


class _MaterializedSpec:
    """The common part of stores that are specified by a `Materialized`."""

    materialized: Materialized[Any, Any]

    @property
    def name(self) -> str:
        name = self.materialized.store_name
        assert name is not None
        return name

    @property
    def key(self) -> AnySerde:
        """The key serde; None for the default."""
        return self.materialized.key

    @property
    def value(self) -> AnySerde:
        """The value serde; None for the default."""
        return self.materialized.value

    @property
    def logging_enabled(self) -> bool:
        return self.materialized.logging

    @property
    def log_config(self) -> Mapping[str, str]:
        return self.materialized.log_config

    @property
    def history_retention_ms(self) -> int | None:
        return getattr(self.materialized.supplier, "history_retention_ms", None)

    @property
    def is_versioned(self) -> bool:
        """Whether the store is versioned."""
        return self.history_retention_ms is not None

    def without_logging(self) -> Any:
        """Return the same store without a changelog."""
        return replace(self, materialized=replace(self.materialized, logging=False))  # type: ignore[type-var]

    def _reject_suppliers(self, *kinds: type) -> None:
        supplier = self.materialized.supplier
        if isinstance(supplier, kinds):
            raise TypeError(
                f"The supplier of store {self.name} is a {type(supplier).__name__}, which cannot "
                "be used here. A table needs a key-value store, an aggregation in time windows a "
                "window store, an aggregation in sessions a session store."
            )

    def _retention_or(self, default_ms: int) -> int:
        retention = self.materialized.retention
        return default_ms if retention is None else to_ms(retention)

    def _configure(self, builder: StoreBuilder, *, may_cache: bool = True) -> StoreBuilder:
        if self.materialized.caching and may_cache:
            builder = builder.with_caching_enabled()
        if self.materialized.logging:
            return builder.with_logging_enabled(self.materialized.log_config)
        return builder.with_logging_disabled()


@dataclass(frozen=True, eq=False)
class KeyValueSpec(_MaterializedSpec):
    """The store of a table or an aggregation without windows."""

    materialized: Materialized[Any, Any]

    def __post_init__(self) -> None:
        self._reject_suppliers(WindowSupplier, SessionSupplier)

    def resolve(self, config: StreamsConfig) -> StoreBuilder:
        supplier = self.materialized.supplier
        if supplier is None:
            store_format = _format(DslStoreFormat.TIMESTAMPED, config)
            suppliers = dsl_suppliers(self.materialized.suppliers, config)
            supplier = suppliers.key_value_store(DslKeyValueParams(self.name, store_format))
        if supplier.versioned:
            builder = Stores.versioned_key_value_store_builder(supplier, self.key, self.value)
            return self._configure(builder, may_cache=False)
        make = (
            Stores.timestamped_key_value_store_with_headers_builder if supplier.with_headers
            else Stores.timestamped_key_value_store_builder
        )
        return self._configure(make(supplier, self.key, self.value))


@dataclass(frozen=True, eq=False)
class WindowSpec(_MaterializedSpec):
    """The store of an aggregation in tumbling, hopping or unlimited windows."""

    materialized: Materialized[Any, Any]
    windows: Windows
    emit: EmitStrategy

    def __post_init__(self) -> None:
        self._reject_suppliers(KeyValueSupplier, VersionedSupplier, SessionSupplier)
        size, grace = self.windows.size, self.windows.grace_period_ms
        if size + grace > self.retention_ms:
            raise ValueError(
                f"The retention period of the window store {self.name} must be no smaller than "
                f"its window size plus the grace period. The retention is {self.retention_ms} ms, "
                f"the window size {size} ms, the grace period {grace} ms."
            )

    @property
    def retention_ms(self) -> int:
        """The retention of windows."""
        return self._retention_or(self.windows.size + self.windows.grace_period_ms)

    def resolve(self, config: StreamsConfig) -> StoreBuilder:
        return self._configure(self._builder(config, self.windows.size, sliding=False))

    def _builder(self, config: StreamsConfig, size_ms: int, *, sliding: bool) -> StoreBuilder:
        supplier = self.materialized.supplier
        if supplier is None:
            suppliers = dsl_suppliers(self.materialized.suppliers, config)
            supplier = suppliers.window_store(
                DslWindowParams(
                    self.name, self.retention_ms, size_ms, False,
                    self.emit is EmitStrategy.ON_WINDOW_CLOSE, sliding,
                    _format(DslStoreFormat.TIMESTAMPED, config),
                )
            )
        make = (
            Stores.timestamped_window_store_with_headers_builder if supplier.with_headers
            else Stores.timestamped_window_store_builder
        )
        return make(supplier, self.key, self.value)


@dataclass(frozen=True, eq=False)
class SlidingSpec(WindowSpec):
    """The store of an aggregation in sliding windows."""

    windows: SlidingWindows  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self._reject_suppliers(KeyValueSupplier, VersionedSupplier, SessionSupplier)
        difference, grace = self.windows.time_difference_ms, self.windows.grace_ms
        if 2 * difference + grace > self.retention_ms:
            raise ValueError(
                f"The retention period of the window store {self.name} must be no smaller than "
                f"2 * time difference plus the grace period. The retention is {self.retention_ms} "
                f"ms, the time difference {difference} ms, the grace period {grace} ms."
            )

    @property
    def retention_ms(self) -> int:
        """The retention of windows."""
        return self._retention_or(2 * self.windows.time_difference_ms + self.windows.grace_ms)

    def resolve(self, config: StreamsConfig) -> StoreBuilder:
        builder = self._builder(config, self.windows.time_difference_ms, sliding=True)
        return self._configure(
            builder, may_cache=self.emit is not EmitStrategy.ON_WINDOW_CLOSE
        )


@dataclass(frozen=True, eq=False)
class SessionSpec(_MaterializedSpec):
    """The store of an aggregation in sessions."""

    materialized: Materialized[Any, Any]
    windows: SessionWindows
    emit: EmitStrategy

    def __post_init__(self) -> None:
        self._reject_suppliers(KeyValueSupplier, VersionedSupplier, WindowSupplier)
        gap, grace = self.windows.gap_ms, self.windows.grace_ms
        if gap + grace > self.retention_ms:
            raise ValueError(
                f"The retention period of the session store {self.name} must be no smaller than "
                f"the inactivity gap plus the grace period. The retention is {self.retention_ms} "
                f"ms, the gap {gap} ms, the grace period {grace} ms."
            )

    @property
    def retention_ms(self) -> int:
        """The retention of sessions."""
        return self._retention_or(self.windows.gap_ms + self.windows.grace_ms)

    def resolve(self, config: StreamsConfig) -> StoreBuilder:
        final = self.emit is EmitStrategy.ON_WINDOW_CLOSE
        supplier = self.materialized.supplier
        if supplier is None:
            suppliers = dsl_suppliers(self.materialized.suppliers, config)
            supplier = suppliers.session_store(
                DslSessionParams(
                    self.name, self.retention_ms, final, _format(DslStoreFormat.PLAIN, config)
                )
            )
        make = (
            Stores.session_store_with_headers_builder if supplier.with_headers
            else Stores.session_store_builder
        )
        return self._configure(make(supplier, self.key, self.value), may_cache=not final)


@dataclass(frozen=True)
class JoinStoreOptions:
    """The user's options for the stores of a stream-stream join."""

    key: AnySerde = None
    value: AnySerde = None
    other_value: AnySerde = None
    store_name: str | None = None
    this_store: WindowSupplier | None = None
    other_store: WindowSupplier | None = None
    suppliers: DslStoreSuppliers | None = None
    logging: bool = True


@dataclass(frozen=True, eq=False)
class JoinWindowSpec:
    """The window store of one side of a stream-stream join."""

    default_name: str
    windows: JoinWindows
    options: JoinStoreOptions
    side: Literal["this", "other"]
    history_retention_ms: int | None = None

    @property
    def supplier(self) -> WindowSupplier | None:
        """The user's supplier for this side."""
        options = self.options
        return options.this_store if self.side == "this" else options.other_store

    @property
    def name(self) -> str:
        return self.default_name if self.supplier is None else self.supplier.name

    @property
    def logging_enabled(self) -> bool:
        return self.options.logging if self.supplier is None else True

    @property
    def log_config(self) -> Mapping[str, str]:
        return {"cleanup.policy": "delete"} if self.supplier is None else {}

    def without_logging(self) -> JoinWindowSpec:
        return replace(self, options=replace(self.options, logging=False))

    def resolve(self, config: StreamsConfig) -> StoreBuilder:
        options = self.options
        supplier = self.supplier
        if supplier is None:
            size_ms = self.windows.size
            supplier = dsl_suppliers(options.suppliers, config).window_store(
                DslWindowParams(
                    self.default_name, size_ms + self.windows.grace_ms, size_ms, True,
                    format=_format(DslStoreFormat.PLAIN, config),
                )
            )
        value = options.value if self.side == "this" else options.other_value
        # A store on disk that keeps timestamps also keeps headers.
        make = (
            Stores.timestamped_window_store_with_headers_builder
            if supplier.persistent and supplier.timestamped
            else Stores.window_store_builder
        )
        builder = make(supplier, options.key, value)
        if self.logging_enabled:
            return builder.with_logging_enabled(self.log_config)
        return builder.with_logging_disabled()


@dataclass(frozen=True, eq=False)
class SharedJoinSpec:
    """The store of unmatched records of a left or outer join, shared by both sides."""

    name: str
    options: JoinStoreOptions
    history_retention_ms: int | None = None
    log_config: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_join(
        cls, this_number: str, options: JoinStoreOptions, *, outer: bool
    ) -> SharedJoinSpec:
        """Return the spec with Kafka's name: after this side's store, or its processor number."""
        suffix = "-outer-shared-join" if outer else "-left-shared-join"
        if options.this_store is not None:
            base = options.this_store.name + suffix
        elif options.store_name is not None:
            base = options.store_name + suffix
        else:
            base = "KSTREAM-OUTERSHARED-" + this_number.rsplit("-", 1)[1]
        return cls(f"{base}-store", options)

    @property
    def logging_enabled(self) -> bool:
        return self.options.logging

    def without_logging(self) -> SharedJoinSpec:
        return replace(self, options=replace(self.options, logging=False))

    def resolve(self, config: StreamsConfig) -> StoreBuilder:
        this_store = self.options.this_store
        supplier: KeyValueSupplier
        if self.options.suppliers is None and this_store is not None:
            supplier = (
                Stores.persistent_key_value_store(self.name) if this_store.persistent
                else Stores.in_memory_key_value_store(self.name)
            )
        else:
            supplier = dsl_suppliers(self.options.suppliers, config).key_value_store(
                DslKeyValueParams(self.name, DslStoreFormat.PLAIN)
            )
        builder = Stores.key_value_store_builder(supplier, Serdes.bytes(), Serdes.bytes())
        return builder if self.logging_enabled else builder.with_logging_disabled()


@dataclass(frozen=True, eq=False)
class SubscriptionSpec:
    """The subscriptions of a foreign-key join: which left rows refer to which right row."""

    name: str
    primary_key: AnySerde
    logging_enabled: bool = True
    history_retention_ms: int | None = None
    log_config: Mapping[str, str] = field(default_factory=dict)

    def without_logging(self) -> SubscriptionSpec:
        return replace(self, logging_enabled=False)

    def resolve(self, config: StreamsConfig) -> StoreBuilder:
        store_format = _format(DslStoreFormat.TIMESTAMPED, config)
        supplier = dsl_suppliers(None, config).key_value_store(
            DslKeyValueParams(self.name, store_format)
        )
        value = subscription_serde(DefaultSerdes(config).key(self.primary_key))
        make = (
            Stores.timestamped_key_value_store_with_headers_builder if supplier.with_headers
            else Stores.timestamped_key_value_store_builder
        )
        return make(supplier, Serdes.bytes(), value)


@dataclass(frozen=True, eq=False)
class BufferSpec:
    """The buffer of `suppress` or of a stream-table join with grace."""

    builder: SuppressBufferBuilder | JoinGraceBufferBuilder
    history_retention_ms: int | None = None

    @classmethod
    def for_suppress(
        cls, name: str, key: AnySerde, value: AnySerde, logging: bool,
        log_config: Mapping[str, str],
    ) -> BufferSpec:
        """Return the buffer of `suppress`: changes of a table."""
        return cls(SuppressBufferBuilder(name, key, value, logging, dict(log_config)))

    @classmethod
    def for_join(cls, step: str, key: AnySerde, value: AnySerde, grace_ms: int) -> BufferSpec:
        """Return the buffer of a join with grace: records of a stream."""
        return cls(JoinGraceBufferBuilder(f"{step}-Buffer", grace_ms, key, value))

    @property
    def name(self) -> str:
        return self.builder.name

    @property
    def logging_enabled(self) -> bool:
        return self.builder.logging_enabled

    @property
    def log_config(self) -> Mapping[str, str]:
        return self.builder.log_config

    def without_logging(self) -> BufferSpec:
        return replace(self, builder=replace(self.builder, logging_enabled=False))

    def resolve(self, config: StreamsConfig) -> Any:
        return self.builder
