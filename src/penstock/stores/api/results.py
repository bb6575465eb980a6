"""Iterators and values that stores return, besides plain values and `ValueAndTimestamp`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from types import TracebackType
from typing import Generic, NamedTuple, TypeVar

from penstock.record import NO_HEADERS, Headers

K = TypeVar("K")
V = TypeVar("V")


class ValueTimestampHeaders(NamedTuple, Generic[V]):
    """A value with the timestamp and the headers of the record that wrote it."""

    value: V
    timestamp: int
    headers: Headers = NO_HEADERS


class AggregationWithHeaders(NamedTuple, Generic[V]):
    """The aggregate of a session with headers."""

    aggregation: V
    headers: Headers = NO_HEADERS


class VersionedRecord(NamedTuple, Generic[V]):
    """One version of a value, valid from `timestamp` (inclusive) to `valid_to` (exclusive).

    `valid_to` is None for the latest version. `VersionedKeyValueStore.get` and `delete` never set
    it; `versions` and `get_version` do.
    """

    value: V
    timestamp: int
    valid_to: int | None = None


class StoreIterator(Generic[K, V]):
    """An iterator over (key, value); for one key of a window store, over (window start, value).

    It is also a context manager. Closing it early releases its resources.

    Example:
        >>> with StoreIterator(iter([("milk", 5), ("tea", 3)])) as rows:
        ...     rows.peek_next_key(), next(rows), rows.has_next()
        ('milk', ('milk', 5), True)
    """

    __slots__ = ("_peeked", "_source")

    def __init__(self, source: Iterator[tuple[K, V]]) -> None:
        self._source = source
        self._peeked: tuple[K, V] | None = None

    def __iter__(self) -> Iterator[tuple[K, V]]:
        if self._peeked is None:
            return self._source
        peeked, self._peeked = self._peeked, None
        self._source = chain((peeked,), self._source)
        return self._source

    def __next__(self) -> tuple[K, V]:
        if self._peeked is not None:
            peeked, self._peeked = self._peeked, None
            return peeked
        return next(self._source)

    def has_next(self) -> bool:
        """Return whether the iterator has another entry."""
        if self._peeked is None:
            self._peeked = next(self._source, None)
        return self._peeked is not None

    def peek_next_key(self) -> K:
        """Return the key of the next entry, without consuming the entry.

        Kafka: KeyValueIterator#peekNextKey
        """
        if not self.has_next() or self._peeked is None:
            raise LookupError("The iterator has no more entries.")
        return self._peeked[0]

    def close(self) -> None:
        """End the iteration.

        Kafka: KeyValueIterator#close, VersionedRecordIterator#close
        """
        self._peeked = None
        source, self._source = self._source, iter(())
        # A query over a replica holds a snapshot until its source is closed.
        close = getattr(source, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> StoreIterator[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
