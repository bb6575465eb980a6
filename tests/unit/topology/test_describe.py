from __future__ import annotations

import re
from typing import Any

from penstock import Processor, Record, Serdes, Stores, StreamsBuilder, Topology
from penstock.topology.describe import SinkDescription, SourceDescription
from penstock.topology.java_order import (
    hash_order,
    hash_order_of_partitions,
    string_hash,
    tree_insert,
    tree_walk,
)


class Ignore(Processor[Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        pass


def test_text_has_kafkas_format() -> None:
    text = Serdes.string()
    builder = Stores.key_value_store_builder(Stores.in_memory_key_value_store("kept"), text, text)
    topology = (
        Topology()
        .add_source("read", "b", "a")
        .add_processor("work", Ignore, "read")
        .add_state_store(builder, "work")
        .add_sink("write", "out", "work")
    )
    assert str(topology.describe()) == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: read (topics: [a, b])\n"
        "      --> work\n"
        "    Processor: work (stores: [kept])\n"
        "      --> write\n"
        "      <-- read\n"
        "    Sink: write (topic: out)\n"
        "      <-- work\n"
        "\n"
    )


def test_global_store_is_described_separately() -> None:
    builder = StreamsBuilder()
    builder.global_table("in", store="everywhere")
    description = builder.build().describe()
    assert description.subtopologies == ()
    (store,) = description.global_stores
    assert (store.source.topic_set, store.processor.stores) == (("in",), ("everywhere",))
    assert "Sub-topology: 0 for global store (will not generate tasks)" in str(description)


def test_patterns_and_topic_name_extractors_are_shown() -> None:
    def choose(key: Any, value: Any, context: Any) -> str:
        return "out"

    topology = Topology().add_source("read", pattern="in-.*").add_sink("write", choose, "read")
    (part,) = topology.describe().subtopologies
    read, write = part.nodes
    assert isinstance(read, SourceDescription)
    assert isinstance(write, SinkDescription)
    assert (read.topic_set, read.topic_pattern) == (None, re.compile("in-.*"))
    assert (write.topic, write.topic_name_extractor) == (None, choose)
    assert "topics: in-.*" in str(read)
    assert "extractor class: choose" in str(write)


def test_subtopologies_are_numbered_by_their_first_node() -> None:
    builder = StreamsBuilder()
    builder.stream("a").to("x")
    builder.stream("b").to("y")
    parts = builder.build().describe().subtopologies
    assert [(part.id, part.nodes[0].name) for part in parts] == [
        (0, "KSTREAM-SOURCE-0000000000"), (1, "KSTREAM-SOURCE-0000000002"),
    ]


def test_nodes_that_share_a_store_are_in_one_subtopology() -> None:
    text = Serdes.string()
    kept = Stores.key_value_store_builder(Stores.in_memory_key_value_store("kept"), text, text)
    topology = Topology().add_source("a", "a").add_source("b", "b")
    topology.add_processor("left", Ignore, "a").add_processor("right", Ignore, "b")
    assert len(topology.groups()) == 2
    topology.add_state_store(kept, "left", "right")
    assert [group.nodes for group in topology.groups()] == [("a", "b", "left", "right")]


def test_string_hash_equals_java() -> None:
    assert string_hash("") == 0
    assert string_hash("abc") == 96354
    # Java: Integer.MIN_VALUE.
    assert string_hash("polygenelubricants") == 2**31
    assert hash_order(["Aa", "BB"]) == ["Aa", "BB"]
    assert hash_order(["c", "a", "b"]) == ["a", "b", "c"]


def test_partitions_have_the_order_of_a_hash_set() -> None:
    response = ("oracle-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic", 0)
    registration = ("oracle-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic", 0)
    partitions = [response, registration, ("B", 0), ("A", 0)]
    # As Java prints a HashSet of these.
    assert hash_order_of_partitions(partitions) == [("A", 0), ("B", 0), registration, response]


def test_tree_walk_is_ordered() -> None:
    root = None
    for number in (5, 1, 4, 1, 3, 2, 6, 9, 8, 7):
        root = tree_insert(root, number, lambda left, right: left - right)
    assert list(tree_walk(root)) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
