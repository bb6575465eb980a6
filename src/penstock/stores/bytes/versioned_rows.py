"""Versions of keys, over bytes: the latest value of each key, and segments of older ones.

A version lies in the segment of the time up to which it is valid, so a segment as a whole is
older than the history that is kept, once it is. Physical keys: 0, segment, key for older versions;
1, key for the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from struct import Struct

from penstock.record import Headers
from penstock.stores.bytes.key_schema import MAX_TIME
from penstock.stores.bytes.overlay import Overlay
from penstock.stores.bytes.versioned_segment import SegmentValue, min_time_of, next_time_of

_LONG = Struct(">q")
_pack_long = _LONG.pack
_long_at = _LONG.unpack_from

#: What `put` answers when the version is the latest one.
PUT_LATEST = -1
#: What `put` answers when the version is older than the history that is kept.
PUT_REFUSED = -(2**63)

#: (value, valid from, valid to; None: it is the latest)
Version = tuple[bytes, int, int | None]


class VersionedRows:
    """The truth about all versions, with the stream time that this store has observed."""

    def __init__(
        self, overlay: Overlay, history_ms: int, interval_ms: int, drop: Callable[[str], None]
    ) -> None:
        self._overlay = overlay
        self._history = history_ms
        self._interval = interval_ms
        self._drop = drop
        self._stream_time = -1
        #: What the changelog has shown so far.
        self._restored_time = -1

    def put(self, key: bytes, value: bytes | None, time: int) -> int:
        """Add a version; the time up to which it is valid, or one of the codes."""
        if time < self._stream_time - self._history:
            self._drop("Skipping record for expired put.")
            return PUT_REFUSED
        return self._put(key, value, time)

    def delete(self, key: bytes, time: int) -> Version | None:
        """Add a deletion; the version that was valid at that time."""
        if time < self._stream_time - self._history:
            self._drop("Skipping record for expired delete.")
            return None
        existing = self.get_as_of(key, time)
        self._put(key, None, time)
        return existing

    def get(self, key: bytes) -> Version | None:
        """The latest version; it never expires."""
        latest = self._overlay.get(b"\x01" + key)
        return None if latest is None else (latest[8:], _long_at(latest, 0)[0], None)

    def get_as_of(self, key: bytes, time: int) -> Version | None:
        """The version that was valid at a time."""
        latest = self.get(key)
        if latest is not None and latest[1] <= time:
            return latest
        if time < self._stream_time - self._history:
            return None
        for _, data in self._segments_down(key, time):
            if next_time_of(data) <= time:
                return None
            if min_time_of(data) > time:
                continue
            _, valid_from, valid_to, value = SegmentValue.read(data).find(time)
            return None if value is None else (value, valid_from, valid_to)
        return None

    def versions(
        self, key: bytes, time_from: int, time_to: int, reverse: bool
    ) -> Iterator[Version]:
        """All versions valid at some time in [from, to], oldest first unless reversed."""
        latest = self.get(key)
        newest_first: list[Version] = []
        if latest is not None and latest[1] <= time_to:
            newest_first.append(latest)
        if time_to >= self._stream_time - self._history:
            # A version is in the segment of its end: one that is valid now may be in any segment.
            for segment, data in self._segments_down(key, 0):
                if segment <= max(time_to, 0) // self._interval:
                    newest_first += (
                        (value, valid_from, valid_to)
                        for valid_from, valid_to, value
                        in SegmentValue.read(data).find_all(time_from, time_to)
                    )
        return iter(newest_first if reverse else newest_first[::-1])

    def restore(self, key: bytes, value: bytes | None, time: int, headers: Headers) -> None:
        """Take a version from the changelog, as it was taken when it was written.

        What was too old then is left out silently, so the time observed so far is that of the
        changelog, not the one that the store had reached in the end.
        """
        failpoint, self._stream_time = self._stream_time, self._restored_time
        if time >= self._stream_time - self._history:
            self._put(key, value, time)
        self._restored_time = self._stream_time
        self._stream_time = max(failpoint, self._stream_time)

    def advance(self) -> None:
        """The writes are committed."""
        self._overlay.advance()

    def close(self) -> None:
        """Release the rows."""
        self._overlay.close()

    def count(self) -> int:
        """How many rows there are, roughly."""
        return self._overlay.count()

    def clocks(self) -> dict[str, int]:
        """The observed stream time."""
        return {"stream_time": self._stream_time}

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Go on from an observed stream time."""
        self._observe(clocks.get("stream_time", -1))

    def resume_restore(self, clocks: Mapping[str, int]) -> None:
        """The stream time that the changelog had shown when its last record was restored."""
        self._restored_time = max(self._restored_time, clocks.get("stream_time", -1))
        self._observe(self._restored_time)

    def latest(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, Version]]:
        """The latest versions of a range of keys, in order."""
        low = b"\x01" + (start or b"")
        high = b"\x02" if end is None else b"\x01" + end
        for row, data in self._overlay.scan(low, high):
            yield row[1:], (data[8:], _long_at(data, 0)[0], None)

    # ------------------------------------------------------------------ how a version is put

    def _put(self, key: bytes, value: bytes | None, time: int) -> int:
        self._observe(time)
        latest = self._overlay.get(b"\x01" + key)
        found: int | None = None
        if latest is not None:
            latest_time: int = _long_at(latest, 0)[0]
            if time >= latest_time:
                self._replace_latest(key, latest, value, time)
                return PUT_LATEST
            found = latest_time
        for segment, data in self._segments_down(key, time):
            if next_time_of(data) <= time:
                break
            oldest = min_time_of(data)
            if oldest <= time:
                return self._put_in_segment(key, segment, data, value, time)
            if oldest < self._stream_time - self._history:
                return PUT_REFUSED
            found = oldest
        if found is None:
            return self._put_as_latest(key, value, time)
        return self._put_before(key, value, time, found)

    def _replace_latest(self, key: bytes, latest: bytes, value: bytes | None, time: int) -> None:
        latest_time: int = _long_at(latest, 0)[0]
        if time > latest_time:
            self._move_down(key, latest[8:], latest_time, time)
        stored = None if value is None else _pack_long(time) + value
        self._overlay.put(b"\x01" + key, stored)

    def _move_down(
        self, key: bytes, value: bytes | None, valid_from: int, valid_to: int
    ) -> None:
        """Put a version that is no longer the newest into the segment of its end."""
        segment = self._live_segment(valid_to)
        if segment is None:
            return
        data = self._overlay.get(segment + key)
        if data is None:
            moved = SegmentValue.of(value, valid_from, valid_to)
        else:
            moved = SegmentValue.read(data)
            moved.add_latest(valid_from, valid_to, value)
        self._overlay.put(segment + key, moved.write())

    def _put_in_segment(
        self, key: bytes, segment: int, data: bytes, value: bytes | None, time: int
    ) -> int:
        """Put a version between those of a segment."""
        row = b"\x00" + _pack_long(segment) + key
        versions = SegmentValue.read(data)
        index, valid_from, valid_to, existing = versions.find(time)
        if valid_from == time:
            versions.replace(index, time, value)
        elif time // self._interval != segment:
            # The existing version now ends in an older segment, and has to go there.
            self._move_down(key, existing, valid_from, time)
            versions.replace(index, time, value)
        else:
            versions.insert(index, time, value)
        self._overlay.put(row, versions.write())
        return valid_to

    def _put_as_latest(self, key: bytes, value: bytes | None, time: int) -> int:
        """Nothing newer is known: the version is the latest, or a deletion at the end."""
        if value is not None:
            self._overlay.put(b"\x01" + key, _pack_long(time) + value)
            return PUT_LATEST
        segment = self._live_segment(time)
        if segment is None:
            return PUT_REFUSED
        data = self._overlay.get(segment + key)
        if data is None:
            versions = SegmentValue.of(None, time, time)
        elif next_time_of(data) == time:
            return PUT_LATEST
        else:
            versions = SegmentValue.read(data)
            versions.add_latest(versions.next_time, time, None)
        self._overlay.put(segment + key, versions.write())
        return PUT_LATEST

    def _put_before(self, key: bytes, value: bytes | None, time: int, found: int) -> int:
        """Put a version that is valid up to the next one known, at `found`."""
        segment = self._live_segment(found)
        if segment is None:
            return PUT_REFUSED
        data = self._overlay.get(segment + key)
        if data is None:
            versions = SegmentValue.of(value, time, found)
        else:
            versions = SegmentValue.read(data)
            if versions.next_time <= time:
                versions.add_latest(time, found, value)
            else:
                versions.add_earliest(time, value)
        self._overlay.put(segment + key, versions.write())
        return found

    def _observe(self, time: int) -> None:
        if time > self._stream_time:
            self._stream_time = time
            oldest = max(0, time - self._history) // self._interval
            if oldest > 0:
                self._overlay.drop_below(b"\x00" + _pack_long(oldest))

    def _live_segment(self, time: int) -> bytes | None:
        """The prefix of the segment of a time; None if it has expired."""
        segment = time // self._interval
        if segment < max(0, self._stream_time - self._history) // self._interval:
            return None
        return b"\x00" + _pack_long(segment)

    def _segments_down(self, key: bytes, time: int) -> Iterator[tuple[int, bytes]]:
        """The live segments that have the key, from the newest to that of a time."""
        get = self._overlay.get
        oldest = max(0, time, self._stream_time - self._history) // self._interval
        newest = min(self._stream_time, MAX_TIME) // self._interval
        for segment in range(newest, oldest - 1, -1):
            data = get(b"\x00" + _pack_long(segment) + key)
            if data is not None:
                yield segment, data
