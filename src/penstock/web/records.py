"""Reads records of topics for the page: decoded, and cut to a size that a browser can show."""

from __future__ import annotations

import struct
from typing import Any, Literal

import msgspec

from penstock.log.base import Log
from penstock.log.errors import UnknownTopic
from penstock.log.types import TopicPartition
from penstock.queries.http.problems import Problem
from penstock.record import NO_HEADERS

#: How a key or a value is decoded. "auto" takes JSON, else text, else hexadecimal digits.
Decoding = Literal["auto", "json", "string", "long", "hex"]
MAX_RECORDS = 200
#: Longer texts are cut.
MAX_CHARACTERS = 20_000
_LONG = struct.Struct(">q")


def list_topics(log: Log) -> list[dict[str, Any]]:
    """Return all topics with their partitions."""
    topics = sorted(log.topics(), key=lambda topic: topic.name)
    partitions = [
        TopicPartition(topic.name, number) for topic in topics for number in range(topic.partitions)
    ]
    bounds = log.offsets(partitions)
    return [
        {
            "name": topic.name,
            "partitions": [
                {"partition": at.partition, "start": bounds[at].start, "end": bounds[at].end}
                for at in partitions if at.topic == topic.name
            ],
        }
        for topic in topics
    ]


def read_records(
    log: Log, where: TopicPartition, offset: int | None, limit: int,
    decodings: tuple[Decoding, Decoding],
) -> dict[str, Any]:
    """Return records from an offset on; the last ones without an offset."""
    bounds = bounds_of(log, where)
    start = max(bounds.start, bounds.end - limit) if offset is None else offset
    start = min(max(start, bounds.start), bounds.end)
    found: list[dict[str, Any]] = []
    for batch in log.read(*where, start, bounds.end):
        rows = batch.columns()
        headers = rows.headers or [NO_HEADERS] * len(rows)
        columns = zip(rows.offsets, rows.timestamps, rows.keys, rows.values, headers, strict=True)
        for at, timestamp, key, value, pairs in columns:
            if len(found) == limit:
                break
            found.append({
                "offset": at, "timestamp": timestamp, "key": decode(key, decodings[0]),
                "value": decode(value, decodings[1]),
                "headers": [[name, decode(data, "auto")] for name, data in pairs or ()],
            })
        if len(found) == limit:
            break
    return {
        "topic": where.topic, "partition": where.partition, "start": bounds.start,
        "end": bounds.end, "records": found,
    }


def bounds_of(log: Log, where: TopicPartition) -> Any:
    """Return the bounds of a partition; 404 if it does not exist."""
    try:
        partitions = log.topic(where.topic).partitions
    except UnknownTopic:
        raise Problem(404, f"No topic '{where.topic[:200]}'.") from None
    if not 0 <= where.partition < partitions:
        raise Problem(
            404, f"Topic '{where.topic}' has no partition {where.partition}. It has {partitions}."
        )
    return log.offsets([where])[where]


def decode(data: bytes | None, how: Decoding) -> dict[str, Any] | None:
    """Return the text of a key or value, what it was decoded as, and its size. None stays None."""
    if data is None:
        return None
    text, kind = _decode(bytes(data), how)
    return {
        "text": text[:MAX_CHARACTERS], "as": kind, "bytes": len(data),
        "cut": len(text) > MAX_CHARACTERS,
    }


def _decode(data: bytes, how: Decoding) -> tuple[str, str]:
    if how in {"auto", "json"}:
        try:
            value = msgspec.json.decode(data)
            return msgspec.json.format(msgspec.json.encode(value), indent=2).decode(), "json"
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    if how == "long" and len(data) == _LONG.size:
        return str(_LONG.unpack(data)[0]), "long"
    if how != "hex":
        try:
            text = data.decode()
        except UnicodeDecodeError:
            pass
        else:
            if how == "string" or text.isprintable() or "\n" in text:
                return text, "string"
    return data.hex(" "), "hex"
