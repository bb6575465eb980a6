"""Null keys before an implicit repartition are dropped silently, as in Kafka Streams 4.3.0.

tests/kafka/test_a3_handlers_as_kafka.py compares this with Kafka Streams.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock import Serdes, StreamsBuilder
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()


def grouped(builder: StreamsBuilder) -> Any:
    stream = builder.stream("in", key=TEXT, value=TEXT)
    return stream.group_by(lambda key, value: None, key=TEXT).count()


def rekeyed_table(builder: StreamsBuilder) -> Any:
    stream = builder.stream("in", key=TEXT, value=TEXT)
    return stream.select_key(lambda key, value: None).to_table(key=TEXT)


def repartitioned(builder: StreamsBuilder) -> Any:
    stream = builder.stream("in", key=TEXT, value=TEXT).select_key(lambda key, value: None)
    return stream.repartition(key=TEXT, name="moved").group_by_key().count()


@pytest.mark.parametrize(("define", "dropped"), [
    (grouped, 0), (rekeyed_table, 0),
    # The aggregation itself drops the record, logs and counts it.
    (repartitioned, 1),
])
def test_dropped_null_keys_are_logged_only_after_an_explicit_repartition(
    define: Any, dropped: int, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StreamsBuilder()
    define(builder).to_stream().map_values(str).to("out", key=TEXT, value=TEXT)
    with (
        caplog.at_level(logging.DEBUG, "penstock.task.drops"),
        TopologyTestDriver(builder.build()) as driver,
    ):
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        assert driver.create_output_topic("out", TEXT, TEXT).is_empty
        assert driver.metrics().get("dropped-records-total", 0) == dropped
    assert len(caplog.records) == dropped
