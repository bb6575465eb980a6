"""`get_state_store` takes the class of a store, and refuses a store of another class."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    KeyValueStore,
    Processor,
    ProcessorContext,
    Record,
    Serdes,
    StateStore,
    Stores,
    StreamsBuilder,
    StreamsException,
    TimestampedKeyValueStore,
    WindowStore,
)
from penstock.testing import MockProcessorContext, TopologyTestDriver

TEXT, LONG = Serdes.string(), Serdes.long()


class Count(Processor[str, str]):
    stores = (
        Stores.key_value_store_builder(Stores.in_memory_key_value_store("counts"), TEXT, LONG),
    )

    def init(self, context: ProcessorContext) -> None:
        self.counts = context.get_state_store("counts", KeyValueStore[str, int])

    def process(self, record: Record[str, str]) -> None:
        self.counts[record.key] = (self.counts.get(record.key) or 0) + 1


class Wrong(Count):
    def init(self, context: ProcessorContext) -> None:
        context.get_state_store("counts", WindowStore)

    def process(self, record: Record[str, str]) -> None: ...


def driver(processor: Any) -> TopologyTestDriver:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).process(processor)
    return TopologyTestDriver(builder.build())


def test_processor_gets_a_store_by_its_class() -> None:
    with driver(Count) as running:
        running.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        assert running.get_state_store("counts", KeyValueStore[str, int]).get("k") == 1
        assert running.get_state_store("counts", StateStore).name == "counts"


def test_store_of_another_class_is_refused() -> None:
    with pytest.raises(
        StreamsException, match="is a KeyValueStore, not a WindowStore"
    ):
        driver(Wrong)
    with driver(Count) as running, pytest.raises(
        TypeError, match="Store 'counts' is a KeyValueStore, not a TimestampedKeyValueStore"
    ):
        running.get_state_store("counts", TimestampedKeyValueStore[str, int])


def test_mock_context_checks_the_class() -> None:
    context = MockProcessorContext()
    store = Count.stores[0].build()
    store.init(context.state_store_context)
    context.add_state_store(store)
    assert context.get_state_store("counts", KeyValueStore) is store
    with pytest.raises(TypeError, match="not a WindowStore"):
        context.get_state_store("counts", WindowStore[str, int])
