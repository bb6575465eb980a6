"""The records of a left or outer stream-stream join that wait for a partner.

Both sides of a join share one store in the format of Kafka Streams: the key is an 8-byte
timestamp, 1 byte for the side (1 left, 0 right) and the key bytes; the value is a list of values,
each with the byte of its side in front. A scan returns the oldest records first, then the right
side before the left, then by key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.serdes.headers import HasHeaders, ReadOnlyHeaders
from penstock.serdes.store import store_serde

if TYPE_CHECKING:
    from penstock.processors.base import Clock, NodeContext
    from penstock.serdes.base import Serde

_HEAD = struct.Struct(">qB")
_INT = struct.Struct(">i")
_COUNT = struct.Struct(">Bi")

#: The marker of ListSerde for elements of variable size.
_VARIABLE_SIZE = 1
_LEFT = b"\x01"
_RIGHT = b"\x00"


class WaitingRecords(NamedTuple):
    """The values of one key, timestamp and side that wait for a partner."""

    raw_key: bytes
    timestamp: int
    is_left: bool
    raw_values: bytes


@dataclass(frozen=True, slots=True)
class OuterJoinShared:
    """The store and clocks that the two sides of a left or outer join share.

    The serdes are those of the join for the store's changelog topic.
    """

    store_name: str
    key_serde: Serde[Any]
    left_serde: Serde[Any]
    right_serde: Serde[Any]

    def open(self, node: NodeContext) -> OuterJoinStore:
        """The store for one side of the join in one task."""
        return OuterJoinStore(
            node.store(self.store_name), self, ReadOnlyHeaders(node.current)
        )

    def stream_time(self, node: NodeContext) -> Clock:
        """The largest timestamp of both sides."""
        return node.clock(f"{self.store_name}:stream-time")

    def oldest(self, node: NodeContext) -> Clock:
        """The time from which the store must be scanned, -1 if it is empty."""
        return node.clock(f"{self.store_name}:oldest")


class OuterJoinStore:
    """The waiting records of one join in one task, over a bytes key-value store."""

    __slots__ = ("_get", "_left", "_put", "_right", "_scan", "key_from_bytes", "key_to_bytes")

    def __init__(self, store: Any, shared: OuterJoinShared, record: HasHeaders) -> None:
        self._get = store.get
        self._put = store.put
        self._scan = store.all
        name = shared.store_name
        self._left = store_serde(shared.left_serde.with_headers_of(record), name, "value")
        self._right = store_serde(shared.right_serde.with_headers_of(record), name, "value")
        key = store_serde(shared.key_serde.with_headers_of(record), name, "key")
        self.key_to_bytes, self.key_from_bytes = key.serialize, key.deserialize

    def add(self, timestamp: int, is_left: bool, key: bytes, value: Any) -> None:
        """Add a record, after those of the same key, timestamp and side."""
        raw_key = _HEAD.pack(timestamp, is_left) + key
        raw = (self._left if is_left else self._right).serialize(value)
        if raw is None:
            # A value that serializes to null deletes the whole list, as in Kafka.
            self._put(raw_key, None)
            return
        raw = (_LEFT if is_left else _RIGHT) + raw
        self._put(raw_key, _append_to_list(self._get(raw_key), raw))

    def discard(self, timestamp: int, is_left: bool, key: bytes) -> None:
        """Remove the records of that key, timestamp and side: a partner arrived."""
        raw_key = _HEAD.pack(timestamp, is_left) + key
        if self._get(raw_key) is not None:
            self._put(raw_key, None)

    def delete(self, raw_key: bytes) -> None:
        """Remove records that were forwarded."""
        self._put(raw_key, None)

    def closed(
        self, left_reach: int, right_reach: int, now: int
    ) -> tuple[list[WaitingRecords], int]:
        """The records whose windows have closed, and the timestamp of the last scanned entry.

        The timestamp is -1 if the store is empty. The scan stops after the first open entries of
        both sides. If only one side has entries, it runs to the end. The timestamp decides when
        the next scan is needed.
        """
        due: list[WaitingRecords] = []
        left_open = right_open = False
        time = -1
        for raw_key, raw_values in self._scan():
            time, side = _HEAD.unpack_from(raw_key)
            if left_open and right_open:
                break
            if time + (left_reach if side else right_reach) < now:
                due.append(WaitingRecords(raw_key, time, side == 1, raw_values))
                continue
            left_open, right_open = left_open or side == 1, right_open or side == 0
            if left_open and right_open and _COUNT.unpack_from(raw_values)[1] > 1:
                # Kafka scans the values of a list one by one: the second one ends the scan.
                break
        return due, time

    def key_of(self, waiting: WaitingRecords) -> Any:
        """The key of waiting records."""
        return self.key_from_bytes(waiting.raw_key[_HEAD.size :])

    def values_of(self, waiting: WaitingRecords) -> Iterable[Any]:
        """The values in order of arrival."""
        deserialize = (self._left if waiting.is_left else self._right).deserialize
        raw = waiting.raw_values
        _, count = _COUNT.unpack_from(raw)
        at = _COUNT.size
        for _ in range(count):
            (size,) = _INT.unpack_from(raw, at)
            at += _INT.size
            yield deserialize(raw[at + 1 : at + size])
            at += size


def _append_to_list(values: bytes | None, value: bytes) -> bytes:
    """Append an element to a list in the format of ListSerde."""
    if values is None:
        return _COUNT.pack(_VARIABLE_SIZE, 1) + _INT.pack(len(value)) + value
    _, count = _COUNT.unpack_from(values)
    return b"".join((
        _COUNT.pack(_VARIABLE_SIZE, count + 1), values[_COUNT.size :],
        _INT.pack(len(value)), value,
    ))
