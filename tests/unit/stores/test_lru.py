"""An LRU map keeps its order of use from batch to batch and after a crash."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import Processor, Record, Serdes, Stores, StreamsBuilder, StreamsConfig, Topology
from penstock.testing import TopologyTestDriver

STRING = Serdes.string()
CONFIG = StreamsConfig(
    application_id="app", default_key_serde=STRING, default_value_serde=STRING,
    statestore_cache_max_bytes=0,
)


class StoreUser(Processor[str, str]):
    """Reads or writes the key of a record in an LRU map of two entries."""

    def process(self, record: Record[str, str]) -> None:
        store = self.context.get_state_store("recent")
        if record.value == "read":
            store.get(record.key)
        else:
            store.put(record.key, record.value)


def topology_of(kind: str) -> Topology:
    builder = StreamsBuilder()
    make = (
        Stores.key_value_store_builder if kind == "plain"
        else Stores.timestamped_key_value_store_builder
    )
    builder.add_state_store(make(Stores.lru_map("recent", 2), STRING, STRING))
    builder.stream("in").process(StoreUser if kind == "plain" else TimestampedStoreUser, "recent")
    return builder.build()


class TimestampedStoreUser(Processor[str, str]):
    """Reads or writes the key of a record in a timestamped LRU map."""

    def process(self, record: Record[str, str]) -> None:
        store = self.context.get_state_store("recent")
        if record.value == "read":
            store.load(record.key)
        else:
            store.save(record.key, record.value, record.timestamp)


def commit(driver: TopologyTestDriver) -> None:
    driver.commit()


@pytest.mark.parametrize(
    "between", [commit, TopologyTestDriver.new_batch, TopologyTestDriver.crash],
    ids=["commit", "new_batch", "crash"],
)
@pytest.mark.parametrize("kind", ["plain", "timestamped"])
def test_read_key_outlives_a_key_that_was_written_later(
    kind: str, between: Callable[[TopologyTestDriver], None]
) -> None:
    with TopologyTestDriver(topology_of(kind), CONFIG) as driver:
        def use(key: str, value: str) -> list[str]:
            driver.pipe("in", key.encode(), value.encode(), 0)
            between(driver)
            return [key for key, _ in driver.get_key_value_store("recent").all()]

        use("a", "1")
        use("b", "1")
        assert use("a", "read") == ["a", "b"]
        assert use("c", "1") == ["a", "c"]
        assert use("a", "read") == ["a", "c"]
        assert use("d", "1") == ["a", "d"]
