"""Numbers of partitions and tasks by Kafka's rules, and its errors when they do not fit."""

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


def built(say: Callable[[StreamsBuilder], Any]) -> Topology:
    builder = StreamsBuilder()
    say(builder)
    return builder.build()


def internal(plan: PartitionPlan) -> list[int]:
    return [count for topic, count in plan.partitions.items() if "-repartition" in topic]


def pair(left: Any, right: Any) -> str:
    return f"{left}/{right}"


def keyed(builder: StreamsBuilder, topic: str, **options: Any) -> Any:
    """A stream behind an explicit repartition."""
    return builder.stream(topic, key=TEXT, value=TEXT).repartition(name=f"by-{topic}", **options)


def test_a_sub_topology_has_a_task_for_each_partition_of_its_widest_topic() -> None:
    plan = resolve_partitions(
        built(lambda b: b.stream("a").merge(b.stream("b")).to("out")), {"a": 2, "b": 5, "out": 1}
    )
    assert plan.tasks == {0: 5}
    assert plan.partitions == {"a": 2, "b": 5}


def test_a_repartition_topic_is_as_wide_as_the_widest_topic_before_it() -> None:
    def say(b: StreamsBuilder) -> None:
        merged = b.stream("a", key=TEXT, value=TEXT).merge(b.stream("b", key=TEXT, value=TEXT))
        merged.select_key(lambda k, v: v).group_by_key().count()

    plan = resolve_partitions(built(say), {"a": 2, "b": 5})
    assert internal(plan) == [5]
    assert plan.tasks == {0: 5, 1: 5}


def test_a_repartition_topic_has_the_number_it_was_given() -> None:
    plan = resolve_partitions(built(lambda b: keyed(b, "a", partitions=7).to("out")), {"a": 2})
    assert internal(plan) == [7]
    assert plan.tasks == {0: 2, 1: 7}


def test_a_number_goes_on_through_several_repartitions() -> None:
    def say(b: StreamsBuilder) -> None:
        values = b.stream("a", key=TEXT, value=TEXT).select_key(lambda k, v: v)
        values.group_by_key().count().to_stream().select_key(lambda k, v: k).group_by_key(
            key=TEXT, value=Serdes.long()
        ).count()

    plan = resolve_partitions(built(say), {"a": 3})
    assert internal(plan) == [3, 3]
    assert plan.tasks == {0: 3, 1: 3, 2: 3}


def test_a_repartition_topic_adapts_to_the_topic_it_is_joined_with() -> None:
    def say(b: StreamsBuilder) -> None:
        left = b.stream("a", key=TEXT, value=TEXT).select_key(lambda k, v: v)
        left.join(b.table("t", key=TEXT, value=TEXT), pair, key=TEXT, value=TEXT)

    plan = resolve_partitions(built(say), {"a": 6, "t": 2})
    assert internal(plan) == [2]
    assert plan.tasks == {0: 6, 1: 2}


def test_repartition_topics_that_are_joined_take_the_larger_number() -> None:
    def say(b: StreamsBuilder) -> None:
        keyed(b, "a").join(keyed(b, "b"), pair, WINDOWS, key=TEXT, value=TEXT, other_value=TEXT)

    assert internal(resolve_partitions(built(say), {"a": 2, "b": 3})) == [3, 3]


def test_repartition_topics_that_are_joined_follow_the_one_that_was_given_a_number() -> None:
    def say(b: StreamsBuilder) -> None:
        keyed(b, "a", partitions=4).join(
            keyed(b, "b"), pair, WINDOWS, key=TEXT, value=TEXT, other_value=TEXT
        )

    assert internal(resolve_partitions(built(say), {"a": 9, "b": 9})) == [4, 4]


def test_a_foreign_key_join_needs_no_equal_numbers() -> None:
    def say(b: StreamsBuilder) -> None:
        orders = b.table("orders", key=TEXT, value=TEXT)
        orders.join(b.table("customers", key=TEXT, value=TEXT), lambda order: order, pair)

    plan = resolve_partitions(built(say), {"orders": 2, "customers": 3})
    registration = next(t for t in plan.partitions if "REGISTRATION" in t)
    response = next(t for t in plan.partitions if "RESPONSE" in t)
    assert (plan.partitions[registration], plan.partitions[response]) == (3, 2)
    assert sorted(plan.tasks.values()) == [2, 3]


def test_a_pattern_reads_the_topics_that_match() -> None:
    plan = resolve_partitions(
        built(lambda b: b.stream(re.compile("in-.*")).to("out")), {"in-a": 2, "in-b": 3, "x": 9}
    )
    assert plan.tasks == {0: 3}
    assert list(plan.sources[0].values()) == [("in-a", "in-b")]


def test_a_global_table_makes_no_tasks() -> None:
    def say(b: StreamsBuilder) -> None:
        table = b.global_table("g", key=TEXT, value=TEXT)
        b.stream("a", key=TEXT, value=TEXT).join(table, lambda k, v: v, pair).to("out")

    assert list(resolve_partitions(built(say), {"a": 2, "g": 8}).tasks.values()) == [2]


# ---- errors --------------------------------------------------------------------------------


def test_topics_that_are_joined_must_have_equal_numbers() -> None:
    def say(b: StreamsBuilder) -> None:
        b.stream("b", key=TEXT, value=TEXT).join(
            b.stream("a", key=TEXT, value=TEXT), pair, WINDOWS, key=TEXT, value=TEXT,
            other_value=TEXT,
        )

    with pytest.raises(TopologyException) as caught:
        resolve_partitions(built(say), {"a": 4, "b": 2})
    assert "Topics not co-partitioned: [{a=4, b=2}]" in str(caught.value)
    assert "repartition()" in str(caught.value)


def test_topics_joined_one_after_the_other_are_compared_all() -> None:
    def say(b: StreamsBuilder) -> None:
        a, x, c = (b.table(topic, key=TEXT, value=TEXT) for topic in ("a", "b", "c"))
        a.join(x, pair).join(c, pair)

    with pytest.raises(TopologyException, match=re.escape("[{a=2, b=2, c=3}]")):
        resolve_partitions(built(say), {"a": 2, "b": 2, "c": 3})


def test_repartition_steps_that_were_given_different_numbers_cannot_be_joined() -> None:
    def say(b: StreamsBuilder) -> None:
        keyed(b, "a", partitions=4).join(
            keyed(b, "b", partitions=2), pair, WINDOWS, key=TEXT, value=TEXT, other_value=TEXT
        )

    with pytest.raises(TopologyException) as caught:
        resolve_partitions(built(say), {"a": 1, "b": 1})
    assert "Following topics do not have the same number of partitions: " in str(caught.value)
    assert "{by-a-repartition=4, by-b-repartition=2}" in str(caught.value)


def test_a_given_number_that_differs_from_that_of_the_joined_topic_is_refused() -> None:
    def say(b: StreamsBuilder) -> None:
        table = b.table("t", key=TEXT, value=TEXT)
        keyed(b, "a", partitions=4).join(table, pair, key=TEXT, value=TEXT)

    with pytest.raises(TopologyException) as caught:
        resolve_partitions(built(say), {"a": 1, "t": 3})
    assert (
        "Number of partitions [4] of repartition topic [by-a-repartition] doesn't match number of "
        "partitions [3] of the source topic." in str(caught.value)
    )
    assert "partitions=3" in str(caught.value)


def test_a_missing_topic_is_named_with_those_that_are_there() -> None:
    topology = built(lambda b: b.stream(["a", "b"]).to("out"))
    with pytest.raises(MissingSourceTopicException) as caught:
        resolve_partitions(topology, {"a": 1, "other": 1})
    assert "Missing source topics [b] for subtopology 0" in str(caught.value)
    assert "Topics: a, other." in str(caught.value)


def test_a_pattern_without_a_topic_leaves_a_repartition_topic_without_a_number() -> None:
    def say(b: StreamsBuilder) -> None:
        b.stream(re.compile("none-.*"), key=TEXT, value=TEXT).repartition(name="r").to("out")

    with pytest.raises(TopologyException, match="Failed to compute number of partitions"):
        resolve_partitions(built(say), {"a": 1})


def test_a_topic_has_at_least_one_partition() -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        resolve_partitions(built(lambda b: b.stream("a").to("out")), {"a": 0})
