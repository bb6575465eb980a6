"""What a scan of a store gives: pairs, in order, with a look at the next key."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from types import TracebackType
from typing import Generic, NamedTuple, TypeVar

from penstock.record import NO_HEADERS, Headers

K = TypeVar("K")
V = TypeVar("V")


class StoreIterator(Generic[K, V]):
    """Pairs of key and value (window start and value, for one key of a window store).

    A Python iterator and a context manager; closing it early releases what it holds.
    """

    __slots__ = ("_ahead", "_source")

    def __init__(self, source: Iterator[tuple[K, V]]) -> None:
        self._source = source
        self._ahead: tuple[K, V] | None = None

    def __iter__(self) -> Iterator[tuple[K, V]]:
        if self._ahead is None:
            return self._source
        ahead, self._ahead = self._ahead, None
        self._source = chain((ahead,), self._source)
        return self._source

    def __next__(self) -> tuple[K, V]:
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return ahead
        return next(self._source)

    def has_next(self) -> bool:
        """Whether there is another pair."""
        if self._ahead is None:
            self._ahead = next(self._source, None)
        return self._ahead is not None

    def peek_next_key(self) -> K:
        """The key of the next pair, which stays where it is."""
        if not self.has_next() or self._ahead is None:
            raise LookupError("The iterator has no more entries.")
        return self._ahead[0]

    def close(self) -> None:
        """There will be no more pairs."""
        self._ahead = None
        self._source = iter(())

    def __enter__(self) -> StoreIterator[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class ValueTimestampHeaders(NamedTuple, Generic[V]):
    """A value with the time and the headers of the record that wrote it."""

    value: V
    timestamp: int
    headers: Headers = NO_HEADERS


class AggregationWithHeaders(NamedTuple, Generic[V]):
    """The aggregate of a session with headers."""

    aggregation: V
    headers: Headers = NO_HEADERS


class VersionedRecord(NamedTuple, Generic[V]):
    """One version of a key's value, valid from `timestamp` up to, not including, `valid_to`.

    `valid_to` is None for the latest version, and for all that `VersionedKeyValueStore.get` and
    `delete` answer; `versions` and `get_version` know it.
    """

    value: V
    timestamp: int
    valid_to: int | None = None
