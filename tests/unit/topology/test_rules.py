"""Rewrite rules: the text of a topology before and after each."""

from __future__ import annotations

from textwrap import dedent

import pytest

from penstock import JoinWindows, Serdes, StreamsBuilder, StreamsConfig, Topology
from penstock.processors.stateless import NullKeyFilter
from penstock.topology.naming import NameCounter
from penstock.topology.rules import rules_for

TEXT = Serdes.string()


def optimized(*names: str) -> StreamsConfig:
    return StreamsConfig(
        application_id="app", topology_optimization=frozenset(names), default_key_serde=TEXT,
        default_value_serde=TEXT,
    )


def outline(topology: Topology) -> str:
    """Return one line per node: its kind, name, children and stores."""
    lines = []
    for part in topology.describe().subtopologies:
        lines.append(f"{part.id}")
        for node in part.nodes:
            stores = getattr(node, "stores", ())
            lines.append(
                f"  {node.kind} {node.name} -> {', '.join(node.successors) or '-'}"
                + (f" [{', '.join(stores)}]" if stores else "")
            )
    return "\n".join(lines) + "\n"


def golden(text: str) -> str:
    return dedent(text).lstrip("\n")


def test_rules_run_in_a_fixed_order() -> None:
    everything = frozenset((
        "single.store.self.join", "merge.repartition.topics", "reuse.ktable.source.topics",
    ))
    rules = [rule.__qualname__.partition(".")[0] for rule in rules_for(everything, NameCounter())]
    assert rules == [
        "merge_equal_sources", "reuse_source_topics", "merge_repartitions",
        "join_self_with_one_store", "filter_null_keys",
    ]
    assert len(rules_for(frozenset(), NameCounter())) == 2


def test_merge_equal_sources() -> None:
    builder = StreamsBuilder()
    builder.stream(["a", "b"], name="first").to("x", name="to-x")
    builder.stream(["b", "a"], name="second").to("y", name="to-y")
    assert outline(builder.build()) == golden("""
        0
          source first -> to-x, to-y
          sink to-x -> -
          sink to-y -> -
    """)


def test_reuse_source_topics() -> None:
    builder = StreamsBuilder()
    builder.table("in", key=TEXT, value=TEXT, store="kept")
    plain = builder.build()
    reused = builder.build(optimized("reuse.ktable.source.topics"))
    assert outline(plain) == outline(reused)
    assert (plain.source_changelogs, plain.stores["kept"].logging_enabled) == ({}, True)
    assert (reused.source_changelogs, reused.stores["kept"].logging_enabled) == (
        {"kept": "in"}, False,
    )


def test_merge_repartitions() -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in", name="in").select_key(lambda value: value, name="key")
    keyed.group_by_key().count(store="one", name="count-one")
    keyed.filter(lambda value: True, name="some").group_by_key().count(
        store="two", name="count-two"
    )
    assert outline(builder.build()) == golden("""
        0
          source in -> key
          processor key -> one-repartition-filter, some
          processor some -> two-repartition-filter
          processor one-repartition-filter -> one-repartition-sink
          processor two-repartition-filter -> two-repartition-sink
          sink one-repartition-sink -> -
          sink two-repartition-sink -> -
        1
          source one-repartition-source -> count-one
          processor count-one -> - [one]
        2
          source two-repartition-source -> count-two
          processor count-two -> - [two]
    """)
    assert outline(builder.build(optimized("merge.repartition.topics"))) == golden("""
        0
          source in -> key
          processor key -> one-repartition-filter
          processor one-repartition-filter -> one-repartition-sink
          sink one-repartition-sink -> -
        1
          source one-repartition-source -> count-one, some
          processor some -> count-two
          processor count-one -> - [one]
          processor count-two -> - [two]
    """)


def test_repartition_does_not_move_above_a_change_of_values() -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in").select_key(lambda value: value)
    keyed.group_by_key().count(store="one")
    keyed.map_values(len).group_by_key().count(store="two")
    topology = builder.build(optimized("merge.repartition.topics"))
    assert sorted(topology.internal_topics) == ["one-repartition", "two-repartition"]


def test_join_self_with_one_store() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", name="in")
    stream.join(
        stream, lambda left, right: left, JoinWindows.of(5), name="self", store_name="kept"
    )
    assert outline(builder.build()) == golden("""
        0
          source in -> self-other-windowed, self-this-windowed
          processor self-other-windowed -> self-other-join [kept-other-join-store]
          processor self-this-windowed -> self-this-join [kept-this-join-store]
          processor self-other-join -> self-merge [kept-this-join-store]
          processor self-this-join -> self-merge [kept-other-join-store]
          processor self-merge -> -
    """)
    assert outline(builder.build(optimized("single.store.self.join"))) == golden("""
        0
          source in -> self-this-windowed
          processor self-this-windowed -> self-merge [kept-this-join-store]
          processor self-merge -> - [kept-this-join-store]
    """)


@pytest.mark.parametrize(("join", "keeps"), [("join", False), ("left_join", True)])
def test_filter_null_keys(join: str, keeps: bool) -> None:
    builder = StreamsBuilder()
    table = builder.table("table", key=TEXT, value=TEXT)
    stream = builder.stream("in", key=TEXT, value=TEXT).select_key(lambda value: value)
    getattr(stream, join)(table, lambda left, right: left, name="joined")
    node = builder.build().node("joined-repartition-filter")
    operator = getattr(node, "operator", None)
    assert operator == NullKeyFilter(drops=not keeps)


def test_building_twice_returns_the_same_topology() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by(lambda value: value).count(store="counts")
    assert str(builder.build().describe()) == str(builder.build().describe())
