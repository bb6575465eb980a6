"""The context of a value transformer has the timestamp and headers of the current record."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Serdes, StreamsBuilder, StreamsConfig
from penstock.record import NO_HEADERS, Headers
from penstock.testing import MockProcessorContext, TopologyTestDriver

TEXT = Serdes.string()
TRACE = Headers([("trace", b"1")])


class Describe:
    def init(self, context: Any) -> None:
        self.context = context

    def transform(self, key: str, value: str | None) -> str:
        headers = dict(self.context.headers)
        return f"{value} at {self.context.timestamp} {headers.get('trace')}"


@pytest.mark.parametrize("store", [None, "described"])
def test_transformer_reads_timestamp_and_headers(store: str | None) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=TEXT, value=TEXT).transform_values(Describe, store=store)
    table.to_stream().to("out", key=TEXT, value=TEXT)
    config = StreamsConfig(
        application_id="test", default_key_serde=TEXT, default_value_serde=TEXT
    )
    with TopologyTestDriver(builder.build(), config) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("a", "x", timestamp=7, headers=TRACE)
        topic.pipe_input("a", "y", timestamp=9)
        results = driver.create_output_topic("out", TEXT, TEXT).read_values_to_list()
    assert results == ["x at 7 b'1'", "y at 9 None"]


def test_transformer_of_a_view_sees_the_timestamp_of_the_row() -> None:
    builder = StreamsBuilder()
    table = builder.table("rows", key=TEXT, value=TEXT).transform_values(Describe)
    builder.stream("in", key=TEXT, value=TEXT).join(
        table, lambda value, row: f"{value}: {row}"
    ).to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        rows, stream = (driver.create_input_topic(name, TEXT, TEXT) for name in ("rows", "in"))
        rows.pipe_input("a", "x", timestamp=5, headers=TRACE)
        stream.pipe_input("a", "v", timestamp=8, headers=TRACE)
        results = driver.create_output_topic("out", TEXT, TEXT).read_values_to_list()
    assert results == ["v: x at 5 None"]


def test_mock_context_has_timestamp_and_headers() -> None:
    context = MockProcessorContext()
    assert context.headers == NO_HEADERS
    with pytest.raises(RuntimeError, match="set_timestamp"):
        print(context.timestamp)
    context.set_timestamp(3)
    context.set_headers(TRACE)
    transformer = Describe()
    transformer.init(context)
    assert transformer.transform("a", "x") == "x at 3 b'1'"
