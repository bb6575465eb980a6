"""Access to the stores of a test: by name and kind, all partitions or one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, NoReturn, TypeVar, overload

from penstock.errors import InvalidStateStorePartitionException
from penstock.partitioning import partition_of
from penstock.record import ValueAndTimestamp
from penstock.stores.api.results import StoreIterator
from penstock.stores.api.store import check_kind
from penstock.stores.typed.key_value import (
    KeyValueStore,
    TimestampedKeyValueStore,
    TimestampedKeyValueStoreWithHeaders,
)
from penstock.stores.typed.session import SessionStore, SessionStoreWithHeaders
from penstock.stores.typed.versioned import VersionedKeyValueStore
from penstock.stores.typed.window import (
    TimestampedWindowStore,
    TimestampedWindowStoreWithHeaders,
    WindowStore,
)

S = TypeVar("S")

#: Store class, its name in messages, and the methods that return it, the most specific one first.
#: A subclass comes before its base.
_ACCESS_METHODS: tuple[tuple[type, str, tuple[str, ...]], ...] = (
    (VersionedKeyValueStore, "versioned key-value", ("get_versioned_key_value_store",)),
    (
        TimestampedKeyValueStoreWithHeaders, "timestamped key-value store with headers",
        (
            "get_timestamped_key_value_store_with_headers", "get_timestamped_key_value_store",
            "get_key_value_store",
        ),
    ),
    (
        TimestampedKeyValueStore, "timestamped key-value",
        ("get_timestamped_key_value_store", "get_key_value_store"),
    ),
    (KeyValueStore, "key-value", ("get_key_value_store",)),
    (
        TimestampedWindowStoreWithHeaders, "timestamped window store with headers",
        (
            "get_timestamped_window_store_with_headers", "get_timestamped_window_store",
            "get_window_store",
        ),
    ),
    (
        TimestampedWindowStore, "timestamped window",
        ("get_timestamped_window_store", "get_window_store"),
    ),
    (WindowStore, "window", ("get_window_store",)),
    (
        SessionStoreWithHeaders, "session store with headers",
        ("get_session_store_with_headers", "get_session_store"),
    ),
    (SessionStore, "session", ("get_session_store",)),
)

_WRITE_METHODS = frozenset(
    ("put", "put_if_absent", "put_all", "delete", "remove", "restore", "advance", "commit", "close",
     "init", "set_clocks")
)


class StoreAccess(ABC):
    """The methods of `TopologyTestDriver` that return stores.

    With several partitions, `partition=` selects one, and `key=` selects the partition of a key.
    Without them a method returns a read-only view of all partitions.
    """

    def get_all_state_stores(self) -> dict[str, Any]:
        """Return all stores by name, including global ones."""
        return {name: self.get_state_store(name) for name in self._store_names()}

    @overload
    def get_state_store(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> Any: ...
    @overload
    def get_state_store(
        self, name: str, kind: type[S], *, partition: int | None = None, key: Any = None
    ) -> S: ...
    def get_state_store(
        self, name: str, kind: Any = None, *, partition: int | None = None, key: Any = None
    ) -> Any:
        """Return the store with that name, of any kind.

        Args:
            name: The name of the store.
            kind: The class of the store, such as `WindowStore[str, int]`. Type checkers know the
                result by it.
            partition: The partition of the store; None for a read-only view of all.
            key: Selects the partition of this key.

        Raises:
            KeyError: The topology has no store with that name.
            TypeError: The store is not of that kind.
            InvalidStateStorePartitionException: The store has no such partition.

        Kafka: TopologyTestDriver#getStateStore
        """
        for store in self._partitions(name).values():
            check_kind(store, kind)
        return self._select_store(name, partition, key, _identity)

    def get_key_value_store(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> KeyValueStore[Any, Any]:
        """Return a key-value store; a timestamped one is shown with plain values.

        Args:
            name: The name of the store.
            partition: The partition of the store; None for a read-only view of all.
            key: Selects the partition of this key.

        Raises:
            KeyError: The topology has no store with that name.
            ValueError: The store is of another kind.

        Kafka: TopologyTestDriver#getKeyValueStore
        """
        return self._typed_store(KeyValueStore, name, partition, key)

    def get_timestamped_key_value_store(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> TimestampedKeyValueStore[Any, Any]:
        """Return a key-value store with values of type `ValueAndTimestamp`.

        Args:
            name: The name of the store.
            partition: The partition of the store; None for a read-only view of all.
            key: Selects the partition of this key.

        Raises:
            KeyError: The topology has no store with that name.
            ValueError: The store is of another kind.

        Kafka: TopologyTestDriver#getTimestampedKeyValueStore
        """
        return self._typed_store(TimestampedKeyValueStore, name, partition, key)

    def get_timestamped_key_value_store_with_headers(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> TimestampedKeyValueStoreWithHeaders[Any, Any]:
        """Return a key-value store with values of type `ValueTimestampHeaders`.

        Args:
            name: The name of the store.
            partition: The partition of the store; None for a read-only view of all.
            key: Selects the partition of this key.

        Raises:
            KeyError: The topology has no store with that name.
            ValueError: The store is of another kind.

        Kafka: TopologyTestDriver#getTimestampedKeyValueStoreWithHeaders
        """
        return self._typed_store(TimestampedKeyValueStoreWithHeaders, name, partition, key)

    def get_versioned_key_value_store(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> VersionedKeyValueStore[Any, Any]:
        """Return a versioned key-value store.

        Args:
            name: The name of the store.
            partition: The partition of the store; None for a read-only view of all.
            key: Selects the partition of this key.

        Raises:
            KeyError: The topology has no store with that name.
            ValueError: The store is of another kind.

        Kafka: TopologyTestDriver#getVersionedKeyValueStore
        """
        return self._typed_store(VersionedKeyValueStore, name, partition, key)

    def get_window_store(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> WindowStore[Any, Any]:
        """Return a window store; a timestamped one is shown with plain values.

        Args:
            name: The name of the store.
            partition: The partition of the store; None for a read-only view of all.
            key: Selects the partition of this key.

        Raises:
            KeyError: The topology has no store with that name.
            ValueError: The store is of another kind.

        Kafka: TopologyTestDriver#getWindowStore
        """
        return self._typed_store(WindowStore, name, partition, key)

    def get_timestamped_window_store(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> TimestampedWindowStore[Any, Any]:
        """Return a window store with values of type `ValueAndTimestamp`.

        Args:
            name: The name of the store.
            partition: The partition of the store; None for a read-only view of all.
            key: Selects the partition of this key.

        Raises:
            KeyError: The topology has no store with that name.
            ValueError: The store is of another kind.

        Kafka: TopologyTestDriver#getTimestampedWindowStore
        """
        return self._typed_store(TimestampedWindowStore, name, partition, key)

    def get_timestamped_window_store_with_headers(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> TimestampedWindowStoreWithHeaders[Any, Any]:
        """Return a window store with values of type `ValueTimestampHeaders`.

        Args:
            name: The name of the store.
            partition: The partition of the store; None for a read-only view of all.
            key: Selects the partition of this key.

        Raises:
            KeyError: The topology has no store with that name.
            ValueError: The store is of another kind.

        Kafka: TopologyTestDriver#getTimestampedWindowStoreWithHeaders
        """
        return self._typed_store(TimestampedWindowStoreWithHeaders, name, partition, key)

    def get_session_store(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> SessionStore[Any, Any]:
        """Return a session store; one with headers is shown with plain aggregates.

        Args:
            name: The name of the store.
            partition: The partition of the store; None for a read-only view of all.
            key: Selects the partition of this key.

        Raises:
            KeyError: The topology has no store with that name.
            ValueError: The store is of another kind.

        Kafka: TopologyTestDriver#getSessionStore
        """
        return self._typed_store(SessionStore, name, partition, key)

    def get_session_store_with_headers(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> SessionStoreWithHeaders[Any, Any]:
        """Return a session store with values of type `AggregationWithHeaders`.

        Args:
            name: The name of the store.
            partition: The partition of the store; None for a read-only view of all.
            key: Selects the partition of this key.

        Raises:
            KeyError: The topology has no store with that name.
            ValueError: The store is of another kind.

        Kafka: TopologyTestDriver#getSessionStoreWithHeaders
        """
        return self._typed_store(SessionStoreWithHeaders, name, partition, key)

    # ---- implemented by the driver -----------------------------------------------------------

    @abstractmethod
    def _stores_of(self, name: str) -> dict[int, Any]:
        """Return the store with that name of each task that has it, by partition."""

    @abstractmethod
    def _store_names(self) -> list[str]:
        """Return the names of all stores."""

    # ---- internals ---------------------------------------------------------------------------

    def _typed_store(self, kind: type[S], name: str, partition: int | None, key: Any) -> S:
        store = next(iter(self._partitions(name).values()))
        methods, what = _access_methods(store)
        method, view = _VIEWS[kind]
        if method not in methods:
            raise ValueError(
                f"Store {name!r} is a {what}. Use {methods[0]}({name!r}), not {method}."
            )
        found: S = self._select_store(name, partition, key, view)
        return found

    def _select_store(
        self, name: str, partition: int | None, key: Any, view: Callable[[Any], Any]
    ) -> Any:
        partitions = self._partitions(name)
        if key is not None:
            first = next(iter(partitions.values()))
            partition = partition_of(first._key(key), len(partitions))
        if len(partitions) == 1 and partition in {None, *partitions}:
            return view(next(iter(partitions.values())))
        if partition is None:
            views = [view(partitions[number]) for number in sorted(partitions)]
            return PartitionedStore(name, views)
        if partition not in partitions:
            raise InvalidStateStorePartitionException(
                f"Store {name!r} has no partition {partition}. "
                f"Partitions: {', '.join(map(str, sorted(partitions)))}."
            )
        return view(partitions[partition])

    def _partitions(self, name: str) -> dict[int, Any]:
        partitions = self._stores_of(name)
        if not partitions:
            names = ", ".join(map(repr, sorted(self._store_names()))) or "none"
            raise KeyError(f"Store {name!r} does not exist. Stores: {names}.")
        return partitions


def _access_methods(store: Any) -> tuple[tuple[str, ...], str]:
    for kind, what, methods in _ACCESS_METHODS:
        if isinstance(store, kind):
            return methods, what if " store" in what else f"{what} store"
    return ("get_state_store",), f"custom store ({type(store).__name__})"


def _identity(store: Any) -> Any:
    return store


def _without_headers(store: Any) -> Any:
    return store.plain


def _values_only(store: Any) -> Any:
    store = store.plain
    if isinstance(store, TimestampedKeyValueStore | TimestampedWindowStore):
        return ValuesOnly(store)
    return store


#: Store class -> the method that returns it, and the view of a store that this method shows.
_VIEWS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    KeyValueStore: ("get_key_value_store", _values_only),
    TimestampedKeyValueStore: ("get_timestamped_key_value_store", _without_headers),
    TimestampedKeyValueStoreWithHeaders: (
        "get_timestamped_key_value_store_with_headers", _identity,
    ),
    VersionedKeyValueStore: ("get_versioned_key_value_store", _identity),
    WindowStore: ("get_window_store", _values_only),
    TimestampedWindowStore: ("get_timestamped_window_store", _without_headers),
    TimestampedWindowStoreWithHeaders: ("get_timestamped_window_store_with_headers", _identity),
    SessionStore: ("get_session_store", _without_headers),
    SessionStoreWithHeaders: ("get_session_store_with_headers", _identity),
}


class ValuesOnly:
    """A timestamped store shown without timestamps; values written through it have timestamp -1."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"<values of {self._store!r}>"

    def put(self, key: Any, value: Any, *window_start: Any) -> None:
        """Write a value; None deletes."""
        self._store.put(key, _with_timestamp(value), *window_start)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Write a value unless the key has one; return the old value."""
        return _without_timestamp(self._store.put_if_absent(key, _with_timestamp(value)))

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Write several values."""
        self._store.put_all([(key, _with_timestamp(value)) for key, value in entries])

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return (lambda *args: _without_timestamp(found(*args))) if callable(found) else found

    def __getitem__(self, key: Any) -> Any:
        return self._store[key].value

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        del self._store[key]

    def __contains__(self, key: object) -> bool:
        return key in self._store

    def __iter__(self) -> Iterator[Any]:
        return iter(self._store)


def _with_timestamp(value: Any) -> Any:
    return None if value is None else ValueAndTimestamp(value, -1)


def _without_timestamp(result: Any) -> Any:
    if isinstance(result, StoreIterator):
        return StoreIterator((key, stored.value) for key, stored in result)
    return result.value if isinstance(result, ValueAndTimestamp) else result


class PartitionedStore:
    """A read-only view of a store with several partitions.

    A lookup tries all partitions. A scan reads one partition after the other.
    """

    def __init__(self, name: str, partitions: list[Any]) -> None:
        self.name = name
        self._partitions = partitions

    def __repr__(self) -> str:
        return f"<PartitionedStore '{self.name}', {len(self._partitions)} partitions>"

    @property
    def approximate_num_entries(self) -> int:
        """The number of rows in all partitions."""
        return sum(partition.approximate_num_entries for partition in self._partitions)

    def __getattr__(self, name: str) -> Any:
        if name in _WRITE_METHODS:
            self._reject(name)
        found = [getattr(partition, name) for partition in self._partitions]
        if not callable(found[0]):
            return found[0]
        if name.startswith(("reverse_", "backward_")):
            found.reverse()

        def read_all(*args: Any, **options: Any) -> Any:
            results = [method(*args, **options) for method in found]
            if all(isinstance(result, Iterator | StoreIterator) for result in results):
                return StoreIterator(chain.from_iterable(results))
            return next((result for result in results if result is not None), None)

        return read_all

    def __setitem__(self, key: Any, value: Any) -> None:
        self._reject("store[key] = value")

    def __delitem__(self, key: Any) -> None:
        self._reject("del store[key]")

    def _reject(self, operation: str) -> NoReturn:
        raise ValueError(
            f"Store {self.name!r} has {len(self._partitions)} partitions, so it is read-only. "
            f"To use {operation}, select a partition with partition= or key=."
        )

    def __getitem__(self, key: Any) -> Any:
        for partition in self._partitions:
            if key in partition:
                return partition[key]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return any(key in partition for partition in self._partitions)

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self._partitions)
