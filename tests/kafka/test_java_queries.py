"""Compares the results of `Streams.query` with those of Kafka Streams 4.3.0 for Java.

Both run the topology of compared_queries.py on one broker, with the same input and the same
requests. The results of each partition must be equal: values, their order, timestamps, validity,
failure reasons and exceptions. The persistent stores with headers of Kafka Streams refuse all
queries; those of penstock must have the results of the stores in memory, see docs/compatibility.md
(I4).
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from kafka import java_programs
from kafka.cluster import clear
from kafka.compared_queries import BASE_MS, INPUT, PARTITIONS, kinds_of_stores, requests
from penstock import (
    AggregationWithHeaders,
    Headers,
    Position,
    PositionBound,
    QueryResult,
    StateQueryRequest,
    Streams,
    StreamsConfig,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    VersionedRecord,
    Windowed,
)
from penstock.broker.cluster import ClusterStatus
from penstock.log import RecordColumns, open_log
from penstock.partitioning import partition_of
from penstock.stores.api.results import StoreIterator

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TIMEOUT_S = 120.0
#: The exceptions of Kafka Streams that have another name here.
EXCEPTIONS = {
    "UnsupportedOperationException": "NotImplementedError", "NullPointerException": "TypeError",
    "IllegalArgumentException": "ValueError",
}

#: Partition results in order: request, partition, result or failure, and position.
Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def broker(penstock_broker: ClusterStatus) -> ClusterStatus:
    """A broker with the input."""
    with open_log(clear(penstock_broker.address)) as log:
        for topic in sorted({topic for topic, *_ in INPUT}):
            log.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
        for topic, key, value, time in INPUT:
            stored = None if value is None else value.encode()
            records = RecordColumns([key.encode()], [stored], [BASE_MS + time])
            log.append(topic, partition_of(key.encode(), PARTITIONS), records)
    return penstock_broker


@pytest.fixture(scope="module")
def expected(
    broker: ClusterStatus, java_class_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Lines:
    """The results of Kafka Streams."""
    ran = subprocess.run(
        java_programs.command(
            java_class_path, "RunQueries", broker.bootstrap_servers, "java",
            f"state.dir={tmp_path_factory.mktemp('java')}",
            flags=("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        ),
        input="".join(f"{json.dumps(each)}\n" for each in requests()),
        capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return with_results_of_memory([json.loads(line) for line in ran.stdout.splitlines()])


def with_results_of_memory(lines: Lines) -> Lines:
    """The results, with those of the store in memory for the one that refuses all queries."""
    refused = [each for each in lines if each["name"].startswith("persistent-headers: ")]
    assert {each.get("failure") for each in refused} == {"UNKNOWN_QUERY_TYPE"}
    in_memory = {
        (f"persistent-{each['name']}", each["partition"]): each
        for each in lines if each["name"].startswith("headers: ")
    }
    return [
        {**in_memory[each["name"], each["partition"]], "name": each["name"]}
        if each in refused else each for each in lines
    ]


@pytest.mark.parametrize("execution", ["batch", "continuous"])
def test_queries_have_the_results_of_kafka_streams(
    execution: str, broker: ClusterStatus, expected: Lines, tmp_path: Path
) -> None:
    config = StreamsConfig(
        application_id=f"penstock-{execution}", log=broker.address, state_dir=str(tmp_path),
        commit_interval_ms=0, execution=execution,
    )
    with Streams(kinds_of_stores(), config, master="inline") as streams:
        streams.run_until_caught_up(timeout=TIMEOUT_S)
        found = [line for each in requests() for line in results(streams, each)]
    assert [compared(line) for line in found] == [compared(line) for line in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert is_at_or_after(ours, theirs), (ours, theirs)


def compared(line: dict[str, Any]) -> dict[str, Any]:
    """A line without its position, and with the beginning of the message only."""
    kept = {name: value for name, value in line.items() if name != "position"}
    if "message" in kept:
        kept["message"] = " ".join(kept["message"].split()[:2])
    if "exception" in kept:
        kept["exception"] = EXCEPTIONS.get(kept["exception"], kept["exception"])
    return kept


def is_at_or_after(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Whether our position has all offsets of the other. It may have more, see docs/queries.md."""
    expected, found = theirs.get("position"), ours.get("position") or {}
    if expected is None:
        # A cache of Kafka Streams returns some failures without a position.
        return "result" not in theirs
    return all(
        found.get(topic, {}).get(partition, -1) >= offset
        for topic, offsets in expected.items() for partition, offset in offsets.items()
    )


# ---- penstock --------------------------------------------------------------------------------


def results(streams: Streams, request_json: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the lines that RunQueries.java prints for a request."""
    try:
        found = streams.query(state_query_request(request_json))
        if found.global_result is not None:
            yield line(request_json["name"], -1, found.global_result)
        for partition, result in sorted(found.partition_results.items()):
            yield line(request_json["name"], partition, result)
    except (NotImplementedError, TypeError, ValueError, penstock.StreamsException) as error:
        yield {"name": request_json["name"], "exception": type(error).__name__}


def state_query_request(request_json: dict[str, Any]) -> StateQueryRequest[Any]:
    query = getattr(penstock, request_json["query"])
    for name, *given in request_json["calls"]:
        query = getattr(query, re.sub("([A-Z])", r"_\1", name).lower())(*given)
    request = StateQueryRequest.in_store(request_json["store"]).with_query(query)
    if "partitions" in request_json:
        request = request.with_partitions(request_json["partitions"])
    if "bound" in request_json:
        bound = Position.empty_position().with_component(*request_json["bound"])
        request = request.with_position_bound(PositionBound.at(bound))
    return request.require_active() if request_json.get("active") else request


def line(name: str, partition: int, result: QueryResult[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "partition": partition}
    if result.is_success:
        found["result"] = shown(result.result)
    else:
        found["failure"] = result.failure_reason.name
        found["message"] = result.failure_message
    position = result.position
    # JSON has no numbers as names.
    found["position"] = None if position is None else {
        topic: {str(number): offset for number, offset in offsets.items()}
        for topic, offsets in position.to_map().items()
    }
    return found


def shown(found: Any) -> Any:
    """A result as JSON has it: its iterators as lists, its records as objects."""
    if isinstance(found, Headers):
        return [[name, (value or b"").decode()] for name, value in found]
    if isinstance(found, Windowed):
        return {"key": found.key, "start": found.window.start, "end": found.window.end}
    if isinstance(
        found, ValueAndTimestamp | VersionedRecord | ValueTimestampHeaders | AggregationWithHeaders
    ):
        return {name: shown(getattr(found, name)) for name in found._fields}
    if isinstance(found, StoreIterator):
        return [[shown(key), shown(value)] for key, value in found]
    return [shown(each) for each in found] if isinstance(found, Iterator) else found
