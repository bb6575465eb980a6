"""BufferValue records as bytes: Kafka Streams' changelog format, version 3.

Fields in order: record context (timestamp, offset, topic, partition, headers), prior value, old
value, new value, buffer time. Sizes are 4-byte integers; -1 means null, and -2 means an old value
equal to the prior value.
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


class BufferValue(NamedTuple):
    """A buffered record: serialized values and the context of the record.

    `prior` is the value of the key before it entered the buffer. `old` and `new` belong to the last
    update. Buffers of plain values use only `new`.
    """

    prior: bytes | None
    old: bytes | None
    new: bytes | None
    context: RecordContext


def context_size(context: RecordContext) -> int:
    """The size of a record context as Kafka counts it for the buffer limit."""
    topic, _, _, _, headers, _, _ = context
    size = 20 if topic is None else 20 + _utf16_length(topic)
    for name, value in headers:
        size += _utf16_length(name) + (0 if value is None else len(value))
    return size


def _utf16_length(text: str) -> int:
    """The length of a string in Java: characters outside the basic plane count twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def encode_buffer_value(value: BufferValue, time: int) -> bytes:
    """Encode the value of a changelog record."""
    prior, old, new, context = value
    return b"".join((
        _encode_context(context),
        _sized(prior),
        _SAME if old is not None and old == prior else _sized(old),
        _sized(new),
        _LONG.pack(time),
    ))


def decode_buffer_value(raw: bytes) -> tuple[BufferValue, int]:
    """Decode the value of a changelog record into the buffered record and its buffer time."""
    context, at = _decode_context(raw)
    prior, at = _read_sized(raw, at)
    if _INT.unpack_from(raw, at)[0] == _SAME_AS_PRIOR:
        old, at = prior, at + 4
    else:
        old, at = _read_sized(raw, at)
    new, at = _read_sized(raw, at)
    return BufferValue(prior, old, new, context), _LONG.unpack_from(raw, at)[0]


def _encode_context(context: RecordContext) -> bytes:
    headers = context.headers
    parts = [
        _TWO_LONGS.pack(context.timestamp, context.offset),
        # A punctuation creates records without a topic. Kafka cannot log them; a null size can.
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
