"""The form of a table's updates in a repartition topic, which is Kafka's."""

from __future__ import annotations

from typing import Any

from penstock.errors import StreamsException
from penstock.record import Change
from penstock.serdes.base import Serde, WrappingSerde, unreadable

#: The varints of the lengths that need only one byte.
_SHORT_LENGTHS = tuple(bytes((length << 1,)) for length in range(64))


class ChangeSerde(WrappingSerde[Change]):
    """The form of a table's updates in a repartition topic: old value, new value, or both."""


def changed(inner: Serde[Any]) -> ChangeSerde:
    """The serde of `Change`: a byte at the end says which of the two values are there.

    0 old; 1 new; 2 the length of new, new, old. 3 to 5 are the same with a byte before it that
    says whether the update was the latest; they are read, never written.
    """
    write = inner.serialize
    read = inner.deserialize

    def serialize(change: Change) -> bytes:
        new, old, _ = change
        if new is None:
            if old is None:
                raise StreamsException(
                    "An update of a table has neither an old nor a new value and cannot be written."
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
            raise unreadable(f"An update of a table cannot end with {flag}", data)
        end = len(data) - 1
        is_latest = True
        if flag > 2:
            end -= 1
            if end < 0 or data[end] > 1:
                raise unreadable("The byte that says whether an update is the latest is bad", data)
            is_latest = data[end] == 1
        if flag == 3:
            return Change(None, read(data[:end]), is_latest)
        if flag == 4:
            return Change(read(data[:end]), None, is_latest)
        first = data[0]
        length, start = (first >> 1, 1) if first < 0x80 and not first & 1 else _read_varint(data)
        middle = start + length
        if length < 0 or middle > end:
            raise unreadable(f"A new value of {length} bytes is not there", data)
        return Change(read(data[start:middle]), read(data[middle:end]), is_latest)

    return ChangeSerde((serialize, deserialize), "updates", inner, changed)


def _varint(number: int) -> bytes:
    """Kafka's signed varint (zigzag) of a length, which is never negative."""
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes) -> tuple[int, int]:
    """A signed varint at the start of the bytes, and where it ends."""
    number = 0
    for position, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position + 1
    raise unreadable("A length does not end", data)
