"""The rows of a versioned store: the latest version of each key, and segments of older versions.

An older version is in the segment of its `valid_to` time, so a segment expires as a whole. Row
keys: 0, segment, key for older versions; 1, key for the latest version.
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

#: `put` returns this for a version that is the latest.
VALID_TO_UNDEFINED = -1
#: `put` returns this for a version that is older than the history retention.
NOT_PUT = -(2**63)

#: (value, valid from, valid to; None for the latest version)
Version = tuple[bytes, int, int | None]


class VersionedRows:
    """All versions of all keys, and the stream time that the store has observed."""

    def __init__(
        self, overlay: Overlay, history_ms: int, interval_ms: int, drop: Callable[[str], None]
    ) -> None:
        self._overlay = overlay
        self._history = history_ms
        self._interval = interval_ms
        self._drop = drop
        self._stream_time = -1
        #: The stream time of the restored changelog records.
        self._restored_time = -1

    def put(self, key: bytes, value: bytes | None, time: int) -> int:
        """Add a version. Returns its `valid_to` time, `VALID_TO_UNDEFINED` or `NOT_PUT`."""
        if time < self._stream_time - self._history:
            self._drop("expired put")
            return NOT_PUT
        return self._put(key, value, time)

    def delete(self, key: bytes, time: int) -> Version | None:
        """Add a deletion. Returns the version that was valid at that time."""
        if time < self._stream_time - self._history:
            self._drop("expired delete")
            return None
        existing = self.get_as_of(key, time)
        self._put(key, None, time)
        return existing

    def get(self, key: bytes) -> Version | None:
        """The latest version. It never expires."""
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
            _, valid_from, valid_to, value = SegmentValue.decode(data).find(time)
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
            # A version is in the segment of its end, so any segment can hold a matching one.
            for segment, data in self._segments_down(key, 0):
                if segment <= max(time_to, 0) // self._interval:
                    newest_first += (
                        (value, valid_from, valid_to)
                        for valid_from, valid_to, value
                        in SegmentValue.decode(data).find_all(time_from, time_to)
                    )
        return iter(newest_first if reverse else newest_first[::-1])

    def restore(self, key: bytes, value: bytes | None, time: int, headers: Headers) -> None:
        """Apply one changelog record as the store applied it originally.

        The check for expired versions therefore uses the stream time of the changelog up to this
        record, not the final stream time of the store.
        """
        final_time, self._stream_time = self._stream_time, self._restored_time
        if time >= self._stream_time - self._history:
            self._put(key, value, time)
        self._restored_time = self._stream_time
        self._stream_time = max(final_time, self._stream_time)

    def advance(self) -> None:
        """Apply the writes to the committed rows."""
        self._overlay.advance()

    def close(self) -> None:
        """Release the rows."""
        self._overlay.close()

    def clocks(self) -> dict[str, int]:
        """The observed stream time."""
        return {"stream_time": self._stream_time}

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Set the stream time of an earlier batch."""
        self._observe(clocks.get("stream_time", -1))

    def resume_restore(self, clocks: Mapping[str, int]) -> None:
        """Continue a restore at the stream time of the changelog's last restored record."""
        self._restored_time = max(self._restored_time, clocks.get("stream_time", -1))
        self._observe(self._restored_time)

    # ------------------------------------------------------------------ adding a version

    def _put(self, key: bytes, value: bytes | None, time: int) -> int:
        self._observe(time)
        latest = self._overlay.get(b"\x01" + key)
        next_time: int | None = None
        if latest is not None:
            latest_time: int = _long_at(latest, 0)[0]
            if time >= latest_time:
                self._replace_latest(key, latest, value, time)
                return VALID_TO_UNDEFINED
            next_time = latest_time
        for segment, data in self._segments_down(key, time):
            if next_time_of(data) <= time:
                break
            oldest = min_time_of(data)
            if oldest <= time:
                return self._put_in_segment(key, segment, data, value, time)
            if oldest < self._stream_time - self._history:
                return NOT_PUT
            next_time = oldest
        if next_time is None:
            return self._put_as_latest(key, value, time)
        return self._put_before(key, value, time, next_time)

    def _replace_latest(self, key: bytes, latest: bytes, value: bytes | None, time: int) -> None:
        latest_time: int = _long_at(latest, 0)[0]
        if time > latest_time:
            self._move_to_segment(key, latest[8:], latest_time, time)
        stored = None if value is None else _pack_long(time) + value
        self._overlay.put(b"\x01" + key, stored)

    def _move_to_segment(
        self, key: bytes, value: bytes | None, valid_from: int, valid_to: int
    ) -> None:
        """Put a version that is no longer the latest into the segment of its end."""
        segment = self._live_segment(valid_to)
        if segment is None:
            return
        data = self._overlay.get(segment + key)
        if data is None:
            versions = SegmentValue.of(value, valid_from, valid_to)
        else:
            versions = SegmentValue.decode(data)
            versions.add_latest(valid_from, valid_to, value)
        self._overlay.put(segment + key, versions.encode())

    def _put_in_segment(
        self, key: bytes, segment: int, data: bytes, value: bytes | None, time: int
    ) -> int:
        """Put a version between the versions of a segment."""
        row_key = b"\x00" + _pack_long(segment) + key
        versions = SegmentValue.decode(data)
        index, valid_from, valid_to, existing = versions.find(time)
        if valid_from == time:
            versions.replace(index, time, value)
        elif time // self._interval != segment:
            # The existing version now ends in an older segment and moves there.
            self._move_to_segment(key, existing, valid_from, time)
            versions.replace(index, time, value)
        else:
            versions.insert(index, time, value)
        self._overlay.put(row_key, versions.encode())
        return valid_to

    def _put_as_latest(self, key: bytes, value: bytes | None, time: int) -> int:
        """Put the latest version, or a deletion at the end: no newer version exists."""
        if value is not None:
            self._overlay.put(b"\x01" + key, _pack_long(time) + value)
            return VALID_TO_UNDEFINED
        segment = self._live_segment(time)
        if segment is None:
            return NOT_PUT
        data = self._overlay.get(segment + key)
        if data is None:
            versions = SegmentValue.of(None, time, time)
        elif next_time_of(data) == time:
            return VALID_TO_UNDEFINED
        else:
            versions = SegmentValue.decode(data)
            versions.add_latest(versions.next_time, time, None)
        self._overlay.put(segment + key, versions.encode())
        return VALID_TO_UNDEFINED

    def _put_before(self, key: bytes, value: bytes | None, time: int, next_time: int) -> int:
        """Put a version that is valid up to the next version, at `next_time`."""
        segment = self._live_segment(next_time)
        if segment is None:
            return NOT_PUT
        data = self._overlay.get(segment + key)
        if data is None:
            versions = SegmentValue.of(value, time, next_time)
        else:
            versions = SegmentValue.decode(data)
            if versions.next_time <= time:
                versions.add_latest(time, next_time, value)
            else:
                versions.add_earliest(time, value)
        self._overlay.put(segment + key, versions.encode())
        return next_time

    def _observe(self, time: int) -> None:
        if time > self._stream_time:
            self._stream_time = time
            oldest = max(0, time - self._history) // self._interval
            if oldest > 0:
                self._overlay.drop_below(b"\x00" + _pack_long(oldest))

    def _live_segment(self, time: int) -> bytes | None:
        """The row key prefix of the segment of a time; None if it has expired."""
        segment = time // self._interval
        if segment < max(0, self._stream_time - self._history) // self._interval:
            return None
        return b"\x00" + _pack_long(segment)

    def _segments_down(self, key: bytes, time: int) -> Iterator[tuple[int, bytes]]:
        """The live segments that hold the key, from the newest down to the segment of a time."""
        get = self._overlay.get
        oldest = max(0, time, self._stream_time - self._history) // self._interval
        newest = min(self._stream_time, MAX_TIME) // self._interval
        for segment in range(newest, oldest - 1, -1):
            data = get(b"\x00" + _pack_long(segment) + key)
            if data is not None:
                yield segment, data
