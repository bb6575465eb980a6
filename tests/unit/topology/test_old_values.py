"""Which tables are materialized, and which send old values."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Serdes, Stores, StreamsBuilder, Topology
from penstock.processors.table_source import TableSource
from penstock.topology.nodes import ProcessorNode

TEXT = Serdes.string()


def source_of(topology: Topology) -> TableSource:
    node = topology.node("table")
    assert isinstance(node, ProcessorNode)
    assert isinstance(node.operator, TableSource)
    return node.operator


def table(builder: StreamsBuilder, **options: Any) -> Any:
    return builder.table("in", key=TEXT, value=TEXT, name="table", **options)


def test_table_without_readers_is_not_materialized() -> None:
    builder = StreamsBuilder()
    table(builder).to_stream().to("out")
    topology = builder.build()
    assert (topology.stores, source_of(topology).send_old) == ({}, False)


def test_table_with_a_named_store_is_materialized() -> None:
    builder = StreamsBuilder()
    table(builder, store="kept")
    assert list(builder.build().stores) == ["kept"]


def test_table_joined_with_a_stream_is_materialized() -> None:
    builder = StreamsBuilder()
    builder.stream("other", key=TEXT, value=TEXT).join(table(builder), lambda a, b: a)
    topology = builder.build()
    assert (len(topology.stores), source_of(topology).send_old) == (1, False)


def test_view_reads_the_store_of_its_parent() -> None:
    builder = StreamsBuilder()
    view = table(builder).map_values(len).filter(lambda n: n > 1)
    builder.stream("other", key=TEXT, value=TEXT).join(view, lambda a, b: a, name="joined")
    topology = builder.build()
    (store,) = topology.stores
    assert topology.stores_of("joined") == (store,)


def test_group_by_needs_old_values() -> None:
    builder = StreamsBuilder()
    table(builder).group_by(lambda key, value: (value, key), key=TEXT, value=TEXT).count()
    assert source_of(builder.build()).send_old


@pytest.mark.parametrize(("kind", "expected"), [("join", False), ("left_join", True)])
def test_only_a_left_join_needs_old_values(
    kind: str, expected: bool
) -> None:
    builder = StreamsBuilder()
    other = builder.table("other", key=TEXT, value=TEXT)
    getattr(table(builder), kind)(other, lambda a, b: a)
    assert source_of(builder.build()).send_old is expected


@pytest.mark.parametrize("store", [None, "kept"])
def test_filter_does_not_force_a_store_for_old_values(store: str | None) -> None:
    builder = StreamsBuilder()
    table(builder, store=store).filter(lambda value: True)
    topology = builder.build()
    assert source_of(topology).send_old is (store is not None)
    assert list(topology.stores) == ([] if store is None else [store])


def test_view_of_a_versioned_table_is_versioned() -> None:
    builder = StreamsBuilder()
    versions = Stores.persistent_versioned_key_value_store("versions", 60_000)
    view = table(builder, store=versions).filter(lambda value: True, name="view")
    view.group_by(lambda key, value: (value, key), key=TEXT, value=TEXT, name="grouped").count()
    node = builder.build().node("grouped")
    assert isinstance(node, ProcessorNode)
    assert getattr(node.operator, "use_versioned_semantics", None) is True
