"""The record cache: one byte budget for all stores of a task.

A store's part of it (`StoreCache`) is a write-back cache in order of use. When the budget is
exceeded, the least recently used entries *of the store being written* go, and an entry that goes
with unwritten changes takes all unwritten changes of its store along, in the order of their last
write. Sizes are Kafka's estimates, so that evictions happen at the same record.

The entries themselves are native (`native/cache.c`) or not (`cache_entries.py`).
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
    """The budget. `size` is the sum of the stores' sizes; 0 bytes means that there is no cache."""

    def store(
        self, flush: FlushEntries, key_bytes: int, time_at: int | None = None
    ) -> StoreCache:
        """A new store's part of the cache; `key_bytes` is added to the size of each key.

        `time_at` says where physical keys have their time, if they have one.
        """
        return StoreCache(self, flush, key_bytes, time_at)


class StoreCache(CacheEntries):
    """The entries of one store, which can be read in the order of their keys."""

    def rows(
        self, start: bytes | None, end: bytes | None, reverse: bool
    ) -> list[tuple[bytes, bytes | None]]:
        """The entries of a range in order; they count as used."""
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
