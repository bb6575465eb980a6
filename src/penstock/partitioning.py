"""Kafka's default partitioner: the partition of a key (F7)."""

from __future__ import annotations

from penstock.native import core

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Return Kafka's murmur2 hash as an unsigned 32-bit number."""
    if core is not None:
        hashed: int = core.murmur2(data)
        return hashed
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for word in memoryview(data[:whole]).cast("I") if _LITTLE_ENDIAN else _words(data, whole):
        mixed = (word * _M) & _MASK
        mixed ^= mixed >> 24
        value = ((value * _M) ^ (mixed * _M)) & _MASK
    rest = length & 3
    if rest:
        value ^= int.from_bytes(data[whole:], "little")
        value = (value * _M) & _MASK
    value ^= value >> 13
    value = (value * _M) & _MASK
    return value ^ (value >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a serialized key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def _words(data: bytes, whole: int) -> list[int]:
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, whole, 4)]


_LITTLE_ENDIAN = memoryview(b"\x01\x00\x00\x00").cast("I")[0] == 1
