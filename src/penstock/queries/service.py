"""`StoreQueries`: `store` and `query` over a `StoreSource`, as in Kafka Streams."""

from __future__ import annotations

from typing import Any, TypeVar

from penstock.errors import (
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    StateStoreMigratedException,
    StateStoreNotAvailableException,
    StreamsRebalancingException,
)
from penstock.queries.catalog import list_stores, unknown_store
from penstock.queries.custom_stores import StateStoreProvider
from penstock.queries.position import PositionBound
from penstock.queries.query_handlers import run_query
from penstock.queries.requests import StateQueryRequest, StoreQueryParameters
from penstock.queries.results import FailureReason, QueryResult, StateQueryResult
from penstock.queries.source import StoreInfo, StoreSource
from penstock.queries.store_types import resolve_type

R = TypeVar("R")

#: Why a partition cannot be read -> the failure of its result. A lease may be lost at any time, and
#: a store closed.
_FAILURES: dict[type[InvalidStateStoreException], FailureReason] = {
    StreamsRebalancingException: FailureReason.NOT_PRESENT,
    StateStoreMigratedException: FailureReason.NOT_ACTIVE,
    StateStoreNotAvailableException: FailureReason.STORE_EXCEPTION,
}


class StoreQueries:
    """The queries of an application, in one process. Any thread may call it."""

    def __init__(self, source: StoreSource) -> None:
        self._source = source

    @property
    def source(self) -> StoreSource:
        """Where the queries find the stores."""
        return self._source

    def store(
        self, name: str | StoreQueryParameters[Any], type: Any = None,
        partition: int | None = None, stale: bool = False,
    ) -> Any:
        """Return a read-only store; see `Streams.store`."""
        if isinstance(name, StoreQueryParameters):
            parameters = name
            if type is not None or partition is not None or stale:
                raise TypeError(
                    "store() takes StoreQueryParameters alone. Set the partition with "
                    "with_partition(), and allow stale data with enable_stale_stores()."
                )
            name, type = parameters.store_name, parameters.queryable_store_type
            partition, stale = parameters.partition, parameters.stale_stores_enabled
        if not isinstance(name, str):
            raise TypeError(
                f"store() takes the name of a store or StoreQueryParameters, not {name!r}."
            )
        self._source.check_running(stopped=False)
        info = self._info(name)
        resolved = resolve_type(type, info.kind)
        if resolved is None:
            requested = "" if type is None else f" as {getattr(type, '__name__', type)}"
            advice = (
                "Query it from Python, with a subclass of QueryableStoreType as its type."
                if type is None and info.kind == "custom" else list_stores(self._source.stores)
            )
            raise InvalidStateStoreException(
                f"Cannot get state store {name}{requested}: it is a "
                f"{info.kind.replace('_', ' ')} store. {advice}"
            )
        partitions = [-1] if info.is_global else list(range(info.partitions))
        if partition is not None and (
            not isinstance(partition, int) or isinstance(partition, bool)
        ):
            raise TypeError(
                f"partition must be the number of a partition such as 0, not {partition!r}."
            )
        if partition is not None and not info.is_global:
            if partition not in partitions:
                raise InvalidStateStorePartitionException(
                    f"The specified partition {partition} for store {name} does not exist. "
                    f"Partitions: {', '.join(map(str, partitions))}."
                )
            partitions = [partition]
        readers = [self._source.reader(name, each, stale=stale) for each in partitions]
        return resolved.create(StateStoreProvider(info, readers))

    def query(self, request: StateQueryRequest[R]) -> StateQueryResult[R]:
        """Run a request on the partitions of this instance; see `Streams.query`."""
        if not isinstance(request, StateQueryRequest):
            raise TypeError(
                f"query() takes a StateQueryRequest, not {request!r}. Create it with "
                "StateQueryRequest.in_store(name).with_query(query)."
            )
        source = self._source
        self._info(request.store_name)
        source.check_running(stopped=True)
        # The partitions are known once the application has started.
        info = self._info(request.store_name)
        result: StateQueryResult[R] = StateQueryResult()
        if info.is_global:
            result.global_result = QueryResult.for_failure(
                FailureReason.UNKNOWN_QUERY_TYPE,
                "Global stores do not yet support the Streams.query API. Use Streams.store "
                "instead.",
            )
        available = range(0 if info.is_global else info.partitions)
        requested = available if request.partitions is None else sorted(request.partitions)
        for partition in requested:
            result.add_result(
                partition,
                self._run(request, info, partition) if partition in available else _not_present(),
            )
        return result

    def _run(
        self, request: StateQueryRequest[R], info: StoreInfo, partition: int
    ) -> QueryResult[R]:
        source = self._source
        if request.is_require_active and not source.is_active:
            return QueryResult.for_failure(
                FailureReason.NOT_ACTIVE,
                "Query requires a running active task, but partition was in state "
                f"{source.thread_state} and was not active.",
            )
        bound = PositionBound.unbounded() if request.is_require_active else request.position_bound
        try:
            reader = source.reader(info.name, partition, stale=not request.is_require_active)
            return run_query(
                info, reader, request.query, bound, collect_info=request.execution_info_enabled
            )
        except InvalidStateStoreException as error:
            reason = _FAILURES.get(type(error))
            if reason is None:
                raise
            return QueryResult.for_failure(reason, str(error))

    def _info(self, name: str) -> StoreInfo:
        info = self._source.stores.get(name)
        if info is None:
            raise unknown_store(name, self._source.stores)
        return info


def _not_present() -> QueryResult[Any]:
    return QueryResult.for_failure(
        FailureReason.NOT_PRESENT,
        "The requested partition was not present at the time of the query.",
    )
