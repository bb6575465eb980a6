"""Keys of any length in a store that takes keys of 1 to 511 bytes, in the same order.

Every key gets a byte in front, so none is empty. Keys of more than `LONGEST` bytes share a
*bucket* under their first `LONGEST` bytes: one row of the store, whose key ends in a zero byte and
has 511 bytes, as no other has. Its value holds the entries, sorted by the rest of their keys. So
a bucket stands right behind the key that is its prefix, and before all that do not begin with it.

A bucket is read and written as a whole: thousands of keys with the same first 509 bytes are slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

#: Keys up to this length have a row of their own.
LONGEST = 509
#: The length of a bucket's key in the store.
BUCKET_SIZE = LONGEST + 2

#: In front of every key.
ROW = b"\x00"
#: Larger than the stored form of every key.
ROWS_END = b"\x01"

_SIZES = Struct(">II")


def bucket_of(key: bytes) -> bytes:
    """The stored key of the bucket that a long key is in."""
    return ROW + key[:LONGEST] + b"\x00"


def lower_bound(start: bytes | None) -> bytes:
    """The stored key from which rows with key >= start may be found."""
    if start is None:
        return ROW
    return ROW + start if len(start) <= LONGEST else bucket_of(start)


def upper_bound(end: bytes | None) -> bytes:
    """The stored key below which all rows with key < end are; a bucket may hold more."""
    if end is None:
        return ROWS_END
    return ROW + end if len(end) <= LONGEST else bucket_of(end) + b"\x00"


def entries(bucket: bytes, data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The (key, value) of a bucket in order."""
    prefix = bucket[1:-1]
    at, end = 0, len(data)
    while at < end:
        rest_size, value_size = _SIZES.unpack_from(data, at)
        at += 8
        middle = at + rest_size
        yield prefix + data[at:middle], data[middle : middle + value_size]
        at = middle + value_size


def find(data: bytes, key: bytes) -> bytes | None:
    """The value of a key in its bucket."""
    rest = key[LONGEST:]
    wanted = len(rest)
    at, end = 0, len(data)
    while at < end:
        rest_size, value_size = _SIZES.unpack_from(data, at)
        at += 8
        middle = at + rest_size
        if rest_size == wanted and data[at:middle] == rest:
            return data[middle : middle + value_size]
        at = middle + value_size
    return None


def joined(rows: dict[bytes, bytes]) -> bytes:
    """The data of a bucket that holds these keys."""
    parts: list[bytes] = []
    for key in sorted(rows):
        rest, value = key[LONGEST:], rows[key]
        parts += (_SIZES.pack(len(rest), len(value)), rest, value)
    return b"".join(parts)
