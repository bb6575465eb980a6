"""The stores of the DSL: specified and checked before the configuration is known.

Each spec resolves to a `StoreBuilder` when the configuration is known, which selects the
implementation and the format of the stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from penstock.config import StreamsConfig
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
    check_supplier,
)
from penstock.stores.buffers.join_grace import JoinGraceBufferBuilder
from penstock.stores.buffers.suppress import SuppressBufferBuilder
from penstock.topology.default_serdes import (
    DefaultSerdes,
    Deferred,
    Fallback,
    InferredSerde,
)
from penstock.topology.nodes import StoreRole
from penstock.windows import (
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    Windows,
    to_ms,
)

if TYPE_CHECKING:
    from penstock.dsl.options import Materialized

#: The default serdes of the configuration apply.
NO_FALLBACK = Fallback()
AnySerde = Serde[Any] | None
NodeSerde = Serde[Any] | InferredSerde | None
S = TypeVar("S")
_BUILT_IN: dict[str, DslStoreSuppliers] = {
    "rocksdb": BuiltInDslStoreSuppliers.ROCKS_DB,
    "in_memory": BuiltInDslStoreSuppliers.IN_MEMORY,
}


def dsl_suppliers(chosen: DslStoreSuppliers | None, config: StreamsConfig) -> DslStoreSuppliers:
    """Return the suppliers that the step chose, or those of the configuration."""
    if chosen is None:
        configured: Any = config.dsl_store_suppliers
        chosen = _BUILT_IN[configured] if isinstance(configured, str) else configured
    return chosen if chosen in _BUILT_IN.values() else _CheckedSuppliers(chosen)


@dataclass(frozen=True, slots=True)
class _CheckedSuppliers:
    """Checks what the user's `DslStoreSuppliers` return."""

    chosen: DslStoreSuppliers

    def key_value_store(self, params: DslKeyValueParams) -> KeyValueSupplier:
        return self._checked(self.chosen.key_value_store(params), "key_value_store")

    def window_store(self, params: DslWindowParams) -> WindowSupplier:
        return self._checked(self.chosen.window_store(params), "window_store")

    def session_store(self, params: DslSessionParams) -> SessionSupplier:
        return self._checked(self.chosen.session_store(params), "session_store")

    def _checked(self, supplier: S, method: str) -> S:
        return check_supplier(supplier, f"The result of {type(self.chosen).__name__}.{method}()")


def store_format(default: DslStoreFormat, config: StreamsConfig) -> DslStoreFormat:
    """Return the format of a store: `default`, unless the configuration asks for headers."""
    return DslStoreFormat.HEADERS if config.dsl_store_format == "HEADERS" else default


class _MaterializedSpec:
    """The common part of stores that are specified by a `Materialized`."""

    materialized: Materialized[Any, Any]
    #: The serdes that apply if the `Materialized` has none.
    fallback: Fallback
    role: ClassVar[StoreRole] = "rows"

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

    def serdes(self, config: StreamsConfig) -> tuple[AnySerde, AnySerde]:
        """Return key and value serde for this configuration."""
        return self.fallback.resolve(self.key, self.value, config)

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
        if supplier is not None:
            check_supplier(supplier, f"The supplier of store {self.name}")
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
    fallback: Fallback = NO_FALLBACK

    def __post_init__(self) -> None:
        self._reject_suppliers(WindowSupplier, SessionSupplier)

    def resolve(self, config: StreamsConfig) -> StoreBuilder:
        supplier = self.materialized.supplier
        if supplier is None:
            chosen_format = store_format(DslStoreFormat.TIMESTAMPED, config)
            suppliers = dsl_suppliers(self.materialized.suppliers, config)
            supplier = suppliers.key_value_store(DslKeyValueParams(self.name, chosen_format))
        if supplier.versioned:
            builder = Stores.versioned_key_value_store_builder(supplier, *self.serdes(config))
            return self._configure(builder, may_cache=False)
        make = (
            Stores.timestamped_key_value_store_with_headers_builder if supplier.with_headers
            else Stores.timestamped_key_value_store_builder
        )
        return self._configure(make(supplier, *self.serdes(config)))


@dataclass(frozen=True, eq=False)
class WindowSpec(_MaterializedSpec):
    """The store of an aggregation in tumbling, hopping or unlimited windows."""

    materialized: Materialized[Any, Any]
    windows: Windows
    emit: EmitStrategy
    fallback: Fallback = NO_FALLBACK

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
                    store_format(DslStoreFormat.TIMESTAMPED, config),
                )
            )
        make = (
            Stores.timestamped_window_store_with_headers_builder if supplier.with_headers
            else Stores.timestamped_window_store_builder
        )
        return make(supplier, *self.serdes(config))


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
    fallback: Fallback = NO_FALLBACK

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
                    self.name, self.retention_ms, final, store_format(DslStoreFormat.PLAIN, config)
                )
            )
        make = (
            Stores.session_store_with_headers_builder if supplier.with_headers
            else Stores.session_store_builder
        )
        return self._configure(make(supplier, *self.serdes(config)), may_cache=not final)


@dataclass(frozen=True, eq=False)
class SubscriptionSpec:
    """The subscriptions of a foreign-key join: which left rows refer to which right row."""

    name: str
    #: Of `Serde[Subscription]`.
    value: Deferred
    logging_enabled: bool = True
    history_retention_ms: int | None = None
    log_config: Mapping[str, str] = field(default_factory=dict)
    role: ClassVar[StoreRole] = "subscriptions"

    def without_logging(self) -> SubscriptionSpec:
        return replace(self, logging_enabled=False)

    def resolve(self, config: StreamsConfig) -> StoreBuilder:
        chosen_format = store_format(DslStoreFormat.TIMESTAMPED, config)
        supplier = dsl_suppliers(None, config).key_value_store(
            DslKeyValueParams(self.name, chosen_format)
        )
        value = self.value.make(DefaultSerdes(config))
        make = (
            Stores.timestamped_key_value_store_with_headers_builder if supplier.with_headers
            else Stores.timestamped_key_value_store_builder
        )
        return make(supplier, Serdes.bytes(), value)


@dataclass(frozen=True, eq=False)
class BufferSpec:
    """The buffer of `suppress` or of a stream-table join with grace."""

    builder: SuppressBufferBuilder | JoinGraceBufferBuilder
    fallback: Fallback = NO_FALLBACK
    history_retention_ms: int | None = None

    @classmethod
    def for_suppress(
        cls, name: str, key: AnySerde, value: AnySerde, logging: bool,
        log_config: Mapping[str, str], fallback: Fallback = NO_FALLBACK,
    ) -> BufferSpec:
        """Return the buffer of `suppress`: changes of a table."""
        return cls(SuppressBufferBuilder(name, key, value, logging, dict(log_config)), fallback)

    @classmethod
    def for_join(
        cls, name: str, key: AnySerde, value: AnySerde, grace_ms: int,
        fallback: Fallback = NO_FALLBACK,
    ) -> BufferSpec:
        """Return the buffer of a join with grace: records of a stream."""
        return cls(JoinGraceBufferBuilder(name, grace_ms, key, value), fallback)

    @property
    def name(self) -> str:
        return self.builder.name

    @property
    def role(self) -> StoreRole:
        return "suppress" if isinstance(self.builder, SuppressBufferBuilder) else "grace"

    @property
    def logging_enabled(self) -> bool:
        return self.builder.logging_enabled

    @property
    def log_config(self) -> Mapping[str, str]:
        return self.builder.log_config

    def without_logging(self) -> BufferSpec:
        return replace(self, builder=replace(self.builder, logging_enabled=False))

    def resolve(self, config: StreamsConfig) -> Any:
        builder = self.builder
        key, value = self.fallback.resolve(builder.key_serde, builder.value_serde, config)
        return replace(builder, key_serde=key, value_serde=value)
