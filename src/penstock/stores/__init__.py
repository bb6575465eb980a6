"""State stores of operators and processors.

    api/      the public interfaces: `StateStore`, `Stores`, builders, suppliers, results
    typed/    typed stores: key-value, window, session, versioned
    cache/    the record cache
    bytes/    the row layers and the bytes stores under them
    buffers/  the buffers of `suppress` and of joins with a grace period
    replica/  the rows of stores on this host, restored from changelogs

A store has four layers, from top to bottom:

1. The typed store serializes keys and values (`typed/`).
2. The cache layer keeps writes until a commit (`cache/cache_layer.py`). Optional.
3. The changelog layer logs every write (`bytes/changelog_layer.py`). Optional.
4. The rows implement expiry and scans (`bytes/rows.py`, `bytes/windowed_rows.py`). They write to an
   overlay, which holds the writes of a batch over the committed rows of a bytes store.

A versioned store has no cache layer and logs its writes itself (`bytes/versioned_rows.py`).
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
from penstock.stores.api.state_serdes import StateSerdes
from penstock.stores.api.store import StateStore, StoreContext
from penstock.stores.api.stores import Stores
from penstock.stores.api.suppliers import (
    KeyValueSupplier,
    SessionSupplier,
    VersionedSupplier,
    WindowSupplier,
)
from penstock.stores.bytes.store import BytesStore
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
    "BytesStore",
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
    "StateSerdes",
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
