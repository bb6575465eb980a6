"""The stores proper, over bytes: what is kept, what has expired, what a scan shows.

Each class here is the innermost layer of one kind of store and owns its overlay. Above it stand,
each written once, the changelog (`changelog.py`) and the cache (`caching.py`), with the same
methods, and the typed facade.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from penstock.native import core
from penstock.stores.bytes.key_schema import (
    KeyFirstSchema,
    KeySchema,
    Ranges,
    WindowRange,
    selector,
)
from penstock.stores.bytes.overlay import Overlay
from penstock.stores.bytes.value_formats import Convert

#: (physical key, stored value)
Row = tuple[bytes, bytes]


class KeyRange(NamedTuple):
    """A question to a key-value store: start <= key < end, None is open."""

    start: bytes | None
    end: bytes | None


#: Writes many rows: keys and values.
PutAll = Callable[[list[bytes], list[bytes]], None]


class Rows(Protocol):
    """What all layers below the facade can do. Keys are physical, values stored ones."""

    def get(self, row: bytes) -> bytes | None:
        """The stored value."""
        ...

    def put(self, row: bytes, value: bytes | None) -> None:
        """Write a row; None deletes it."""
        ...

    def remove(self, row: bytes) -> None:
        """Delete a session."""
        ...

    def scan(self, span: Any, reverse: bool) -> Iterator[Row]:
        """The rows of a `KeyRange` or `WindowRange`, in their order."""
        ...


class KeyValueRows:
    """Rows by key, nothing expires."""

    def __init__(self, overlay: Overlay, convert: tuple[Convert, Convert] | None = None) -> None:
        self.overlay = overlay
        self._down: Convert | None = None
        self._up: Convert | None = None
        #: Writes many rows that are not deletions at once, where that is the same.
        self.put_all: PutAll | None = None
        if convert is None:
            self.get = overlay.get
            self.put = overlay.put
            self.put_all = overlay.put_all
        else:
            self._down, self._up = convert
            self.get = self._get_converted
            self.put = self._put_converted

    get: Callable[[bytes], bytes | None]
    put: Callable[[bytes, bytes | None], None]

    def remove(self, row: bytes) -> None:
        """Delete a row."""
        self.put(row, None)

    def scan(self, span: KeyRange, reverse: bool) -> Iterator[Row]:
        """The rows of a key range."""
        rows = self.overlay.scan(span.start, span.end, reverse)
        up = self._up
        return rows if up is None else ((key, up(value)) for key, value in rows)

    def restore(self, row: bytes, value: bytes | None) -> None:
        """Take a row, already in the form that is kept."""
        self.overlay.put(row, value)

    def restore_all(self, rows: Iterable[bytes], values: Iterable[bytes | None]) -> None:
        """Take many rows; of several for one key the last one counts."""
        self.overlay.restore(dict(zip(rows, values, strict=True)))

    def advance(self) -> None:
        """The writes are committed."""
        self.overlay.advance()

    def close(self) -> None:
        """Release the rows."""
        self.overlay.close()

    def clocks(self) -> dict[str, int]:
        """A key-value store observes no time."""
        return {}

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """A key-value store observes no time."""

    def _get_converted(self, row: bytes) -> bytes | None:
        value = self.overlay.get(row)
        return value if value is None or self._up is None else self._up(value)

    def _put_converted(self, row: bytes, value: bytes | None) -> None:
        self.overlay.put(row, value if value is None or self._down is None else self._down(value))


class LruRows(KeyValueRows):
    """Keeps the most recently read or written keys; the eldest one goes when there are too many.

    `_order` holds every key there is, eldest first; it goes from batch to batch as the store's
    clocks, since reads change it and a changelog does not tell them. `on_evict` hears of a key
    that goes.
    """

    def __init__(self, overlay: Overlay, max_entries: int) -> None:
        super().__init__(overlay)
        self._max_entries = max_entries
        self._order: OrderedDict[bytes, None] = OrderedDict(
            (key, None) for key, _ in overlay.scan(None, None)
        )
        #: Set once the order is that of an earlier batch: then it says which keys there are.
        self._ordered = False
        self.on_evict: Callable[[bytes], None] | None = None
        self.get = self._get_recent
        self.put = self._put_recent
        self.put_all = None

    def restore(self, row: bytes, value: bytes | None) -> None:
        """Take a row; what goes for it is not logged."""
        if self._ordered:
            self.overlay.put(row, value if row in self._order else None)
            return
        on_evict, self.on_evict = self.on_evict, None
        self._put_recent(row, value)
        self.on_evict = on_evict

    def restore_all(self, rows: Iterable[bytes], values: Iterable[bytes | None]) -> None:
        """Take many rows, in order."""
        for row, value in zip(rows, values, strict=True):
            self.restore(row, value)

    def clocks(self) -> dict[str, int]:
        """Every key, as text of its bytes, and its place in the order of use."""
        return {row.decode("latin-1"): place for place, row in enumerate(self._order)}

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Go on with the order of an earlier batch; a row that is not in it had gone by then."""
        order = OrderedDict.fromkeys(
            row.encode("latin-1") for row in sorted(clocks, key=clocks.__getitem__)
        )
        for row in self._order.keys() - order.keys():
            self.overlay.put(row, None)
        self._order = order
        self._ordered = True

    def _get_recent(self, row: bytes) -> bytes | None:
        value = self.overlay.get(row)
        if value is not None:
            self._order.move_to_end(row)
        return value

    def _put_recent(self, row: bytes, value: bytes | None) -> None:
        order = self._order
        self.overlay.put(row, value)
        if value is None:
            order.pop(row, None)
            return
        order[row] = None
        order.move_to_end(row)
        if len(order) > self._max_entries:
            eldest, _ = order.popitem(last=False)
            if self.on_evict is not None:
                self.on_evict(eldest)
            self.overlay.put(eldest, None)


@dataclass(frozen=True, slots=True)
class Retention:
    """When rows of a window or session store expire.

    With a segment interval rows go, and puts are refused, by whole segments, and a put of null is
    a put; without one both are exact to the millisecond. Reads never show a row whose time is
    below stream time - retention + edge.
    """

    retention_ms: int
    interval_ms: int | None
    edge: int = 1
    retain_duplicates: bool = False


class WindowedRows:
    """Windows or sessions, with the stream time this store has observed (-1: none).

    With an index (rows by key first, beside rows by time first) questions about keys are answered
    from the index; every row has its index entry, written together with it.
    """

    # The time has a slot of its own, where native code finds it.
    __slots__ = ("__dict__", "stream_time")

    def __init__(
        self, layout: KeySchema, overlay: Overlay, retention: Retention, *,
        drop: Callable[[str], None], convert: tuple[Convert, Convert] | None = None,
        index: tuple[KeyFirstSchema, Overlay] | None = None,
    ) -> None:
        self.layout = layout
        self.overlay = overlay
        self.stream_time = -1
        self._retention = retention
        self._drop = drop
        self._down: Convert | None = None
        self._up: Convert | None = None
        if convert is not None:
            self._down, self._up = convert
        self._index = index
        self._interval = retention.interval_ms or 1
        #: Segments below this one are gone; exact expiry has segments of 1 ms.
        self._first_segment = 0
        self.put_all: PutAll | None = None
        self.get = self._get
        if convert is None and core is not None:
            reach = retention.retention_ms - retention.edge
            self.get = core.timed_get(self, overlay.get, layout.time_at, reach)
        if convert is None and index is None and not retention.retain_duplicates:
            self.put = self._put_plainly
            self.put_all = self._put_all_plainly
        else:
            self.put = self._put

    #: The stored value, None if it is past retention.
    get: Callable[[bytes], bytes | None]

    def _get(self, row: bytes) -> bytes | None:
        retention = self._retention
        if self.layout.time(row) < self.stream_time - retention.retention_ms + retention.edge:
            return None
        value = self.overlay.get(row)
        return value if value is None or self._up is None else self._up(value)

    put: Callable[[bytes, bytes | None], None]

    def _put(self, row: bytes, value: bytes | None) -> None:
        """Write a row, unless it is too old, which counts as a dropped record.

        A deletion means nothing where duplicates are kept; only an exact store looks at its time.
        """
        retention = self._retention
        ignored = value is None and retention.retain_duplicates
        if ignored and retention.interval_ms is not None:
            return
        if not self._is_live(row):
            self._drop("Skipping record for expired segment.")
        elif not ignored:
            if value is not None and self._down is not None:
                value = self._down(value)
            self._write(row, value)

    def _put_plainly(self, row: bytes, value: bytes | None) -> None:
        """The same where nothing is converted, indexed or kept twice."""
        time = self.layout.time(row)
        if time > self.stream_time:
            self.stream_time = time
            self._expire()
        if time // self._interval >= self._first_segment:
            self.overlay.put(row, value)
        else:
            self._drop("Skipping record for expired segment.")

    def _put_all_plainly(self, rows: list[bytes], values: list[bytes]) -> None:
        if not rows:
            return
        first, last = self._times(rows)
        # What is live when the last of them has been observed was live before.
        if first // self._interval >= self._first_live(max(last, self.stream_time)):
            if last > self.stream_time:
                self.stream_time = last
                self._expire()
            self.overlay.put_all(rows, values)
            return
        time_of, interval = self.layout.time, self._interval
        live_rows: list[bytes] = []
        live_values: list[bytes] = []
        for row, value in zip(rows, values, strict=True):
            time = time_of(row)
            if time > self.stream_time:
                self.stream_time = time
                self._expire()
            if time // interval >= self._first_segment:
                live_rows.append(row)
                live_values.append(value)
            else:
                self._drop("Skipping record for expired segment.")
        self.overlay.put_all(live_rows, live_values)

    def remove(self, row: bytes) -> None:
        """Delete a row; never counts as dropped. An exact store does not look at its time."""
        if self._retention.interval_ms is None or self._is_live(row):
            self._write(row, None)

    def scan(self, span: WindowRange, reverse: bool) -> Iterator[Row]:
        """The rows of a span that are not past retention."""
        retention = self._retention
        live = self.stream_time - retention.retention_ms + retention.edge
        if not span.clipped:
            live = self._first_segment * self._interval
        if live > span.time_from:
            span = span._replace(time_from=live)
        if self._index is not None and self._by_key(span):
            return self._scan_index(span, reverse)
        ranges = self.layout.ranges(span, live, self.stream_time)
        return self._converted(_selected(self.layout, self.overlay, span, ranges, reverse))

    def restore(self, row: bytes, value: bytes | None) -> None:
        """Take a row, already in the form that is kept; what is too old is left out silently.

        A deletion that was logged need not have been observed when it was made.
        """
        if value is not None:
            live = self._is_live(row)
        else:
            live = self.layout.time(row) // self._interval >= self._first_segment
            live = live and not self._retention.retain_duplicates
        if live:
            self._write(row, value)

    def restore_all(self, rows: list[bytes], values: Sequence[bytes | None]) -> None:
        """Take many rows.

        What is too old when it comes has expired at the end, too, and of several rows for one key
        the last one counts: so it is enough to look once at all of them. The time of a row counts
        even if the row is deleted again.
        """
        written = rows
        if None in values:
            written = [
                row for row, value in zip(rows, values, strict=True) if value is not None
            ]
        last = dict(zip(rows, values, strict=True))
        if self._retention.retain_duplicates and written is not rows:
            last = {
                row: value for row, value in zip(rows, values, strict=True) if value is not None
            }
        oldest = 0
        if written:
            oldest, latest = self._times(written)
            self.stream_time = max(self.stream_time, latest)
            self._expire()
        first = self._first_segment * self._interval
        if oldest < first:
            floor = self.layout.floor(first)
            last = {row: value for row, value in last.items() if row >= floor}
        self.overlay.restore(last)
        if self._index is not None:
            layout, overlay = self._index
            encode, decode = layout.encode, self.layout.decode
            overlay.restore({
                encode(*decode(row)): None if value is None else b""
                for row, value in last.items()
            })

    def advance(self) -> None:
        """The writes are committed, and what has expired goes."""
        self.overlay.advance()
        if self._index is not None:
            self._index[1].advance()

    def close(self) -> None:
        """Release the rows."""
        self.overlay.close()
        if self._index is not None:
            self._index[1].close()

    def clocks(self) -> dict[str, int]:
        """The observed stream time."""
        return {"stream_time": self.stream_time}

    def set_clocks(self, clocks: Mapping[str, int]) -> None:
        """Go on from an observed stream time."""
        self.stream_time = max(self.stream_time, clocks.get("stream_time", -1))
        self._expire()

    def _by_key(self, span: WindowRange) -> bool:
        """Whether the index answers; in memory, several keys come by time all the same."""
        if self._retention.interval_ms is None:
            return span.one_key
        return span.key_from is not None or span.key_to is not None

    def _is_live(self, row: bytes) -> bool:
        """Whether a row is young enough to be written; its time is observed."""
        time = self.layout.time(row)
        if time > self.stream_time:
            self.stream_time = time
            self._expire()
        return time // self._interval >= self._first_segment

    def _times(self, rows: list[bytes]) -> tuple[int, int]:
        """The smallest and the largest time of some rows."""
        if core is not None:
            first, last = core.times_of_rows(rows, self.layout.time_at)
            return first, last
        times = [self.layout.time(row) for row in rows]
        return min(times), max(times)

    def _first_live(self, stream_time: int) -> int:
        """The first segment that is there at a stream time."""
        retention = self._retention
        oldest = stream_time - retention.retention_ms
        if retention.interval_ms is None:
            oldest += 1
        return max(self._first_segment, max(0, oldest) // self._interval)

    def _expire(self) -> None:
        first = self._first_live(self.stream_time)
        if first > self._first_segment:
            self._first_segment = first
            floor = first * self._interval
            self.overlay.drop_below(self.layout.floor(floor))
            if self._index is not None:
                layout, overlay = self._index
                overlay.drop_below(layout.floor(floor))

    def _write(self, row: bytes, value: bytes | None) -> None:
        self.overlay.put(row, value)
        if self._index is not None:
            layout, overlay = self._index
            entry = layout.encode(*self.layout.decode(row))
            overlay.put(entry, None if value is None else b"")

    def _scan_index(self, span: WindowRange, reverse: bool) -> Iterator[Row]:
        assert self._index is not None
        layout, overlay = self._index
        ranges = layout.ranges(span, span.time_from, self.stream_time)
        entries = _selected(layout, overlay, span, ranges, reverse)
        return self._converted(self._behind(layout, entries))

    def _behind(self, index: KeyFirstSchema, entries: Iterator[Row]) -> Iterator[Row]:
        get = self.overlay.get
        encode = self.layout.encode
        for entry, _ in entries:
            row = encode(*index.decode(entry))
            value = get(row)
            if value is not None:
                yield row, value

    def _converted(self, rows: Iterator[Row]) -> Iterator[Row]:
        up = self._up
        return rows if up is None else ((key, up(value)) for key, value in rows)


def _selected(
    layout: KeySchema, overlay: Overlay, span: WindowRange, ranges: Ranges, reverse: bool
) -> Iterator[Row]:
    """The rows of an overlay in some ranges that belong to a span."""
    if reverse:
        ranges = ranges[::-1]
    # The scans begin now, not when the first row is asked for: they show what is there now.
    scans = [overlay.scan(start, end, reverse) for start, end in ranges]
    belongs = selector(layout, span)
    return (row for scan in scans for row in scan if belongs(row[0]))

