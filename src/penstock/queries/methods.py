"""`QueryMethods`: the methods `store` and `query` of `Streams` and of the test driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar, overload

from penstock.queries.requests import StateQueryRequest, StoreQueryParameters
from penstock.queries.results import StateQueryResult
from penstock.queries.service import StoreQueries
from penstock.queries.store_types import QueryableStoreType

R = TypeVar("R")
S = TypeVar("S")


class QueryMethods(ABC):
    """Reads the committed state of an application."""

    @overload
    def store(self, name: StoreQueryParameters[S]) -> S: ...
    @overload
    def store(
        self, name: str, type: QueryableStoreType[S], partition: int | None = None,
        stale: bool = False,
    ) -> S: ...
    @overload
    def store(
        self, name: str, type: type[S], partition: int | None = None, stale: bool = False
    ) -> S: ...
    @overload
    def store(
        self, name: str, type: None = None, partition: int | None = None, stale: bool = False
    ) -> Any: ...
    def store(
        self, name: str | StoreQueryParameters[Any], type: Any = None,
        partition: int | None = None, stale: bool = False,
    ) -> Any:
        """Return a read-only view of a store, with the methods of its kind.

        It returns committed data, and never older data than before. Without `type`, values have no
        timestamps.

        Args:
            name: The name of the store, or `StoreQueryParameters`.
            type: The expected kind: one of `QueryableStoreTypes`, or a class such as
                `ReadOnlyWindowStore[str, int]`. Type checkers know the result by it.
            partition: One partition; None for all.
            stale: Whether a standby may return data that is older than the last commit.

        Raises:
            UnknownStateStoreException: The topology has no store with that name.
            InvalidStateStoreException: The store is of another kind, or cannot be queried now. The
                subclasses give the reason.

        Kafka: KafkaStreams#store
        """
        return self._store_queries.store(name, type, partition, stale)

    def query(self, request: StateQueryRequest[R]) -> StateQueryResult[R]:
        """Run a query on each requested partition of this instance.

        Args:
            request: The store, the query and its conditions.

        Returns:
            The result of each partition, or the reason why it has none.

        Raises:
            UnknownStateStoreException: The topology has no store with that name.
            StreamsNotStartedException: The application is not started.
            StreamsStoppedException: The application has stopped.

        Kafka: KafkaStreams#query
        """
        return self._store_queries.query(request)

    @property
    @abstractmethod
    def _store_queries(self) -> StoreQueries: ...
