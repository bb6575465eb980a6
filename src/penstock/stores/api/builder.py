"""`StoreBuilder`: describes a typed store over a supplier, with caching and logging."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.serdes.builtin import Serde
from penstock.stores.api.store import StateStore
from penstock.stores.api.suppliers import (
    KeyValueSupplier,
    SessionSupplier,
    Supplier,
    VersionedSupplier,
    WindowSupplier,
)
from penstock.stores.bytes.store import OpenBytesStore, open_in_memory
from penstock.stores.typed.key_value import (
    KeyValueStore,
    TimestampedKeyValueStore,
    TimestampedKeyValueStoreWithHeaders,
)
from penstock.stores.typed.session import SessionStore, SessionStoreWithHeaders
from penstock.stores.typed.store import StoreOptions
from penstock.stores.typed.versioned import VersionedKeyValueStore
from penstock.stores.typed.window import (
    TimestampedWindowStore,
    TimestampedWindowStoreWithHeaders,
    WindowStore,
)

#: Kind of store -> (typed store, type of its supplier).
_KINDS: dict[str, tuple[Callable[[Any, StoreOptions], Any], type]] = {
    "key_value": (KeyValueStore, KeyValueSupplier),
    "timestamped_key_value": (TimestampedKeyValueStore, KeyValueSupplier),
    "timestamped_key_value_with_headers": (
        TimestampedKeyValueStoreWithHeaders, KeyValueSupplier,
    ),
    "versioned_key_value": (VersionedKeyValueStore, VersionedSupplier),
    "window": (WindowStore, WindowSupplier),
    "timestamped_window": (TimestampedWindowStore, WindowSupplier),
    "timestamped_window_with_headers": (TimestampedWindowStoreWithHeaders, WindowSupplier),
    "session": (SessionStore, SessionSupplier),
    "session_with_headers": (SessionStoreWithHeaders, SessionSupplier),
}


@dataclass(frozen=True)
class StoreBuilder:
    """Describes a store. Builders are immutable and compared by value.

    A topology accepts any object with `name`, `logging_enabled` and `build()` in its place.

    Example:
        >>> from penstock import Stores
        >>> supplier = Stores.in_memory_key_value_store("stock")
        >>> builder = Stores.key_value_store_builder(supplier, str, int)
        >>> builder.with_caching_enabled().with_logging_disabled().logging_enabled
        False
    """

    name: str
    kind: str
    supplier: Supplier | None = None
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    caching_enabled: bool = False
    logging_enabled: bool = True
    log_config: Mapping[str, str] = field(default_factory=dict, hash=False)
    factory: Callable[[], StateStore] | None = None

    def __post_init__(self) -> None:
        if self.kind == "custom":
            if self.factory is None:
                raise TypeError(f"The custom store '{self.name}' has no factory.")
            return
        if self.kind not in _KINDS:
            raise ValueError(
                f"Unknown kind of store '{self.kind}'. Kinds: {', '.join(_KINDS)}."
            )
        expected = _KINDS[self.kind][1]
        if self.supplier is None:
            raise TypeError("supplier cannot be null")
        if not isinstance(self.supplier, expected):
            raise TypeError(
                f"A {self.kind} store needs a {expected.__name__}, not a "
                f"{type(self.supplier).__name__}."
            )

    @staticmethod
    def custom(name: str, factory: Callable[[], StateStore]) -> StoreBuilder:
        """A custom store. The factory creates one for each task.

        Args:
            name: The name of the store.
            factory: A function without arguments that creates the store; called once per task.

        Returns:
            The builder, for `add_state_store`.
        """
        return StoreBuilder(name, "custom", factory=factory)

    def with_caching_enabled(self) -> StoreBuilder:
        """Keep writes in the record cache until a commit.

        Returns:
            A changed copy of the builder.

        Kafka: StoreBuilder#withCachingEnabled
        """
        if self.kind == "versioned_key_value":
            raise ValueError("Versioned stores do not support caching")
        return replace(self, caching_enabled=True)

    def with_caching_disabled(self) -> StoreBuilder:
        """Write through to the store at once.

        Returns:
            A changed copy of the builder.

        Kafka: StoreBuilder#withCachingDisabled
        """
        return replace(self, caching_enabled=False)

    def with_logging_enabled(self, config: Mapping[str, str] | None = None) -> StoreBuilder:
        """Log writes to a changelog topic with this configuration.

        Args:
            config: Settings of the changelog topic.

        Returns:
            A changed copy of the builder.

        Kafka: StoreBuilder#withLoggingEnabled
        """
        return replace(self, logging_enabled=True, log_config=dict(config or {}))

    def with_logging_disabled(self) -> StoreBuilder:
        """Do not log writes. The store cannot be restored.

        Returns:
            A changed copy of the builder.

        Kafka: StoreBuilder#withLoggingDisabled
        """
        return replace(self, logging_enabled=False, log_config={})

    @property
    def keeps_rows(self) -> bool:
        """Whether `build` takes the bytes store that holds the rows; False for custom stores."""
        return self.supplier is not None and self.supplier.rows is None

    @property
    def is_windowed(self) -> bool:
        """Whether it is a window or session store, whose changelog has a retention time."""
        return isinstance(self.supplier, WindowSupplier | SessionSupplier)

    @property
    def is_versioned(self) -> bool:
        """Whether it is a versioned store."""
        return isinstance(self.supplier, VersionedSupplier)

    @property
    def retention_ms(self) -> int:
        """How long a window or session store keeps rows."""
        if isinstance(self.supplier, WindowSupplier | SessionSupplier):
            return self.supplier.retention_ms
        raise ValueError(
            f"Store '{self.name}' has no retention: it is not a window or session store."
        )

    @property
    def history_retention_ms(self) -> int:
        """How long a versioned store keeps old versions."""
        if isinstance(self.supplier, VersionedSupplier):
            return self.supplier.history_retention_ms
        raise ValueError(f"Store '{self.name}' has no history: it is not a versioned store.")

    def build(self, open_bytes: OpenBytesStore = open_in_memory) -> Any:
        """Build a store that is not open yet. `open_bytes` opens the bytes stores of its rows.

        Args:
            open_bytes: Opens the place of the rows by its name.

        Returns:
            The store.

        Kafka: StoreBuilder#build
        """
        if self.factory is not None:
            return self.factory()
        supplier = self.supplier
        if supplier is not None and supplier.rows is not None:
            open_bytes = supplier.rows
        caching = self.caching_enabled
        if isinstance(supplier, WindowSupplier):
            caching = caching and not supplier.retain_duplicates and not supplier.indexed
        elif isinstance(supplier, SessionSupplier):
            caching = caching and not supplier.time_ordered
        options = StoreOptions(
            self.key_serde, self.value_serde, caching, self.logging_enabled, open_bytes
        )
        return _KINDS[self.kind][0](supplier, options)
