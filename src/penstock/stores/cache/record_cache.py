"""The record cache: one byte budget for all stores of a task.

The cache of a store (`StoreCache`) is a write-back cache with LRU eviction. When the budget is
exceeded, the least recently used entries *of the store that is being written* are evicted. The
eviction of a changed entry flushes all changed entries of its store, in the order of their last
write. Sizes are Kafka's estimates, so evictions happen at the same record as in Kafka Streams.

The entries are native (`native/cache.c`), or in Python (`entries.py`) without the extension.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sortedcontainers import SortedList

from penstock.native import core

if TYPE_CHECKING or core is None:
    from penstock.stores.cache.entries import (
        PENDING,
        UNKNOWN,
        CacheBudget,
        CacheEntries,
        CacheEntry,
        FlushEntries,
    )
else:
    PENDING, UNKNOWN, CacheEntry = core.PENDING, core.UNKNOWN, core.CacheEntry
    CacheBudget, CacheEntries = core.CacheBudget, core.CacheEntries

__all__ = ["PENDING", "UNKNOWN", "CacheEntry", "RecordCache", "StoreCache"]


class RecordCache(CacheBudget):
    """The budget of a task. `size` is the sum of the stores' sizes; 0 bytes disables the cache."""

    def store(
        self, flush: FlushEntries, key_overhead: int, time_at: int | None = None
    ) -> StoreCache:
        """Create the cache of a store.

        `key_overhead` is added to the size of each row key. `time_at` is the index of the time in
        row keys, if they have one.

        Args:
            flush: Receives the entries that leave the cache.
            key_overhead: The size of a key besides its bytes.
            time_at: Where a key has its time.

        Returns:
            The cache of the store.
        """
        return StoreCache(self, flush, key_overhead, time_at)


class StoreCache(CacheEntries):
    """The cached entries of one store."""

    def rows(
        self, start: bytes | None, end: bytes | None, reverse: bool
    ) -> list[tuple[bytes, bytes | None]]:
        """The entries of a range, in order. This counts as a use of each entry."""
        if self.ordered is None:
            self.ordered = SortedList(self.names())
        elif self.unsorted:
            self.ordered.update(self.unsorted)
            self.unsorted.clear()
        found: list[tuple[bytes, bytes | None]] = []
        for key in self.ordered.irange(start, end, inclusive=(True, False), reverse=reverse):
            entry = self.get(key)
            assert entry is not None
            found.append((key, self.stored(entry)))
        return found
