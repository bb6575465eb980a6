"""Interactive queries: reads of the committed state of an application.

    methods.py           `store` and `query` of `Streams` and of the test driver
    service.py           what they do, over any source of stores
    source.py            the interface between queries and the places where stores are found
    read_only.py         the stores that `store` returns
    store_types.py       `QueryableStoreTypes`
    custom_stores.py     what custom types of stores and custom queries need
    requests.py          `StateQueryRequest`, `StoreQueryParameters`
    query_types.py       the queries
    query_handlers.py    runs a query on one partition
    results.py           `StateQueryResult`, `QueryResult`, `FailureReason`
    position.py          `Position`, `PositionBound`
    catalog.py           the stores of a topology
    replicas.py          the source of `Streams`: the replicas of this host
    replica_reader.py    one partition of a store in a replica
    run_view.py          what a source needs to know of its instance
    instance_run.py      the same for a running instance
    metadata.py          `StreamsMetadata`, `KeyQueryMetadata`, `LagInfo`, `HostInfo`
    metadata_service.py  reads them from the log
    offline.py           `penstock query`: the stores of an application that may not run
    node.py              `penstock serve`: a query node
    state_reader.py      what the HTTP server reads
    served_state.py      implements it for an instance and for a query node
    instance_state.py    health and readiness of an instance
    changes.py           the committed changes of a store
    http/                the HTTP server
"""

from __future__ import annotations

from penstock.queries.custom_stores import QueryableStateStore, StateStoreProvider
from penstock.queries.metadata import HostInfo, KeyQueryMetadata, LagInfo, StreamsMetadata
from penstock.queries.position import Position, PositionBound
from penstock.queries.query_types import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    QueryConfig,
    RangeQuery,
    ResultOrder,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from penstock.queries.read_only import (
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyVersionedStore,
    ReadOnlyWindowStore,
)
from penstock.queries.requests import StateQueryRequest, StoreQueryParameters
from penstock.queries.results import FailureReason, QueryResult, StateQueryResult
from penstock.queries.store_types import QueryableStoreType, QueryableStoreTypes

__all__ = [
    "FailureReason",
    "HostInfo",
    "KeyQuery",
    "KeyQueryMetadata",
    "LagInfo",
    "MultiVersionedKeyQuery",
    "Position",
    "PositionBound",
    "Query",
    "QueryConfig",
    "QueryResult",
    "QueryableStateStore",
    "QueryableStoreType",
    "QueryableStoreTypes",
    "RangeQuery",
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlyVersionedStore",
    "ReadOnlyWindowStore",
    "ResultOrder",
    "StateQueryRequest",
    "StateQueryResult",
    "StateStoreProvider",
    "StoreQueryParameters",
    "StreamsMetadata",
    "TimestampedKeyQuery",
    "TimestampedRangeQuery",
    "VersionedKeyQuery",
    "WindowKeyQuery",
    "WindowRangeQuery",
]
