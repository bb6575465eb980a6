"""The older versions of one key in one segment, as one value.

The bytes are Kafka Streams' own: the time up to which the newest version is valid, the smallest
time, then (timestamp, size) of each version from the newest to the oldest with size -1 for a
deletion, then the values in the opposite order. A segment whose two times are equal is
*degenerate*: it records only that the key was deleted at that time.
"""

from __future__ import annotations

from struct import Struct

_TIMES = Struct(">qq")
_VERSION = Struct(">qi")
_long_at = Struct(">q").unpack_from


class SegmentValue:
    """Versions of a key, newest first. Each is valid up to the time of the version before it."""

    __slots__ = ("next_time", "versions")

    def __init__(self, next_time: int, versions: list[tuple[int, bytes | None]]) -> None:
        #: The time up to which the newest version is valid.
        self.next_time = next_time
        self.versions = versions

    @staticmethod
    def of(value: bytes | None, valid_from: int, valid_to: int) -> SegmentValue:
        """A segment with one version."""
        return SegmentValue(valid_to, [(valid_from, value)])

    @staticmethod
    def decode(data: bytes) -> SegmentValue:
        """Decode a stored segment."""
        next_time, min_time = _TIMES.unpack_from(data, 0)
        versions: list[tuple[int, bytes | None]] = []
        at = 16
        end = len(data)
        while True:
            time, size = _VERSION.unpack_from(data, at)
            at += 12
            if size < 0:
                versions.append((time, None))
            else:
                versions.append((time, data[end - size : end]))
                end -= size
            if time == min_time:
                return SegmentValue(next_time, versions)

    def encode(self) -> bytes:
        """Encode the segment for storage."""
        parts = [_TIMES.pack(self.next_time, self.min_time)]
        for time, value in self.versions:
            parts.append(_VERSION.pack(time, -1 if value is None else len(value)))
        parts += (value for _, value in reversed(self.versions) if value is not None)
        return b"".join(parts)

    @property
    def min_time(self) -> int:
        """The time of the oldest version."""
        return self.versions[-1][0]

    @property
    def is_degenerate(self) -> bool:
        """Whether the segment records only a deletion."""
        return self.next_time == self.min_time

    def find(self, time: int) -> tuple[int, int, int, bytes | None]:
        """(index, valid from, valid to, value) of the version that is valid at a time."""
        valid_to = self.next_time
        for index, (valid_from, value) in enumerate(self.versions):
            if valid_from <= time:
                return index, valid_from, valid_to, value
            valid_to = valid_from
        raise ValueError(f"The segment starts at {self.min_time}, after {time}.")

    def find_all(self, time_from: int, time_to: int) -> list[tuple[int, int, bytes]]:
        """(valid from, valid to, value) of versions valid in [from, to], newest first."""
        found = []
        valid_to = self.next_time
        for valid_from, value in self.versions:
            if value is not None and valid_from <= time_to and valid_to > time_from:
                found.append((valid_from, valid_to, value))
            valid_to = valid_from
        return found

    def add_latest(self, valid_from: int, valid_to: int, value: bytes | None) -> None:
        """Add a version that is newer than all others. A gap before it is a deletion."""
        if valid_from < self.next_time:
            self._truncate(valid_from)
        if self.next_time == valid_from:
            if self.is_degenerate:
                self.versions = [(valid_from, value)]
            else:
                self.versions.insert(0, (valid_from, value))
        else:
            if self.is_degenerate:
                self.versions = [(self.next_time, None)]
            else:
                self.versions.insert(0, (self.next_time, None))
            self.versions.insert(0, (valid_from, value))
        self.next_time = valid_to

    def add_earliest(self, time: int, value: bytes | None) -> None:
        """Add a version that is older than all others."""
        if self.is_degenerate:
            self.versions = [(time, value)]
        else:
            self.versions.append((time, value))

    def insert(self, index: int, time: int, value: bytes | None) -> None:
        """Insert a version before the version at an index."""
        self.versions.insert(index, (time, value))

    def replace(self, index: int, time: int, value: bytes | None) -> None:
        """Replace the version at an index."""
        self.versions[index] = (time, value)

    def _truncate(self, time: int) -> None:
        """Remove versions from a time on. An interrupted write has left them."""
        if time <= self.min_time:
            self.versions = [(time, None)]
        else:
            self.versions = [version for version in self.versions if version[0] < time]
        self.next_time = time


def next_time_of(data: bytes) -> int:
    """`SegmentValue.next_time`, without decoding the whole segment."""
    time: int = _long_at(data, 0)[0]
    return time


def min_time_of(data: bytes) -> int:
    """`SegmentValue.min_time`, without decoding the whole segment."""
    time: int = _long_at(data, 8)[0]
    return time
