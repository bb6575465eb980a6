"""A store that is to be: what it holds, how it is typed, whether it is cached and logged."""

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

#: kind: (facade, the suppliers it works on)
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
    """Describes a store; equal descriptions are equal. Changing it gives a new one.

    Anything with `name`, `logging_enabled` and `build()` can take its place in a topology.
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
            raise ValueError(f"No kind of store '{self.kind}'. Kinds: {', '.join(_KINDS)}.")
        wanted = _KINDS[self.kind][1]
        if self.supplier is None:
            raise TypeError("supplier cannot be null")
        if not isinstance(self.supplier, wanted):
            raise TypeError(
                f"A {self.kind} store is built on a {wanted.__name__}, not on a "
                f"{type(self.supplier).__name__}."
            )

    @staticmethod
    def custom(name: str, factory: Callable[[], StateStore]) -> StoreBuilder:
        """A store of one's own: the factory makes a new one for each task."""
        return StoreBuilder(name, "custom", factory=factory)

    def with_caching_enabled(self) -> StoreBuilder:
        """Updates wait in the record cache."""
        if self.kind == "versioned_key_value":
            raise ValueError("Versioned stores do not support caching")
        return replace(self, caching_enabled=True)

    def with_caching_disabled(self) -> StoreBuilder:
        """Updates are seen at once."""
        return replace(self, caching_enabled=False)

    def with_logging_enabled(self, config: Mapping[str, str] | None = None) -> StoreBuilder:
        """Updates go to a changelog topic with this configuration."""
        return replace(self, logging_enabled=True, log_config=dict(config or {}))

    def with_logging_disabled(self) -> StoreBuilder:
        """There is no changelog: the store cannot be restored."""
        return replace(self, logging_enabled=False, log_config={})

    @property
    def keeps_rows(self) -> bool:
        """True if what it holds rests where `build` is told; a custom store sees to it itself."""
        return self.factory is None

    @property
    def is_windowed(self) -> bool:
        """True for window and session stores, whose changelogs have a retention time."""
        return isinstance(self.supplier, WindowSupplier | SessionSupplier)

    @property
    def is_versioned(self) -> bool:
        """True for versioned stores."""
        return isinstance(self.supplier, VersionedSupplier)

    @property
    def retention_ms(self) -> int:
        """How long a window or session store keeps its rows."""
        if isinstance(self.supplier, WindowSupplier | SessionSupplier):
            return self.supplier.retention_ms
        raise ValueError(f"Store '{self.name}' is no window or session store: no retention.")

    @property
    def history_retention_ms(self) -> int:
        """How long a versioned store keeps old versions."""
        if isinstance(self.supplier, VersionedSupplier):
            return self.supplier.history_retention_ms
        raise ValueError(f"Store '{self.name}' is no versioned store: no history.")

    def build(self, open_bytes: OpenBytesStore = open_in_memory) -> Any:
        """A new store, not open yet, whose rows rest where `open_bytes` puts them."""
        if self.factory is not None:
            return self.factory()
        supplier = self.supplier
        caching = self.caching_enabled
        if isinstance(supplier, WindowSupplier):
            caching = caching and not supplier.retain_duplicates and not supplier.indexed
        elif isinstance(supplier, SessionSupplier):
            caching = caching and not supplier.time_ordered
        options = StoreOptions(
            self.key_serde, self.value_serde, caching, self.logging_enabled, open_bytes
        )
        return _KINDS[self.kind][0](supplier, options)
