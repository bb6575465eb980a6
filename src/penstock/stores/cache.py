"""The record cache: one byte budget for all stores of a task.

A store's part of it (`StoreCache`) is a write-back cache in order of use. When the budget is
exceeded, the least recently used entries *of the store being written* go, and an entry that goes
with unwritten changes takes all unwritten changes of its store along, in the order of their last
write. Sizes are Kafka's estimates, so that evictions happen at the same record.

Using an entry only gives it the next number of a counter. The two orders are made from these
numbers when they are needed: that of writing when the cache is flushed, that of use when it is
full.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from operator import attrgetter
from typing import Any

from sortedcontainers import SortedList

from penstock.record import Current, Headers

#: What every entry costs besides its key, value and context: three references and a flag.
_ENTRY_BYTES = 8 + 8 + 8 + 1
#: Timestamp, offset and partition of the context.
_CONTEXT_BYTES = 8 + 8 + 4


class Entry:
    """One cached row.

    A dirty one was written and the store below has not seen it; it remembers the record that wrote
    it (`record`, `source`, `timestamp`, `headers` as `Current` has them). `key` and `row` are the
    typed key and (value, timestamp), kept if they cannot change, so that they need not be
    deserialized again. `used` and `written` say when; `size` is 0 once it has left the cache.
    """

    __slots__ = (
        "dirty", "headers", "key", "name", "record", "row", "size", "source", "timestamp", "used",
        "value", "written",
    )

    #: The physical key.
    name: bytes
    value: bytes | None
    size: int
    dirty: bool
    used: int
    written: int
    record: tuple[Any, ...]
    source: tuple[Any, ...] | None
    timestamp: int
    headers: Headers
    key: Any
    row: tuple[Any, int] | None


_use_of = attrgetter("used")
_write_of = attrgetter("written")

#: Takes what a store's cache lets go, in order.
FlushEntries = Callable[[list[Entry]], None]


class RecordCache:
    """The budget. `size` is the sum of the stores' sizes; 0 bytes means that there is no cache."""

    def __init__(self, max_bytes: int) -> None:
        if max_bytes < 0:
            raise ValueError(f"The size of the record cache must not be negative: {max_bytes}.")
        self.max_bytes = max_bytes
        self.size = 0
        self.evictions = 0

    def store(self, flush: FlushEntries, key_bytes: int) -> StoreCache:
        """A new store's part of the cache; `key_bytes` is added to the size of each key."""
        return StoreCache(self, flush, key_bytes)


class StoreCache:
    """The entries of one store by physical key.

    Every dirty entry is in `_dirty`, which may also hold entries that are not dirty any more.
    `_by_use` holds the entries that were there when it was made, the most recently used first;
    those that were used since are later in the order than all of it.
    """

    def __init__(self, budget: RecordCache, flush: FlushEntries, key_bytes: int) -> None:
        self._budget = budget
        self._flush = flush
        #: The size of an entry without its key, value, topic and headers.
        self._fixed_bytes = key_bytes + _ENTRY_BYTES + _CONTEXT_BYTES
        self.entries: dict[bytes, Entry] = {}
        #: The next number of use.
        self.tick = count().__next__
        self._dirty: list[Entry] = []
        self._by_use: list[tuple[int, Entry]] = []
        self._sorted = SortedList()
        self._unsorted: set[bytes] = set()

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, key: bytes) -> Entry | None:
        """The entry of a key, which thereby is the most recently used."""
        entry = self.entries.get(key)
        if entry is not None:
            entry.used = self.tick()
        return entry

    def keep(self, key: bytes, value: bytes) -> None:
        """Add a copy of what the store below has, then make room."""
        entry = self.entries[key] = Entry()
        entry.name = key
        entry.value = value
        entry.size = self._fixed_bytes + len(key) + len(value)
        entry.dirty = False
        entry.used = self.tick()
        entry.key = entry.row = None
        self._unsorted.add(key)
        self._budget.size += entry.size
        if self._budget.size > self._budget.max_bytes:
            self._make_room()

    def put(self, key: bytes, value: bytes | None, current: Current) -> Entry:
        """Write an entry on behalf of the current record, then make room."""
        record, headers = current.record, current.headers
        size = self._fixed_bytes + len(key) + (0 if value is None else len(value))
        if record[0] is not None:
            size += len(record[0])
        if headers:
            size += _header_bytes(headers)
        growth = size
        entry = self.entries.get(key)
        if entry is None or not entry.dirty:
            # One that is not dirty may be on its way through a flush: it stays as it is.
            if entry is None:
                self._unsorted.add(key)
            else:
                growth -= entry.size
                entry.size = 0
            entry = self.entries[key] = Entry()
            entry.name = key
            entry.dirty = True
            self._dirty.append(entry)
        else:
            growth -= entry.size
        entry.value = value
        entry.size = size
        entry.used = entry.written = self.tick()
        entry.record = record
        entry.source = current.source
        entry.timestamp = current.timestamp
        entry.headers = headers
        entry.key = entry.row = None
        budget = self._budget
        budget.size += growth
        if budget.size > budget.max_bytes:
            self._make_room()
        return entry

    def flush(self) -> None:
        """Hand all unwritten changes down."""
        self._flush_dirty(None)

    def rows(
        self, start: bytes | None, end: bytes | None, reverse: bool
    ) -> list[tuple[bytes, bytes | None]]:
        """The entries of a range in order; they count as used."""
        if self._unsorted:
            self._sorted.update(self._unsorted)
            self._unsorted.clear()
        entries = self.entries
        found: list[tuple[bytes, bytes | None]] = []
        for key in self._sorted.irange(start, end, inclusive=(True, False), reverse=reverse):
            entry = entries[key]
            entry.used = self.tick()
            found.append((key, entry.value))
        return found

    def clear(self) -> None:
        """Forget everything, unwritten changes included."""
        self._budget.size -= sum(entry.size for entry in self.entries.values())
        self.entries.clear()
        self._dirty.clear()
        self._by_use.clear()
        self._sorted.clear()
        self._unsorted.clear()

    def _make_room(self) -> None:
        budget = self._budget
        while budget.size > budget.max_bytes:
            # What was written may have made other stores grow; only this one is made smaller.
            if not self.entries:
                return
            self._evict(self._least_recently_used())
            budget.evictions += 1

    def _least_recently_used(self) -> Entry:
        while True:
            while self._by_use:
                used, entry = self._by_use.pop()
                if entry.used == used and entry.size:
                    return entry
            by_use = sorted(self.entries.values(), key=_use_of, reverse=True)
            self._by_use = [(entry.used, entry) for entry in by_use]

    def _evict(self, entry: Entry) -> None:
        self._remove(entry)
        if entry.dirty:
            self._flush_dirty(entry)

    def _flush_dirty(self, evicted: Entry | None) -> None:
        """Hand changes down in the order of their last write; an evicted one goes first."""
        changes = [entry for entry in self._dirty if entry.dirty and entry is not evicted]
        self._dirty = []
        changes.sort(key=_write_of)
        deleted = [entry for entry in changes if entry.value is None]
        if evicted is not None:
            changes.insert(0, evicted)
        # None is dirty any more before anyone hears of them: a listener may write here again.
        for entry in changes:
            entry.dirty = False
        self._flush(changes)
        for entry in deleted:
            now = self.entries.get(entry.name)
            if now is not None:
                now.dirty = False
                self._remove(now)

    def _remove(self, entry: Entry) -> None:
        del self.entries[entry.name]
        self._budget.size -= entry.size
        entry.size = 0
        if entry.name in self._unsorted:
            self._unsorted.discard(entry.name)
        else:
            self._sorted.remove(entry.name)


def _header_bytes(headers: Headers) -> int:
    """What headers cost."""
    return sum(len(name) + (0 if value is None else len(value)) for name, value in headers)
