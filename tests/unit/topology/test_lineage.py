"""Lineages identify steps by their inputs and kinds, whatever their names and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import Serdes, StreamsBuilder, Topology
from penstock.topology.lineage import step_lineages

TEXT = Serdes.string()
Define = Callable[[StreamsBuilder], Any]


def build(*definitions: Define) -> Topology:
    builder = StreamsBuilder()
    for define in definitions:
        define(builder)
    return builder.build()


def lineage(topology: Topology, store: str) -> str:
    """Return the lineage of the first step that uses a store."""
    step = next(node.name for node in topology.nodes if store in topology.stores_of(node.name))
    return step_lineages(topology.nodes, topology.internal_topics)[step]


def counts(topic: str = "a", **options: Any) -> Define:
    return lambda builder: builder.stream(topic, key=TEXT, value=TEXT).group_by(
        lambda value: value, key=TEXT, value=TEXT, **options
    ).count(store="counts")


def unrelated(builder: StreamsBuilder) -> None:
    builder.stream("other", key=TEXT, value=TEXT).filter(lambda value: True).to("out")


def filtered(builder: StreamsBuilder) -> None:
    builder.stream("a", key=TEXT, value=TEXT).filter(lambda value: True).group_by(
        lambda value: value, key=TEXT, value=TEXT
    ).count(store="counts")


def test_lineage_does_not_depend_on_other_steps_and_names() -> None:
    expected = lineage(build(counts()), "counts")
    assert lineage(build(unrelated, counts()), "counts") == expected
    assert lineage(build(counts(name="by-value")), "counts") == expected


def test_lineage_depends_on_topics_and_steps_upstream() -> None:
    found = {lineage(build(define), "counts") for define in (counts(), counts("b"), filtered)}
    assert len(found) == 3


def test_lineage_of_a_cycle_does_not_depend_on_other_steps() -> None:
    def cycle(builder: StreamsBuilder) -> None:
        stream = builder.stream("a", key=TEXT, value=TEXT)
        again = stream.merge(stream.repartition(name="again"))
        again.group_by_key().count(store="counts")
        left = builder.table("l", key=TEXT, value=TEXT)
        right = builder.table("r", key=TEXT, value=TEXT)
        left.join(right, lambda value: value, lambda x, y: x).to_stream().to("a", name="back")

    assert lineage(build(cycle), "counts") == lineage(build(unrelated, cycle), "counts")


def test_lineages_are_persistent() -> None:
    # They are stored in the log. A change would hide which stores continue.
    assert lineage(build(counts()), "counts") == "b7d1ab1a9f8b24a8"
    kinds = {getattr(node, "kind", "") for node in build(counts()).nodes}
    assert kinds == {
        "", "OperatorNode.SelectKey", "RepartitionNode.NullKeyFilter",
        "AggregateNode.StreamAggregate",
    }
