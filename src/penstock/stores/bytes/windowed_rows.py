"""The lowest layer of window and session stores: expiry, scans by key and time, the index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.native import core
from penstock.stores.bytes.key_schema import (
    ByteRanges,
    KeyFirstSchema,
    KeySchema,
    WindowRange,
    row_filter,
)
from penstock.stores.bytes.overlay import Overlay
from penstock.stores.bytes.rows import PutAll, Row
from penstock.stores.bytes.value_formats import Converter, Converters

_EXPIRED = "expired segment"


@dataclass(frozen=True, slots=True)
class Retention:
    """When the rows of a window or session store expire.

    With a segment interval, rows expire and puts are refused by whole segments, and a put of null
    counts as a put. Without one, both are exact to the millisecond. Reads never return a row whose
    time is below stream time - retention + edge.
    """

    retention_ms: int
    #: None: expiry is exact.
    interval_ms: int | None
    edge: int = 1
    retain_duplicates: bool = False


@dataclass(frozen=True, slots=True)
class RowIndex:
    """An index by key of rows that are ordered by time. Every row has an entry without a value."""

    key_schema: KeyFirstSchema
    overlay: Overlay


class WindowedRows:
    """The rows of a window or session store, and the stream time that it has observed.

    The stream time is -1 before the first row. With an index, scans for keys use the index; every
    row and its index entry are written together.
    """

    # Native code finds the stream time in its slot.
    __slots__ = ("__dict__", "stream_time")

    def __init__(
        self, key_schema: KeySchema, overlay: Overlay, retention: Retention, *,
        drop: Callable[[str], None], converters: Converters | None = None,
        index: RowIndex | None = None,
    ) -> None:
        self.key_schema = key_schema
        self.overlay = overlay
        self.stream_time = -1
        self._retention = retention
        self._drop = drop
        self._to_kept: Converter | None = None
        self._from_kept: Converter | None = None
        if converters is not None:
            self._to_kept, self._from_kept = converters
        self._index = index
        #: Exact expiry has segments of 1 ms.
        self._interval = retention.interval_ms or 1
        #: Segments below this one have expired.
        self._first_segment = 0
        self.put_all: PutAll | None = None
        self.get = self._get
        if converters is None and core is not None:
            reach = retention.retention_ms - retention.edge
            self.get = core.timed_get(self, overlay.get, key_schema.time_at, reach)
        if converters is None and index is None and not retention.retain_duplicates:
            self.put = self._put_simple
            self.put_all = self._put_all_simple
        else:
            self.put = self._put

    #: The stored value; None if the row does not exist or has expired.
    get: Callable[[bytes], bytes | None]

    def _get(self, row_key: bytes) -> bytes | None:
        retention = self._retention
        oldest = self.stream_time - retention.retention_ms + retention.edge
        if self.key_schema.time_of(row_key) < oldest:
            return None
        value = self.overlay.get(row_key)
        return value if value is None or self._from_kept is None else self._from_kept(value)

    put: Callable[[bytes, bytes | None], None]

    def _put(self, row_key: bytes, value: bytes | None) -> None:
        """Write a row. An expired row is not written and counts as a dropped record.

        With duplicates, a deletion has no effect; only exact expiry checks its time.
        """
        retention = self._retention
        ignored = value is None and retention.retain_duplicates
        if ignored and retention.interval_ms is not None:
            return
        if not self._is_live(row_key):
            self._drop(_EXPIRED)
        elif not ignored:
            if value is not None and self._to_kept is not None:
                value = self._to_kept(value)
            self._write(row_key, value)

    def _put_simple(self, row_key: bytes, value: bytes | None) -> None:
        """`_put` without conversion, index and duplicates."""
        time = self.key_schema.time_of(row_key)
        if time > self.stream_time:
            self.stream_time = time
            self._expire()
        if time // self._interval >= self._first_segment:
            self.overlay.put(row_key, value)
        else:
            self._drop(_EXPIRED)

    def _put_all_simple(self, row_keys: list[bytes], values: list[bytes]) -> None:
        if not row_keys:
            return
        first, last = self._times(row_keys)
        # If all rows are live at the end, none of them was expired when it was put.
        if first // self._interval >= self._first_live_segment(max(last, self.stream_time)):
            if last > self.stream_time:
                self.stream_time = last
                self._expire()
            self.overlay.put_all(row_keys, values)
            return
        time_of, interval = self.key_schema.time_of, self._interval
        live_keys: list[bytes] = []
        live_values: list[bytes] = []
        for row_key, value in zip(row_keys, values, strict=True):
            time = time_of(row_key)
            if time > self.stream_time:
                self.stream_time = time
                self._expire()
            if time // interval >= self._first_segment:
                live_keys.append(row_key)
                live_values.append(value)
            else:
                self._drop(_EXPIRED)
        self.overlay.put_all(live_keys, live_values)

    def remove(self, row_key: bytes) -> None:
        """Delete a row. It never counts as dropped; exact expiry does not check its time."""
        if self._retention.interval_ms is None or self._is_live(row_key):
            self._write(row_key, None)

    def scan(self, bounds: WindowRange, reverse: bool) -> Iterator[Row]:
        """The rows within the bounds that have not expired."""
        retention = self._retention
        oldest = self.stream_time - retention.retention_ms + retention.edge
        if not bounds.hide_expired:
            oldest = self._first_segment * self._interval
        if oldest > bounds.time_from:
            bounds = bounds._replace(time_from=oldest)
        if self._index is not None and self._uses_index(bounds):
            return self._scan_index(self._index, bounds, reverse)
        ranges = self.key_schema.ranges(bounds, oldest, self.stream_time)
        return self._convert(_filter_scan(self.key_schema, self.overlay, bounds, ranges, reverse))

    def restore(self, row_key: bytes, value: bytes | None) -> None:
        """Write a row whose value has the kept format already. An expired row is ignored.

        A logged deletion does not move the stream time: its put may not have moved it either.
        """
        if value is not None:
            live = self._is_live(row_key)
        else:
            live = self.key_schema.time_of(row_key) // self._interval >= self._first_segment
            live = live and not self._retention.retain_duplicates
        if live:
            self._write(row_key, value)

    def restore_all(self, row_keys: list[bytes], values: Sequence[bytes | None]) -> None:
        """Write many rows.

        One check at the end is enough: a row that is expired when it arrives is expired at the end
        too, and the last value of a row key wins. The time of a row counts even if the row is
        deleted later.
        """
        written = row_keys
        if None in values:
            written = [
                row_key for row_key, value in zip(row_keys, values, strict=True)
                if value is not None
            ]
        final = dict(zip(row_keys, values, strict=True))
        if self._retention.retain_duplicates and written is not row_keys:
            final = {
                row_key: value for row_key, value in zip(row_keys, values, strict=True)
                if value is not None
            }
        oldest = 0
        if written:
            oldest, latest = self._times(written)
            self.stream_time = max(self.stream_time, latest)
            self._expire()
        first_live_time = self._first_segment * self._interval
        if oldest < first_live_time:
            lowest = self.key_schema.lower_bound(first_live_time)
            final = {row_key: value for row_key, value in final.items() if row_key >= lowest}
        self.overlay.restore(final)
        if self._index is not None:
            encode, decode = self._index.key_schema.encode, self.key_schema.decode
            self._index.overlay.restore({
                encode(*decode(row_key)): None if value is None else b""
                for row_key, value in final.items()
            })

    def advance(self) -> None:
        """Apply the writes to the committed rows and delete expired rows."""
        self.overlay.advance()
        if self._index is not None:
            self._index.overlay.advance()

    def close(self) -> None:
        """Release the rows."""
        self.overlay.close()
        if self._index is not None:
            self._index.overlay.close()

    def clocks(self) -> dict[str, int]:
        """The observed stream time."""
        return {"stream_time": self.stream_time}

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Set the stream time of an earlier batch."""
        self.stream_time = max(self.stream_time, clocks.get("stream_time", -1))
        self._expire()

    def _uses_index(self, bounds: WindowRange) -> bool:
        """Whether a scan uses the index. In memory, a range of keys is read in order of time."""
        if self._retention.interval_ms is None:
            return bounds.is_single_key
        return bounds.key_from is not None or bounds.key_to is not None

    def _is_live(self, row_key: bytes) -> bool:
        """Observe the time of a row; returns whether the row has not expired."""
        time = self.key_schema.time_of(row_key)
        if time > self.stream_time:
            self.stream_time = time
            self._expire()
        return time // self._interval >= self._first_segment

    def _times(self, row_keys: list[bytes]) -> tuple[int, int]:
        """The smallest and the largest time of some rows."""
        if core is not None:
            first, last = core.times_of_rows(row_keys, self.key_schema.time_at)
            return first, last
        times = [self.key_schema.time_of(row_key) for row_key in row_keys]
        return min(times), max(times)

    def _first_live_segment(self, stream_time: int) -> int:
        """The first segment that has not expired at a stream time."""
        retention = self._retention
        oldest = stream_time - retention.retention_ms
        if retention.interval_ms is None:
            oldest += 1
        return max(self._first_segment, max(0, oldest) // self._interval)

    def _expire(self) -> None:
        first = self._first_live_segment(self.stream_time)
        if first > self._first_segment:
            self._first_segment = first
            time = first * self._interval
            self.overlay.drop_below(self.key_schema.lower_bound(time))
            if self._index is not None:
                self._index.overlay.drop_below(self._index.key_schema.lower_bound(time))

    def _write(self, row_key: bytes, value: bytes | None) -> None:
        self.overlay.put(row_key, value)
        index = self._index
        if index is not None:
            entry = index.key_schema.encode(*self.key_schema.decode(row_key))
            index.overlay.put(entry, None if value is None else b"")

    def _scan_index(self, index: RowIndex, bounds: WindowRange, reverse: bool) -> Iterator[Row]:
        ranges = index.key_schema.ranges(bounds, bounds.time_from, self.stream_time)
        entries = _filter_scan(index.key_schema, index.overlay, bounds, ranges, reverse)
        return self._convert(self._indexed_rows(index.key_schema, entries))

    def _indexed_rows(
        self, index_schema: KeyFirstSchema, entries: Iterator[Row]
    ) -> Iterator[Row]:
        get = self.overlay.get
        encode = self.key_schema.encode
        for entry, _ in entries:
            row_key = encode(*index_schema.decode(entry))
            value = get(row_key)
            if value is not None:
                yield row_key, value

    def _convert(self, rows: Iterator[Row]) -> Iterator[Row]:
        convert = self._from_kept
        return rows if convert is None else ((key, convert(value)) for key, value in rows)


def _filter_scan(
    key_schema: KeySchema, overlay: Overlay, bounds: WindowRange, ranges: ByteRanges, reverse: bool
) -> Iterator[Row]:
    """The rows of an overlay that are in one of the ranges and within the bounds."""
    if reverse:
        ranges = ranges[::-1]
    # The scans start now, not with the first row, so they return the rows of this moment.
    scans = [overlay.scan(start, end, reverse) for start, end in ranges]
    matches = row_filter(key_schema, bounds)
    return (row for scan in scans for row in scan if matches(row[0]))
