"""The entries of the record cache in Python: the twin of `native/cache.c`.

A use or a write only appends the entry to a list. The order of use and the order of writes are
derived from these lists when they are needed: the last occurrence of an entry counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any

from penstock.record import CurrentRecord, Headers, PartitionColumns

#: Kafka's size of an entry without key, value and context: three references and a flag.
_ENTRY_BYTES = 8 + 8 + 8 + 1
#: Kafka's size of timestamp, offset and partition of the context.
_CONTEXT_BYTES = 8 + 8 + 4

#: The list of uses is compacted when it is longer than this plus four times the number of entries.
_MIN_USES_LIMIT = 4096


class _Sentinel:
    __slots__ = ()


#: A stored value that is not serialized yet.
PENDING: Any = _Sentinel()
#: A typed value that is not cached.
UNKNOWN: Any = _Sentinel()


class CacheEntry:
    """One cached row.

    A dirty entry was written but not flushed. It holds the context of the record that wrote it
    (`rows`, `at`, `sent`, `timestamp`, `headers`, as in `CurrentRecord`). `typed` and `time` are
    the typed value and its timestamp, if the value is immutable; while they are known, the stored
    `value` may be `PENDING`. `uses` and `writes` count the occurrences of the entry in the lists;
    the entry is dirty if `writes` is not 0. `size` is 0 after the entry has left the cache.
    """

    __slots__ = (
        "at", "headers", "name", "rows", "sent", "size", "time", "timestamp", "typed", "uses",
        "value", "writes",
    )

    #: The row key.
    name: bytes
    value: bytes | None
    size: int
    uses: int
    writes: int
    rows: PartitionColumns
    at: int
    sent: bool
    timestamp: int
    headers: Headers
    typed: Any
    time: int


_long_at = Struct(">q").unpack_from

#: Receives the flushed entries of a store, in order.
FlushEntries = Callable[[list[CacheEntry]], None]


class CacheBudget:
    """The maximum and the current size of all caches of a task."""

    def __init__(self, max_bytes: int) -> None:
        if max_bytes < 0:
            raise ValueError(f"The size of the record cache must not be negative: {max_bytes}.")
        self.max_bytes = max_bytes
        self.size = 0
        self.evictions = 0


class CacheEntries:
    """The entries of one store, by row key.

    `used` holds every entry `uses` times, `_written` holds every dirty entry `writes` times. `size`
    is the sum of the sizes of the entries. As in Kafka Streams, the budget shrinks only after the
    listener of an eviction or a flush has returned.
    """

    def __init__(
        self, budget: CacheBudget, flush: FlushEntries, key_overhead: int, time_at: int | None
    ) -> None:
        self._budget = budget
        self._flush = flush
        #: The size of an entry without key, value, topic and headers.
        self._fixed_bytes = key_overhead + _ENTRY_BYTES + _CONTEXT_BYTES
        self.entries: dict[bytes, CacheEntry] = {}
        self.size = 0
        #: The index of the time in row keys; the smallest and the largest time, -1 for none.
        self._time_at = time_at
        self.oldest = -1
        self.newest = -1
        #: Serializes (timestamp, typed value) of entries whose value is `PENDING`.
        self._encode: Callable[[int, Any], bytes] | None = None
        self._written: list[CacheEntry] = []
        self.used: deque[CacheEntry] = deque()
        self._used_limit = _MIN_USES_LIMIT
        #: The row keys in order, from the first scan on. New keys stay in `unsorted` until the
        #: next scan.
        self.ordered: Any = None
        self.unsorted: set[bytes] = set()

    def __len__(self) -> int:
        return len(self.entries)

    def names(self) -> list[bytes]:
        """All row keys."""
        return list(self.entries)

    def find(self, key: bytes) -> CacheEntry | None:
        """The entry of a row key. This does not count as a use."""
        return self.entries.get(key)

    def get(self, key: bytes) -> CacheEntry | None:
        """The entry of a row key. This counts as a use."""
        entry = self.entries.get(key)
        if entry is not None:
            self.use(entry)
        return entry

    def use(self, entry: CacheEntry) -> None:
        """Record a use of an entry."""
        entry.uses += 1
        self.used.append(entry)
        if len(self.used) > self._used_limit:
            self._compact_uses()

    def stored(self, entry: CacheEntry) -> bytes | None:
        """The stored value of an entry; serializes a pending one."""
        if entry.value is PENDING:
            assert self._encode is not None
            entry.value = self._encode(entry.time, entry.typed)
        return entry.value

    def pend(self, number: type) -> None:
        """Allow pending values: numbers of this type that fit into 8 bytes."""
        self._encode = Struct(">qq" if number is int else ">qd").pack

    def keep(self, key: bytes, value: bytes) -> None:
        """Cache a row that was read from the layer below, and evict entries if necessary."""
        entry = self.entries[key] = CacheEntry()
        entry.name = key
        entry.value = value
        entry.size = self._fixed_bytes + len(key) + len(value)
        entry.typed = UNKNOWN
        entry.uses = 1
        entry.writes = 0
        self.used.append(entry)
        if self.ordered is not None:
            self.unsorted.add(key)
        self._grow(entry.size)

    def put(
        self, key: bytes, value: bytes | None, value_bytes: int, current: CurrentRecord,
        typed: Any = UNKNOWN, time: int = -1,
    ) -> None:
        """Write an entry on behalf of the current record, and evict entries if necessary.

        `value` is None for a deletion, and `PENDING` if only `typed` and `time` are known yet.
        """
        if self._time_at is not None:
            self._observe(_long_at(key, self._time_at)[0])
        rows, headers = current.rows, current.headers
        size = self._fixed_bytes + len(key) + value_bytes + len(rows.topic or "")
        if headers:
            size += _header_bytes(headers)
        growth = size
        entry = self.entries.get(key)
        if entry is None or not entry.writes:
            if entry is not None:
                # A flush may be in progress with this entry, so it must not change.
                growth -= entry.size
                entry.size = 0
            elif self.ordered is not None:
                self.unsorted.add(key)
            entry = self.entries[key] = CacheEntry()
            entry.name = key
            entry.uses = entry.writes = 1
        else:
            growth -= entry.size
            entry.uses += 1
            entry.writes += 1
        entry.value = value
        entry.typed = typed
        entry.time = time
        entry.size = size
        entry.rows = rows
        entry.at = current.at
        entry.sent = current.sent
        entry.timestamp = current.timestamp
        entry.headers = headers
        self.used.append(entry)
        self._written.append(entry)
        self._grow(growth)

    def rewrite(self, entry: CacheEntry, current: CurrentRecord, growth: int) -> None:
        """Record that the current record has changed a dirty entry in place."""
        entry.at = current.at
        entry.sent = current.sent
        entry.timestamp = current.timestamp
        entry.uses += 1
        entry.writes += 1
        self.used.append(entry)
        self._written.append(entry)
        budget = self._budget
        if growth or budget.size > budget.max_bytes:
            entry.size += growth
            self._grow(growth)
        elif len(self.used) > self._used_limit:
            self._compact_uses()

    def flush(self) -> None:
        """Flush all dirty entries."""
        before = self.size
        self._flush_dirty(None)
        self._budget.size += self.size - before

    def clear(self) -> None:
        """Discard all entries, dirty entries included."""
        self._budget.size -= self.size
        self.size = 0
        self.entries.clear()
        self._written.clear()
        self.used.clear()
        self.ordered = None
        self.unsorted.clear()

    def _observe(self, time: int) -> None:
        if time > self.newest:
            self.newest = time
        if self.oldest < 0 or time < self.oldest:
            self.oldest = time

    def _grow(self, growth: int) -> None:
        budget = self._budget
        self.size += growth
        budget.size += growth
        if budget.size > budget.max_bytes:
            self._make_room(budget)
        elif len(self.used) > self._used_limit:
            self._compact_uses()

    def _make_room(self, budget: CacheBudget) -> None:
        while budget.size > budget.max_bytes:
            # The flush may have made other stores grow. Only this store evicts entries.
            if not self.entries:
                return
            before = self.size
            self._evict()
            budget.size += self.size - before
            budget.evictions += 1

    def _compact_uses(self) -> None:
        """Keep only the last occurrence of every entry in the list."""
        compacted: deque[CacheEntry] = deque()
        for entry in reversed(self.used):
            if entry.uses:
                entry.uses = 0
                if entry.size:
                    compacted.appendleft(entry)
        for entry in compacted:
            entry.uses = 1
        self.used = compacted
        self._used_limit = 4 * len(compacted) + _MIN_USES_LIMIT

    def _evict(self) -> None:
        """Evict the least recently used entry."""
        while True:
            entry = self.used.popleft()
            entry.uses -= 1
            if not entry.uses and entry.size:
                break
        self._remove(entry)
        if entry.writes:
            self._flush_dirty(entry)

    def _flush_dirty(self, evicted: CacheEntry | None) -> None:
        """Flush dirty entries in the order of their last write; an evicted entry goes first."""
        written, self._written = self._written, []
        changes = [] if evicted is None else [evicted]
        deleted: list[CacheEntry] = []
        # All entries are clean before the flush starts: a listener may write to this store again.
        for entry in written:
            entry.writes -= 1
            if not entry.writes and entry is not evicted and entry.size:
                changes.append(entry)
                if entry.value is None:
                    deleted.append(entry)
        self._flush(changes)
        for entry in deleted:
            now = self.entries.get(entry.name)
            if now is not None:
                self._remove(now)

    def _remove(self, entry: CacheEntry) -> None:
        del self.entries[entry.name]
        self.size -= entry.size
        entry.size = 0
        if self.ordered is not None:
            if entry.name in self.unsorted:
                self.unsorted.discard(entry.name)
            else:
                self.ordered.remove(entry.name)


def _header_bytes(headers: Headers) -> int:
    """The size of headers as Kafka estimates it."""
    return sum(len(name) + (0 if value is None else len(value)) for name, value in headers)
