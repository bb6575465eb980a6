"""`StoreSource`: where queries find the stores. The engine and the test driver implement it.

A `PartitionReader` gives access to one partition of one store. A reader hands out sessions. A
session is one consistent snapshot of the committed rows, with a typed store over them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.log.types import TopicPartition
from penstock.queries.position import Position


class Session(Protocol):
    """A snapshot of one partition of a store. One caller uses it, until it is released."""

    #: The typed store (`stores/typed/`) over the committed rows. Read only.
    store: Any

    @property
    def changelog_offset(self) -> int | None:
        """The offset of the changelog that the rows have reached; None if it has none."""
        ...


class PartitionReader(Protocol):
    """One partition of one store. Any thread may use it."""

    @property
    def partition(self) -> int:
        """The number of the partition; -1 for a global store."""
        ...

    @property
    def changelog_topics(self) -> frozenset[str]:
        """The topics that the stores of the application are restored from."""
        ...

    @property
    def is_current(self) -> bool:
        """Whether the rows are at the last commit, so that `acquire` returns at once."""
        ...

    def key_serializer(self) -> Callable[[Any], bytes]:
        """Return the function that serializes the keys of the store."""
        ...

    @property
    def lookup(self) -> Callable[[Any], Any]:
        """The function that returns the value of a key without its timestamp, as `look_up`."""
        ...

    def position(self, session: Any) -> Position:
        """Return the input that the rows of a session contain."""
        ...

    def read_offsets(self) -> Mapping[TopicPartition, int]:
        """Return changelog partition -> the next offset after all rows that were read so far."""
        ...

    def reaches(self, session: Any, bound: Position) -> bool:
        """Return whether the rows of a session contain the offsets of a bound."""
        ...

    def has_reached(self, bound: Position) -> bool:
        """Return whether the rows that were read so far contain the offsets of a bound.

        It does not access the log. False may mean that nothing was read yet.
        """
        ...

    def reach(self, bound: Position) -> bool:
        """Bring the rows to the last commit in the log. Return whether they reach a bound."""
        ...

    def acquire(self) -> Any:
        """Return a `Session` of the last commit.

        Raises an `InvalidStateStoreException` if the partition cannot be read now.
        """
        ...

    def release(self, session: Any) -> None:
        """End a session. Its store and iterators must not be used any more."""
        ...


class UnfollowedReader(ABC):
    """The methods of a `PartitionReader` that does not follow a changelog."""

    partition: int
    changelog_topics: frozenset[str] = frozenset()

    @abstractmethod
    def acquire(self) -> Any:
        """See `PartitionReader`."""

    @abstractmethod
    def position(self, session: Any) -> Position:
        """See `PartitionReader`."""

    def read_offsets(self) -> Mapping[TopicPartition, int]:
        """Return an empty mapping."""
        return {}

    def reaches(self, session: Any, bound: Position) -> bool:
        """Return whether the rows of a session contain the offsets of a bound."""
        return self.position(session).reaches(bound, self.partition)

    def has_reached(self, bound: Position) -> bool:
        """Return whether the rows contain the offsets of a bound."""
        return self.reaches(self.acquire(), bound)

    reach = has_reached


def look_up(reader: PartitionReader, key: Any) -> Any:
    """Return the value of a key without its timestamp; None if the key does not exist.

    Only for stores of the kind "timestamped_key_value".
    """
    session = reader.acquire()
    try:
        return session.store.load_value(key)
    finally:
        reader.release(session)


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A store of a topology, as queries see it."""

    name: str
    #: The kind of `StoreBuilder`: "timestamped_key_value", "window" and so on.
    kind: str
    #: The number of partitions; 1 for a global store.
    partitions: int
    is_global: bool = False
    #: Whether the default partitioner determines the partition of a key. False if the keys come
    #: from a topic that other programs write, or through a partitioner of the user.
    is_default_partitioned: bool = False


class StoreSource(Protocol):
    """The stores of an application, as one process can read them."""

    @property
    def stores(self) -> Mapping[str, StoreInfo]:
        """All stores of the topology, by name."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether this instance runs the tasks, so that no other instance is ahead of it."""
        ...

    @property
    def thread_state(self) -> str:
        """The state of the stream thread, for messages."""
        ...

    def check_running(self, *, stopped: bool) -> None:
        """Raise unless the application has started and not ended.

        `stopped`: raise `StreamsStoppedException` after the end, as `Streams.query` does.
        """
        ...

    def reader(self, store: str, partition: int, *, stale: bool) -> PartitionReader:
        """Return the reader of a partition. `stale`: a standby may serve it, too."""
        ...
