"""The stores of a join of two streams: a window store per side, and one of unmatched records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from penstock.config import StreamsConfig
from penstock.serdes.builtin import Serde, Serdes
from penstock.stores.api.builder import StoreBuilder
from penstock.stores.api.dsl_suppliers import (
    DslKeyValueParams,
    DslStoreFormat,
    DslStoreSuppliers,
    DslWindowParams,
)
from penstock.stores.api.stores import Stores
from penstock.stores.api.suppliers import KeyValueSupplier, WindowSupplier
from penstock.topology.default_serdes import DefaultSerdes, InferredSerde, resolve
from penstock.topology.nodes import StoreRole
from penstock.topology.store_specs import dsl_suppliers, store_format
from penstock.windows import JoinWindows

NodeSerde = Serde[Any] | InferredSerde | None


@dataclass(frozen=True)
class JoinStoreOptions:
    """The user's options for the stores of a stream-stream join."""

    key: NodeSerde = None
    value: NodeSerde = None
    other_value: NodeSerde = None
    store_name: str | None = None
    this_store: WindowSupplier | None = None
    other_store: WindowSupplier | None = None
    suppliers: DslStoreSuppliers | None = None
    logging: bool = True
    #: Exact names for the stores of this side, of the other side, and of unmatched records.
    exact_names: tuple[str | None, ...] = (None, None, None)
    #: The step that joins the two sides.
    step: str = ""
    log_config: Mapping[str, str] = field(default_factory=dict)


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
    def role(self) -> StoreRole:
        return self.side

    @property
    def step(self) -> str:
        """The step that joins the two sides."""
        return self.options.step

    @property
    def name(self) -> str:
        return self.default_name if self.supplier is None else self.supplier.name

    @property
    def logging_enabled(self) -> bool:
        return self.options.logging if self.supplier is None else True

    @property
    def log_config(self) -> Mapping[str, str]:
        if self.supplier is not None:
            return {}
        return {"cleanup.policy": "delete", **self.options.log_config}

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
                    format=store_format(DslStoreFormat.PLAIN, config),
                )
            )
        value = options.value if self.side == "this" else options.other_value
        # A store on disk that keeps timestamps also keeps headers.
        make = (
            Stores.timestamped_window_store_with_headers_builder
            if supplier.persistent and supplier.timestamped
            else Stores.window_store_builder
        )
        defaults = DefaultSerdes(config)
        builder = make(supplier, resolve(options.key, defaults), resolve(value, defaults))
        if self.logging_enabled:
            return builder.with_logging_enabled(self.log_config)
        return builder.with_logging_disabled()


@dataclass(frozen=True, eq=False)
class SharedJoinSpec:
    """The store of unmatched records of a left or outer join, shared by both sides."""

    name: str
    options: JoinStoreOptions
    history_retention_ms: int | None = None
    role: ClassVar[StoreRole] = "shared"

    @property
    def step(self) -> str:
        """The step that joins the two sides."""
        return self.options.step

    @staticmethod
    def name_of_join(this_number: str, options: JoinStoreOptions, *, outer: bool) -> str:
        """Return Kafka's name: after this side's store, or its processor number."""
        suffix = "-outer-shared-join" if outer else "-left-shared-join"
        if options.this_store is not None:
            base = options.this_store.name + suffix
        elif options.store_name is not None:
            base = options.store_name + suffix
        else:
            base = "KSTREAM-OUTERSHARED-" + this_number.rsplit("-", 1)[1]
        return f"{base}-store"

    @property
    def logging_enabled(self) -> bool:
        return self.options.logging

    @property
    def log_config(self) -> Mapping[str, str]:
        return self.options.log_config

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
        if self.logging_enabled:
            return builder.with_logging_enabled(self.log_config)
        return builder.with_logging_disabled()
