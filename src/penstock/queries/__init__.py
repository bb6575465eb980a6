"""Interactive queries: reads of the committed state of an application.

    methods.py      `store` and `query` of `Streams` and of the test driver
    service.py      what they do, over any source of stores
    source.py       the interface between queries and the places where stores are found
    read_only.py    the stores that `store` returns
    store_types.py  `QueryableStoreTypes`
    requests.py     `StateQueryRequest`, `StoreQueryParameters`
    query_types.py  the queries
    query_handlers.py  runs a query on one partition
    results.py      `StateQueryResult`, `QueryResult`, `FailureReason`
    position.py     `Position`, `PositionBound`
    catalog.py      the stores of a topology
    replicas.py     the source of `Streams`: the replicas of this host
    instance_run.py     what queries see of a running instance
    metadata.py         `StreamsMetadata`, `KeyQueryMetadata`, `LagInfo`, `HostInfo`
    metadata_service.py reads them from the log
"""

from __future__ import annotations

from penstock.queries.metadata import HostInfo, KeyQueryMetadata, LagInfo, StreamsMetadata
from penstock.queries.position import Position, PositionBound
from penstock.queries.query_types import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
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
    "QueryResult",
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
    "StoreQueryParameters",
    "StreamsMetadata",
    "TimestampedKeyQuery",
    "TimestampedRangeQuery",
    "VersionedKeyQuery",
    "WindowKeyQuery",
    "WindowRangeQuery",
]
