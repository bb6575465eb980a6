"""The bytes of a buffered record in a changelog, as Kafka Streams writes them (version 3).

Record context (timestamp, offset, topic, partition, headers), prior value, old value, new value,
buffer time. Sizes are 4-byte integers; -1 stands for null, and -2 for an old value equal to the
prior one.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.record import NO_HEADERS, Headers, RecordContext

VERSION = b"\x03"
CHANGELOG_HEADERS = Headers((("v", VERSION),))

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_TWO_LONGS = struct.Struct(">qq")
_TWO_INTS = struct.Struct(">ii")
_NULL = _INT.pack(-1)
_SAME_AS_PRIOR = -2
_SAME = _INT.pack(_SAME_AS_PRIOR)


class Buffered(NamedTuple):
    """A record in a buffer: serialized values, and the record's context.

    `prior` is the value from before the key came into the buffer, `old` and `new` are the last
    update's. Buffers that hold plain values use `new` only.
    """

    prior: bytes | None
    old: bytes | None
    new: bytes | None
    context: RecordContext


def context_size(context: RecordContext) -> int:
    """What a record's context weighs in a buffer's limit: characters of names, bytes of values."""
    topic, _, _, _, headers, _, _ = context
    size = 20 if topic is None else 20 + _characters(topic)
    for name, value in headers:
        size += _characters(name) + (0 if value is None else len(value))
    return size


def _characters(text: str) -> int:
    """Java's count: two for a character outside the basic plane."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def encode_buffered(buffered: Buffered, time: int) -> bytes:
    """The value of a changelog record."""
    prior, old, new, context = buffered
    return b"".join((
        _encode_context(context),
        _sized(prior),
        _SAME if old is not None and old == prior else _sized(old),
        _sized(new),
        _LONG.pack(time),
    ))


def decode_buffered(raw: bytes) -> tuple[Buffered, int]:
    """What `encode_buffered` made; the time as well."""
    context, at = _decode_context(raw)
    prior, at = _read_sized(raw, at)
    if _INT.unpack_from(raw, at)[0] == _SAME_AS_PRIOR:
        old, at = prior, at + 4
    else:
        old, at = _read_sized(raw, at)
    new, at = _read_sized(raw, at)
    return Buffered(prior, old, new, context), _LONG.unpack_from(raw, at)[0]


def _encode_context(context: RecordContext) -> bytes:
    headers = context.headers
    parts = [
        _TWO_LONGS.pack(context.timestamp, context.offset),
        # Kafka cannot log a record without a topic (one made by a punctuation); a null size can.
        _sized(None if context.topic is None else context.topic.encode()),
        _TWO_INTS.pack(context.partition, len(headers)),
    ]
    for name, value in headers:
        parts.append(_sized(name.encode()))
        parts.append(_sized(value))
    return b"".join(parts)


def _decode_context(raw: bytes) -> tuple[RecordContext, int]:
    timestamp, offset = _TWO_LONGS.unpack_from(raw)
    topic, at = _read_sized(raw, 16)
    partition, count = _TWO_INTS.unpack_from(raw, at)
    at += 8
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_sized(raw, at)
        value, at = _read_sized(raw, at)
        headers.append(((name or b"").decode(), value))
    return RecordContext(
        None if topic is None else topic.decode(), partition, offset, timestamp,
        Headers(headers) if headers else NO_HEADERS,
    ), at


def _sized(value: bytes | None) -> bytes:
    return _NULL if value is None else _INT.pack(len(value)) + value


def _read_sized(raw: bytes, at: int) -> tuple[bytes | None, int]:
    size: int = _INT.unpack_from(raw, at)[0]
    at += 4
    return (None, at) if size == -1 else (raw[at : at + size], at + size)
