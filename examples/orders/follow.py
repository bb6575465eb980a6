"""Reads tables back from topics: the latest value of every key.

The stores of the application write every change to a changelog topic, in the format of Kafka
Streams. Reading the changelog gives the content of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Generic, NamedTuple, TypeVar

from orders.model import TotalRevenue, TotalRevenueWithAddress
from orders.topology import KINDS
from penstock import Serdes
from penstock.log import Log, PartitionOffsets, TopicPartition

K = TypeVar("K")
V = TypeVar("V")


class Followed(Generic[K, V]):
    """A table read from its topic."""

    def __init__(
        self, log: Log, topic: str, key: Callable[[bytes], K], value: Callable[[bytes], V]
    ) -> None:
        self._log = log
        self._topic = topic
        self._key = key
        self._value = value
        #: The next offset of each partition.
        self._positions: dict[TopicPartition, int] = {}
        self.rows: dict[K, V] = {}

    def partitions(self) -> list[TopicPartition]:
        """The partitions of its topic."""
        if not self._positions:
            found = self._log.topic(self._topic).partitions
            self._positions = {TopicPartition(self._topic, n): 0 for n in range(found)}
        return list(self._positions)

    def read_to(self, bounds: Mapping[TopicPartition, PartitionOffsets]) -> None:
        """Read the new records of each partition up to the given ends."""
        for at in self.partitions():
            start, end, _ = bounds[at]
            position = max(start, self._positions[at])
            for batch in self._log.read(*at, position, end) if position < end else ():
                rows = batch.columns()
                for key, value in zip(rows.keys, rows.values, strict=True):
                    self._take(key, value)
            self._positions[at] = end

    def _take(self, raw_key: bytes | None, raw_value: bytes | None) -> None:
        assert raw_key is not None
        key = self._key(raw_key)
        if raw_value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = self._value(raw_value)


class StoreWindow(NamedTuple):
    """A store location and the start of a window."""

    start: int
    location_id: str


def _windowed(raw: bytes) -> StoreWindow:
    # The key, 8 bytes of the window start, and a 4-byte sequence number.
    return StoreWindow(int.from_bytes(raw[-12:-4], "big"), raw[:-12].decode())


class Tables:
    """The tables of one order type."""

    def __init__(self, log: Log, application: str, kind: str) -> None:
        total = Serdes.json(TotalRevenue).deserialize
        joined = Serdes.json(TotalRevenueWithAddress).deserialize

        def store(name: str) -> str:
            return f"{application}-{kind}_orders_{name}-changelog"

        text: Any = bytes.decode
        self.counts = Followed[str, int](log, store("count"), text, int.from_bytes)
        self.revenue = Followed[str, Any](log, store("revenue"), text, total)
        self.count_windows = Followed[StoreWindow, int](
            log, store("count_window"), _windowed, int.from_bytes
        )
        self.revenue_windows = Followed[StoreWindow, Any](
            log, store("revenue_window"), _windowed, total
        )
        self.joined = Followed[str, Any](log, f"{kind}-orders-revenue", text, joined)

    def all(self) -> tuple[Followed[Any, Any], ...]:
        """Every table."""
        return (
            self.counts, self.revenue, self.count_windows, self.revenue_windows, self.joined
        )

    def orders(self) -> int:
        """The number of counted orders."""
        return sum(self.counts.rows.values())

    def totals(self) -> Iterator[tuple[str, int, Decimal]]:
        """Location, count, revenue."""
        for location, count in self.counts.rows.items():
            yield location, count, self.revenue.rows[location].running_revenue


def all_tables(log: Log, application: str) -> dict[str, Tables]:
    """The tables of both order types."""
    return {kind: Tables(log, application, kind) for kind in KINDS}


def follow(log: Log, tables: Mapping[str, Tables]) -> None:
    """Read all tables up to one moment, so that they are consistent."""
    followed = [table for each in tables.values() for table in each.all()]
    bounds = log.offsets([at for table in followed for at in table.partitions()])
    for table in followed:
        table.read_to(bounds)
