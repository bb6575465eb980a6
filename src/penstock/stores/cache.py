"""The record cache: one byte budget for all stores of a task.

A store's part of it (`StoreCache`) is a write-back cache in order of use. When the budget is
exceeded, the least recently used entries *of the store being written* go, and an entry that goes
with unwritten changes takes all unwritten changes of its store along, in the order of their last
write. Sizes are Kafka's estimates, so that evictions happen at the same record.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from sortedcontainers import SortedList

from penstock.record import RecordContext

#: What every entry costs besides its key, value and context: three references and a flag.
_ENTRY_BYTES = 8 + 8 + 8 + 1
#: Timestamp, offset and partition of the context.
_CONTEXT_BYTES = 8 + 8 + 4


class Entry:
    """One cached row. `context` is that of the record that wrote it, None for one only read."""

    __slots__ = ("context", "dirty", "size", "value")

    def __init__(
        self, value: bytes | None, context: RecordContext | None, size: int
    ) -> None:
        self.value = value
        self.context = context
        self.dirty = context is not None
        self.size = size


#: Takes what a store's cache lets go, in order.
FlushEntries = Callable[[list[tuple[bytes, Entry]]], None]


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
    """The entries of one store, least recently used first.

    `_dirty` holds the keys of changes that the store below has not seen, in the order of their
    last write; each of them is in `_entries`.
    """

    def __init__(self, budget: RecordCache, flush: FlushEntries, key_bytes: int) -> None:
        self._budget = budget
        self._flush = flush
        self._fixed = key_bytes + _ENTRY_BYTES + _CONTEXT_BYTES
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._dirty: dict[bytes, None] = {}
        self._sorted = SortedList()
        self._unsorted: set[bytes] = set()
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> Entry | None:
        """The entry of a key, which thereby is the most recently used."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, key: bytes, value: bytes | None, context: RecordContext | None) -> None:
        """Add or replace an entry, then make room; without a context it is a copy of the store's.

        """
        size = self._fixed + len(key) + (0 if value is None else len(value))
        if context is not None:
            size += _context_bytes(context)
        entries = self._entries
        before = self.size
        old = entries.get(key)
        if old is None:
            self._unsorted.add(key)
        else:
            self.size -= old.size
        entries[key] = Entry(value, context, size)
        entries.move_to_end(key)
        if context is not None:
            self._dirty.pop(key, None)
            self._dirty[key] = None
        self.size += size
        self._budget.size += self.size - before
        if self._budget.size > self._budget.max_bytes:
            self._make_room()

    def flush(self) -> None:
        """Hand all unwritten changes down."""
        before = self.size
        self._flush_dirty(None)
        self._budget.size += self.size - before

    def rows(
        self, start: bytes | None, end: bytes | None, reverse: bool
    ) -> list[tuple[bytes, bytes | None]]:
        """The entries of a range in order; they count as used."""
        if self._unsorted:
            self._sorted.update(self._unsorted)
            self._unsorted.clear()
        entries = self._entries
        found: list[tuple[bytes, bytes | None]] = []
        for key in self._sorted.irange(start, end, inclusive=(True, False), reverse=reverse):
            found.append((key, entries[key].value))
        for key, _ in found:
            entries.move_to_end(key)
        return found

    def clear(self) -> None:
        """Forget everything, unwritten changes included."""
        self._budget.size -= self.size
        self.size = 0
        self._entries.clear()
        self._dirty.clear()
        self._sorted.clear()
        self._unsorted.clear()

    def _make_room(self) -> None:
        budget = self._budget
        while budget.size > budget.max_bytes:
            # What was written may have made other stores grow; only this one is made smaller.
            if not self._entries:
                return
            before = self.size
            self._evict()
            budget.size += self.size - before
            budget.evictions += 1

    def _evict(self) -> None:
        key, entry = self._entries.popitem(last=False)
        self._unsort(key)
        self.size -= entry.size
        if entry.dirty:
            self._flush_dirty((key, entry))

    def _flush_dirty(self, evicted: tuple[bytes, Entry] | None) -> None:
        if not self._dirty:
            return
        changes: list[tuple[bytes, Entry]] = []
        deleted: list[bytes] = []
        if evicted is not None:
            changes.append(evicted)
            self._dirty.pop(evicted[0], None)
        for key in self._dirty:
            entry = self._entries[key]
            entry.dirty = False
            changes.append((key, entry))
            if entry.value is None:
                deleted.append(key)
        # The changes are taken out before anyone hears of them: a listener may write here again.
        self._dirty = {}
        self._flush(changes)
        for key in deleted:
            self._delete(key)

    def _delete(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._unsort(key)
            self._dirty.pop(key, None)
            self.size -= entry.size

    def _unsort(self, key: bytes) -> None:
        if key in self._unsorted:
            self._unsorted.discard(key)
        else:
            self._sorted.remove(key)


def _context_bytes(context: RecordContext) -> int:
    """What topic and headers of a context cost."""
    topic = context.topic
    size = 0 if topic is None else len(topic)
    for name, value in context.headers:
        size += len(name) + (0 if value is None else len(value))
    return size
