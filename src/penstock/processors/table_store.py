"""The store of a table, and the getters that read a table through it.

A table's rows are in a timestamped or a versioned key-value store. The kind is known only when a
task is assembled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.errors import InvalidStateStoreException
from penstock.processors.base import NodeContext, ValueGetter
from penstock.windows import Windowed

#: Returned by a versioned store for a put that became the latest version of its key.
LATEST = -1
#: Returned for a put that is older than the history.
NOT_PUT = -(2**63)

Row = tuple[Any, int]


class TableStore:
    """Reads rows as (value, timestamp) from a table's store, or None."""

    __slots__ = ("_store", "get", "is_versioned")

    def __init__(self, store: Any) -> None:
        self._store = store
        self.is_versioned: bool = store.is_versioned
        self.get: Callable[[Any], Row | None] = (
            self._latest_version if self.is_versioned else store.load
        )

    def get_as_of(self, key: Any, timestamp: int) -> Row | None:
        """The row as of a timestamp; versioned stores only."""
        if not self.is_versioned:
            raise _not_versioned(self._store.name)
        version = self._store.get(key, timestamp)
        return None if version is None else (version.value, version.timestamp)

    def _latest_version(self, key: Any) -> Row | None:
        version = self._store.get(key)
        return None if version is None else (version.value, version.timestamp)


@dataclass(frozen=True, slots=True)
class StoreGetter:
    """Reads a table that has a store: a source, an aggregate or any materialized result."""

    store_name: str

    @property
    def store_names(self) -> tuple[str, ...]:
        return (self.store_name,)

    def attach_getter(self, node: NodeContext) -> ValueGetter:
        return TableStore(node.store(self.store_name))


@dataclass(frozen=True, slots=True)
class WindowGetter:
    """Reads a table of time windows by the start of the `Windowed` key."""

    store_name: str

    @property
    def store_names(self) -> tuple[str, ...]:
        return (self.store_name,)

    def attach_getter(self, node: NodeContext) -> ValueGetter:
        load = node.store(self.store_name).load

        def get(key: Any) -> Row | None:
            if not isinstance(key, Windowed):
                raise _not_windowed(self.store_name, key)
            row: Row | None = load(key.key, key.window.start)
            return row

        return UnversionedGetter(self.store_name, get)


@dataclass(frozen=True, slots=True)
class SessionGetter:
    """Reads a table of sessions; a session's timestamp is its end."""

    store_name: str

    @property
    def store_names(self) -> tuple[str, ...]:
        return (self.store_name,)

    def attach_getter(self, node: NodeContext) -> ValueGetter:
        fetch_session = node.store(self.store_name).fetch_session

        def get(key: Any) -> Row | None:
            if not isinstance(key, Windowed):
                raise _not_windowed(self.store_name, key)
            start, end = key.window
            aggregate = fetch_session(key.key, start, end)
            return None if aggregate is None else (aggregate, end)

        return UnversionedGetter(self.store_name, get)


class UnversionedGetter:
    """A getter without history, over a lookup function."""

    __slots__ = ("get", "store_name")

    is_versioned = False

    def __init__(self, store_name: str, get: Callable[[Any], Row | None]) -> None:
        self.store_name = store_name
        self.get = get

    def get_as_of(self, key: Any, timestamp: int) -> Row | None:
        raise _not_versioned(self.store_name)


def _not_windowed(store_name: str, key: object) -> TypeError:
    return TypeError(
        f"The table in store '{store_name}' has windowed keys, and the key of the record is of "
        f"type {type(key).__name__}. Join it with a stream or table whose keys are `Windowed`, or "
        "create a table with plain keys: table.to_stream(lambda key, value: key.key).to_table()."
    )


def _not_versioned(store_name: str) -> InvalidStateStoreException:
    return InvalidStateStoreException(
        f"Store '{store_name}' has no history and cannot be read as of a timestamp. "
        "Materialize the table in a versioned store."
    )
