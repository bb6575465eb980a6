"""Reads records of topics for the page: decoded, and cut to a size that a browser can show."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from penstock.handlers import ERROR_HEADER_PREFIX
from penstock.log.base import Log
from penstock.log.errors import UnknownTopic
from penstock.log.types import TopicPartition
from penstock.queries.http.json_values import encode, render
from penstock.queries.http.problems import Problem
from penstock.record import NO_HEADERS
from penstock.web.topic_serdes import TopicSerdes

log = logging.getLogger(__name__)

#: How a key or a value is decoded. "serde" is the serde of the topology. "auto" takes JSON, else
#: text, else the serde, else hexadecimal digits.
Decoding = Literal["auto", "serde", "json", "string", "long", "hex"]
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
    decodings: tuple[Decoding, Decoding], serdes: TopicSerdes,
) -> dict[str, Any]:
    """Return records from an offset on; the last ones without an offset."""
    bounds = bounds_of(log, where)
    start = max(bounds.start, bounds.end - limit) if offset is None else offset
    start = min(max(start, bounds.start), bounds.end)
    found: list[dict[str, Any]] = []
    for batch in log.read(*where, start, bounds.end):
        rows = batch.columns()
        headers = [each or NO_HEADERS for each in rows.headers or [NO_HEADERS] * len(rows)]
        columns = zip(rows.offsets, rows.timestamps, rows.keys, rows.values, headers, strict=True)
        for at, timestamp, key, value, pairs in columns:
            if len(found) == limit:
                break
            found.append({
                "offset": at, "timestamp": timestamp,
                "key": decode(key, decodings[0], serdes.reader(where.topic, True, pairs)),
                "value": decode(value, decodings[1], serdes.reader(where.topic, False, pairs)),
                "headers": [[name, _header(name, data)] for name, data in pairs],
            })
        if len(found) == limit:
            break
    return {
        "topic": where.topic, "partition": where.partition, "start": bounds.start,
        "end": bounds.end, "records": found,
    }


def _header(name: str, data: bytes | None) -> dict[str, Any] | None:
    """A header. Those of a dead letter are text, even if a message looks like JSON."""
    return decode(data, "string" if name.startswith(ERROR_HEADER_PREFIX) else "auto")


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


def decode(
    data: bytes | None, how: Decoding, read: Callable[[bytes], Any] | None = None
) -> dict[str, Any] | None:
    """Return the text of a key or value, what it was decoded as, and its size. None stays None.

    `read`: deserializes it as the application does.
    """
    if data is None:
        return None
    text, kind = _decode(bytes(data), how, read)
    return {
        "text": text[:MAX_CHARACTERS], "as": kind, "bytes": len(data),
        "cut": len(text) > MAX_CHARACTERS,
    }


def _decode(
    data: bytes, how: Decoding, read: Callable[[bytes], Any] | None
) -> tuple[str, str]:
    if how == "serde" and (text := _read(data, read)) is not None:
        return text, "serde"
    if how in {"auto", "serde", "json"}:
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
            if how == "string" or _is_readable(text):
                return text, "string"
    if how == "auto" and (text := _read(data, read)) is not None:
        return text, "serde"
    return data.hex(" "), "hex"


def _is_readable(text: str) -> bool:
    """Whether it has no control characters, as the bytes of Avro or numbers have them."""
    return text.isprintable() or all(each.isprintable() or each in "\n\r\t" for each in text)


def _read(data: bytes, read: Callable[[bytes], Any] | None) -> str | None:
    """Return the value that the application reads, as JSON; None if it cannot be read."""
    if read is None:
        return None
    try:
        value = render(read(data))
    except Exception as error:
        log.debug("A record cannot be deserialized: %s", error)
        return None
    return msgspec.json.format(encode(value), indent=2).decode()
