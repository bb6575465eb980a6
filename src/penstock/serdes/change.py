"""The serde of `Change`: a table's updates in a repartition topic, in Kafka's format."""

from __future__ import annotations

from typing import Any

from penstock.errors import StreamsException
from penstock.record import Change
from penstock.serdes.base import Serde, WrappingSerde, malformed_bytes_error

#: The varints of all lengths that fit into one byte.
_SHORT_LENGTHS = tuple(bytes((length << 1,)) for length in range(64))


class ChangeSerde(WrappingSerde[Change]):
    """A serde of `Change`: the old value, the new value, or both."""


def change_serde(inner: Serde[Any]) -> ChangeSerde:
    """Return the serde of `Change`. The last byte tells which values are present.

    0: old. 1: new. 2: length of new, new, old. 3 to 5 are the same with another byte before the
    last, which is 1 if the update is the latest; they are read but never written.
    """
    write = inner.serialize
    read = inner.deserialize

    def serialize(change: Change) -> bytes:
        new, old, _ = change
        if new is None:
            if old is None:
                raise StreamsException(
                    "An update of a table has neither an old nor a new value, so it cannot be "
                    "serialized."
                )
            return write(old) + b"\x00"
        if old is None:
            return write(new) + b"\x01"
        data = write(new)
        length = len(data)
        prefix = _SHORT_LENGTHS[length] if length < 64 else _varint(length)
        return prefix + data + write(old) + b"\x02"

    def deserialize(data: bytes) -> Change:
        flag = data[-1] if data else 255
        if flag == 1:
            return Change(read(data[:-1]), None)
        if flag == 0:
            return Change(None, read(data[:-1]))
        if flag > 5:
            raise malformed_bytes_error(f"The last byte of a table update is {flag}", data)
        end = len(data) - 1
        is_latest = True
        if flag > 2:
            end -= 1
            if end < 0 or data[end] > 1:
                raise malformed_bytes_error("The is-latest byte of a table update is invalid", data)
            is_latest = data[end] == 1
        if flag == 3:
            return Change(None, read(data[:end]), is_latest)
        if flag == 4:
            return Change(read(data[:end]), None, is_latest)
        first = data[0]
        length, start = (first >> 1, 1) if first < 0x80 and not first & 1 else _read_varint(data)
        middle = start + length
        if length < 0 or middle > end:
            raise malformed_bytes_error(f"A new value of {length} bytes is truncated", data)
        return Change(read(data[start:middle]), read(data[middle:end]), is_latest)

    return ChangeSerde((serialize, deserialize), "change", inner, change_serde)


def _varint(number: int) -> bytes:
    """Encode a length as Kafka's signed varint (zigzag)."""
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes) -> tuple[int, int]:
    """Return the signed varint at the start of the bytes, and its size."""
    number = 0
    for position, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position + 1
    raise malformed_bytes_error("A length is longer than 5 bytes", data)
