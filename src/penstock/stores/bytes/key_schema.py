"""The row keys of window and session stores. Their order is the scan order of the store.

The layers know rows only by their row keys. A key schema encodes and decodes row keys, returns the
ranges that a scan touches, and converts row keys into the keys that Kafka Streams writes to the
changelog. Times are never negative, so their eight bytes sort like the numbers.

    key-value             key
    persistent window     segment, key, start, sequence
    persistent session    segment, key, end, start
    in-memory window      start, key[, sequence]      (emit on close: always with sequence)
    in-memory session     end, key (escaped), start (descending)
    session, emit on close    end, start, key
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple, Protocol

from penstock.native import core

MAX_TIME = 2**63 - 1

_LONG = Struct(">q")
_WINDOW_TAIL = Struct(">qI")
_SESSION_TAIL = Struct(">qq")
_SEQUENCE = Struct(">I")
_pack_long = _LONG.pack
_long_at = _LONG.unpack_from

#: Half-open ranges of row keys, in order.
ByteRanges = list[tuple[bytes | None, bytes | None]]


class WindowRange(NamedTuple):
    """The bounds of a scan of a window or session store. All are inclusive; None is unbounded.

    The time of a row is the start of its window, or the end of its session.
    """

    key_from: bytes | None
    key_to: bytes | None
    time_from: int
    time_to: int
    #: Sessions only: the largest start.
    latest_start: int = MAX_TIME
    #: False: include rows past retention whose segment still exists.
    hide_expired: bool = True

    @property
    def is_single_key(self) -> bool:
        """Whether the scan is for one key."""
        return self.key_from is not None and self.key_from == self.key_to


class KeySchema(Protocol):
    """The row keys of a window or session store."""

    #: The size of Kafka's cache key of a row minus the size of the row key, in bytes.
    cache_key_overhead: int
    #: The index of the time in a row key; a negative index counts from the end.
    time_at: int
    #: How many bytes to cut from the start of a row key to get the changelog key; None if the
    #: changelog key is not a suffix of the row key.
    changelog_cut: int | None

    def encode(self, key: bytes, time: int, other: int) -> bytes:
        """The row key. `other` is the sequence number of a window or the start of a session."""
        ...

    def decode(self, row_key: bytes) -> tuple[bytes, int, int]:
        """(key, time, other) of a row key."""
        ...

    def time_of(self, row_key: bytes) -> int:
        """The time of a row."""
        ...

    def lower_bound(self, time: int) -> bytes:
        """The bound below which all rows are older than a time (a multiple of the interval)."""
        ...

    def ranges(self, bounds: WindowRange, oldest: int, newest: int) -> ByteRanges:
        """Ranges that contain the rows within the bounds, if all rows are in [oldest, newest]."""
        ...

    def changelog_key(self, row_key: bytes) -> bytes:
        """The key of the row in Kafka Streams' changelog."""
        ...

    def from_changelog(self, key: bytes) -> bytes:
        """The row key for the key of a changelog record."""
        ...


def row_filter(key_schema: KeySchema, bounds: WindowRange) -> Callable[[bytes], bool]:
    """Returns a function that checks whether a row key is within the bounds."""
    key_from, key_to, time_from, time_to, latest_start, _ = bounds
    decode = key_schema.decode

    def matches(row_key: bytes) -> bool:
        key, time, other = decode(row_key)
        return (
            time_from <= time <= time_to
            and other <= latest_start
            and (key_from is None or key >= key_from)
            and (key_to is None or key <= key_to)
        )

    return matches


class KeyFirstSchema:
    """Segment, then key, then time: the order of Kafka's RocksDB stores."""

    __slots__ = (
        "_tail", "_tail_size", "cache_key_overhead", "changelog_cut", "interval_ms", "time_at",
    )

    def __init__(self, interval_ms: int, sessions: bool) -> None:
        self.interval_ms = interval_ms
        self._tail = _SESSION_TAIL if sessions else _WINDOW_TAIL
        self._tail_size = self._tail.size
        self.cache_key_overhead = 0
        self.time_at = -self._tail_size
        self.changelog_cut: int | None = 8

    def encode(self, key: bytes, time: int, other: int) -> bytes:
        """Segment, key, time, sequence or start."""
        return _pack_long(time // self.interval_ms) + key + self._tail.pack(time, other)

    def key_affixes(self, time: int) -> tuple[bytes, bytes]:
        """The bytes before and after the key in a row key of that time with sequence 0."""
        return _pack_long(time // self.interval_ms), self._tail.pack(time, 0)

    def decode(self, row_key: bytes) -> tuple[bytes, int, int]:
        """(key, time, sequence or start)."""
        cut = len(row_key) - self._tail_size
        time, other = self._tail.unpack_from(row_key, cut)
        return row_key[8:cut], time, other

    def time_of(self, row_key: bytes) -> int:
        """The start of the window, or the end of the session."""
        time: int = _long_at(row_key, self.time_at)[0]
        return time

    def lower_bound(self, time: int) -> bytes:
        """The first key of the segment of that time."""
        return _pack_long(time // self.interval_ms)

    def ranges(self, bounds: WindowRange, oldest: int, newest: int) -> ByteRanges:
        """One range for each segment; a narrow one if the scan is for a single key."""
        first = max(bounds.time_from, oldest, 0) // self.interval_ms
        last = min(bounds.time_to, newest) // self.interval_ms
        if not bounds.is_single_key:
            start = bounds.key_from or b""
            return [
                (_pack_long(segment) + start, _pack_long(segment + 1))
                for segment in range(first, last + 1)
            ]
        key = bounds.key_from or b""
        low = key + _pack_long(max(bounds.time_from, 0))
        high = key + (_pack_long(bounds.time_to + 1) if bounds.time_to < MAX_TIME else b"\x80")
        return [
            (_pack_long(segment) + low, _pack_long(segment) + high)
            for segment in range(first, last + 1)
        ]

    def changelog_key(self, row_key: bytes) -> bytes:
        """The row key without the segment."""
        return row_key[8:]

    def from_changelog(self, key: bytes) -> bytes:
        """The changelog key after its segment."""
        time = _long_at(key, len(key) - self._tail_size)[0]
        return _pack_long(time // self.interval_ms) + key


class _TimeFirstSchema:
    """The base of all key schemas that start with the time of the row."""

    __slots__ = ()

    time_at = 0
    changelog_cut: int | None = None

    def time_of(self, row_key: bytes) -> int:
        """The start of the window, or the end of the session."""
        time: int = _long_at(row_key, 0)[0]
        return time

    def lower_bound(self, time: int) -> bytes:
        """The time itself."""
        return _pack_long(time)

    def ranges(self, bounds: WindowRange, oldest: int, newest: int) -> ByteRanges:
        """One range of time. The caller filters the keys."""
        low = max(bounds.time_from, oldest, 0)
        if low > bounds.time_to:
            return []
        high = _pack_long(bounds.time_to + 1) if bounds.time_to < MAX_TIME else None
        return [(_pack_long(low), high)]


class TimeFirstWindowSchema(_TimeFirstSchema):
    """Start, then key; with a sequence number if a store keeps duplicates."""

    __slots__ = ("_sequenced", "cache_key_overhead")

    def __init__(self, sequenced: bool) -> None:
        self._sequenced = sequenced
        self.cache_key_overhead = 8 if sequenced else 12

    def encode(self, key: bytes, time: int, other: int) -> bytes:
        """Start, key, and the sequence number."""
        if self._sequenced:
            return _pack_long(time) + key + _SEQUENCE.pack(other)
        return _pack_long(time) + key

    def decode(self, row_key: bytes) -> tuple[bytes, int, int]:
        """(key, start, sequence)."""
        start = _long_at(row_key, 0)[0]
        if self._sequenced:
            return row_key[8:-4], start, _SEQUENCE.unpack_from(row_key, len(row_key) - 4)[0]
        return row_key[8:], start, 0

    def changelog_key(self, row_key: bytes) -> bytes:
        """Key, start, sequence."""
        if self._sequenced:
            return row_key[8:-4] + row_key[:8] + row_key[-4:]
        return row_key[8:] + row_key[:8] + b"\x00\x00\x00\x00"

    def from_changelog(self, key: bytes) -> bytes:
        """Start, key, and the sequence number if the schema has one."""
        row_key = key[-12:-4] + key[:-12]
        return row_key + key[-4:] if self._sequenced else row_key


class TimeFirstSessionSchema(_TimeFirstSchema):
    """End, then start, then key."""

    __slots__ = ("cache_key_overhead",)

    def __init__(self) -> None:
        self.cache_key_overhead = 8

    def encode(self, key: bytes, time: int, other: int) -> bytes:
        """End, start, key."""
        return _SESSION_TAIL.pack(time, other) + key

    def decode(self, row_key: bytes) -> tuple[bytes, int, int]:
        """(key, end, start)."""
        end, start = _SESSION_TAIL.unpack_from(row_key, 0)
        return row_key[16:], end, start

    def changelog_key(self, row_key: bytes) -> bytes:
        """Key, end, start."""
        return row_key[16:] + row_key[:16]

    def from_changelog(self, key: bytes) -> bytes:
        """End, start, key."""
        return key[-16:] + key[:-16]


class InMemorySessionSchema(_TimeFirstSchema):
    """End, then key, then start in descending order: the order of Kafka's nested maps.

    The key is escaped, so that the start does not affect the order of keys.
    """

    __slots__ = ("cache_key_overhead",)

    def __init__(self) -> None:
        self.cache_key_overhead = 6

    def encode(self, key: bytes, time: int, other: int) -> bytes:
        """End, escaped key, terminator, inverted start."""
        escaped = key.replace(b"\x00", b"\x00\xff")
        return _pack_long(time) + escaped + b"\x00\x00" + _pack_long(MAX_TIME - other)

    def decode(self, row_key: bytes) -> tuple[bytes, int, int]:
        """(key, end, start)."""
        key = row_key[8:-10].replace(b"\x00\xff", b"\x00")
        return key, _long_at(row_key, 0)[0], MAX_TIME - _long_at(row_key, len(row_key) - 8)[0]

    def changelog_key(self, row_key: bytes) -> bytes:
        """Key, end, start."""
        key, end, start = self.decode(row_key)
        return key + _SESSION_TAIL.pack(end, start)

    def from_changelog(self, key: bytes) -> bytes:
        """End, escaped key, inverted start."""
        end, start = _SESSION_TAIL.unpack_from(key, len(key) - 16)
        return self.encode(key[:-16], end, start)


def row_keys_from_changelog(key_schema: KeySchema, keys: list[bytes]) -> list[bytes]:
    """The row keys for the keys of many changelog records."""
    if core is not None and isinstance(key_schema, KeyFirstSchema):
        row_keys: list[bytes] = core.segmented_rows(
            keys, key_schema.time_at, key_schema.interval_ms
        )
        return row_keys
    return list(map(key_schema.from_changelog, keys))
