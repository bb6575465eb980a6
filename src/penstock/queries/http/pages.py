"""Pages of entries, windows, sessions and versions over all partitions of a store.

Every page is in a total order, so that the next page starts after the last item of this one,
whatever was written in the meantime: entries by the place of their keys, windows and sessions by
start, end and place of the key, versions by time. The place of a key is the serialized key, or the
start of a long key and its hash. A page holds `limit` items in memory, not the whole range.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import groupby, islice
from operator import itemgetter, methodcaller
from typing import Any, NamedTuple

from penstock.stores.bytes.store import successor
from penstock.windows import Window, Windowed

MAX_TIME_MS = 2**63 - 1
#: The first slice of time that is read for a page of windows, if the windows have no size.
_FIRST_SLICE_MS = 60_000
#: How many windows are read to find a later one.
_LOOK_AHEAD = 1_000
#: How many bytes of a key a place has at most. A cursor holds a place, and is part of a URL.
_MAX_PLACE_BYTES = 1_024
#: How many bytes of the hash of a longer key follow.
_HASH_BYTES = 16

Serialize = Callable[[Any], bytes]
#: Partition -> its store.
Partitions = Mapping[int, Any]


class KeyBounds(NamedTuple):
    """Inclusive bounds of serialized keys, and their first bytes; None is unbounded."""

    key_from: bytes | None = None
    key_to: bytes | None = None
    prefix: bytes = b""
    reverse: bool = False


class TimeBounds(NamedTuple):
    """Inclusive bounds of time."""

    time_from: int = 0
    time_to: int = MAX_TIME_MS
    reverse: bool = False


class WindowPlace(NamedTuple):
    """The place of a window in the order of pages. `key` is that of `place_of`."""

    start: int
    end: int
    key: bytes


class Page(NamedTuple):
    """Items, and the place of the last one if there are more."""

    items: list[tuple[Any, Any]]
    next: Any


def place_of(key: bytes) -> bytes:
    """Return the place of a serialized key in the order of pages, which is short for any key.

    Long keys that start alike are in the order of their hashes.
    """
    if len(key) <= _MAX_PLACE_BYTES:
        return key
    return key[:_MAX_PLACE_BYTES] + hashlib.sha256(key).digest()[:_HASH_BYTES]


def entry_page(
    stores: Partitions, serialize: Serialize, bounds: KeyBounds, limit: int, after: bytes | None
) -> Page:
    """Return the entries of a key-value store after a place."""
    start, end = _scanned_range(bounds, after)
    if end is not None and start >= end:
        return Page([], None)
    reverse = bounds.reverse
    with ExitStack() as stack:
        scans = []
        for store in stores.values():
            scan = stack.enter_context(store.serialized_range(start, end, reverse=reverse))
            rows = ((serialize(key), key, value) for key, value in scan)
            scans.append(_in_order_of_places(rows, after, limit + 1, reverse))
        # Places are unique: no comparison reaches the values.
        merged = heapq.merge(*scans, key=itemgetter(0), reverse=reverse)
        found = list(islice(merged, limit + 1))
    items = [(key, value) for _, key, value in found[:limit]]
    return Page(items, found[limit - 1][0] if len(found) > limit else None)


def _scanned_range(bounds: KeyBounds, after: bytes | None) -> tuple[bytes, bytes | None]:
    """Return the serialized keys between which a page is: from the first to before the last."""
    starts = [bounds.key_from or b"", bounds.prefix]
    ends = [successor(bounds.prefix)]
    if bounds.key_to is not None:
        ends.append(bounds.key_to + b"\x00")
    if after is not None:
        is_key = len(after) <= _MAX_PLACE_BYTES
        if not bounds.reverse:
            starts.append(after[:_MAX_PLACE_BYTES])
        else:
            ends.append(after if is_key else successor(after[:_MAX_PLACE_BYTES]))
    return max(starts), min((end for end in ends if end is not None), default=None)


def _in_order_of_places(
    rows: Iterable[tuple[bytes, Any, Any]], after: bytes | None, limit: int, reverse: bool
) -> Iterator[tuple[bytes, Any, Any]]:
    """Return (place, key, value) after a place, from rows in the order of serialized keys."""
    choose = heapq.nlargest if reverse else heapq.nsmallest
    for _, group in groupby(rows, key=lambda row: row[0][:_MAX_PLACE_BYTES]):
        places = ((place_of(raw), key, value) for raw, key, value in group)
        yield from choose(limit, (
            row for row in places
            if after is None or (row[0] < after if reverse else row[0] > after)
        ), key=itemgetter(0))


def key_window_page(
    store: Any, key: Any, size_ms: int, bounds: TimeBounds, limit: int, after: int | None
) -> Page:
    """Return the windows of one key after a start. Items are (windowed key, value)."""
    time_from, time_to = bounds.time_from, bounds.time_to
    if after is not None:
        time_from, time_to = (
            (time_from, after - 1) if bounds.reverse else (after + 1, time_to)
        )
    if time_from > time_to:
        return Page([], None)
    fetch = store.backward_fetch if bounds.reverse else store.fetch
    with fetch(key, time_from, time_to) as windows:
        rows = list(islice(windows, limit + 1))
    items = [(Windowed(key, Window(start, start + size_ms)), value) for start, value in rows]
    return Page(items[:limit], rows[limit - 1][0] if len(rows) > limit else None)


def window_page(
    stores: Partitions, serialize: Serialize, size_ms: int, bounds: TimeBounds, limit: int,
    after: WindowPlace | None,
) -> Page:
    """Return the windows of all keys after a place.

    A store returns windows in the order of its rows. So time is read in slices, and each slice is
    sorted. A slice without windows doubles the next one.
    """
    time_from, time_to = bounds.time_from, bounds.time_to
    if after is not None:
        time_from, time_to = (
            (time_from, after.start) if bounds.reverse else (after.start, time_to)
        )
    if bounds.reverse:
        # From the end of time, slices would reach the windows too late.
        time_to = min(time_to, _latest_start(stores, time_from))
    found: list[tuple[WindowPlace, Any, Any]] = []
    slice_ms = size_ms or _FIRST_SLICE_MS
    while time_from <= time_to and len(found) <= limit:
        low, high = (
            (max(time_from, time_to - slice_ms), time_to) if bounds.reverse
            else (time_from, min(time_to, time_from + slice_ms))
        )
        more = _sorted_windows(
            stores, methodcaller("fetch_all", low, high), serialize, bounds.reverse, limit + 1,
            after,
        )
        found += more
        slice_ms *= 1 if more else 2
        time_from, time_to = (time_from, low - 1) if bounds.reverse else (high + 1, time_to)
    return _page(found, limit)


def _latest_start(stores: Partitions, time_from: int) -> int:
    """Return the latest start of a window, at least `time_from`.

    The last row need not have it. So later windows are looked for until none is left.
    """
    latest = time_from
    for store in stores.values():
        while latest < MAX_TIME_MS:
            with store.backward_fetch_all(latest + 1, MAX_TIME_MS) as windows:
                starts = [windowed.window.start for windowed, _ in islice(windows, _LOOK_AHEAD)]
            if not starts:
                break
            latest = max(starts)
    return latest


def session_page(
    stores: Partitions, serialize: Serialize, key: Any, bounds: TimeBounds, limit: int,
    after: WindowPlace | None,
) -> Page:
    """Return the sessions that overlap a range of time, of one key or of all (None)."""

    def scan(store: Any) -> Any:
        if key is None:
            return store.find_sessions(None, None, bounds.time_from, bounds.time_to)
        return store.find_sessions(key, bounds.time_from, bounds.time_to)

    return _page(_sorted_windows(stores, scan, serialize, bounds.reverse, limit + 1, after), limit)


def _sorted_windows(
    stores: Partitions, scan: Callable[[Any], Any], serialize: Serialize, reverse: bool,
    limit: int, after: WindowPlace | None,
) -> list[tuple[WindowPlace, Any, Any]]:
    """Return the first windows in the order of pages, after a place."""

    def rows() -> Iterator[tuple[WindowPlace, Any, Any]]:
        for store in stores.values():
            with scan(store) as windows:
                for windowed, value in windows:
                    start, end = windowed.window
                    place = WindowPlace(start, end, place_of(serialize(windowed.key)))
                    if after is None or (place < after if reverse else place > after):
                        yield place, windowed, value

    choose = heapq.nlargest if reverse else heapq.nsmallest
    return choose(limit, rows(), key=lambda row: row[0])


def _page(rows: list[tuple[WindowPlace, Any, Any]], limit: int) -> Page:
    items = [(windowed, value) for _, windowed, value in rows[:limit]]
    return Page(items, rows[limit - 1][0] if len(rows) > limit else None)


def version_page(
    store: Any, key: Any, bounds: TimeBounds, limit: int, after: int | None
) -> tuple[list[Any], int | None]:
    """Return the versions of a key after the start of a version, and the start of the last."""
    versions = store.versions(key, bounds.time_from, bounds.time_to, bounds.reverse)
    later = (
        version for version in versions
        if after is None
        or (version.timestamp < after if bounds.reverse else version.timestamp > after)
    )
    rows = list(islice(later, limit + 1))
    return rows[:limit], rows[limit - 1].timestamp if len(rows) > limit else None
