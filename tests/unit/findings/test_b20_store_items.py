"""Key-value stores support `store[key] = value` and `del store[key]`."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Processor, Record, Serdes, Stores, StreamsBuilder, StreamsException
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()


class Latest(Processor[str, str]):
    stores = (
        Stores.key_value_store_builder(Stores.in_memory_key_value_store("latest"), TEXT, TEXT),
    )

    def process(self, record: Record[str, str]) -> None:
        store = self.context.get_state_store("latest")
        if record.value == "delete":
            del store[record.key]
        else:
            store[record.key] = record.value


@pytest.fixture
def driver() -> Any:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).process(Latest)
    with TopologyTestDriver(builder.build()) as driver:
        yield driver


def test_processor_writes_and_deletes_items(driver: Any) -> None:
    topic = driver.create_input_topic("in", TEXT, TEXT)
    store = driver.get_key_value_store("latest")
    topic.pipe_input("a", "1")
    topic.pipe_input("b", "2")
    assert dict(store.all()) == {"a": "1", "b": "2"}
    topic.pipe_input("a", "delete")
    assert dict(store.all()) == {"b": "2"}
    with pytest.raises(KeyError):
        del store["missing"]
    store["b"] = None
    assert "b" not in store


def test_items_of_a_timestamped_store_are_written_through_the_driver() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).group_by_key(key=TEXT, value=TEXT).count(
        store="counts"
    )
    with TopologyTestDriver(builder.build()) as driver:
        store = driver.get_key_value_store("counts")
        store["a"] = 5
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("a", "x")
        assert store["a"] == 6
        del store["a"]
        assert "a" not in store


def test_items_of_a_global_store_cannot_be_written() -> None:
    class Write(Processor[str, str]):
        def process(self, record: Record[str, str]) -> None:
            store = self.context.get_state_store("all")
            assert [*store] == []
            if record.value == "delete":
                del store["x"]
            else:
                store["x"] = "y"

    builder = StreamsBuilder()
    builder.global_table("rows", key=TEXT, value=TEXT, store="all")
    builder.stream("in", key=TEXT, value=TEXT).process(Write)
    for value in ("write", "delete"):
        with TopologyTestDriver(builder.build()) as driver:
            topic = driver.create_input_topic("in", TEXT, TEXT)
            with pytest.raises(StreamsException) as raised:
                topic.pipe_input("a", value)
            assert "read only" in f"{raised.value} {raised.value.__cause__}"


def test_items_of_several_partitions_cannot_be_written() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).process(Latest)
    with TopologyTestDriver(builder.build(), partitions=2) as driver:
        store = driver.get_key_value_store("latest")
        with pytest.raises(ValueError, match="read-only"):
            store["a"] = "1"
        with pytest.raises(ValueError, match="read-only"):
            del store["a"]
