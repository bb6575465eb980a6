"""Encodes keys of any length for LMDB, which allows keys of 1 to 511 bytes, and keeps their order.

Every stored key starts with a prefix byte, so none is empty. Keys with more than `MAX_KEY_SIZE`
bytes share a *bucket* under their first `MAX_KEY_SIZE` bytes. A bucket is one LMDB entry. Its
stored key ends with a zero byte and has 511 bytes, as no other stored key has. Its value holds the
rows, sorted by the rest of their keys. In the key order, a bucket follows the key that equals its
prefix and precedes all keys that do not start with it.

A bucket is read and written as a whole, so thousands of keys with the same first 509 bytes are
slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

#: Keys up to this size have an entry of their own.
MAX_KEY_SIZE = 509
#: The size of the stored key of a bucket.
BUCKET_KEY_SIZE = MAX_KEY_SIZE + 2

#: The first byte of every stored key.
PREFIX = b"\x00"
#: Larger than every stored key.
END = b"\x01"

_SIZES = Struct(">II")


def bucket_key(key: bytes) -> bytes:
    """The stored key of the bucket that holds a long key."""
    return PREFIX + key[:MAX_KEY_SIZE] + b"\x00"


def lower_bound(start: bytes | None) -> bytes:
    """The smallest stored key that can hold rows with key >= start."""
    if start is None:
        return PREFIX
    return PREFIX + start if len(start) <= MAX_KEY_SIZE else bucket_key(start)


def upper_bound(end: bytes | None) -> bytes:
    """A stored key above all rows with key < end. A bucket below it can hold larger keys too."""
    if end is None:
        return END
    return PREFIX + end if len(end) <= MAX_KEY_SIZE else bucket_key(end) + b"\x00"


def decode_bucket(bucket: bytes, data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The rows of a bucket, in order."""
    prefix = bucket[1:-1]
    at, end = 0, len(data)
    while at < end:
        rest_size, value_size = _SIZES.unpack_from(data, at)
        at += 8
        middle = at + rest_size
        yield prefix + data[at:middle], data[middle : middle + value_size]
        at = middle + value_size


def find_in_bucket(data: bytes, key: bytes) -> bytes | None:
    """The value of a key in its bucket; None if the bucket does not hold it."""
    rest = key[MAX_KEY_SIZE:]
    size = len(rest)
    at, end = 0, len(data)
    while at < end:
        rest_size, value_size = _SIZES.unpack_from(data, at)
        at += 8
        middle = at + rest_size
        if rest_size == size and data[at:middle] == rest:
            return data[middle : middle + value_size]
        at = middle + value_size
    return None


def encode_bucket(rows: dict[bytes, bytes]) -> bytes:
    """The value of a bucket that holds these rows."""
    parts: list[bytes] = []
    for key in sorted(rows):
        rest, value = key[MAX_KEY_SIZE:], rows[key]
        parts += (_SIZES.pack(len(rest), len(value)), rest, value)
    return b"".join(parts)
