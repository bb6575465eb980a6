"""Null keys before a repartition are dropped silently, as in Kafka Streams 4.3.0.

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


def not_repartitioned(builder: StreamsBuilder) -> Any:
    stream = builder.stream("in", key=TEXT, value=TEXT)
    # The aggregation itself drops the null key of the second record, logs and counts it.
    return stream.filter(lambda key, value: key is None).group_by_key().count()


@pytest.mark.parametrize(("define", "dropped"), [
    (grouped, 0), (rekeyed_table, 0), (repartitioned, 0), (not_repartitioned, 1),
])
def test_null_keys_are_logged_and_counted_only_without_a_repartition(
    define: Any, dropped: int, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StreamsBuilder()
    define(builder).to_stream().map_values(str).to("out", key=TEXT, value=TEXT)
    with (
        caplog.at_level(logging.DEBUG, "penstock.task.drops"),
        TopologyTestDriver(builder.build()) as driver,
    ):
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("k", "v")
        topic.pipe_input(None, "v")
        assert driver.create_output_topic("out", TEXT, TEXT).is_empty
        assert driver.metrics().get("dropped-records-total", 0) == dropped
    assert len(caplog.records) == dropped
