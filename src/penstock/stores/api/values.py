"""What stores hand out besides plain values and `ValueAndTimestamp`."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from penstock.record import NO_HEADERS, Headers

V = TypeVar("V")


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
