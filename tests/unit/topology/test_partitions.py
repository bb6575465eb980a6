"""Partition and task counts follow Kafka's rules; incompatible counts raise Kafka's errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import JoinWindows, Serdes, StreamsBuilder, Topology
from penstock.errors import MissingSourceTopicException, TopologyException
from penstock.topology.partitions import PartitionPlan, resolve_partitions

WINDOWS = JoinWindows.of(timedelta(seconds=5))
TEXT = Serdes.string()


def build(define: Callable[[StreamsBuilder], Any]) -> Topology:
    builder = StreamsBuilder()
    define(builder)
    return builder.build()


def internal(plan: PartitionPlan) -> list[int]:
    return [count for topic, count in plan.partitions.items() if "-repartition" in topic]


def pair(left: Any, right: Any) -> str:
    return f"{left}/{right}"


def keyed(builder: StreamsBuilder, topic: str, **options: Any) -> Any:
    """Return a stream after an explicit repartition."""
    return builder.stream(topic, key=TEXT, value=TEXT).repartition(name=f"by-{topic}", **options)


def test_task_count_is_the_largest_partition_count_of_the_sources() -> None:
    plan = resolve_partitions(
        build(lambda b: b.stream("a").merge(b.stream("b")).to("out")), {"a": 2, "b": 5, "out": 1}
    )
    assert plan.tasks == {0: 5}
    assert plan.partitions == {"a": 2, "b": 5}


def test_repartition_topic_takes_the_largest_upstream_count() -> None:
    def define(b: StreamsBuilder) -> None:
        merged = b.stream("a", key=TEXT, value=TEXT).merge(b.stream("b", key=TEXT, value=TEXT))
        merged.select_key(lambda k, v: v).group_by_key().count()

    plan = resolve_partitions(build(define), {"a": 2, "b": 5})
    assert internal(plan) == [5]
    assert plan.tasks == {0: 5, 1: 5}


def test_repartition_topic_has_its_given_count() -> None:
    plan = resolve_partitions(build(lambda b: keyed(b, "a", partitions=7).to("out")), {"a": 2})
    assert internal(plan) == [7]
    assert plan.tasks == {0: 2, 1: 7}


def test_count_propagates_through_several_repartitions() -> None:
    def define(b: StreamsBuilder) -> None:
        values = b.stream("a", key=TEXT, value=TEXT).select_key(lambda k, v: v)
        values.group_by_key().count().to_stream().select_key(lambda k, v: k).group_by_key(
            key=TEXT, value=Serdes.long()
        ).count()

    plan = resolve_partitions(build(define), {"a": 3})
    assert internal(plan) == [3, 3]
    assert plan.tasks == {0: 3, 1: 3, 2: 3}


def test_repartition_topic_takes_the_count_of_a_joined_external_topic() -> None:
    def define(b: StreamsBuilder) -> None:
        left = b.stream("a", key=TEXT, value=TEXT).select_key(lambda k, v: v)
        left.join(b.table("t", key=TEXT, value=TEXT), pair, key=TEXT, value=TEXT)

    plan = resolve_partitions(build(define), {"a": 6, "t": 2})
    assert internal(plan) == [2]
    assert plan.tasks == {0: 6, 1: 2}


def test_joined_repartition_topics_take_the_larger_count() -> None:
    def define(b: StreamsBuilder) -> None:
        keyed(b, "a").join(keyed(b, "b"), pair, WINDOWS, key=TEXT, value=TEXT, other_value=TEXT)

    assert internal(resolve_partitions(build(define), {"a": 2, "b": 3})) == [3, 3]


def test_joined_repartition_topics_take_a_given_count() -> None:
    def define(b: StreamsBuilder) -> None:
        keyed(b, "a", partitions=4).join(
            keyed(b, "b"), pair, WINDOWS, key=TEXT, value=TEXT, other_value=TEXT
        )

    assert internal(resolve_partitions(build(define), {"a": 9, "b": 9})) == [4, 4]


def test_foreign_key_join_allows_different_counts() -> None:
    def define(b: StreamsBuilder) -> None:
        orders = b.table("orders", key=TEXT, value=TEXT)
        orders.join(b.table("customers", key=TEXT, value=TEXT), lambda order: order, pair)

    plan = resolve_partitions(build(define), {"orders": 2, "customers": 3})
    registration = next(t for t in plan.partitions if "REGISTRATION" in t)
    response = next(t for t in plan.partitions if "RESPONSE" in t)
    assert (plan.partitions[registration], plan.partitions[response]) == (3, 2)
    assert sorted(plan.tasks.values()) == [2, 3]


def test_pattern_reads_the_matching_topics() -> None:
    plan = resolve_partitions(
        build(lambda b: b.stream(re.compile("in-.*")).to("out")), {"in-a": 2, "in-b": 3, "x": 9}
    )
    assert plan.tasks == {0: 3}
    assert list(plan.sources[0].values()) == [("in-a", "in-b")]


def test_global_table_has_no_tasks() -> None:
    def define(b: StreamsBuilder) -> None:
        table = b.global_table("g", key=TEXT, value=TEXT)
        b.stream("a", key=TEXT, value=TEXT).join(table, lambda k, v: v, pair).to("out")

    assert list(resolve_partitions(build(define), {"a": 2, "g": 8}).tasks.values()) == [2]


# ---- errors --------------------------------------------------------------------------------


def test_joined_topics_with_different_counts_raise() -> None:
    def define(b: StreamsBuilder) -> None:
        b.stream("b", key=TEXT, value=TEXT).join(
            b.stream("a", key=TEXT, value=TEXT), pair, WINDOWS, key=TEXT, value=TEXT,
            other_value=TEXT,
        )

    with pytest.raises(TopologyException) as caught:
        resolve_partitions(build(define), {"a": 4, "b": 2})
    assert "Topics not co-partitioned: [{a=4, b=2}]" in str(caught.value)
    assert "repartition()" in str(caught.value)


def test_chained_joins_compare_all_topics() -> None:
    def define(b: StreamsBuilder) -> None:
        a, x, c = (b.table(topic, key=TEXT, value=TEXT) for topic in ("a", "b", "c"))
        a.join(x, pair).join(c, pair)

    with pytest.raises(TopologyException, match=re.escape("[{a=2, b=2, c=3}]")):
        resolve_partitions(build(define), {"a": 2, "b": 2, "c": 3})


def test_joined_repartition_steps_with_different_given_counts_raise() -> None:
    def define(b: StreamsBuilder) -> None:
        keyed(b, "a", partitions=4).join(
            keyed(b, "b", partitions=2), pair, WINDOWS, key=TEXT, value=TEXT, other_value=TEXT
        )

    with pytest.raises(TopologyException) as caught:
        resolve_partitions(build(define), {"a": 1, "b": 1})
    assert "Following topics do not have the same number of partitions: " in str(caught.value)
    assert "{by-a-repartition=4, by-b-repartition=2}" in str(caught.value)


def test_given_count_that_differs_from_a_joined_topic_raises() -> None:
    def define(b: StreamsBuilder) -> None:
        table = b.table("t", key=TEXT, value=TEXT)
        keyed(b, "a", partitions=4).join(table, pair, key=TEXT, value=TEXT)

    with pytest.raises(TopologyException) as caught:
        resolve_partitions(build(define), {"a": 1, "t": 3})
    assert (
        "Number of partitions [4] of repartition topic [by-a-repartition] doesn't match number of "
        "partitions [3] of the source topic." in str(caught.value)
    )
    assert "partitions=3" in str(caught.value)


def test_error_for_a_missing_topic_lists_the_existing_ones() -> None:
    topology = build(lambda b: b.stream(["a", "b"]).to("out"))
    with pytest.raises(MissingSourceTopicException) as caught:
        resolve_partitions(topology, {"a": 1, "other": 1})
    assert "Missing source topics [b] for subtopology 0" in str(caught.value)
    assert "Topics: a, other." in str(caught.value)


def test_repartition_topic_below_an_unmatched_pattern_raises() -> None:
    def define(b: StreamsBuilder) -> None:
        b.stream(re.compile("none-.*"), key=TEXT, value=TEXT).repartition(name="r").to("out")

    with pytest.raises(TopologyException, match="Failed to compute number of partitions"):
        resolve_partitions(build(define), {"a": 1})


def test_partition_count_of_zero_raises() -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        resolve_partitions(build(lambda b: b.stream("a").to("out")), {"a": 0})
