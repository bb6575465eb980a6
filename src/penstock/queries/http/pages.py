"""Pages of entries, windows, sessions and versions over all partitions of a store.

Every page is in a total order, so that the next page starts after the last item of this one,
whatever was written in the meantime: entries by serialized key, windows and sessions by start, end
and serialized key, versions by time. A page holds `limit` items in memory, not the whole range.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from operator import methodcaller
from typing import Any, NamedTuple

from penstock.windows import Window, Windowed

MAX_TIME_MS = 2**63 - 1
#: The first slice of time that is read for a page of windows, if the windows have no size.
_FIRST_SLICE_MS = 60_000
#: How many windows are read to find a later one.
_LOOK_AHEAD = 1_000

Serialize = Callable[[Any], bytes]
#: Partition -> its store.
Partitions = Mapping[int, Any]


class KeyBounds(NamedTuple):
    """Inclusive bounds of keys; None is unbounded. `prefix` is serialized."""

    key_from: Any = None
    key_to: Any = None
    prefix: bytes = b""
    reverse: bool = False


class TimeBounds(NamedTuple):
    """Inclusive bounds of time."""

    time_from: int = 0
    time_to: int = MAX_TIME_MS
    reverse: bool = False


class WindowPlace(NamedTuple):
    """The place of a window in the order of pages."""

    start: int
    end: int
    key: bytes


class Page(NamedTuple):
    """Items, and the place of the last one if there are more."""

    items: list[tuple[Any, Any]]
    next: Any


def entry_page(
    stores: Partitions, serialize: Serialize, deserialize: Callable[[bytes], Any],
    bounds: KeyBounds, limit: int, after: bytes | None,
) -> Page:
    """Return the entries of a key-value store after a serialized key."""
    start, end = bounds.key_from, bounds.key_to
    if bounds.prefix and not bounds.reverse:
        start = _later(start, bounds.prefix, serialize, deserialize)
    if after is not None:
        if bounds.reverse:
            end = deserialize(after)
        else:
            start = deserialize(after)
    with ExitStack() as stack:
        scans = []
        for store in stores.values():
            scan = store.reverse_range(start, end) if bounds.reverse else store.range(start, end)
            stack.enter_context(scan)
            scans.append((serialize(key), key, value) for key, value in scan)
        # Serialized keys are unique: no comparison reaches the values.
        merged = heapq.merge(*scans, key=lambda row: row[0], reverse=bounds.reverse)
        rows = list(islice(_wanted(merged, bounds, after), limit + 1))
    items = [(key, value) for _, key, value in rows[:limit]]
    return Page(items, rows[limit - 1][0] if len(rows) > limit else None)


def _later(
    key: Any, prefix: bytes, serialize: Serialize, deserialize: Callable[[bytes], Any]
) -> Any:
    return deserialize(prefix) if key is None or serialize(key) < prefix else key


def _wanted(
    rows: Iterable[tuple[bytes, Any, Any]], bounds: KeyBounds, after: bytes | None
) -> Iterator[tuple[bytes, Any, Any]]:
    prefix = bounds.prefix
    for row in rows:
        if row[0] == after:
            continue
        if not row[0].startswith(prefix):
            # Keys with the prefix are adjacent.
            if (row[0] < prefix) == bounds.reverse:
                return
            continue
        yield row


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
                    (start, end), key = windowed.window, serialize(windowed.key)
                    place = WindowPlace(start, end, key)
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
