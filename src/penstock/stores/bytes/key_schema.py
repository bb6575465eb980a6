"""How the rows of a store are keyed: the physical order that gives each store its scan order.

The four layers know rows only by their physical keys. A layout makes them, reads them, says which
ranges of them a question touches, and turns them into the keys that Kafka Streams writes to the
changelog. Times are never negative, so their eight bytes order as the numbers do.

    key-value            key
    persistent window    segment, key, start, sequence
    persistent session   segment, key, end, start
    in-memory window     start, key[, sequence]          (also emit on close, always with sequence)
    in-memory session    end, key (escaped), start (descending)
    session, on close    end, start, key
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

#: Half-open physical ranges, in order.
Ranges = list[tuple[bytes | None, bytes | None]]


class WindowRange(NamedTuple):
    """A question to a window or session store; all bounds are included, None is open.

    The time of a row is the start of its window, or the end of its session.
    """

    key_from: bytes | None
    key_to: bytes | None
    time_from: int
    time_to: int
    #: Sessions only: the largest start.
    latest_start: int = MAX_TIME
    #: False: rows past retention are shown as long as their segment is there.
    clipped: bool = True

    @property
    def one_key(self) -> bool:
        """True if it asks about a single key."""
        return self.key_from is not None and self.key_from == self.key_to


class KeySchema(Protocol):
    """The physical keys of a window or session store."""

    #: What Kafka's cache key of a row has more (or less) than the physical key, in bytes.
    cache_bytes: int
    #: Where a physical key has its time: from its start, or if negative from its end.
    time_at: int
    #: How many bytes at the start of a physical key the changelog's key is without, if that is all
    #: the difference.
    changelog_cut: int | None

    def encode(self, key: bytes, time: int, other: int) -> bytes:
        """The physical key. `other` is a window's sequence number or a session's start."""
        ...

    def decode(self, row: bytes) -> tuple[bytes, int, int]:
        """(key, time, other) of a physical key."""
        ...

    def time(self, row: bytes) -> int:
        """The time of a row."""
        ...

    def floor(self, time: int) -> bytes:
        """A key below which all rows are older than that time (a multiple of the interval)."""
        ...

    def ranges(self, span: WindowRange, oldest: int, newest: int) -> Ranges:
        """Where the rows of a span may be, given the oldest and newest time that rows have."""
        ...

    def changelog_key(self, row: bytes) -> bytes:
        """The key of the row in Kafka Streams' changelog."""
        ...

    def from_changelog(self, key: bytes) -> bytes:
        """The physical key of a changelog record's key."""
        ...


def selector(layout: KeySchema, span: WindowRange) -> Callable[[bytes], bool]:
    """Whether a physical key belongs to a span."""
    key_from, key_to, time_from, time_to, latest_start, _ = span
    decode = layout.decode

    def belongs(row: bytes) -> bool:
        key, time, other = decode(row)
        return (
            time_from <= time <= time_to
            and other <= latest_start
            and (key_from is None or key >= key_from)
            and (key_to is None or key <= key_to)
        )

    return belongs


class KeyFirstSchema:
    """Segment by segment, in a segment by key and then time: RocksDB's order."""

    __slots__ = ("_tail", "_tail_size", "cache_bytes", "changelog_cut", "interval_ms", "time_at")

    def __init__(self, interval_ms: int, sessions: bool) -> None:
        self.interval_ms = interval_ms
        self._tail = _SESSION_TAIL if sessions else _WINDOW_TAIL
        self._tail_size = self._tail.size
        self.cache_bytes = 0
        self.time_at = -self._tail_size
        self.changelog_cut: int | None = 8

    def encode(self, key: bytes, time: int, other: int) -> bytes:
        """Segment, key, time, sequence or start."""
        return _pack_long(time // self.interval_ms) + key + self._tail.pack(time, other)

    def around(self, time: int) -> tuple[bytes, bytes]:
        """What stands before and behind a key in a row of that time and sequence 0."""
        return _pack_long(time // self.interval_ms), self._tail.pack(time, 0)

    def decode(self, row: bytes) -> tuple[bytes, int, int]:
        """(key, time, other)."""
        cut = len(row) - self._tail_size
        time, other = self._tail.unpack_from(row, cut)
        return row[8:cut], time, other

    def time(self, row: bytes) -> int:
        """Start of the window, or end of the session."""
        time: int = _long_at(row, self.time_at)[0]
        return time

    def floor(self, time: int) -> bytes:
        """The first key of the segment of that time."""
        return _pack_long(time // self.interval_ms)

    def ranges(self, span: WindowRange, oldest: int, newest: int) -> Ranges:
        """One range for each segment, narrow if a single key is asked for."""
        first = max(span.time_from, oldest, 0) // self.interval_ms
        last = min(span.time_to, newest) // self.interval_ms
        if not span.one_key:
            start = span.key_from or b""
            return [
                (_pack_long(segment) + start, _pack_long(segment + 1))
                for segment in range(first, last + 1)
            ]
        key = span.key_from or b""
        low = key + _pack_long(max(span.time_from, 0))
        high = key + (_pack_long(span.time_to + 1) if span.time_to < MAX_TIME else b"\x80")
        return [
            (_pack_long(segment) + low, _pack_long(segment) + high)
            for segment in range(first, last + 1)
        ]

    def changelog_key(self, row: bytes) -> bytes:
        """Without the segment."""
        return row[8:]

    def from_changelog(self, key: bytes) -> bytes:
        """With the segment."""
        time = _long_at(key, len(key) - self._tail_size)[0]
        return _pack_long(time // self.interval_ms) + key


class _TimeFirstSchema:
    """What all layouts share that begin with the time of the row."""

    __slots__ = ()

    time_at = 0
    changelog_cut: int | None = None

    def time(self, row: bytes) -> int:
        """Start of the window, or end of the session."""
        time: int = _long_at(row, 0)[0]
        return time

    def floor(self, time: int) -> bytes:
        """The time itself."""
        return _pack_long(time)

    def ranges(self, span: WindowRange, oldest: int, newest: int) -> Ranges:
        """The times asked for; keys have to be picked out."""
        low = max(span.time_from, oldest, 0)
        if low > span.time_to:
            return []
        high = _pack_long(span.time_to + 1) if span.time_to < MAX_TIME else None
        return [(_pack_long(low), high)]


class TimeFirstWindowSchema(_TimeFirstSchema):
    """By time, then key; with a sequence number if rows may repeat."""

    __slots__ = ("_sequenced", "cache_bytes")

    def __init__(self, sequenced: bool) -> None:
        self._sequenced = sequenced
        self.cache_bytes = 8 if sequenced else 12

    def encode(self, key: bytes, time: int, other: int) -> bytes:
        """Start, key, and the sequence number."""
        if self._sequenced:
            return _pack_long(time) + key + _SEQUENCE.pack(other)
        return _pack_long(time) + key

    def decode(self, row: bytes) -> tuple[bytes, int, int]:
        """(key, start, sequence)."""
        if self._sequenced:
            return row[8:-4], _long_at(row, 0)[0], _SEQUENCE.unpack_from(row, len(row) - 4)[0]
        return row[8:], _long_at(row, 0)[0], 0

    def changelog_key(self, row: bytes) -> bytes:
        """Key, start, sequence."""
        if self._sequenced:
            return row[8:-4] + row[:8] + row[-4:]
        return row[8:] + row[:8] + b"\x00\x00\x00\x00"

    def from_changelog(self, key: bytes) -> bytes:
        """Start, key, and the sequence number if it is kept."""
        row = key[-12:-4] + key[:-12]
        return row + key[-4:] if self._sequenced else row


class TimeFirstSessionSchema(_TimeFirstSchema):
    """By end, then start, then key."""

    __slots__ = ("cache_bytes",)

    def __init__(self) -> None:
        self.cache_bytes = 8

    def encode(self, key: bytes, time: int, other: int) -> bytes:
        """End, start, key."""
        return _SESSION_TAIL.pack(time, other) + key

    def decode(self, row: bytes) -> tuple[bytes, int, int]:
        """(key, end, start)."""
        end, start = _SESSION_TAIL.unpack_from(row, 0)
        return row[16:], end, start

    def changelog_key(self, row: bytes) -> bytes:
        """Key, end, start."""
        return row[16:] + row[:16]

    def from_changelog(self, key: bytes) -> bytes:
        """End, start, key."""
        return key[-16:] + key[:-16]


class InMemorySessionSchema(_TimeFirstSchema):
    """By end, then key, then start from the largest down: the order of Kafka's nested maps.

    The key is escaped, so that it sorts as a whole before the start has a say.
    """

    __slots__ = ("cache_bytes",)

    def __init__(self) -> None:
        self.cache_bytes = 6

    def encode(self, key: bytes, time: int, other: int) -> bytes:
        """End, key with an end mark, inverted start."""
        escaped = key.replace(b"\x00", b"\x00\xff")
        return _pack_long(time) + escaped + b"\x00\x00" + _pack_long(MAX_TIME - other)

    def decode(self, row: bytes) -> tuple[bytes, int, int]:
        """(key, end, start)."""
        key = row[8:-10].replace(b"\x00\xff", b"\x00")
        return key, _long_at(row, 0)[0], MAX_TIME - _long_at(row, len(row) - 8)[0]

    def changelog_key(self, row: bytes) -> bytes:
        """Key, end, start."""
        key, end, start = self.decode(row)
        return key + _SESSION_TAIL.pack(end, start)

    def from_changelog(self, key: bytes) -> bytes:
        """End, escaped key, inverted start."""
        end, start = _SESSION_TAIL.unpack_from(key, len(key) - 16)
        return self.encode(key[:-16], end, start)


def rows_from_changelog(layout: KeySchema, keys: list[bytes]) -> list[bytes]:
    """The physical keys of many changelog records."""
    if core is not None and isinstance(layout, KeyFirstSchema):
        rows: list[bytes] = core.segmented_rows(keys, layout.time_at, layout.interval_ms)
        return rows
    return list(map(layout.from_changelog, keys))
