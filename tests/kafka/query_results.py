"""The results of queries as JSON, for comparisons of Kafka Streams with penstock.

recorded_queries.json holds those of Kafka Streams 4.3.0, so that they can be compared without a
broker. `record` writes it; see test_java_queries.py.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import penstock
from kafka.compared_queries import BASE_MS, requests
from penstock import (
    AggregationWithHeaders,
    Headers,
    Position,
    PositionBound,
    QueryResult,
    StateQueryRequest,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    VersionedRecord,
    Windowed,
)
from penstock.queries.methods import QueryMethods
from penstock.stores.api.results import StoreIterator

RECORDED = Path(__file__).with_name("recorded_queries.json")
#: The exceptions of Kafka Streams that have another name here.
EXCEPTIONS = {
    "UnsupportedOperationException": "NotImplementedError", "NullPointerException": "TypeError",
    "IllegalArgumentException": "ValueError",
}
#: Larger numbers are times. Recorded times are relative to `BASE_MS`.
_SMALLEST_TIME_MS = 10**12

#: Partition results in order: request, partition, result or failure, and position.
Lines = list[dict[str, Any]]


def check_results(streams: QueryMethods, expected: Lines) -> None:
    """Run all requests and compare the results with those of Kafka Streams."""
    found = [line for each in requests() for line in results(streams, each)]
    assert [compared(line) for line in found] == [compared(line) for line in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert is_at_or_after(ours, theirs), (ours, theirs)


# ---- recorded results ------------------------------------------------------------------------


def record(lines: Lines) -> str:
    """Return the results for recorded_queries.json. Equal results are in it once."""
    distinct: dict[str, int] = {}
    by_request: dict[str, list[int]] = {}
    for each in lines:
        kept = {**compared(each), "position": each.get("position")}
        by_request.setdefault(kept.pop("name"), []).append(
            distinct.setdefault(json.dumps(relative(kept), ensure_ascii=False), len(distinct))
        )
    rows = ",\n".join(distinct)
    numbers = [by_request.get(name, []) for name in _names()]
    return (
        f'{{"requests": "{_digest()}",\n"results": [\n{rows}\n],\n'
        f'"results_of_requests": {json.dumps(numbers, separators=(",", ":"))}}}\n'
    )


def recorded() -> Lines:
    """The results of Kafka Streams in recorded_queries.json."""
    found = json.loads(RECORDED.read_text())
    assert found["requests"] == _digest(), (
        "The requests have changed. Record the results of Kafka Streams: PENSTOCK_RECORD_QUERIES=1 "
        "pytest tests/kafka/test_java_queries.py"
    )
    return [
        absolute({"name": name, **found["results"][number]})
        for name, numbers in zip(_names(), found["results_of_requests"], strict=True)
        for number in numbers
    ]


def _names() -> list[str]:
    return [each["name"] for each in requests()]


def _digest() -> str:
    return hashlib.sha256("\n".join(_names()).encode()).hexdigest()[:16]


def relative(found: Any) -> Any:
    """A copy of JSON data whose times are strings that are relative to `BASE_MS`."""
    return _mapped(
        found, lambda each: f"+{each - BASE_MS} ms"
        if isinstance(each, int) and each > _SMALLEST_TIME_MS else each,
    )


def absolute(found: Any) -> Any:
    """The reverse of `relative`."""
    return _mapped(
        found, lambda each: BASE_MS + int(each[1:-3])
        if isinstance(each, str) and re.fullmatch(r"\+-?\d+ ms", each) else each,
    )


def _mapped(found: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(found, dict):
        return {name: _mapped(each, convert) for name, each in found.items()}
    if isinstance(found, list):
        return [_mapped(each, convert) for each in found]
    return convert(found)


# ---- comparison ------------------------------------------------------------------------------


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


def results(streams: QueryMethods, request_json: dict[str, Any]) -> Iterator[dict[str, Any]]:
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
