"""`StateReader`: what the HTTP interface needs from an application, an instance or a query node.

The stores have the methods of the read-only stores of `Streams.store`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engine.lifecycle import State
    from penstock.metrics import MetricName
    from penstock.queries.changes import StoreChanges
    from penstock.queries.service import StoreQueries
    from penstock.serdes.base import Serde
    from penstock.topology.topology import Topology

#: The word in the kind of a store builder -> the kind of store for clients, the specific one first.
_KINDS = {
    "versioned": "versioned", "window": "window", "session": "session", "key_value": "key-value"
}


class ServedStore(NamedTuple):
    """A store, as clients see it."""

    name: str
    #: "key-value", "window", "session" or "versioned".
    kind: str
    partitions: tuple[int, ...]
    is_global: bool
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    #: The size of the windows; 0 for other stores.
    window_size_ms: int = 0


class PartitionLag(NamedTuple):
    """The position of a store in a partition of its changelog, and the end of the changelog."""

    position: int
    end: int


class Host(NamedTuple):
    """The address of an instance; empty if it has none."""

    host: str
    port: int


class InstanceInfo(NamedTuple):
    """An instance of the application."""

    address: Host
    stores: tuple[str, ...]
    topic_partitions: tuple[str, ...]
    standby_stores: tuple[str, ...]
    standby_topic_partitions: tuple[str, ...]
    #: Its host and process, as other instances see it.
    name: str = ""
    #: Whether it runs the tasks. The others are standbys.
    is_active: bool = False


class KeyLocation(NamedTuple):
    """The task of a key, and the instances with an address that have it."""

    partition: int
    active: Host | None
    standbys: tuple[Host, ...]


@runtime_checkable
class StateReader(Protocol):
    """Reads the committed state of an application. Any thread may call it."""

    @property
    def config(self) -> StreamsConfig:
        """The configuration."""
        ...

    @property
    def topology(self) -> Topology:
        """The topology."""
        ...

    @property
    def state(self) -> State:
        """The state of the instance."""
        ...

    @property
    def is_known_ready(self) -> bool:
        """Whether `not_ready_reason` returns None at once, without access to the log."""
        ...

    def not_ready_reason(self) -> str | None:
        """Return why the stores cannot be queried yet, or None if they can."""
        ...

    def stores(self) -> Mapping[str, ServedStore]:
        """Return the stores that can be read, by name."""
        ...

    def store(self, name: str, partition: int | None = None) -> Any:
        """Return a read-only store over all partitions, or one."""
        ...

    def lags(self) -> Mapping[str, Mapping[int, PartitionLag]]:
        """Return store -> partition -> its position."""
        ...

    def metrics(self) -> Mapping[MetricName, float | int | str]:
        """Return all metrics."""
        ...

    def instances(self) -> list[InstanceInfo]:
        """Return the known instances."""
        ...

    def locate(self, store: str, key: Any) -> KeyLocation:
        """Return where the task of a key runs."""
        ...

    def changes(self, store: str) -> StoreChanges:
        """Return the reader of the changes of a store."""
        ...


class Instance(Protocol):
    """The part of `Streams` that is served."""

    topology: Topology

    @property
    def config(self) -> StreamsConfig:
        """The configuration."""
        ...

    @property
    def state(self) -> State:
        """The state of the instance."""
        ...

    @property
    def waits_for(self) -> str | None:
        """The instance that runs the application, if it is another one."""
        ...

    @property
    def _store_queries(self) -> StoreQueries: ...

    def _serve_queries(self) -> None: ...

    def metrics(self) -> Mapping[MetricName, float | int | str]:
        """Return all metrics."""
        ...


def kind_for_clients(builder_kind: str) -> str | None:
    """Return the kind of a store for clients; None if it cannot be queried."""
    return next((kind for word, kind in _KINDS.items() if word in builder_kind), None)
