"""Streams, tables and groupings have a readable repr."""

from __future__ import annotations

from penstock import Serdes, StreamsBuilder, TimeWindows

TEXT = Serdes.string()


def test_streams_and_tables_show_step_and_serdes() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=Serdes.long(), name="source")
    assert repr(stream) == "<KStream 'source', key string, value long>"
    assert repr(stream.map_values(str, name="text")) == "<KStream 'text', key string>"
    grouped = stream.group_by_key()
    assert repr(grouped) == "<KGroupedStream 'source', key string, value long>"
    windowed = grouped.windowed_by(TimeWindows.of(5))
    assert repr(windowed) == "<TimeWindowedKStream 'source', key string, value long>"
    table = builder.table("rows", key=TEXT, value=TEXT, name="table")
    assert repr(table) == "<KTable 'table', key string, value string>"
    assert repr(builder.global_table("all", store="everything")) == "<GlobalKTable 'everything'>"
