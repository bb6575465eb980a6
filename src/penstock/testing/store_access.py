"""How a test looks at stores: by name and kind, whole or one partition of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from penstock.errors import InvalidStateStorePartitionException
from penstock.partitioning import partition_of
from penstock.record import ValueAndTimestamp
from penstock.stores.api.results import StoreIterator
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

#: Kinds of stores, each with the methods that give it, the best one first. A subclass stands before
#: its base.
_METHODS: tuple[tuple[type, str, tuple[str, ...]], ...] = (
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

_WRITES = frozenset(
    ("put", "put_if_absent", "put_all", "delete", "remove", "restore", "advance", "commit", "close",
     "init", "set_clocks")
)


class StoreAccess(ABC):
    """The part of the driver that hands out stores.

    Every method takes `partition=`, or `key=` for the partition that a key belongs to, where there
    are several tasks; without them a store is the whole of it, to be read.
    """

    def get_all_state_stores(self) -> dict[str, Any]:
        """All stores by name, global ones too."""
        return {name: self.get_state_store(name) for name in self._store_names()}

    def get_state_store(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> Any:
        """The store of that name, as it is."""
        return self._store(name, partition, key, _itself)

    def get_key_value_store(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> Any:
        """A key-value store; of one with timestamps the plain values."""
        return self._typed("get_key_value_store", name, partition, key, _plain_values)

    def get_timestamped_key_value_store(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> Any:
        """A key-value store of `ValueAndTimestamp`."""
        return self._typed("get_timestamped_key_value_store", name, partition, key, _no_headers)

    def get_timestamped_key_value_store_with_headers(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> Any:
        """A key-value store of `ValueTimestampHeaders`."""
        method = "get_timestamped_key_value_store_with_headers"
        return self._typed(method, name, partition, key, _itself)

    def get_versioned_key_value_store(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> Any:
        """A versioned store."""
        return self._typed("get_versioned_key_value_store", name, partition, key, _itself)

    def get_window_store(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> Any:
        """A window store; of one with timestamps the plain values."""
        return self._typed("get_window_store", name, partition, key, _plain_values)

    def get_timestamped_window_store(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> Any:
        """A window store of `ValueAndTimestamp`."""
        return self._typed("get_timestamped_window_store", name, partition, key, _no_headers)

    def get_timestamped_window_store_with_headers(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> Any:
        """A window store of `ValueTimestampHeaders`."""
        method = "get_timestamped_window_store_with_headers"
        return self._typed(method, name, partition, key, _itself)

    def get_session_store(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> Any:
        """A session store; of one with headers the plain aggregates."""
        return self._typed("get_session_store", name, partition, key, _no_headers)

    def get_session_store_with_headers(
        self, name: str, *, partition: int | None = None, key: Any = None
    ) -> Any:
        """A session store of `AggregationWithHeaders`."""
        return self._typed("get_session_store_with_headers", name, partition, key, _itself)

    # ---- what the driver knows ---------------------------------------------------------------

    @abstractmethod
    def _stores_of(self, name: str) -> dict[int, Any]:
        """The store of that name in every task that has it, by partition."""

    @abstractmethod
    def _store_names(self) -> list[str]:
        """The names of all stores."""

    # ---- inside ------------------------------------------------------------------------------

    def _typed(
        self, method: str, name: str, partition: int | None, key: Any, view: Callable[[Any], Any]
    ) -> Any:
        store = next(iter(self._parts(name).values()))
        methods, what = _methods_of(store)
        if method not in methods:
            raise ValueError(
                f"Store {name!r} is a {what}; use {methods[0]}({name!r}), not {method}."
            )
        return self._store(name, partition, key, view)

    def _store(
        self, name: str, partition: int | None, key: Any, view: Callable[[Any], Any]
    ) -> Any:
        parts = self._parts(name)
        if key is not None:
            first = next(iter(parts.values()))
            partition = partition_of(first._key(key), len(parts))
        if len(parts) == 1 and partition in {None, *parts}:
            return view(next(iter(parts.values())))
        if partition is None:
            return PartitionedStore(name, [view(parts[number]) for number in sorted(parts)])
        if partition not in parts:
            raise InvalidStateStorePartitionException(
                f"Store {name!r} has no partition {partition}. "
                f"Partitions: {', '.join(map(str, sorted(parts)))}."
            )
        return view(parts[partition])

    def _parts(self, name: str) -> dict[int, Any]:
        parts = self._stores_of(name)
        if not parts:
            names = ", ".join(map(repr, sorted(self._store_names()))) or "none"
            raise KeyError(f"No store {name!r}. Stores: {names}.")
        return parts


def _methods_of(store: Any) -> tuple[tuple[str, ...], str]:
    for kind, what, methods in _METHODS:
        if isinstance(store, kind):
            return methods, what if " store" in what else f"{what} store"
    return ("get_state_store",), f"store of a kind of its own ({type(store).__name__})"


def _itself(store: Any) -> Any:
    return store


def _no_headers(store: Any) -> Any:
    return store.plain


def _plain_values(store: Any) -> Any:
    store = store.plain
    if isinstance(store, TimestampedKeyValueStore | TimestampedWindowStore):
        return ValuesOnly(store)
    return store


class ValuesOnly:
    """A store with timestamps, seen without them; what a test writes has the timestamp -1."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"<values of {self._store!r}>"

    def put(self, key: Any, value: Any, *window_start: Any) -> None:
        """Write a value; None deletes."""
        self._store.put(key, _stamped(value), *window_start)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Write a value unless the key has one; the one it had."""
        return _unstamped(self._store.put_if_absent(key, _stamped(value)))

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Write several values."""
        self._store.put_all([(key, _stamped(value)) for key, value in entries])

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return (lambda *question: _unstamped(found(*question))) if callable(found) else found

    def __getitem__(self, key: Any) -> Any:
        return self._store[key].value

    def __contains__(self, key: object) -> bool:
        return key in self._store

    def __iter__(self) -> Iterator[Any]:
        return iter(self._store)


def _stamped(value: Any) -> Any:
    return None if value is None else ValueAndTimestamp(value, -1)


def _unstamped(answer: Any) -> Any:
    if isinstance(answer, StoreIterator):
        return StoreIterator((key, stored.value) for key, stored in answer)
    return answer.value if isinstance(answer, ValueAndTimestamp) else answer


class PartitionedStore:
    """A store of several tasks, to be read as one.

    A question for one row is put to every partition until one has it; a scan goes through one
    partition after the other, each in its own order.
    """

    def __init__(self, name: str, parts: list[Any]) -> None:
        self.name = name
        self._parts = parts

    def __repr__(self) -> str:
        return f"<PartitionedStore '{self.name}', {len(self._parts)} partitions>"

    @property
    def approximate_num_entries(self) -> int:
        """How many rows there are in all partitions."""
        return sum(part.approximate_num_entries for part in self._parts)

    def __getattr__(self, name: str) -> Any:
        if name in _WRITES:
            raise ValueError(
                f"Store {self.name!r} lies in {len(self._parts)} partitions: the whole of it can "
                f"only be read. To use {name}, ask for one of them with partition= or key=."
            )
        found = [getattr(part, name) for part in self._parts]
        if not callable(found[0]):
            return found[0]
        if name.startswith(("reverse_", "backward_")):
            found.reverse()

        def ask(*question: Any, **options: Any) -> Any:
            answers = [each(*question, **options) for each in found]
            if all(isinstance(answer, Iterator | StoreIterator) for answer in answers):
                return StoreIterator(chain.from_iterable(answers))
            return next((answer for answer in answers if answer is not None), None)

        return ask

    def __getitem__(self, key: Any) -> Any:
        for part in self._parts:
            if key in part:
                return part[key]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return any(key in part for part in self._parts)

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self._parts)
