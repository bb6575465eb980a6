"""Errors of a store's serde name the store, and do not advise to skip records."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    JoinWindows,
    Materialized,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
)
from penstock.errors import ProcessingFailedException, StoreSerdeException, StreamsException
from penstock.stores import Stores
from penstock.testing import TopologyTestDriver

TEXT, LONG = Serdes.string(), Serdes.long()
CONFIG = StreamsConfig(
    application_id="test", default_key_serde=TEXT, default_value_serde=TEXT,
    statestore_cache_max_bytes=0,
)
WRONG_TYPE = (
    "Store 'kept': a value of type int cannot be serialized with <Serde string>. Use a value of "
    "the serde's type. If the store should hold this type, give its step or its Materialized "
    "another value serde."
)


def pipe(builder: StreamsBuilder, topic: str = "in") -> None:
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        driver.create_input_topic(topic, TEXT, TEXT).pipe_input("k", "v")


def count(builder: StreamsBuilder, windows: Any = None) -> Any:
    grouped: Any = builder.stream("in").group_by_key()
    if windows is not None:
        grouped = grouped.windowed_by(windows)
    merger = {"session_merger": lambda k, a, b: a + b} if isinstance(
        windows, SessionWindows
    ) else {}
    return grouped.aggregate(
        lambda: 0, lambda k, v, total: total + 1, *merger.values(),
        store=Materialized("kept", key=TEXT, value=TEXT), name="counted",
    )


@pytest.mark.parametrize(
    "windows", [None, TimeWindows.of(10), SessionWindows.of(10)],
    ids=["keys", "windows", "sessions"],
)
def test_value_of_the_wrong_type_names_the_store(windows: Any) -> None:
    builder = StreamsBuilder()
    count(builder, windows)
    with pytest.raises(ProcessingFailedException) as caught:
        pipe(builder)
    assert isinstance(caught.value.__cause__, StoreSerdeException)
    assert str(caught.value.__cause__) == WRONG_TYPE
    assert WRONG_TYPE in str(caught.value)
    assert (caught.value.processor, caught.value.offset) == ("counted", 0)
    assert caught.value.handler_setting is None


def test_row_of_another_serde_names_the_store() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store=Materialized("kept", key=TEXT, value=LONG))
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("k", "v")
        store: Any = driver.get_key_value_store("kept")
        store._rows.put(b"k", bytes(8) + b"abc")
        with pytest.raises(ProcessingFailedException) as caught:
            topic.pipe_input("k", "v")
    assert str(caught.value.__cause__).startswith(
        "Store 'kept': a value of 3 bytes cannot be deserialized with <Serde long>: A long has 8 "
        "bytes, but 3 were given"
    )
    assert str(caught.value.__cause__).endswith(
        "Another serde or schema has written it. Give the store that serde, or reset the "
        "application."
    )
    assert caught.value.handler_setting is None


def test_other_errors_of_a_step_name_the_setting_that_skips_records() -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: 1 // 0)
    with pytest.raises(ProcessingFailedException) as caught:
        pipe(builder)
    assert caught.value.handler_setting == "processing.exception.handler"


def test_suppress_buffer_names_its_store() -> None:
    builder = StreamsBuilder()
    builder.table("in", store="rows").map_values(len).suppress(
        Suppressed.until_time_limit(timedelta(seconds=1), name="held")
    )
    with pytest.raises(StreamsException, match="Store 'held-store': a value of type int"):
        pipe(builder)


def test_outer_join_names_its_store() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("in"), builder.stream("right")
    left.map_values(len).left_join(
        right, lambda a, b: "joined", JoinWindows.of(10), key=TEXT, value=TEXT,
        other_value=TEXT, name="joined",
    )
    with pytest.raises(ProcessingFailedException, match="Store 'KSTREAM-OUTERSHARED-"):
        pipe(builder)


def test_store_of_a_processor_names_itself() -> None:
    builder = Stores.key_value_store_builder(
        Stores.in_memory_key_value_store("kept"), TEXT, TEXT
    )
    topology = StreamsBuilder()
    topology.add_state_store(builder)
    topology.stream("in").process(Putter, "kept")
    with pytest.raises(ProcessingFailedException) as caught:
        pipe(topology)
    assert str(caught.value.__cause__) == WRONG_TYPE


class Putter:
    def init(self, context: Any) -> None:
        self.store = context.get_state_store("kept")

    def process(self, record: Any) -> None:
        self.store.put(record.key, 1)
