"""A node without a task and stores without bytes, to test one operator."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from penstock.processors.base import CallCounter, Clock, Forward, Operator
from penstock.record import NO_HEADERS, Change, CurrentRecord, Headers, ValueAndTimestamp
from penstock.windows import SessionWindow, Window, Windowed

NOT_PUT = -(2**63)


class Sent(NamedTuple):
    """One forwarded record."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers = NO_HEADERS


class _FakeCounter:
    """Writes through to the counters of a fake node."""

    def __init__(self, counters: Any, name: str) -> None:
        self.counters, self.name = counters, name

    @property
    def amount(self) -> int:
        return int(self.counters[self.name])

    @amount.setter
    def amount(self, amount: int) -> None:
        self.counters[self.name] = amount


class FakeNode:
    """A `NodeContext` that records all calls."""

    def __init__(self, **stores: Any) -> None:
        self.name = "node"
        self.current = CurrentRecord()
        self.stream_time = -1
        self.system_time = 0
        self.stores = stores
        self.dropped: list[str] = []
        self.noticed: list[str] = []
        self.calls = CallCounter()
        self.counts: Counter[str] = Counter()
        self.printed: list[str] = []
        self.clocks: dict[str, Clock] = {}
        self.sent: list[Sent] = []
        self.sent_to: list[tuple[str, Sent]] = []

    def store(self, name: str) -> Any:
        return self.stores[name]

    def drop(self, reason: str, level: int = logging.WARNING) -> None:
        self.dropped.append(reason)

    def notice(self, event: str) -> None:
        self.noticed.append(event)

    def count(self, counter: str, amount: int = 1) -> None:
        self.counts[counter] += amount

    def counter(self, name: str) -> Any:
        return _FakeCounter(self.counts, name)

    def recorder(self, sensor: str) -> None:
        """Nothing is measured."""

    def print_line(self, line: str, file: str | None = None) -> None:
        self.printed.append(line)

    def forward_to(self, child: str) -> Forward:
        def forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            self.sent_to.append((child, Sent(key, value, timestamp, headers)))

        return forward

    def clock(self, name: str) -> Clock:
        return self.clocks.setdefault(name, Clock())

    def forward(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        self.sent.append(Sent(key, value, timestamp, headers))

    def attach(self, operator: Operator) -> Callable[..., list[Sent]]:
        """A function that processes one record and returns what it forwarded."""
        process = operator.attach(self, self.forward)

        def run(
            key: Any, value: Any, timestamp: int = 0, headers: Headers = NO_HEADERS
        ) -> list[Sent]:
            self.sent.clear()
            process(key, value, timestamp, headers)
            return list(self.sent)

        return run


class _Listening:
    """The flush listener of a store; a test calls `listener` in place of the cache."""

    is_versioned = False

    def __init__(self, caches: bool = False) -> None:
        self.name = "store"
        self.caches = caches
        self.listener: Any = None
        self.send_old_values: bool | None = None

    def set_flush_listener(self, listener: Any, send_old_values: bool) -> bool:
        self.listener = listener
        self.send_old_values = send_old_values
        return self.caches

    @property
    def is_caching(self) -> bool:
        return self.caches

    def fold_row(self, initializer: Any, aggregator: Any) -> Any:
        def fold_row(row: Any, key: Any, value: Any, timestamp: int) -> None:
            old, time = self.load_row(row) or (initializer(), -1)
            self.save_row(row, key, aggregator(key, value, old), max(time, timestamp))

        return fold_row


class FakeTimestampedStore(_Listening):
    """A timestamped key-value store."""

    def __init__(self, caches: bool = False) -> None:
        super().__init__(caches)
        self.rows: dict[Any, tuple[Any, int]] = {}

    def row_of(self, key: Any) -> Any:
        return key

    write_key = row_of

    def load_row(self, row: Any) -> tuple[Any, int] | None:
        return self.load(row)

    def save_row(self, row: Any, key: Any, value: Any, timestamp: int) -> None:
        self.save(key, value, timestamp)

    def load(self, key: Any) -> tuple[Any, int] | None:
        return self.rows.get(key)

    def save(self, key: Any, value: Any, timestamp: int) -> None:
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = (value, timestamp)


class Version(NamedTuple):
    """The result of a versioned store."""

    value: Any
    timestamp: int


class FakeVersionedStore(_Listening):
    """A versioned key-value store; puts before `refuse_before` are rejected."""

    is_versioned = True

    def __init__(self, refuse_before: int = 0) -> None:
        super().__init__()
        self.refuse_before = refuse_before
        self.versions: dict[Any, list[tuple[int, Any]]] = {}

    def put(self, key: Any, value: Any, timestamp: int) -> int:
        if timestamp < self.refuse_before:
            return NOT_PUT
        versions = self.versions.setdefault(key, [])
        versions[:] = sorted([v for v in versions if v[0] != timestamp] + [(timestamp, value)])
        later = [time for time, _ in versions if time > timestamp]
        return later[0] if later else -1

    def get(self, key: Any, as_of: int = 2**63 - 1) -> Version | None:
        found = [(t, v) for t, v in self.versions.get(key, []) if t <= as_of]
        if not found or found[-1][1] is None:
            return None
        return Version(found[-1][1], found[-1][0])


class FakeWindowStore(_Listening):
    """A timestamped window store that never expires anything."""

    def __init__(self, size: int, caches: bool = False) -> None:
        super().__init__(caches)
        self.size = size
        self.rows: dict[tuple[int, Any], ValueAndTimestamp[Any]] = {}

    def row_of(self, key: Any, start: int) -> Any:
        return start, key

    def write_key(self, key: Any) -> Any:
        raise AssertionError("rows of this store are made by row_of")

    segment_interval_ms = None

    def key_affixes(self, start: int) -> None:
        return None

    def load_row(self, row: Any) -> tuple[Any, int] | None:
        return self.rows.get(row)

    def save_row(self, row: Any, key: Any, value: Any, timestamp: int) -> None:
        self.save(key, value, timestamp, row[0])

    def load(self, key: Any, start: int) -> tuple[Any, int] | None:
        return self.rows.get((start, key))

    def save(self, key: Any, value: Any, timestamp: int, start: int) -> None:
        if value is None:
            self.rows.pop((start, key), None)
        else:
            self.rows[start, key] = ValueAndTimestamp(value, timestamp)

    def fetch(
        self, key_from: Any, key_to: Any, first: int, last: int
    ) -> Iterator[tuple[Windowed[Any], ValueAndTimestamp[Any]]]:
        return iter([
            row for row in self.fetch_all(first, last) if key_from <= row[0].key <= key_to
        ])

    def backward_fetch(
        self, key_from: Any, key_to: Any, first: int, last: int
    ) -> AbstractContextManager[Any]:
        return nullcontext(reversed(list(self.fetch(key_from, key_to, first, last))))

    def fetch_all(
        self, first: int, last: int
    ) -> Iterator[tuple[Windowed[Any], ValueAndTimestamp[Any]]]:
        for (start, key), row in sorted(self.rows.items()):
            if first <= start <= last:
                yield Windowed(key, Window(start, start + self.size)), row


class FakeSessionStore(_Listening):
    """A session store that never expires anything."""

    has_headers = False

    def __init__(self, caches: bool = False) -> None:
        super().__init__(caches)
        self.rows: dict[Windowed[Any], Any] = {}

    def find_sessions(self, *where: Any) -> Iterator[tuple[Windowed[Any], Any]]:
        by_end = sorted(self.rows.items(), key=lambda row: (row[0].window.end, row[0].key))
        if len(where) == 2:
            first, last = where
            return iter([row for row in by_end if first <= row[0].window.end <= last])
        key, earliest_end, latest_start = where
        return iter([
            row for row in by_end
            if row[0].key == key
            and row[0].window.end >= earliest_end
            and row[0].window.start <= latest_start
        ])

    def put(self, session: Windowed[Any], aggregate: Any) -> None:
        if aggregate is None:
            self.rows.pop(session, None)
        else:
            self.rows[session] = aggregate

    def remove(self, session: Windowed[Any]) -> None:
        self.rows.pop(session, None)

    def fetch_session(self, key: Any, start: int, end: int) -> Any:
        return self.rows.get(Windowed(key, SessionWindow(start, end)))


def new_only(value: Any) -> Change:
    """A change without an old value."""
    return Change(value, None)
