"""Tables that are read back from topics: the newest value of every key.

The stores of the application write all they do to changelog topics, in Kafka Streams' bytes.
Whoever follows a changelog has the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Generic, NamedTuple, TypeVar

from orders.model import TotalRevenue, TotalRevenueWithAddress
from orders.topology import KINDS
from penstock import Serdes
from penstock.log import Log, TopicPartition

K = TypeVar("K")
V = TypeVar("V")


class Followed(Generic[K, V]):
    """A table as its topic has it."""

    def __init__(
        self, log: Log, topic: str, key: Callable[[bytes], K], value: Callable[[bytes], V]
    ) -> None:
        self._log = log
        self._topic = topic
        self._key = key
        self._value = value
        self._positions: dict[int, int] = {}
        self.rows: dict[K, V] = {}

    def follow(self) -> dict[K, V]:
        """Read what is new; answers the whole table."""
        partitions = range(self._log.topic(self._topic).partitions)
        bounds = self._log.offsets(TopicPartition(self._topic, n) for n in partitions)
        for (topic, partition), (start, end, _) in bounds.items():
            position = max(start, self._positions.get(partition, 0))
            for batch in self._log.read(topic, partition, position, end) if position < end else ():
                rows = batch.rows()
                for key, value in zip(rows.keys, rows.values, strict=True):
                    self._take(key, value)
            self._positions[partition] = end
        return self.rows

    def _take(self, raw_key: bytes | None, raw_value: bytes | None) -> None:
        assert raw_key is not None
        key = self._key(raw_key)
        if raw_value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = self._value(raw_value)


class StoreWindow(NamedTuple):
    """A store and a window, by the time the window begins."""

    start: int
    location_id: str


def _windowed(raw: bytes) -> StoreWindow:
    # Key, then 8 bytes of the window's start, then 4 that tell equal rows apart.
    return StoreWindow(int.from_bytes(raw[-12:-4], "big"), raw[:-12].decode())


class Tables:
    """Everything that the demo shows, for one type of orders."""

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

    def follow(self) -> None:
        """Read what is new in all of them."""
        for table in (
            self.counts, self.revenue, self.count_windows, self.revenue_windows, self.joined
        ):
            table.follow()

    def orders(self) -> int:
        """How many orders are in the counts."""
        return sum(self.counts.rows.values())

    def totals(self) -> Iterator[tuple[str, int, Decimal]]:
        """Location, count, revenue."""
        for location, count in self.counts.rows.items():
            yield location, count, self.revenue.rows[location].running_revenue


def all_tables(log: Log, application: str) -> dict[str, Tables]:
    """Both types."""
    return {kind: Tables(log, application, kind) for kind in KINDS}
