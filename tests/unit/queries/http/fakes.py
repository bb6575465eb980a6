"""A `StateReader` over stores in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock import Serdes, Stores, StreamsBuilder, StreamsConfig, Topology
from penstock.engine.lifecycle import State
from penstock.log import Log, RecordColumns
from penstock.log.types import TopicPartition
from penstock.metrics import MetricName
from penstock.partitioning import partition_of
from penstock.queries.changes import ChangelogSource, NoChangelog, StoreChanges
from penstock.queries.position import Position
from penstock.queries.state_reader import (
    Host,
    InstanceInfo,
    KeyLocation,
    PartitionLag,
    ServedStore,
)
from penstock.record import ValueAndTimestamp
from penstock.testing import MockProcessorContext
from penstock.windows import Window, Windowed


@dataclass(frozen=True)
class Order:
    """A value with fields."""

    item: str
    amount: int


class Partitioned:
    """A read-only view of all partitions, as `Streams.store` returns it."""

    def __init__(
        self, stores: list[Any], serialize: Callable[[Any], bytes], offsets: dict[int, int]
    ) -> None:
        self.offsets = offsets
        self._stores = stores
        self._serialize = serialize

    is_current = True

    changelog_topics = frozenset({"shop-changelog", "other-changelog"})

    def position(self, key: Any = None) -> Position:
        return Position({"shop-changelog": self.offsets} if self.offsets else {})

    def has_reached(self, bound: Position, key: Any = None) -> bool:
        wanted = bound.partition_positions("shop-changelog")
        return all(self.offsets.get(number, -1) >= wanted[number] for number in wanted)

    def reach(self, bound: Position, key: Any = None) -> bool:
        """Every call reads one more change of each partition."""
        self.offsets.update({number: offset + 1 for number, offset in self.offsets.items()})
        return self.has_reached(bound, key)

    def get(self, key: Any, *rest: Any) -> Any:
        return self._of(key).get(key, *rest)

    def _of(self, key: Any) -> Any:
        return self._stores[partition_of(self._serialize(key), len(self._stores))]

    @property
    def approximate_num_entries(self) -> int:
        return sum(store.approximate_num_entries for store in self._stores)

    def __getattr__(self, name: str) -> Any:
        def call(key: Any, *arguments: Any) -> Any:
            return getattr(self._of(key), name)(key, *arguments)

        return call


class FakeReader:
    """Stores of every kind, filled by the test."""

    def __init__(self) -> None:
        self.config = StreamsConfig(application_id="shop")
        self.state = State.RUNNING
        self.restoring: str | None = None
        self.log: Log | None = None
        #: Partition -> the last offset of the changelog, of all stores.
        self.offsets: dict[int, int] = {}
        self._served: dict[str, ServedStore] = {}
        self._stores: dict[str, list[Any]] = {}

    @property
    def topology(self) -> Topology:
        builder = StreamsBuilder()
        builder.stream("orders", key=str, value=str).to("copies")
        return builder.build()

    def add(
        self, name: str, kind: str, builder: Any, key: Any, value: Any, partitions: int = 1,
        window_size_ms: int = 0,
    ) -> list[Any]:
        """Add a store and return its partitions, to be filled."""
        stores = []
        for _ in range(partitions):
            store = builder.with_logging_disabled().build()
            store.init(MockProcessorContext().state_store_context)
            stores.append(store)
        self._stores[name] = stores
        self._served[name] = ServedStore(
            name, kind, tuple(range(partitions)), False, Serdes.of(key), Serdes.of(value),
            window_size_ms,
        )
        return stores

    def put(self, name: str, key: Any, value: Any) -> None:
        """Write to the partition of a key."""
        stores = self._stores[name]
        raw = self._served[name].key_serde.serialize(key)
        stores[partition_of(raw, len(stores))].put(key, value)

    @property
    def is_known_ready(self) -> bool:
        return self.restoring is None

    def not_ready_reason(self) -> str | None:
        return self.restoring

    def stores(self) -> Mapping[str, ServedStore]:
        return self._served

    def store(self, name: str, partition: int | None = None) -> Any:
        if partition is not None:
            return self._stores[name][partition]
        serialize = self._served[name].key_serde.serialize
        return Partitioned(self._stores[name], serialize, self.offsets)

    def lags(self) -> Mapping[str, Mapping[int, PartitionLag]]:
        return {"counts": {0: PartitionLag(5, 7), 1: PartitionLag(3, 3)}}

    def metrics(self) -> Mapping[MetricName, float | int | str]:
        return {
            MetricName("stream-metrics", "state", (("client-id", "shop"),)): "RUNNING",
            MetricName("stream-thread-metrics", "process-total", (("thread-id", "a"),)): 3,
        }

    def instances(self) -> list[InstanceInfo]:
        return [
            InstanceInfo(
                Host("one", 8080), ("counts",), ("orders-0",), (), (), "one, process 1", True
            ),
            InstanceInfo(Host("two", 8080), (), (), ("counts",), ("orders-0",), "two, process 2"),
        ]

    def locate(self, store: str, key: Any) -> KeyLocation:
        return KeyLocation(0, Host("one", 8080), ())

    def changes(self, store: str) -> StoreChanges:
        if self.log is None:
            raise NoChangelog(
                f"Store '{store}' has no changelog, so its changes cannot be followed."
            )
        served = self._served[store]
        return StoreChanges(self.log, ChangelogSource(
            store, {number: TopicPartition(store, number) for number in served.partitions},
            served.key_serde, served.value_serde, lambda key: (key, None), None,
        ))

    def append(self, store: str, partition: int, *changes: tuple[Any, Any, int]) -> None:
        """Append (key, value, timestamp) to the changelog of a store."""
        assert self.log is not None
        served = self._served[store]
        self.log.append(store, partition, RecordColumns(
            [served.key_serde.serialize(key) for key, _, _ in changes],
            [None if value is None else served.value_serde.serialize(value)
             for _, value, _ in changes],
            [timestamp for _, _, timestamp in changes],
        ))


def filled_reader() -> FakeReader:
    """Return a reader with a store of each kind."""
    reader = FakeReader()
    reader.add("counts", "key-value", Stores.timestamped_key_value_store_builder(
        Stores.in_memory_key_value_store("counts"), str, int
    ), str, int, partitions=3)
    for number in range(10):
        reader.put("counts", f"key-{number}", ValueAndTimestamp(number, 1_000 + number))
    for key in ("a/b", "", "ünï/ ☃", "a%2Fb", "..", "k" * 1_000_000):
        reader.put("counts", key, ValueAndTimestamp(2**63 - 1, 5))
    (orders,) = reader.add("orders", "key-value", Stores.key_value_store_builder(
        Stores.in_memory_key_value_store("orders"), int, Order
    ), int, Order)
    orders.put(7, Order("tea", 3))
    (blobs,) = reader.add("blobs", "key-value", Stores.key_value_store_builder(
        Stores.in_memory_key_value_store("blobs"), bytes, bytes
    ), bytes, bytes)
    blobs.put(b"\x00\xff", b"\x01\xfe")
    windows = reader.add("per_minute", "window", Stores.window_store_builder(
        # In the order of its rows, the last key comes last, whatever its time.
        Stores.persistent_window_store("per_minute", retention=86_400_000, window_size=60_000),
        str, int,
    ), str, int, partitions=2, window_size_ms=60_000)
    for minute in range(30):
        for number, key in enumerate(("ann", "bob")):
            windows[number].put(key, minute, minute * 60_000)
    windows[0].put("zed", 0, 0)
    windows[1].put("zoe", 0, 0)
    (sessions,) = reader.add("visits", "session", Stores.session_store_builder(
        Stores.in_memory_session_store("visits", retention=86_400_000), str, int
    ), str, int)
    for start, end, value in ((0, 10, 1), (100, 150, 2), (400, 400, 3)):
        sessions.put(Windowed("ann", Window(start, end)), value)
    sessions.put(Windowed("bob", Window(5, 20)), 9)
    (prices,) = reader.add("prices", "versioned", Stores.versioned_key_value_store_builder(
        Stores.persistent_versioned_key_value_store("prices", history_retention=1_000_000),
        str, float,
    ), str, float)
    for time, price in ((10, 1.5), (20, 2.5), (30, 3.5)):
        prices.put("tea", price, time)
    return reader
