"""Stores: where operators and processors keep state.

Read `base` (what a store is to its task), then the layers from the bottom up: `inner` (committed
rows), `overlay` (a batch's writes over them), `rows` and `versioned_rows` (what each kind of store
keeps and forgets), `changelog`, `caching` with `cache`, and the typed facades `key_value`,
`window`, `session`, `versioned`. `layouts` and `formats` say how keys and values look as bytes;
`stores`, `suppliers` and `builder` how a store is described.
"""

from __future__ import annotations

from penstock.stores.api.builder import StoreBuilder
from penstock.stores.api.dsl_suppliers import (
    BuiltInDslStoreSuppliers,
    DslKeyValueParams,
    DslSessionParams,
    DslStoreFormat,
    DslStoreSuppliers,
    DslWindowParams,
)
from penstock.stores.api.results import (
    AggregationWithHeaders,
    StoreIterator,
    ValueTimestampHeaders,
    VersionedRecord,
)
from penstock.stores.api.store import StateStore, StoreContext
from penstock.stores.api.stores import Stores
from penstock.stores.api.suppliers import (
    KeyValueSupplier,
    SessionSupplier,
    VersionedSupplier,
    WindowSupplier,
)
from penstock.stores.cache.record_cache import RecordCache
from penstock.stores.typed.key_value import (
    KeyValueStore,
    TimestampedKeyValueStore,
    TimestampedKeyValueStoreWithHeaders,
)
from penstock.stores.typed.session import SessionStore, SessionStoreWithHeaders
from penstock.stores.typed.versioned import VersionedKeyValueStore
from penstock.stores.typed.window import (
    TimestampedWindowStore,
    TimestampedWindowStoreWithHeaders,
    WindowStore,
)

__all__ = [
    "AggregationWithHeaders",
    "BuiltInDslStoreSuppliers",
    "DslKeyValueParams",
    "DslSessionParams",
    "DslStoreFormat",
    "DslStoreSuppliers",
    "DslWindowParams",
    "KeyValueStore",
    "KeyValueSupplier",
    "RecordCache",
    "SessionStore",
    "SessionStoreWithHeaders",
    "SessionSupplier",
    "StateStore",
    "StoreBuilder",
    "StoreContext",
    "StoreIterator",
    "Stores",
    "TimestampedKeyValueStore",
    "TimestampedKeyValueStoreWithHeaders",
    "TimestampedWindowStore",
    "TimestampedWindowStoreWithHeaders",
    "ValueTimestampHeaders",
    "VersionedKeyValueStore",
    "VersionedRecord",
    "VersionedSupplier",
    "WindowStore",
    "WindowSupplier",
]
