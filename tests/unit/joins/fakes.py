"""A minimal node and stores, to attach one operator."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.processors.base import CallCounter, Clock, Forward, NodeCounter
from penstock.record import NO_HEADERS, CurrentRecord, Headers, RecordContext


class FakeNode:
    """Records dropped and counted records; clocks are shared by name."""

    def __init__(self, name: str = "node", **stores: Any) -> None:
        self.name = name
        self.current = CurrentRecord()
        self.stores: dict[str, Any] = stores
        self.dropped: list[str] = []
        self.noticed: list[str] = []
        self.counted: Counter[str] = Counter()
        self.calls = CallCounter()
        self.node_counters: dict[str, NodeCounter] = {}
        self.clocks: dict[str, Clock] = {}
        self.stream_time = -1
        self.system_time = 0

    def store(self, name: str) -> Any:
        return self.stores[name]

    def drop(self, reason: str, level: int = logging.WARNING) -> None:
        self.dropped.append(reason)

    def notice(self, event: str) -> None:
        self.noticed.append(event)

    def count(self, counter: str, amount: int = 1) -> None:
        self.counted[counter] += amount

    @property
    def drops(self) -> int:
        return len(self.dropped)

    @property
    def counters(self) -> Counter[str]:
        amounts = {name: each.amount for name, each in self.node_counters.items()}
        return self.counted + Counter(amounts)

    def forward_to(self, child: str) -> Forward:
        raise AssertionError(child)

    def clock(self, name: str) -> Clock:
        return self.clocks.setdefault(name, Clock())

    def counter(self, name: str) -> NodeCounter:
        return self.node_counters.setdefault(name, NodeCounter())

    def recorder(self, sensor: str) -> None:
        """Nothing is measured."""

    def print_line(self, line: str, file: str | None = None) -> None:
        raise AssertionError(line)

    def at(self, timestamp: int, offset: int = 0, headers: Headers = NO_HEADERS) -> None:
        """Set the current record, as a task does."""
        self.current.set_context(RecordContext("topic", 0, offset, timestamp, headers))


class Sink(list[Any]):
    """Collects (key, value, timestamp) of forwarded records; headers separately."""

    def __init__(self) -> None:
        super().__init__()
        self.headers: list[Headers] = []

    def __call__(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        self.append((key, value, timestamp))
        self.headers.append(headers)

    def take(self) -> list[Any]:
        taken = list(self)
        self.clear()
        self.headers.clear()
        return taken


class JoinWindowStore:
    """A duplicates-retaining window store with a stream time and a retention of its own."""

    def __init__(self, retention: int = 2**62) -> None:
        self.retention = retention
        self.time = -1
        self.rows: list[tuple[Any, int, int, Any]] = []

    def put_join_record(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        self.put(key, value, timestamp)

    def fetch_join_records(self, key: Any, since: int, until: int) -> Iterator[tuple[int, Any]]:
        return self.fetch(key, since, until)

    def put(self, key: Any, value: Any, start: int) -> None:
        if value is None:
            return
        self.time = max(self.time, start)
        self.rows.append((key, start, len(self.rows), value))

    def fetch(self, key: Any, start: int, end: int) -> Iterator[tuple[int, Any]]:
        start = max(start, self.time - self.retention + 1)
        found = sorted(row[1:] for row in self.rows if row[0] == key and start <= row[1] <= end)
        return iter([(time, value) for time, _, value in found])


class KeyValues:
    """Bytes keys in order: a plain store, a timestamped one (load, save), a table."""

    is_versioned = False

    def __init__(self, **rows: Any) -> None:
        self.rows: dict[Any, Any] = dict(rows)
        self.writes: list[tuple[Any, Any]] = []

    def get(self, key: Any) -> Any:
        return self.rows.get(key)

    load = get

    def put(self, key: Any, value: Any) -> None:
        self.writes.append((key, value))
        self.rows.pop(key, None)
        if value is not None:
            self.rows[key] = value

    def save(self, key: Any, value: Any, timestamp: int) -> None:
        self.put(key, None if value is None else (value, timestamp))

    def all(self) -> Iterator[tuple[Any, Any]]:
        return iter(sorted(self.rows.items()))

    def range(self, start: Any, end: Any) -> Iterator[tuple[Any, Any]]:
        return iter([row for row in sorted(self.rows.items()) if start <= row[0] <= end])

    def set_flush_listener(self, listener: Any, send_old_values: bool) -> bool:
        return False


class Getter:
    """Reads a `KeyValues`; versions, if any, as {key: [(timestamp, value), ...]}."""

    def __init__(self, rows: dict[Any, Any], is_versioned: bool = False) -> None:
        self.rows = rows
        self.is_versioned = is_versioned

    def get(self, key: Any) -> Any:
        return self.rows.get(key)

    def get_as_of(self, key: Any, timestamp: int) -> Any:
        found = [row for row in self.rows.get(key, ()) if row[0] <= timestamp]
        return (found[-1][1], found[-1][0]) if found else None


@dataclass(frozen=True)
class Table:
    """A `ValueGetterSupplier` over a dictionary."""

    rows: dict[Any, Any]
    is_versioned: bool = False
    store_names: tuple[str, ...] = ("table",)

    def attach_getter(self, node: Any) -> Getter:
        return Getter(self.rows, self.is_versioned)


class FakeStoreContext:
    """The task's side of a buffer; collects the changelog."""

    application_id = "app"
    task_id = "0_0"
    cache: Any = None
    default_key_serde: Any = None
    default_value_serde: Any = None

    def __init__(self) -> None:
        self.current = CurrentRecord()
        self.log: list[tuple[bytes, bytes | None, int, Headers]] = []

    def changelog_topic(self, store: str) -> str:
        return f"app-{store}-changelog"

    def log_change(
        self, store: str, key: bytes, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        self.log.append((key, value, timestamp, headers))

    def drop(self, reason: str, store: str | None = None) -> None:
        raise AssertionError(reason)
