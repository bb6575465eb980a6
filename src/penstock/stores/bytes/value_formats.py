"""Formats of stored values, in Kafka Streams' bytes, and their conversion to changelog records.

    PLAIN            value
    TIMESTAMPED      8-byte timestamp, value
    HEADERS          varint size of headers, headers, 8-byte timestamp, value     (KIP-1271)
    SESSION_HEADERS  varint size of headers, headers, aggregate
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct

from penstock.errors import SerializationException
from penstock.native import core
from penstock.record import NO_HEADERS, CurrentRecord, Headers, PartitionColumns

_LONG = Struct(">q")
_pack_long = _LONG.pack
_long_at = _LONG.unpack_from

#: The timestamp of a row in a store that keeps none.
NO_TIMESTAMP = -1

#: The parts of a changelog record besides its key: value, timestamp, headers.
ChangelogParts = tuple[bytes | None, int, Headers]


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """A format of stored values."""

    name: str
    #: Converts a stored value, or None for a deletion, while a record is processed.
    to_changelog: Callable[[bytes | None, CurrentRecord], ChangelogParts]
    #: Returns the stored value of a changelog record.
    from_changelog: Callable[[bytes, int, Headers], bytes]

    def all_from_changelog(self, records: PartitionColumns) -> Sequence[bytes | None]:
        """The stored values of many changelog records; None for a deletion."""
        values, timestamps = records.values, records.timestamps
        if self.from_changelog is _plain_from_changelog:
            return values
        if self.from_changelog is _timestamped_from_changelog:
            if core is not None:
                stored: list[bytes | None] = core.timestamped_values(values, timestamps)
                return stored
            pack = _pack_long
            return [
                None if value is None else pack(timestamp) + value
                for timestamp, value in zip(timestamps, values, strict=True)
            ]
        from_changelog = self.from_changelog
        headers = records.headers or [NO_HEADERS] * len(values)
        return [
            None if value is None else from_changelog(value, timestamp, pairs)
            for value, timestamp, pairs in zip(values, timestamps, headers, strict=True)
        ]


def write_varint(number: int) -> bytes:
    """Encode a 32-bit integer as Kafka's zigzag varint."""
    value = (number << 1) ^ (number >> 31)
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode a varint; returns the number and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 28:
            raise SerializationException("Stored headers are corrupt: a size exceeds 5 bytes.")


def write_headers(headers: Headers) -> bytes:
    """Encode the size of headers and the headers; one zero byte if there are none."""
    if not headers:
        return b"\x00"
    parts = [write_varint(len(headers))]
    for name, value in headers:
        raw = name.encode()
        parts += (write_varint(len(raw)), raw)
        parts += (b"\x01",) if value is None else (write_varint(len(value)), value)
    body = b"".join(parts)
    return write_varint(len(body)) + body


def read_headers(data: bytes) -> tuple[Headers, int]:
    """Decode the headers of a stored value; returns them and the position after them."""
    if data[0] == 0:
        return NO_HEADERS, 1
    size, at = read_varint(data, 0)
    end = at + size
    count, at = read_varint(data, at)
    pairs: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, at = read_varint(data, at)
        name = data[at : at + length].decode()
        at += length
        length, at = read_varint(data, at)
        if length < 0:
            pairs.append((name, None))
        else:
            pairs.append((name, data[at : at + length]))
            at += length
    return Headers(pairs), end


def _plain_to_changelog(stored: bytes | None, current: CurrentRecord) -> ChangelogParts:
    return stored, current.timestamp, NO_HEADERS


def _plain_from_changelog(value: bytes, timestamp: int, headers: Headers) -> bytes:
    return value


def _timestamped_to_changelog(stored: bytes | None, current: CurrentRecord) -> ChangelogParts:
    if stored is None:
        return None, current.timestamp, NO_HEADERS
    return stored[8:], _long_at(stored, 0)[0], NO_HEADERS


def _timestamped_from_changelog(value: bytes, timestamp: int, headers: Headers) -> bytes:
    return _pack_long(timestamp) + value


def _headers_to_changelog(stored: bytes | None, current: CurrentRecord) -> ChangelogParts:
    if stored is None:
        return None, current.timestamp, current.headers
    headers, at = read_headers(stored)
    return stored[at + 8 :], _long_at(stored, at)[0], headers


def _headers_from_changelog(value: bytes, timestamp: int, headers: Headers) -> bytes:
    return write_headers(headers) + _pack_long(timestamp) + value


def _session_headers_to_changelog(stored: bytes | None, current: CurrentRecord) -> ChangelogParts:
    if stored is None:
        return None, current.timestamp, current.headers
    headers, at = read_headers(stored)
    return stored[at:], current.timestamp, headers


def _session_headers_from_changelog(value: bytes, timestamp: int, headers: Headers) -> bytes:
    return write_headers(headers) + value


PLAIN = ValueFormat("plain", _plain_to_changelog, _plain_from_changelog)
TIMESTAMPED = ValueFormat("timestamped", _timestamped_to_changelog, _timestamped_from_changelog)
HEADERS = ValueFormat("headers", _headers_to_changelog, _headers_from_changelog)
SESSION_HEADERS = ValueFormat(
    "session_headers", _session_headers_to_changelog, _session_headers_from_changelog
)

#: Converts a stored value from one format to another.
Converter = Callable[[bytes], bytes]
#: Converters from the format that a store serves to the format that it keeps, and back.
Converters = tuple[Converter, Converter]


def _strip_timestamp(stored: bytes) -> bytes:
    return stored[8:]


_UNKNOWN_TIME = _pack_long(NO_TIMESTAMP)


def _add_unknown_timestamp(value: bytes) -> bytes:
    return _UNKNOWN_TIME + value


def _strip_headers(stored: bytes) -> bytes:
    return stored[read_headers(stored)[1] :]


def _add_no_headers(stored: bytes) -> bytes:
    return b"\x00" + stored


def _strip_both(stored: bytes) -> bytes:
    return stored[read_headers(stored)[1] + 8 :]


def _add_both(value: bytes) -> bytes:
    return b"\x00" + _UNKNOWN_TIME + value


_CONVERTERS: dict[tuple[str, str], Converters] = {
    ("timestamped", "plain"): (_strip_timestamp, _add_unknown_timestamp),
    ("headers", "timestamped"): (_strip_headers, _add_no_headers),
    ("headers", "plain"): (_strip_both, _add_both),
    ("session_headers", "plain"): (_strip_headers, _add_no_headers),
}


def converters_between(served: ValueFormat, kept: ValueFormat) -> Converters | None:
    """The converters between the served format and a kept format with less; None if equal.

    A store that keeps no timestamps returns -1 as timestamp.
    """
    return _CONVERTERS.get((served.name, kept.name))
