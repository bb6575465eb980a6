"""`QueryableStoreTypes`: the kinds of stores that can be queried, and how each is shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar, get_origin

from penstock.queries.custom_stores import StateStoreProvider
from penstock.queries.read_only import (
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyVersionedStore,
    ReadOnlyWindowStore,
)
from penstock.record import ValueAndTimestamp
from penstock.stores.api.results import AggregationWithHeaders, ValueTimestampHeaders

T = TypeVar("T")

#: Converts a stored value to the one that a query returns; None returns it unchanged.
Convert = Callable[[Any], Any] | None

_value_of = attrgetter("value")


def _without_headers(stored: ValueTimestampHeaders[Any]) -> ValueAndTimestamp[Any]:
    return ValueAndTimestamp(stored.value, stored.timestamp)


def _aggregation_of(stored: AggregationWithHeaders[Any]) -> Any:
    return stored.aggregation


class QueryableStoreType(ABC, Generic[T]):
    """The type of store that a caller expects.

    `QueryableStoreTypes` has the types of the stores of penstock. A subclass is a type of your own,
    for example for custom stores: `Streams.store` returns what its `create` returns.

    Example:
        >>> class TotalsType(QueryableStoreType[list[int]]):
        ...     def accepts(self, kind: str) -> bool:
        ...         return kind == "custom"
        ...
        ...     def create(self, provider: StateStoreProvider) -> list[int]:
        ...         totals = []
        ...         for partition in provider.partitions:
        ...             with provider.open(partition) as store:
        ...                 totals.append(store.total)
        ...         return totals

    Kafka: QueryableStoreType
    """

    @abstractmethod
    def accepts(self, kind: str) -> bool:
        """Return whether stores of a kind can be shown as this type.

        Args:
            kind: The kind of a store, such as "timestamped_key_value", or "custom".

        Kafka: QueryableStoreType#accepts
        """

    @abstractmethod
    def create(self, provider: StateStoreProvider) -> T:
        """Return what `Streams.store` returns for a store.

        Args:
            provider: Gives access to the partitions of the store, now and later.

        Kafka: QueryableStoreType#create
        """


@dataclass(frozen=True)
class ReadOnlyStoreType(QueryableStoreType[T]):
    """A type of `QueryableStoreTypes`."""

    name: str
    #: The class of the store that a query returns.
    view: type
    #: Kind of store -> the conversion of its values.
    conversions: Mapping[str, Convert]

    def accepts(self, kind: str) -> bool:
        """Return whether stores of a kind can be shown as this type."""
        return kind in self.conversions

    def create(self, provider: StateStoreProvider) -> T:
        """Return the read-only store."""
        view: T = self.view(
            provider.info, provider.readers, self.conversions[provider.kind]
        )
        return view

    def __repr__(self) -> str:
        return f"QueryableStoreTypes.{self.name}()"


KEY_VALUE = ReadOnlyStoreType[Any]("key_value_store", ReadOnlyKeyValueStore, {
    "key_value": None, "timestamped_key_value": _value_of,
    "timestamped_key_value_with_headers": _value_of,
})
TIMESTAMPED_KEY_VALUE = ReadOnlyStoreType[Any](
    "timestamped_key_value_store", ReadOnlyKeyValueStore, {
        "timestamped_key_value": None, "timestamped_key_value_with_headers": _without_headers,
    },
)
_KEY_VALUE_WITH_HEADERS = ReadOnlyStoreType[Any](
    "timestamped_key_value_store_with_headers", ReadOnlyKeyValueStore,
    {"timestamped_key_value_with_headers": None},
)
_WINDOW = ReadOnlyStoreType[Any]("window_store", ReadOnlyWindowStore, {
    "window": None, "timestamped_window": _value_of, "timestamped_window_with_headers": _value_of,
})
TIMESTAMPED_WINDOW = ReadOnlyStoreType[Any]("timestamped_window_store", ReadOnlyWindowStore, {
    "timestamped_window": None, "timestamped_window_with_headers": _without_headers,
})
_WINDOW_WITH_HEADERS = ReadOnlyStoreType[Any](
    "timestamped_window_store_with_headers", ReadOnlyWindowStore,
    {"timestamped_window_with_headers": None},
)
SESSION = ReadOnlyStoreType[Any]("session_store", ReadOnlySessionStore, {
    "session": None, "session_with_headers": _aggregation_of,
})
_SESSION_WITH_HEADERS = ReadOnlyStoreType[Any](
    "session_store_with_headers", ReadOnlySessionStore, {"session_with_headers": None}
)
_VERSIONED = ReadOnlyStoreType[Any](
    "versioned_key_value_store", ReadOnlyVersionedStore, {"versioned_key_value": None}
)

#: The types with plain values, which `Streams.store` returns by default.
_DEFAULTS = (KEY_VALUE, _WINDOW, SESSION, _VERSIONED)
_ALL = (
    *_DEFAULTS, TIMESTAMPED_KEY_VALUE, _KEY_VALUE_WITH_HEADERS, TIMESTAMPED_WINDOW,
    _WINDOW_WITH_HEADERS, _SESSION_WITH_HEADERS,
)


class QueryableStoreTypes:
    """The types of stores for `Streams.store`.

    Example:
        >>> QueryableStoreTypes.key_value_store().accepts("timestamped_key_value")
        True
        >>> QueryableStoreTypes.window_store().accepts("session")
        False

    Kafka: QueryableStoreTypes
    """

    @staticmethod
    def key_value_store() -> QueryableStoreType[ReadOnlyKeyValueStore[Any, Any]]:
        """Return the type of key-value stores, with plain values.

        Kafka: QueryableStoreTypes#keyValueStore
        """
        return KEY_VALUE

    @staticmethod
    def timestamped_key_value_store() -> QueryableStoreType[
        ReadOnlyKeyValueStore[Any, ValueAndTimestamp[Any]]
    ]:
        """Return the type of key-value stores with timestamps.

        Kafka: QueryableStoreTypes#timestampedKeyValueStore
        """
        return TIMESTAMPED_KEY_VALUE

    @staticmethod
    def timestamped_key_value_store_with_headers() -> QueryableStoreType[
        ReadOnlyKeyValueStore[Any, ValueTimestampHeaders[Any]]
    ]:
        """Return the type of key-value stores with timestamps and headers.

        Kafka: QueryableStoreTypes#timestampedKeyValueStoreWithHeaders
        """
        return _KEY_VALUE_WITH_HEADERS

    @staticmethod
    def window_store() -> QueryableStoreType[ReadOnlyWindowStore[Any, Any]]:
        """Return the type of window stores, with plain values.

        Kafka: QueryableStoreTypes#windowStore
        """
        return _WINDOW

    @staticmethod
    def timestamped_window_store() -> QueryableStoreType[
        ReadOnlyWindowStore[Any, ValueAndTimestamp[Any]]
    ]:
        """Return the type of window stores with timestamps.

        Kafka: QueryableStoreTypes#timestampedWindowStore
        """
        return TIMESTAMPED_WINDOW

    @staticmethod
    def timestamped_window_store_with_headers() -> QueryableStoreType[
        ReadOnlyWindowStore[Any, ValueTimestampHeaders[Any]]
    ]:
        """Return the type of window stores with timestamps and headers.

        Kafka: QueryableStoreTypes#timestampedWindowStoreWithHeaders
        """
        return _WINDOW_WITH_HEADERS

    @staticmethod
    def session_store() -> QueryableStoreType[ReadOnlySessionStore[Any, Any]]:
        """Return the type of session stores, with plain aggregates.

        Kafka: QueryableStoreTypes#sessionStore
        """
        return SESSION

    @staticmethod
    def session_store_with_headers() -> QueryableStoreType[
        ReadOnlySessionStore[Any, AggregationWithHeaders[Any]]
    ]:
        """Return the type of session stores with headers.

        Kafka: QueryableStoreTypes#sessionStoreWithHeaders
        """
        return _SESSION_WITH_HEADERS

    @staticmethod
    def versioned_key_value_store() -> QueryableStoreType[ReadOnlyVersionedStore[Any, Any]]:
        """Return the type of versioned key-value stores."""
        return _VERSIONED


def default_type(kind: str) -> ReadOnlyStoreType[Any] | None:
    """Return the type with plain values of a kind of store; None if it cannot be queried."""
    return next((each for each in _DEFAULTS if each.accepts(kind)), None)


def detailed_type(kind: str) -> ReadOnlyStoreType[Any] | None:
    """Return the type that shows everything that a kind of store has: timestamps and headers."""
    return next((each for each in _ALL if each.conversions.get(kind, each) is None), None)


def resolve_type(requested: object, kind: str) -> QueryableStoreType[Any] | None:
    """Return the type for `Streams.store(type=...)`; None if the kind does not match it.

    `requested` is a `QueryableStoreType`, a class such as `ReadOnlyWindowStore[str, int]`, or None
    for the default of the kind.
    """
    if isinstance(requested, QueryableStoreType):
        return requested if requested.accepts(kind) else None
    expected = get_origin(requested) or requested
    if isinstance(expected, type) and issubclass(expected, QueryableStoreType):
        name = expected.__name__
        raise TypeError(f"type is the class {name}. Create an object of it: {name}().")
    found = default_type(kind)
    if requested is None or found is None:
        return found
    if expected not in {each.view for each in _ALL}:
        name = getattr(requested, "__name__", "")
        if getattr(QueryableStoreTypes, name, None) is requested:
            raise TypeError(
                f"type is the function QueryableStoreTypes.{name}. Call it: "
                f"QueryableStoreTypes.{name}()."
            )
        raise TypeError(
            f"type must be a QueryableStoreType or a read-only store class, not {requested!r}. "
            "See QueryableStoreTypes."
        )
    return found if found.view is expected else None
