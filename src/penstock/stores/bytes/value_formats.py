"""How values are stored: Kafka Streams' byte forms, and what of them goes to the changelog.

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
from penstock.record import NO_HEADERS, Current, Headers, PartitionColumns

_LONG = Struct(">q")
_pack_long = _LONG.pack
_long_at = _LONG.unpack_from

#: The timestamp of a row in a store that keeps none.
NO_TIMESTAMP = -1

#: What the changelog gets of a stored value: value, timestamp, headers.
LogParts = tuple[bytes | None, int, Headers]


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """One byte form of a value."""

    name: str
    #: What the changelog gets of a stored value, or of a deletion, while a record is processed.
    to_log: Callable[[bytes | None, Current], LogParts]
    #: The stored value of a changelog record.
    from_log: Callable[[bytes, int, Headers], bytes]

    def all_from_log(self, records: PartitionColumns) -> Sequence[bytes | None]:
        """The stored values of many changelog records; None where a record is a deletion."""
        values, timestamps = records.values, records.timestamps
        if self.from_log is _plain_from_log:
            return values
        if self.from_log is _timestamped_from_log:
            if core is not None:
                stored: list[bytes | None] = core.timestamped_values(values, timestamps)
                return stored
            pack = _pack_long
            return [
                None if value is None else pack(timestamp) + value
                for timestamp, value in zip(timestamps, values, strict=True)
            ]
        from_log = self.from_log
        headers = records.headers or [NO_HEADERS] * len(values)
        return [
            None if value is None else from_log(value, timestamp, pairs)
            for value, timestamp, pairs in zip(values, timestamps, headers, strict=True)
        ]


def write_varint(number: int) -> bytes:
    """Kafka's variable-length (zigzag) form of a 32-bit integer."""
    value = (number << 1) ^ (number >> 31)
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """(number, position after it)."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 28:
            raise SerializationException("A length in stored headers is longer than 5 bytes.")


def write_headers(headers: Headers) -> bytes:
    """Size of the headers and the headers; one zero byte if there are none."""
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
    """(headers, position after them) of a stored value."""
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


def _plain_to_log(stored: bytes | None, current: Current) -> LogParts:
    return stored, current.timestamp, NO_HEADERS


def _plain_from_log(value: bytes, timestamp: int, headers: Headers) -> bytes:
    return value


def _timestamped_to_log(stored: bytes | None, current: Current) -> LogParts:
    if stored is None:
        return None, current.timestamp, NO_HEADERS
    return stored[8:], _long_at(stored, 0)[0], NO_HEADERS


def _timestamped_from_log(value: bytes, timestamp: int, headers: Headers) -> bytes:
    return _pack_long(timestamp) + value


def _headers_to_log(stored: bytes | None, current: Current) -> LogParts:
    if stored is None:
        return None, current.timestamp, current.headers
    headers, at = read_headers(stored)
    return stored[at + 8 :], _long_at(stored, at)[0], headers


def _headers_from_log(value: bytes, timestamp: int, headers: Headers) -> bytes:
    return write_headers(headers) + _pack_long(timestamp) + value


def _session_headers_to_log(stored: bytes | None, current: Current) -> LogParts:
    if stored is None:
        return None, current.timestamp, current.headers
    headers, at = read_headers(stored)
    return stored[at:], current.timestamp, headers


def _session_headers_from_log(value: bytes, timestamp: int, headers: Headers) -> bytes:
    return write_headers(headers) + value


PLAIN = ValueFormat("plain", _plain_to_log, _plain_from_log)
TIMESTAMPED = ValueFormat("timestamped", _timestamped_to_log, _timestamped_from_log)
HEADERS = ValueFormat("headers", _headers_to_log, _headers_from_log)
SESSION_HEADERS = ValueFormat(
    "session_headers", _session_headers_to_log, _session_headers_from_log
)

Convert = Callable[[bytes], bytes]


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


_ADAPTERS: dict[tuple[str, str], tuple[Convert, Convert]] = {
    ("timestamped", "plain"): (_strip_timestamp, _add_unknown_timestamp),
    ("headers", "timestamped"): (_strip_headers, _add_no_headers),
    ("headers", "plain"): (_strip_both, _add_both),
    ("session_headers", "plain"): (_strip_headers, _add_no_headers),
}


def adapter(wanted: ValueFormat, kept: ValueFormat) -> tuple[Convert, Convert] | None:
    """(down, up) between what a store is asked for and the poorer form it keeps; None if equal.

    A store that keeps no timestamps answers -1.
    """
    return _ADAPTERS.get((wanted.name, kept.name))
