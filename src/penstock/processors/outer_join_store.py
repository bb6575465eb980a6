"""The records of a left or outer stream-stream join that wait for a partner.

Both sides of a join share one store. Its bytes are Kafka Streams' own: key = 8-byte timestamp,
1 byte for the side (1 left, 0 right), key bytes; value = a list of values, each with the side's
byte in front. So a scan gives the oldest first, at one time the right side before the left, then
by key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from penstock.processors.base import Clock, NodeContext
    from penstock.serdes.base import Serde

_HEAD = struct.Struct(">qB")
_INT = struct.Struct(">i")
_COUNT = struct.Struct(">Bi")

#: ListSerde's mark for elements of varying size.
_VARIABLE_SIZE = 1
_LEFT = b"\x01"
_RIGHT = b"\x00"


class Waiting(NamedTuple):
    """All values of one key, one time and one side that wait for a partner."""

    raw_key: bytes
    timestamp: int
    is_left: bool
    raw_values: bytes


@dataclass(frozen=True, slots=True)
class OuterJoinShared:
    """What the two sides of a left or outer join share: a bytes key-value store, and a time.

    The serdes are those of the join, never None.
    """

    store_name: str
    key_serde: Serde[Any]
    left_serde: Serde[Any]
    right_serde: Serde[Any]

    def open(self, node: NodeContext) -> OuterJoinStore:
        """The store, for one side of the join in one task."""
        return OuterJoinStore(node.store(self.store_name), self)

    def stream_time(self, node: NodeContext) -> Clock:
        """The largest timestamp that either side has seen."""
        return node.clock(f"{self.store_name}:stream-time")

    def oldest(self, node: NodeContext) -> Clock:
        """The time from which on the store is worth scanning, -1 if it holds nothing."""
        return node.clock(f"{self.store_name}:oldest")


class OuterJoinStore:
    """The waiting records of one join in one task, over a bytes key-value store."""

    __slots__ = ("_get", "_left", "_put", "_right", "_scan", "key_from_bytes", "key_to_bytes")

    def __init__(self, store: Any, shared: OuterJoinShared) -> None:
        self._get = store.get
        self._put = store.put
        self._scan = store.all
        self._left = shared.left_serde
        self._right = shared.right_serde
        self.key_to_bytes = shared.key_serde.serialize
        self.key_from_bytes = shared.key_serde.deserialize

    def add(self, timestamp: int, is_left: bool, key: bytes, value: Any) -> None:
        """Let a record wait, behind those of the same key, time and side."""
        raw_key = _HEAD.pack(timestamp, is_left) + key
        raw = (self._left if is_left else self._right).serialize(value)
        if raw is None:
            # What a serializer makes nothing of takes the whole list with it, as in Kafka.
            self._put(raw_key, None)
            return
        raw = (_LEFT if is_left else _RIGHT) + raw
        self._put(raw_key, _appended(self._get(raw_key), raw))

    def discard(self, timestamp: int, is_left: bool, key: bytes) -> None:
        """A partner came: none of the records of that key, time and side waits any longer."""
        raw_key = _HEAD.pack(timestamp, is_left) + key
        if self._get(raw_key) is not None:
            self._put(raw_key, None)

    def delete(self, raw_key: bytes) -> None:
        """Forget records that have been sent."""
        self._put(raw_key, None)

    def closed(
        self, left_reach: int, right_reach: int, now: int
    ) -> tuple[list[Waiting], int]:
        """The records whose windows have closed, and the time of the last entry looked at.

        The time is -1 if the store is empty. The scan ends behind the first open entries of both
        sides; while only one side waits it goes to the end, and so does the time, which decides
        when the next scan is worth while.
        """
        due: list[Waiting] = []
        left_open = right_open = False
        time = -1
        for raw_key, raw_values in self._scan():
            time, side = _HEAD.unpack_from(raw_key)
            if left_open and right_open:
                break
            if time + (left_reach if side else right_reach) < now:
                due.append(Waiting(raw_key, time, side == 1, raw_values))
                continue
            left_open, right_open = left_open or side == 1, right_open or side == 0
            if left_open and right_open and _COUNT.unpack_from(raw_values)[1] > 1:
                # The values of a list are looked at one by one: the second one ends the scan.
                break
        return due, time

    def key_of(self, waiting: Waiting) -> Any:
        """The key of waiting records."""
        return self.key_from_bytes(waiting.raw_key[_HEAD.size :])

    def values_of(self, waiting: Waiting) -> Iterable[Any]:
        """The values, in the order in which they came."""
        deserialize = (self._left if waiting.is_left else self._right).deserialize
        raw = waiting.raw_values
        _, count = _COUNT.unpack_from(raw)
        at = _COUNT.size
        for _ in range(count):
            (size,) = _INT.unpack_from(raw, at)
            at += _INT.size
            yield deserialize(raw[at + 1 : at + size])
            at += size


def _appended(values: bytes | None, value: bytes) -> bytes:
    """A list (in ListSerde's form) with one more element."""
    if values is None:
        return _COUNT.pack(_VARIABLE_SIZE, 1) + _INT.pack(len(value)) + value
    _, count = _COUNT.unpack_from(values)
    return b"".join((
        _COUNT.pack(_VARIABLE_SIZE, count + 1), values[_COUNT.size :],
        _INT.pack(len(value)), value,
    ))
