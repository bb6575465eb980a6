"""Keys and values of a type that an operator does not expect: what the error says."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Serdes, SessionWindows, StreamsBuilder, StreamsConfig, TimeWindows
from penstock.errors import ProcessingFailedException
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()
CONFIG = StreamsConfig(
    application_id="test", default_key_serde=TEXT, default_value_serde=TEXT,
    statestore_cache_max_bytes=0,
)


def fail(builder: StreamsBuilder, topic: str) -> ProcessingFailedException:
    """The error for one record of the topic."""
    with TopologyTestDriver(builder.build(), CONFIG) as driver, pytest.raises(
        ProcessingFailedException
    ) as caught:
        driver.create_input_topic(topic, TEXT, TEXT).pipe_input("k", "v")
    return caught.value


@pytest.mark.parametrize(
    "windows", [TimeWindows.of(10), SessionWindows.of(10)], ids=["windows", "sessions"]
)
def test_plain_key_for_a_windowed_table_is_explained(windows: Any) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    counts = stream.group_by_key().windowed_by(windows).count()
    stream.join(counts, lambda value, count: f"{value}{count}").to("out")
    error = fail(builder, "in")
    assert isinstance(error.__cause__, TypeError)
    assert "has windowed keys, and the key of the record is of type str" in str(error)
    assert "table.to_stream(lambda key, value: key.key).to_table()" in str(error)


def test_wrong_serde_of_a_foreign_key_join_names_the_step_and_no_handler() -> None:
    builder = StreamsBuilder()
    orders = builder.table("orders", store="orders")
    sizes = orders.map_values(len)
    customers = builder.table("customers")
    sizes.join(customers, lambda size: f"{size}", lambda a, b: b, name="joined")
    error = fail(builder, "orders")
    assert "joined-subscription-registration-processor: The string serde" in str(error)
    # The parent of the join's first node fails, as in Kafka Streams.
    assert error.processor != "joined-subscription-registration-processor"
    # Skipping is no remedy: every record would be skipped.
    assert error.handler_setting is None
