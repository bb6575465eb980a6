"""Queries of custom stores: a custom type for `Streams.store`, and custom queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from penstock.errors import InvalidStateStorePartitionException
from penstock.queries.position import PositionBound
from penstock.queries.query_types import Query, QueryConfig
from penstock.queries.results import QueryResult
from penstock.queries.source import PartitionReader, StoreInfo

R = TypeVar("R")


class StateStoreProvider:
    """The partitions of a store, for `QueryableStoreType.create`. Any thread may use it.

    Example:
        >>> def longest(provider: StateStoreProvider) -> int:
        ...     found = 0
        ...     for partition in provider.partitions:
        ...         with provider.open(partition) as store:
        ...             found = max(found, store.longest)
        ...     return found
    """

    def __init__(self, info: StoreInfo, readers: Sequence[PartitionReader]) -> None:
        self.info = info
        self.readers = tuple(readers)

    @property
    def name(self) -> str:
        """The name of the store."""
        return self.info.name

    @property
    def kind(self) -> str:
        """The kind of the store: "custom", "timestamped_key_value" and so on."""
        return self.info.kind

    @property
    def partitions(self) -> list[int]:
        """The numbers of the partitions; -1 stands for a global store."""
        return [reader.partition for reader in self.readers]

    @contextmanager
    def open(self, partition: int) -> Iterator[Any]:
        """Return a partition of the store as of its last commit, for a `with` statement.

        A custom store is an object of its class, restored from the changelog. Do not change it.

        Args:
            partition: The number of the partition.
        """
        if partition not in self.partitions:
            raise InvalidStateStorePartitionException(
                f"Partition {partition!r} of store {self.name} is not available here. Partitions: "
                f"{', '.join(map(str, self.partitions))}."
            )
        reader = self.readers[self.partitions.index(partition)]
        session = reader.acquire()
        try:
            yield session.store
        finally:
            reader.release(session)


class QueryableStateStore(Protocol):
    """A custom store that `Streams.query` can query, beside the methods of `StateStore`.

    Example:
        >>> from penstock import QueryResult
        >>> class Longest:
        ...     longest = ""
        ...
        ...     def query(self, query, bound, config):
        ...         if not isinstance(query, LongestQuery):
        ...             return QueryResult.for_unknown_query_type(query, self)
        ...         return QueryResult.for_result(self.longest)
    """

    def query(
        self, query: Query[R], bound: PositionBound, config: QueryConfig
    ) -> QueryResult[R]:
        """Run a query on this partition of the store, which must not change.

        Args:
            query: The query. Return `QueryResult.for_unknown_query_type` for unknown ones.
            bound: The bound of the request. The store has reached it.
            config: The options of the request.

        Returns:
            The result of this partition, or its failure.

        Kafka: StateStore#query
        """
        ...


def run_custom_query(
    store: QueryableStateStore, query: Query[R], bound: PositionBound, config: QueryConfig
) -> QueryResult[R]:
    """Run a query on a custom store."""
    result: object = store.query(query, bound, config)
    if not isinstance(result, QueryResult):
        raise TypeError(
            f"{type(store).__name__}.query() must return a QueryResult such as "
            f"QueryResult.for_result(value), not {result!r}."
        )
    return result
