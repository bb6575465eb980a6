"""`QueryResult` and `StateQueryResult`."""

from __future__ import annotations

import pytest

from penstock.queries import FailureReason, Position, QueryResult, StateQueryResult


def test_result_and_failure_are_exclusive() -> None:
    success = QueryResult.for_result(3)
    assert success.is_success
    assert success.result == 3
    with pytest.raises(ValueError, match="did not fail"):
        _ = success.failure_reason
    with pytest.raises(ValueError, match="did not fail"):
        _ = success.failure_message
    failure = QueryResult.for_failure(FailureReason.NOT_ACTIVE, "a standby")
    assert failure.is_failure
    assert failure.failure_message == "a standby"
    with pytest.raises(ValueError, match="Failure is NOT_ACTIVE: a standby"):
        _ = failure.result


def test_only_partition_result_ignores_failures_and_empty_results() -> None:
    result: StateQueryResult[int | None] = StateQueryResult()
    assert result.only_partition_result is None
    result.add_result(0, QueryResult.for_result(None))
    result.add_result(1, QueryResult.for_failure(FailureReason.NOT_PRESENT, ""))
    assert result.only_partition_result is None
    result.add_result(2, QueryResult.for_result(7))
    found = result.only_partition_result
    assert found is not None
    assert found.result == 7
    result.add_result(3, QueryResult.for_result(8))
    with pytest.raises(ValueError, match="did not return exactly one partition result"):
        _ = result.only_partition_result


def test_position_of_a_result_merges_those_of_its_partitions() -> None:
    result: StateQueryResult[int] = StateQueryResult()
    for partition in range(2):
        each = QueryResult.for_result(1)
        each.position = Position.from_map({"t": {partition: 10}})
        result.add_result(partition, each)
    result.add_result(2, QueryResult.for_failure(FailureReason.NOT_PRESENT, ""))
    assert result.position == Position.from_map({"t": {0: 10, 1: 10}})
    only_global: StateQueryResult[int] = StateQueryResult()
    only_global.global_result = QueryResult.for_failure(FailureReason.UNKNOWN_QUERY_TYPE, "")
    assert only_global.position.is_empty
