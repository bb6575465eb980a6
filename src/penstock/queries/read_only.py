"""The stores that `Streams.store` returns: read-only, over all partitions or one.

A key lookup reads the partition of the key. If other programs choose the partitions, it tries the
others, too. A scan reads one partition after the other; each is a snapshot of its last commit. An
iterator holds its snapshot until it is exhausted or closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Generic, NoReturn, TypeVar, overload

from penstock.partitioning import partition_of
from penstock.queries.position import Position
from penstock.queries.source import PartitionReader, StoreInfo
from penstock.serdes.builtin import Serde
from penstock.stores.api.results import StoreIterator, VersionedRecord
from penstock.windows import Windowed

K = TypeVar("K")
V = TypeVar("V")
Instant = int | datetime
#: Converts a stored value to the one that a query returns; None returns it unchanged.
Convert = Callable[[Any], Any] | None

#: The default of `key_to`: None stands for an open end.
_NO_RANGE: Any = object()


class ReadOnlyStore(Generic[K, V]):
    """The base class: partitions, lookups and scans."""

    def __init__(
        self, info: StoreInfo, readers: Sequence[PartitionReader], convert: Convert = None
    ) -> None:
        self.name = info.name
        self._readers = tuple(readers)
        self._convert = convert
        self._serialize: Callable[[Any], bytes] | None = None
        #: The readers that may have a key of each partition, that of the partition first.
        self._orders = [
            sorted(self._readers, key=lambda reader: reader.partition != number)[
                : 1 if info.is_default_partitioned else None
            ]
            for number in range(info.partitions)
        ]

    def __repr__(self) -> str:
        partitions = ", ".join(str(reader.partition) for reader in self._readers)
        return f"<{type(self).__name__} '{self.name}', partitions {partitions}>"

    @property
    def is_current(self) -> bool:
        """Whether a lookup needs no access to the log, because the rows are at the last commit."""
        return all(reader.is_current for reader in self._readers)

    def position(self, key: K | None = None) -> Position:
        """Return the offsets in the changelogs that the data read so far belong to.

        As the bound of a later query on any instance (`reach`, or `PositionBound.at`), it ensures
        that the query returns no older data.

        Args:
            key: Only the partitions that a lookup of this key reads; None for all.
        """
        found = Position()
        for reader in self._readers if key is None else self._readers_of(key):
            for (topic, partition), offset in reader.read_offsets().items():
                if offset > 0:
                    found.with_component(topic, partition, offset - 1)
        return found

    def reach(self, bound: Position, key: K | None = None) -> bool:
        """Bring the store to the last commit. Returns whether that is at or after a bound.

        Args:
            bound: A position of this store, of any instance. Offsets of other stores are ignored.
            key: Only the partitions that a lookup of this key reads; None for all.

        Example:
            >>> from penstock import Position, StreamsBuilder
            >>> from penstock.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> _ = builder.table("items", key=str, value=str, store="items")
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     driver.store("items").reach(Position.from_map({"items": {0: 1_000}}))
            False
        """
        readers = self._readers if key is None else self._readers_of(key)
        return all(reader.reach(bound) for reader in readers)

    def has_reached(self, bound: Position, key: K | None = None) -> bool:
        """Return whether `reach` is known to return True, without access to the log.

        Args:
            bound: A position.
            key: As in `reach`.
        """
        readers = self._readers if key is None else self._readers_of(key)
        return all(reader.has_reached(bound) for reader in readers)

    @property
    def changelog_topics(self) -> frozenset[str]:
        """The topics of positions: the changelogs of all stores of the application."""
        return self._readers[0].changelog_topics

    def _readers_of(self, key: Any) -> Sequence[PartitionReader]:
        """The readers that may have a key, the most likely one first."""
        readers, orders = self._readers, self._orders
        if len(readers) < 2:
            return readers
        serialize = self._serialize
        if serialize is None:
            serialize = self._serialize = readers[0].key_serializer()
        return orders[partition_of(serialize(key), len(orders))]

    def _lookup(self, key: Any, read: Callable[[Any], Any]) -> Any:
        """The first result that is not None."""
        convert = self._convert
        for reader in self._readers_of(key):
            session = reader.acquire()
            try:
                found = read(session.store)
            finally:
                reader.release(session)
            if found is not None:
                return found if convert is None else convert(found)
        return None

    def _scan(
        self, scan: Callable[[Any], Any], *, reverse: bool = False, key: Any = None
    ) -> StoreIterator[Any, Any]:
        """Chain the entries of all partitions. The first one is opened at once."""
        readers = self._readers if key is None else self._readers_of(key)
        rows = _rows(reversed(readers) if reverse else readers, scan, self._convert)
        next(rows)
        return StoreIterator(rows)


def _rows(
    readers: Any, scan: Callable[[Any], Any], convert: Convert
) -> Iterator[Any]:
    """Yield None once the first partition is open, then the entries."""
    is_open = False
    for reader in readers:
        session = reader.acquire()
        try:
            entries = scan(session.store)
            if not is_open:
                is_open = True
                yield None
            if convert is None:
                yield from entries
            else:
                for key, value in entries:
                    yield key, convert(value)
        finally:
            reader.release(session)
    if not is_open:
        yield None


class ReadOnlyKeyValueStore(ReadOnlyStore[K, V]):
    """A key-value store: values by key, in the order of the serialized keys of each partition.

    Kafka: ReadOnlyKeyValueStore
    """

    def __init__(
        self, info: StoreInfo, readers: Sequence[PartitionReader], convert: Convert = None
    ) -> None:
        super().__init__(info, readers, convert)
        #: Whether the readers have a faster function for values without timestamps.
        self._loads_values = convert is not None and info.kind == "timestamped_key_value"
        #: The only reader of such a store.
        self._single = self._readers[0] if self._loads_values and len(readers) == 1 else None

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if the key does not exist.

        Args:
            key: The key.

        Kafka: ReadOnlyKeyValueStore#get
        """
        found: V | None
        single = self._single
        if single is not None and key is not None:
            found = single.lookup(key)
            return found
        if not self._loads_values or key is None:
            found = self._lookup(key, lambda store: store.get(key))
            return found
        for reader in self._readers_of(key):
            found = reader.lookup(key)
            if found is not None:
                return found
        return None

    def range(self, start: K | None, end: K | None) -> StoreIterator[K, V]:
        """Return the entries from `start` to `end`, both included; None is unbounded.

        Args:
            start: The first key; None for no bound.
            end: The last key; None for no bound.

        Kafka: ReadOnlyKeyValueStore#range
        """
        return self._scan(lambda store: store.range(start, end))

    def reverse_range(self, start: K | None, end: K | None) -> StoreIterator[K, V]:
        """The entries of `range`, in descending order.

        Args:
            start: The first key; None for no bound.
            end: The last key; None for no bound.

        Returns:
            An iterator of (key, value) pairs.

        Kafka: ReadOnlyKeyValueStore#reverseRange
        """
        return self._scan(lambda store: store.reverse_range(start, end), reverse=True)

    def all(self) -> StoreIterator[K, V]:
        """Return all entries, in ascending order.

        Kafka: ReadOnlyKeyValueStore#all
        """
        return self._scan(lambda store: store.all())

    def reverse_all(self) -> StoreIterator[K, V]:
        """Return all entries, in descending order.

        Kafka: ReadOnlyKeyValueStore#reverseAll
        """
        return self._scan(lambda store: store.reverse_all(), reverse=True)

    def prefix_scan(
        self, prefix: Any, serializer: Serde[Any] | Callable[[Any], bytes] | None = None
    ) -> StoreIterator[K, V]:
        """Return the entries whose serialized keys start with the serialized prefix.

        Args:
            prefix: The prefix, before it is serialized.
            serializer: A serde or a function for the prefix; None for the key serde.

        Kafka: ReadOnlyKeyValueStore#prefixScan
        """
        return self._scan(lambda store: store.prefix_scan(prefix, serializer))

    def serialized_range(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False
    ) -> StoreIterator[K, V]:
        """Return the entries between two serialized keys, which need not be complete keys.

        Args:
            start: The first serialized key, included; None for no bound.
            end: The last serialized key, not included; None for no bound.
            reverse: Whether the entries are in descending order.
        """
        return self._scan(
            lambda store: store.serialized_range(start, end, reverse=reverse), reverse=reverse
        )

    @property
    def approximate_num_entries(self) -> int:
        """The number of entries in all partitions.

        Kafka: ReadOnlyKeyValueStore#approximateNumEntries
        """
        total = 0
        for reader in self._readers:
            session = reader.acquire()
            try:
                total += session.store.approximate_num_entries
            finally:
                reader.release(session)
        return total

    def __getitem__(self, key: K) -> V:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    def __contains__(self, key: K) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.all())


class ReadOnlyWindowStore(ReadOnlyStore[K, V]):
    """A window store: values by key and window start. Times are `datetime` or milliseconds.

    Kafka: ReadOnlyWindowStore
    """

    @overload
    def fetch(self, key: K, time: Instant, /) -> V | None: ...
    @overload
    def fetch(
        self, key: K, time_from: Instant, time_to: Instant, /
    ) -> StoreIterator[int, V]: ...
    @overload
    def fetch(
        self, key_from: K | None, key_to: K | None, time_from: Instant, time_to: Instant, /
    ) -> StoreIterator[Windowed[K], V]: ...
    def fetch(self, *arguments: Any) -> Any:
        """Windows of a key or of a range of keys. All bounds are inclusive; None is unbounded.

        `fetch(key, start)`: the value of one window; None if it does not exist.
        `fetch(key, start_from, start_to)`: an iterator of (start, value).
        `fetch(key_from, key_to, start_from, start_to)`: an iterator of (Windowed, value).

        Args:
            arguments: A key and bounds; see above.

        Returns:
            The value for a key and one time; otherwise an iterator of (start, value) or (windowed
                key, value) pairs.

        Kafka: ReadOnlyWindowStore#fetch
        """
        if len(arguments) == 2:
            return self._lookup(arguments[0], lambda store: store.fetch(*arguments))
        key = arguments[0] if len(arguments) == 3 else None
        return self._scan(lambda store: store.fetch(*arguments), key=key)

    @overload
    def backward_fetch(
        self, key: K, time_from: Instant, time_to: Instant, /
    ) -> StoreIterator[int, V]: ...
    @overload
    def backward_fetch(
        self, key_from: K | None, key_to: K | None, time_from: Instant, time_to: Instant, /
    ) -> StoreIterator[Windowed[K], V]: ...
    def backward_fetch(self, *arguments: Any) -> Any:
        """`fetch` with three or four arguments, in the opposite order.

        Args:
            arguments: A key and bounds; see `fetch`.

        Returns:
            An iterator of (start, value) or (windowed key, value) pairs.

        Kafka: ReadOnlyWindowStore#backwardFetch
        """
        key = arguments[0] if len(arguments) == 3 else None
        return self._scan(
            lambda store: store.backward_fetch(*arguments), reverse=key is None, key=key
        )

    def fetch_all(
        self, time_from: Instant, time_to: Instant
    ) -> StoreIterator[Windowed[K], V]:
        """Return all windows that start in a range of time.

        Args:
            time_from: The earliest start of a window.
            time_to: The latest start of a window.

        Kafka: ReadOnlyWindowStore#fetchAll
        """
        return self._scan(lambda store: store.fetch_all(time_from, time_to))

    def backward_fetch_all(
        self, time_from: Instant, time_to: Instant
    ) -> StoreIterator[Windowed[K], V]:
        """`fetch_all` in the opposite order.

        Args:
            time_from: The earliest start of a window.
            time_to: The latest start of a window.

        Returns:
            An iterator of (windowed key, value) pairs.

        Kafka: ReadOnlyWindowStore#backwardFetchAll
        """
        return self._scan(
            lambda store: store.backward_fetch_all(time_from, time_to), reverse=True
        )

    def all(self) -> StoreIterator[Windowed[K], V]:
        """Return all windows.

        Kafka: ReadOnlyWindowStore#all
        """
        return self._scan(lambda store: store.all())

    def backward_all(self) -> StoreIterator[Windowed[K], V]:
        """Return all windows in the opposite order.

        Kafka: ReadOnlyWindowStore#backwardAll
        """
        return self._scan(lambda store: store.backward_all(), reverse=True)

    def __contains__(self, key: Windowed[K]) -> bool:
        _check_windowed(self, key, "fetch(key, time_from, time_to)")
        return self.fetch(key.key, key.window.start) is not None

    def __iter__(self) -> Iterator[Windowed[K]]:
        return (key for key, _ in self.all())


class ReadOnlySessionStore(ReadOnlyStore[K, V]):
    """A session store: aggregates by key and session. Both ends of a session are inclusive.

    Kafka: ReadOnlySessionStore
    """

    def fetch(
        self, key: K | None, key_to: K | None = _NO_RANGE
    ) -> StoreIterator[Windowed[K], V]:
        """Return all sessions of a key, or of a range of keys. In a range, None is unbounded.

        Args:
            key: The key, or the first key of a range; None for no bound.
            key_to: The last key of a range of keys.

        Kafka: ReadOnlySessionStore#fetch
        """
        if key_to is _NO_RANGE:
            return self._scan(lambda store: store.fetch(key), key=key)
        return self._scan(lambda store: store.fetch(key, key_to))

    def backward_fetch(
        self, key: K | None, key_to: K | None = _NO_RANGE
    ) -> StoreIterator[Windowed[K], V]:
        """`fetch` in the opposite order.

        Args:
            key: The key, or the first key of a range; None for no bound.
            key_to: The last key of a range of keys.

        Returns:
            An iterator of (windowed key, aggregate) pairs.

        Kafka: ReadOnlySessionStore#backwardFetch
        """
        if key_to is _NO_RANGE:
            return self._scan(lambda store: store.backward_fetch(key), key=key)
        return self._scan(lambda store: store.backward_fetch(key, key_to), reverse=True)

    def fetch_session(self, key: K, start: Instant, end: Instant) -> V | None:
        """Return the aggregate of exactly this session; None if it does not exist.

        Args:
            key: The key.
            start: The start of the session.
            end: The end of the session.

        Kafka: ReadOnlySessionStore#fetchSession
        """
        found: V | None = self._lookup(key, lambda store: store.fetch_session(key, start, end))
        return found

    def find_sessions(self, *arguments: Any) -> StoreIterator[Windowed[K], V]:
        """Sessions by key and time. All bounds are inclusive; a key of None is unbounded.

        `find_sessions(key, earliest_end, latest_start)` and
        `find_sessions(key_from, key_to, earliest_end, latest_start)`.

        Args:
            arguments: One or two keys, and bounds; see above.

        Returns:
            An iterator of (windowed key, aggregate) pairs.

        Kafka: ReadOnlySessionStore#findSessions
        """
        key = arguments[0] if len(arguments) == 3 else None
        return self._scan(lambda store: store.find_sessions(*arguments), key=key)

    def backward_find_sessions(self, *arguments: Any) -> StoreIterator[Windowed[K], V]:
        """`find_sessions` in the opposite order.

        Args:
            arguments: One or two keys, and bounds; see `find_sessions`.

        Returns:
            An iterator of (windowed key, aggregate) pairs.

        Kafka: ReadOnlySessionStore#backwardFindSessions
        """
        key = arguments[0] if len(arguments) == 3 else None
        return self._scan(
            lambda store: store.backward_find_sessions(*arguments), reverse=key is None, key=key
        )

    def all(self) -> StoreIterator[Windowed[K], V]:
        """Return all sessions."""
        return self._scan(lambda store: store.fetch(None, None))

    def __contains__(self, key: Windowed[K]) -> bool:
        _check_windowed(self, key, "fetch(key)")
        return self.fetch_session(key.key, *key.window) is not None

    def __iter__(self) -> Iterator[Windowed[K]]:
        return (key for key, _ in self.all())


class ReadOnlyVersionedStore(ReadOnlyStore[K, V]):
    """A versioned key-value store: versions by key and time.

    Kafka: VersionedKeyValueStore
    """

    def get(self, key: K, as_of: Instant | None = None) -> VersionedRecord[V] | None:
        """Return the latest version of a key, or the version at a time; None if there is none.

        Args:
            key: The key.
            as_of: The time of the version; None for the latest.

        Kafka: VersionedKeyValueStore#get
        """
        found: VersionedRecord[V] | None = self._lookup(
            key, lambda store: store.get_version(key, as_of)
        )
        return found

    def versions(
        self, key: K, time_from: Instant | None = None, time_to: Instant | None = None,
        reverse: bool = False,
    ) -> list[VersionedRecord[V]]:
        """Return all versions valid at some time in [from, to], by time.

        Args:
            key: The key.
            time_from: The earliest time; None for no bound.
            time_to: The latest time; None for no bound.
            reverse: Whether the last one comes first.
        """
        found: list[VersionedRecord[V]] | None = self._lookup(
            key, lambda store: list(store.versions(key, time_from, time_to, reverse)) or None
        )
        return found or []

    def __getitem__(self, key: K) -> V:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found.value

    def __contains__(self, key: K) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> NoReturn:
        # Without this method, Python would call `store[0]`.
        raise TypeError(
            f"The versioned store '{self.name}' cannot be iterated: it is read by key. Use "
            "get(key), get(key, as_of=time) or versions(key)."
        )


def _check_windowed(store: ReadOnlyStore[Any, Any], key: object, method: str) -> None:
    if not isinstance(key, Windowed):
        raise TypeError(
            f"Store '{store.name}' has windowed keys, and {key!r} is not one. Use {method} for a "
            "key without its window."
        )
