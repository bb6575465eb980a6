"""Requests: `StateQueryRequest` for `Streams.query`, `StoreQueryParameters` for `Streams.store`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from penstock.queries.position import PositionBound
from penstock.queries.query_types import Query
from penstock.queries.store_types import QueryableStoreType

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class InStore:
    """A store, before the query is known.

    Kafka: StateQueryRequest.InStore
    """

    store_name: str

    def with_query(self, query: Query[R]) -> StateQueryRequest[R]:
        """Return the request to run a query on all partitions of the store.

        Args:
            query: The query.

        Kafka: StateQueryRequest.InStore#withQuery
        """
        if not isinstance(query, Query):
            raise TypeError(
                f"with_query() takes a query such as KeyQuery.with_key(key), not {query!r}."
            )
        return StateQueryRequest(self.store_name, query)


@dataclass(frozen=True)
class StateQueryRequest(Generic[R]):
    """A query, its store, and the conditions.

    Requests are immutable; the methods return changed copies.

    Example:
        >>> from penstock.queries import KeyQuery
        >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("tea"))
        >>> request.with_partitions([0, 2]).partitions
        frozenset({0, 2})

    Kafka: StateQueryRequest
    """

    store_name: str
    query: Query[R]
    #: The partitions to query; None for all.
    partitions: frozenset[int] | None = None
    position_bound: PositionBound = field(default_factory=PositionBound)
    is_require_active: bool = False
    execution_info_enabled: bool = False

    @staticmethod
    def in_store(name: str) -> InStore:
        """Return the start of a request for a store.

        Args:
            name: The name of the store.

        Kafka: StateQueryRequest#inStore
        """
        if not isinstance(name, str):
            raise TypeError(f"in_store() takes the name of a store, not {name!r}.")
        return InStore(name)

    def with_partitions(self, partitions: Iterable[int]) -> StateQueryRequest[R]:
        """Return the request for some partitions.

        Args:
            partitions: The partitions to query.

        Kafka: StateQueryRequest#withPartitions
        """
        chosen = list(partitions) if isinstance(partitions, Iterable) else [None]
        if not all(isinstance(each, int) and not isinstance(each, bool) for each in chosen):
            raise TypeError(
                f"with_partitions() takes numbers of partitions such as [0, 2], not {partitions!r}."
            )
        return replace(self, partitions=frozenset(chosen))

    def with_all_partitions(self) -> StateQueryRequest[R]:
        """Return the request for all partitions of this instance.

        Kafka: StateQueryRequest#withAllPartitions
        """
        return replace(self, partitions=None)

    def with_position_bound(self, bound: PositionBound) -> StateQueryRequest[R]:
        """Return the request with a bound that the store must have reached.

        Args:
            bound: The bound.

        Kafka: StateQueryRequest#withPositionBound
        """
        if not isinstance(bound, PositionBound):
            raise TypeError(
                "with_position_bound() takes a PositionBound such as PositionBound.at(position), "
                f"not {bound!r}."
            )
        return replace(self, position_bound=bound)

    def require_active(self) -> StateQueryRequest[R]:
        """Return the request that only the active tasks serve. The bound is then ignored.

        Kafka: StateQueryRequest#requireActive
        """
        return replace(self, is_require_active=True)

    def enable_execution_info(self) -> StateQueryRequest[R]:
        """Return the request whose results tell what was done, and how long it took.

        Kafka: StateQueryRequest#enableExecutionInfo
        """
        return replace(self, execution_info_enabled=True)

    @property
    def is_all_partitions(self) -> bool:
        """Whether all partitions of this instance are queried."""
        return self.partitions is None


@dataclass(frozen=True)
class StoreQueryParameters(Generic[T]):
    """The store that `Streams.store` returns, and its options.

    Example:
        >>> from penstock.queries import QueryableStoreTypes
        >>> kind = QueryableStoreTypes.key_value_store()
        >>> parameters = StoreQueryParameters.from_name_and_type("counts", kind)
        >>> parameters.with_partition(1).enable_stale_stores().stale_stores_enabled
        True

    Kafka: StoreQueryParameters
    """

    store_name: str
    queryable_store_type: QueryableStoreType[T]
    partition: int | None = None
    stale_stores_enabled: bool = False

    @staticmethod
    def from_name_and_type(
        name: str, store_type: QueryableStoreType[S]
    ) -> StoreQueryParameters[S]:
        """Return the parameters for a store.

        Args:
            name: The name of the store.
            store_type: The kind of the store; see `QueryableStoreTypes`.

        Kafka: StoreQueryParameters#fromNameAndType
        """
        return StoreQueryParameters(name, store_type)

    def with_partition(self, partition: int) -> StoreQueryParameters[T]:
        """Return the parameters for one partition.

        Args:
            partition: The partition of the store.

        Kafka: StoreQueryParameters#withPartition
        """
        return replace(self, partition=partition)

    def enable_stale_stores(self) -> StoreQueryParameters[T]:
        """Return the parameters that allow standbys to serve them.

        Kafka: StoreQueryParameters#enableStaleStores
        """
        return replace(self, stale_stores_enabled=True)
