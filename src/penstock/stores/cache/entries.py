"""The entries of the record cache, in Python: the twin of `native/cache.c`.

Using or writing an entry only notes it in a list. The two orders are made from these lists when
they are needed: an entry counts where it stands last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any

from penstock.record import Current, Headers, PartitionColumns

#: What every entry costs besides its key, value and context: three references and a flag.
_ENTRY_BYTES = 8 + 8 + 8 + 1
#: Timestamp, offset and partition of the context.
_CONTEXT_BYTES = 8 + 8 + 4


#: The list of uses is made shorter when it is longer than this, and four times what it must be.
_MANY_USES = 4096


class _Pending:
    __slots__ = ()


#: Stands for a stored value that has not been serialized yet.
PENDING: Any = _Pending()
#: Stands for a typed value that is not kept.
UNKNOWN: Any = _Pending()


class CacheEntry:
    """One cached row.

    A dirty one was written and the store below has not seen it; it remembers the record that wrote
    it (`rows`, `at`, `sent`, `timestamp`, `headers` as `Current` has them). `typed` and `time` are
    the typed value and its timestamp, kept if the value cannot change; as long as they are known
    the stored `value` may be `PENDING`. `uses` and `writes` say how often the entry stands in the
    lists; it is dirty if `writes` is not 0. `size` is 0 once it has left the cache.
    """

    __slots__ = (
        "at", "headers", "name", "rows", "sent", "size", "time", "timestamp", "typed", "uses",
        "value", "writes",
    )

    #: The physical key.
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

#: Takes what a store's cache lets go, in order.
FlushEntries = Callable[[list[CacheEntry]], None]


class CacheBudget:
    """How large all caches of a task may be together, and how large they are."""

    def __init__(self, max_bytes: int) -> None:
        if max_bytes < 0:
            raise ValueError(f"The size of the record cache must not be negative: {max_bytes}.")
        self.max_bytes = max_bytes
        self.size = 0
        self.evictions = 0


class CacheEntries:
    """The entries of one store by physical key.

    Every dirty entry is in `_written`, every entry in `used`, each as often as it says itself.
    `size` is the sum of the entries' sizes. The budget hears of a smaller size only when whoever
    listens to an eviction or a flush is done, as in Kafka Streams: until then they count.
    """

    def __init__(
        self, budget: CacheBudget, flush: FlushEntries, key_bytes: int, time_at: int | None
    ) -> None:
        self._budget = budget
        self._flush = flush
        #: The size of an entry without its key, value, topic and headers.
        self._fixed_bytes = key_bytes + _ENTRY_BYTES + _CONTEXT_BYTES
        self.entries: dict[bytes, CacheEntry] = {}
        self.size = 0
        #: Where physical keys have their time; the smallest and the largest one, -1 for none.
        self._time_at = time_at
        self.oldest = -1
        self.newest = -1
        #: Serializes (timestamp, typed value); for stores that leave values pending.
        self._encode: Callable[[int, Any], bytes] | None = None
        self._written: list[CacheEntry] = []
        self.used: deque[CacheEntry] = deque()
        self._used_limit = _MANY_USES
        #: The keys in order, from the first scan on; new ones wait in `unsorted` for the next.
        self.ordered: Any = None
        self.unsorted: set[bytes] = set()

    def __len__(self) -> int:
        return len(self.entries)

    def names(self) -> list[bytes]:
        """All keys."""
        return list(self.entries)

    def find(self, key: bytes) -> CacheEntry | None:
        """The entry of a key; it does not count as used."""
        return self.entries.get(key)

    def get(self, key: bytes) -> CacheEntry | None:
        """The entry of a key, which thereby is the most recently used."""
        entry = self.entries.get(key)
        if entry is not None:
            self.use(entry)
        return entry

    def use(self, entry: CacheEntry) -> None:
        """Note that an entry was used."""
        entry.uses += 1
        self.used.append(entry)

    def stored(self, entry: CacheEntry) -> bytes | None:
        """The stored value of an entry."""
        if entry.value is PENDING:
            assert self._encode is not None
            entry.value = self._encode(entry.time, entry.typed)
        return entry.value

    def pend(self, number: type) -> None:
        """Values that are pending are numbers of this type; all fit into 8 bytes."""
        self._encode = Struct(">qq" if number is int else ">qd").pack

    def keep(self, key: bytes, value: bytes) -> None:
        """Add a copy of what the store below has, then make room."""
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
        self, key: bytes, value: bytes | None, value_bytes: int, current: Current,
        typed: Any = UNKNOWN, time: int = -1,
    ) -> None:
        """Write an entry on behalf of the current record, then make room.

        `value` is None for a deletion, `PENDING` if it is left to `typed` and `time`.
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
                # It may be on its way through a flush: it stays as it is.
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

    def rewrite(self, entry: CacheEntry, current: Current, growth: int) -> None:
        """A dirty entry was changed in place by the current record, then make room."""
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
            self._shorten_used()

    def flush(self) -> None:
        """Hand all unwritten changes down."""
        before = self.size
        self._flush_dirty(None)
        self._budget.size += self.size - before

    def clear(self) -> None:
        """Forget everything, unwritten changes included."""
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
            self._shorten_used()

    def _make_room(self, budget: CacheBudget) -> None:
        while budget.size > budget.max_bytes:
            # What was written may have made other stores grow; only this one is made smaller.
            if not self.entries:
                return
            before = self.size
            self._evict()
            budget.size += self.size - before
            budget.evictions += 1

    def _shorten_used(self) -> None:
        """Leave every entry in the list once, where it stands last."""
        shorter: deque[CacheEntry] = deque()
        for entry in reversed(self.used):
            if entry.uses:
                entry.uses = 0
                if entry.size:
                    shorter.appendleft(entry)
        for entry in shorter:
            entry.uses = 1
        self.used = shorter
        self._used_limit = 4 * len(shorter) + _MANY_USES

    def _evict(self) -> None:
        """Let the least recently used entry go."""
        while True:
            entry = self.used.popleft()
            entry.uses -= 1
            if not entry.uses and entry.size:
                break
        self._remove(entry)
        if entry.writes:
            self._flush_dirty(entry)

    def _flush_dirty(self, evicted: CacheEntry | None) -> None:
        """Hand changes down in the order of their last write; an evicted one goes first."""
        written, self._written = self._written, []
        changes = [] if evicted is None else [evicted]
        deleted: list[CacheEntry] = []
        # None is dirty any more before anyone hears of them: a listener may write here again.
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
    """What headers cost."""
    return sum(len(name) + (0 if value is None else len(value)) for name, value in headers)
