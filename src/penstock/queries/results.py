"""The results of `Streams.query`: one `QueryResult` for each partition."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Generic, TypeVar

from penstock.queries.position import Position, PositionBound

R = TypeVar("R")


class FailureReason(Enum):
    """Why a partition has no result.

    Kafka: FailureReason
    """

    #: The store does not support this query.
    UNKNOWN_QUERY_TYPE = "UNKNOWN_QUERY_TYPE"
    #: The query requires the active task, and this instance does not run it.
    NOT_ACTIVE = "NOT_ACTIVE"
    #: The store has not reached the position bound.
    NOT_UP_TO_BOUND = "NOT_UP_TO_BOUND"
    #: The partition is not on this instance.
    NOT_PRESENT = "NOT_PRESENT"
    #: The store has no such partition. As Kafka Streams, `Streams.query` returns `NOT_PRESENT` for
    #: it; this reason is for stores and services of users.
    DOES_NOT_EXIST = "DOES_NOT_EXIST"
    #: The store raised an exception, or was closed during the query.
    STORE_EXCEPTION = "STORE_EXCEPTION"


class QueryResult(Generic[R]):
    """The result of a query in one partition: a value, or the reason of a failure.

    Example:
        >>> QueryResult.for_result(3).result
        3
        >>> QueryResult.for_failure(FailureReason.NOT_PRESENT, "not here").failure_reason.name
        'NOT_PRESENT'

    Kafka: QueryResult
    """

    def __init__(
        self, result: R | None, failure_reason: FailureReason | None = None,
        failure_message: str = "",
    ) -> None:
        self._result = result
        self._failure_reason = failure_reason
        self._failure_message = failure_message
        self._execution_info: list[str] = []
        self._position: Position | None = None

    @staticmethod
    def for_result(result: R) -> QueryResult[R]:
        """Return a successful result.

        Args:
            result: The value; None if the store has none.

        Kafka: QueryResult#forResult
        """
        return QueryResult(result)

    @staticmethod
    def for_failure(reason: FailureReason, message: str) -> QueryResult[Any]:
        """Return a failure.

        Args:
            reason: The kind of failure.
            message: The description of the failure.

        Kafka: QueryResult#forFailure
        """
        return QueryResult(None, reason, message)

    @staticmethod
    def for_unknown_query_type(query: object, store: object) -> QueryResult[Any]:
        """Return the failure of a store that does not support a query.

        Args:
            query: The query.
            store: The store, or a description of it.

        Kafka: QueryResult#forUnknownQueryType
        """
        return QueryResult.for_failure(
            FailureReason.UNKNOWN_QUERY_TYPE,
            f"This store ({store}) doesn't know how to execute the given query ({query}).",
        )

    @staticmethod
    def not_up_to_bound(
        current: Position | None, bound: PositionBound, partition: int | None
    ) -> QueryResult[Any]:
        """Return the failure of a store that has not reached a bound.

        Args:
            current: The position of the store.
            bound: The bound.
            partition: The partition of the store; None if it is not open yet.

        Kafka: QueryResult#notUpToBound
        """
        message = (
            "The store is not initialized yet, so it is not yet up to the bound "
            f"{bound.position}." if partition is None else
            f"For store partition {partition}, the current position {current} is not yet up to "
            f"the bound {bound.position}."
        )
        return QueryResult.for_failure(FailureReason.NOT_UP_TO_BOUND, message)

    @property
    def is_success(self) -> bool:
        """Whether there is a result."""
        return self._failure_reason is None

    @property
    def is_failure(self) -> bool:
        """Whether the query failed."""
        return self._failure_reason is not None

    @property
    def result(self) -> R:
        """The result. Raises `ValueError` if the query failed.

        Kafka: QueryResult#getResult
        """
        if self._failure_reason is not None:
            raise ValueError(
                f"Cannot get result for failed query. Failure is {self._failure_reason.name}: "
                f"{self._failure_message}"
            )
        return self._result  # type: ignore[return-value]

    @property
    def failure_reason(self) -> FailureReason:
        """The kind of failure. Raises `ValueError` if the query did not fail.

        Kafka: QueryResult#getFailureReason
        """
        if self._failure_reason is None:
            raise ValueError("Cannot get failure reason because this query did not fail.")
        return self._failure_reason

    @property
    def failure_message(self) -> str:
        """The description of the failure. Raises `ValueError` if the query did not fail.

        Kafka: QueryResult#getFailureMessage
        """
        if self._failure_reason is None:
            raise ValueError("Cannot get failure message because this query did not fail.")
        return self._failure_message

    @property
    def execution_info(self) -> list[str]:
        """A line for each step of the query, if the request asked for it.

        Kafka: QueryResult#getExecutionInfo
        """
        return self._execution_info

    def add_execution_info(self, message: str) -> None:
        """Add a line to the execution info.

        Args:
            message: The line.

        Kafka: QueryResult#addExecutionInfo
        """
        self._execution_info.append(message)

    @property
    def position(self) -> Position | None:
        """The position of the store when it returned the result; None if it did not.

        Kafka: QueryResult#getPosition, QueryResult#setPosition
        """
        return self._position

    @position.setter
    def position(self, position: Position) -> None:
        self._position = position

    def __repr__(self) -> str:
        if self._failure_reason is not None:
            return f"<QueryResult {self._failure_reason.name}: {self._failure_message}>"
        return f"<QueryResult {self._result!r} at {self._position}>"


class StateQueryResult(Generic[R]):
    """The results of all partitions that a query was sent to.

    Example:
        >>> result = StateQueryResult()
        >>> result.add_result(0, QueryResult.for_result(3))
        >>> result.only_partition_result.result
        3

    Kafka: StateQueryResult
    """

    def __init__(self) -> None:
        self._partition_results: dict[int, QueryResult[R]] = {}
        self._global_result: QueryResult[R] | None = None

    def add_result(self, partition: int, result: QueryResult[R]) -> None:
        """Add the result of a partition.

        Args:
            partition: The partition of the store.
            result: Its result.

        Kafka: StateQueryResult#addResult
        """
        self._partition_results[partition] = result

    @property
    def partition_results(self) -> Mapping[int, QueryResult[R]]:
        """Partition -> its result. Empty for a global store.

        Kafka: StateQueryResult#getPartitionResults
        """
        return self._partition_results

    @property
    def only_partition_result(self) -> QueryResult[R] | None:
        """The only successful result that is not None; None if there is none.

        Raises `ValueError` if several partitions have one.

        Kafka: StateQueryResult#getOnlyPartitionResult
        """
        found = [
            each for each in self._partition_results.values()
            if each.is_success and each.result is not None
        ]
        if len(found) > 1:
            raise ValueError(f"The query did not return exactly one partition result: {found}")
        return found[0] if found else None

    @property
    def global_result(self) -> QueryResult[R] | None:
        """The result of a global store; None for other stores.

        Kafka: StateQueryResult#getGlobalResult, StateQueryResult#setGlobalResult
        """
        return self._global_result

    @global_result.setter
    def global_result(self, result: QueryResult[R]) -> None:
        self._global_result = result

    @property
    def position(self) -> Position:
        """The merged position of all results. Use it as the bound of the next query.

        Kafka: StateQueryResult#getPosition
        """
        if self._global_result is not None:
            return self._global_result.position or Position.empty_position()
        merged = Position.empty_position()
        for each in self._partition_results.values():
            merged.merge(each.position)
        return merged

    def __repr__(self) -> str:
        return f"<StateQueryResult {self._partition_results!r}, global {self._global_result!r}>"
