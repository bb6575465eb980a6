"""`QueryMethods`: the methods `store` and `query` of `Streams` and of the test driver.

`MetadataMethods` adds the methods of `Streams` that tell which instance serves a store or a key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.queries.metadata import (
    KeyQueryMetadata,
    LagInfo,
    StreamPartitioner,
    StreamsMetadata,
)
from penstock.queries.requests import StateQueryRequest, StoreQueryParameters
from penstock.queries.results import StateQueryResult
from penstock.queries.service import StoreQueries
from penstock.queries.store_types import QueryableStoreType
from penstock.serdes.base import SerdeOrType

if TYPE_CHECKING:
    from penstock.queries.metadata_service import InstanceMetadata

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


class MetadataMethods(QueryMethods):
    """Finds the instances that serve a store or a key.

    Only instances with the setting `application.server` are listed.
    """

    def metadata_for_all_instances(self) -> list[StreamsMetadata]:
        """Return all instances of the application, the active one first.

        Kafka: KafkaStreams#metadataForAllStreamsClients
        """
        return self._instance_metadata.instances()

    def metadata_for_store(self, name: str) -> list[StreamsMetadata]:
        """Return the instances that serve a store, the active one first.

        Args:
            name: The name of the store.

        Raises:
            UnknownStateStoreException: The topology has no store with that name.

        Kafka: KafkaStreams#streamsMetadataForStore
        """
        return self._instance_metadata.instances_with(name)

    def query_metadata_for_key(
        self, store: str, key: Any,
        serializer: SerdeOrType[Any] | Callable[[Any], bytes] | None = None, *,
        partitioner: StreamPartitioner | None = None,
    ) -> KeyQueryMetadata:
        """Return the partition of a key, and the instances that serve it.

        Args:
            store: The name of the store.
            key: The key.
            serializer: A serde, a type or a function for the key; None for the serde of the store.
            partitioner: A function (topic, key, value, partitions) if the keys of the store are not
                partitioned by Kafka's default. It gets the topic that feeds the store, and None as
                the value.

        Raises:
            UnknownStateStoreException: The topology has no store with that name.

        Kafka: KafkaStreams#queryMetadataForKey
        """
        return self._instance_metadata.of_key(store, key, serializer, partitioner)

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return store -> partition -> how far the replica of this host is behind its changelog.

        Kafka: KafkaStreams#allLocalStorePartitionLags
        """
        return self._instance_metadata.lags()

    @property
    @abstractmethod
    def _instance_metadata(self) -> InstanceMetadata: ...
