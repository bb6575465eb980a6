"""The queries of `Streams.query`. The type argument of `Query` is the type of the result.

A query is immutable; its `with_...` and `as_...` methods return changed copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any, Generic, Self, TypeVar

from penstock.record import ValueAndTimestamp
from penstock.stores.api.results import StoreIterator, VersionedRecord
from penstock.windows import Windowed, instant_ms

K = TypeVar("K")
V = TypeVar("V")
R_co = TypeVar("R_co", covariant=True)
Instant = int | datetime


class ResultOrder(Enum):
    """The order of the entries of a result.

    Kafka: ResultOrder
    """

    #: The order of the store: ascending for key-value stores, descending for versions.
    ANY = "ANY"
    ASCENDING = "ASCENDING"
    DESCENDING = "DESCENDING"


class Query(Generic[R_co]):
    """The base class of all queries.

    Kafka: Query
    """



@dataclass(frozen=True)
class QueryConfig:
    """The options of a request, for `QueryableStateStore.query`.

    Example:
        >>> QueryConfig(is_collect_execution_info=True).is_collect_execution_info
        True

    Kafka: QueryConfig
    """

    is_collect_execution_info: bool = False


@dataclass(frozen=True)
class KeyQuery(Query[V | None], Generic[K, V]):
    """The value of a key, for key-value stores. A timestamped store returns it without timestamp.

    Example:
        >>> KeyQuery.with_key("tea").skip_cache()
        KeyQuery(key='tea', is_skip_cache=True)

    Kafka: KeyQuery
    """

    key: K
    is_skip_cache: bool = False

    @classmethod
    def with_key(cls, key: K) -> KeyQuery[K, Any]:
        """Return the query for a key.

        Args:
            key: The key.

        Kafka: KeyQuery#withKey
        """
        _check_not_none(key, "key")
        return cls(key)

    def skip_cache(self) -> KeyQuery[K, V]:
        """Return the query without the record cache. Queries never read the cache here.

        Kafka: KeyQuery#skipCache
        """
        return replace(self, is_skip_cache=True)


@dataclass(frozen=True)
class TimestampedKeyQuery(Query[ValueAndTimestamp[V] | None], Generic[K, V]):
    """The value of a key with its timestamp, for timestamped key-value stores.

    Example:
        >>> TimestampedKeyQuery.with_key("tea").key
        'tea'

    Kafka: TimestampedKeyQuery
    """

    key: K
    is_skip_cache: bool = False

    @classmethod
    def with_key(cls, key: K) -> TimestampedKeyQuery[K, Any]:
        """Return the query for a key.

        Args:
            key: The key.

        Kafka: TimestampedKeyQuery#withKey
        """
        _check_not_none(key, "key")
        return cls(key)

    def skip_cache(self) -> TimestampedKeyQuery[K, V]:
        """Return the query without the record cache. Queries never read the cache here.

        Kafka: TimestampedKeyQuery#skipCache
        """
        return replace(self, is_skip_cache=True)


@dataclass(frozen=True)
class _KeyRange(Generic[K]):
    """The bounds of a range of keys. Both are included; None is unbounded."""

    lower_bound: K | None = None
    upper_bound: K | None = None
    result_order: ResultOrder = ResultOrder.ANY

    @classmethod
    def with_range(cls, lower_bound: K | None, upper_bound: K | None) -> Self:
        """Return the query for the keys between two bounds, both included.

        Args:
            lower_bound: The first key; None for no bound.
            upper_bound: The last key; None for no bound.

        Kafka: RangeQuery#withRange, TimestampedRangeQuery#withRange
        """
        return cls(lower_bound, upper_bound)

    @classmethod
    def with_lower_bound(cls, lower_bound: K) -> Self:
        """Return the query for all keys from this one.

        Args:
            lower_bound: The first key.

        Kafka: RangeQuery#withLowerBound, TimestampedRangeQuery#withLowerBound
        """
        _check_not_none(lower_bound, "lower bound")
        return cls(lower_bound=lower_bound)

    @classmethod
    def with_upper_bound(cls, upper_bound: K) -> Self:
        """Return the query for all keys up to this one.

        Args:
            upper_bound: The last key.

        Kafka: RangeQuery#withUpperBound, TimestampedRangeQuery#withUpperBound
        """
        _check_not_none(upper_bound, "upper bound")
        return cls(upper_bound=upper_bound)

    @classmethod
    def with_no_bounds(cls) -> Self:
        """Return the query for all keys.

        Kafka: RangeQuery#withNoBounds, TimestampedRangeQuery#withNoBounds
        """
        return cls()

    def with_ascending_keys(self) -> Self:
        """Return the query with its entries by ascending key bytes.

        Kafka: RangeQuery#withAscendingKeys, TimestampedRangeQuery#withAscendingKeys
        """
        return replace(self, result_order=ResultOrder.ASCENDING)

    def with_descending_keys(self) -> Self:
        """Return the query with its entries by descending key bytes.

        Kafka: RangeQuery#withDescendingKeys, TimestampedRangeQuery#withDescendingKeys
        """
        return replace(self, result_order=ResultOrder.DESCENDING)


@dataclass(frozen=True)
class RangeQuery(_KeyRange[K], Query[StoreIterator[K, V]], Generic[K, V]):
    """The entries of a range of keys, for key-value stores.

    Example:
        >>> RangeQuery.with_range("a", "m").with_descending_keys().result_order.name
        'DESCENDING'

    Kafka: RangeQuery
    """


@dataclass(frozen=True)
class TimestampedRangeQuery(
    _KeyRange[K], Query[StoreIterator[K, ValueAndTimestamp[V]]], Generic[K, V]
):
    """The entries of a range of keys with timestamps, for timestamped key-value stores.

    Example:
        >>> TimestampedRangeQuery.with_lower_bound("m").lower_bound
        'm'

    Kafka: TimestampedRangeQuery
    """


@dataclass(frozen=True)
class VersionedKeyQuery(Query[VersionedRecord[V] | None], Generic[K, V]):
    """The version of a key at a time, for versioned stores.

    Example:
        >>> VersionedKeyQuery.with_key("tea").as_of(1_000).as_of_timestamp
        1000

    Kafka: VersionedKeyQuery
    """

    key: K
    as_of_timestamp: int | None = None

    @classmethod
    def with_key(cls, key: K) -> VersionedKeyQuery[K, Any]:
        """Return the query for the latest version of a key.

        Args:
            key: The key.

        Kafka: VersionedKeyQuery#withKey
        """
        _check_not_none(key, "key")
        return cls(key)

    def as_of(self, timestamp: Instant) -> VersionedKeyQuery[K, V]:
        """Return the query for the version at a time.

        Args:
            timestamp: A datetime, or milliseconds since the epoch.

        Kafka: VersionedKeyQuery#asOf
        """
        return replace(self, as_of_timestamp=instant_ms(timestamp))


@dataclass(frozen=True)
class MultiVersionedKeyQuery(Query[Iterator[VersionedRecord[V]]], Generic[K, V]):
    """The versions of a key that are valid at some time of a range, for versioned stores.

    The default order is by descending time.

    Example:
        >>> query = MultiVersionedKeyQuery.with_key("tea").from_time(1_000).to_time(2_000)
        >>> query.with_ascending_timestamps().result_order.name
        'ASCENDING'

    Kafka: MultiVersionedKeyQuery
    """

    key: K
    time_from: int | None = None
    time_to: int | None = None
    result_order: ResultOrder = ResultOrder.ANY

    @classmethod
    def with_key(cls, key: K) -> MultiVersionedKeyQuery[K, Any]:
        """Return the query for all versions of a key.

        Args:
            key: The key.

        Kafka: MultiVersionedKeyQuery#withKey
        """
        _check_not_none(key, "key")
        return cls(key)

    def from_time(self, time: Instant | None) -> MultiVersionedKeyQuery[K, V]:
        """Return the query for versions that are valid at this time or later.

        Args:
            time: A datetime, or milliseconds since the epoch; None for no bound.

        Kafka: MultiVersionedKeyQuery#fromTime
        """
        return replace(self, time_from=None if time is None else instant_ms(time))

    def to_time(self, time: Instant | None) -> MultiVersionedKeyQuery[K, V]:
        """Return the query for versions that are valid at this time or earlier.

        Args:
            time: A datetime, or milliseconds since the epoch; None for no bound.

        Kafka: MultiVersionedKeyQuery#toTime
        """
        return replace(self, time_to=None if time is None else instant_ms(time))

    def with_ascending_timestamps(self) -> MultiVersionedKeyQuery[K, V]:
        """Return the query with the oldest version first.

        Kafka: MultiVersionedKeyQuery#withAscendingTimestamps
        """
        return replace(self, result_order=ResultOrder.ASCENDING)

    def with_descending_timestamps(self) -> MultiVersionedKeyQuery[K, V]:
        """Return the query with the latest version first.

        Kafka: MultiVersionedKeyQuery#withDescendingTimestamps
        """
        return replace(self, result_order=ResultOrder.DESCENDING)


@dataclass(frozen=True)
class WindowKeyQuery(Query[StoreIterator[int, V]], Generic[K, V]):
    """The windows of a key that start in a range of time, for window stores: (start, value).

    Example:
        >>> WindowKeyQuery.with_key_and_window_start_range("tea", 0, 60_000).time_to
        60000

    Kafka: WindowKeyQuery
    """

    key: K
    time_from: int
    time_to: int

    @classmethod
    def with_key_and_window_start_range(
        cls, key: K, time_from: Instant, time_to: Instant
    ) -> WindowKeyQuery[K, Any]:
        """Return the query for a key and a range of window starts, both included.

        Args:
            key: The key.
            time_from: The earliest start: a datetime, or milliseconds since the epoch.
            time_to: The latest start.

        Kafka: WindowKeyQuery#withKeyAndWindowStartRange
        """
        _check_not_none(key, "key")
        return cls(key, instant_ms(time_from), instant_ms(time_to))


@dataclass(frozen=True)
class WindowRangeQuery(Query[StoreIterator[Windowed[K], V]], Generic[K, V]):
    """The windows of all keys that start in a range of time, or all sessions of a key.

    Window stores support `with_window_start_range`, session stores support `with_key`.

    Example:
        >>> WindowRangeQuery.with_key("ann").key
        'ann'

    Kafka: WindowRangeQuery
    """

    key: K | None = None
    time_from: int | None = None
    time_to: int | None = None

    @classmethod
    def with_key(cls, key: K) -> WindowRangeQuery[K, Any]:
        """Return the query for all sessions of a key.

        Args:
            key: The key.

        Kafka: WindowRangeQuery#withKey
        """
        _check_not_none(key, "key")
        return cls(key=key)

    @classmethod
    def with_window_start_range(
        cls, time_from: Instant, time_to: Instant
    ) -> WindowRangeQuery[Any, Any]:
        """Return the query for all windows that start in a range of time, both ends included.

        Args:
            time_from: The earliest start: a datetime, or milliseconds since the epoch.
            time_to: The latest start.

        Kafka: WindowRangeQuery#withWindowStartRange
        """
        return cls(time_from=instant_ms(time_from), time_to=instant_ms(time_to))


def _check_not_none(value: object, what: str) -> None:
    if value is None:
        raise TypeError(f"the {what} should not be null")
