from __future__ import annotations

import pytest

from penstock import Serdes, StreamsBuilder, TopologyException
from penstock.topology.naming import NameCounter, check_name
from penstock.topology.plan_nodes import repartition_node


def names_of(builder: StreamsBuilder) -> list[str]:
    return [node.name for node in builder.build().nodes]


def test_processors_and_stores_share_one_counter() -> None:
    names = NameCounter()
    assert names.next_processor_name("KSTREAM-MAP-") == "KSTREAM-MAP-0000000000"
    assert names.next_store_name("KSTREAM-AGGREGATE-") == "KSTREAM-AGGREGATE-STATE-STORE-0000000001"
    assert names.next_processor_name("KSTREAM-MAP-") == "KSTREAM-MAP-0000000002"


def test_user_name_consumes_a_number() -> None:
    names = NameCounter()
    assert names.given_or_next("mine", "KSTREAM-MAP-") == "mine"
    assert names.suffixed_or_next("mine", "-sink", "KSTREAM-SINK-") == "mine-sink"
    assert names.given_or_next(None, "KSTREAM-MAP-") == "KSTREAM-MAP-0000000002"


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "n" * 249])
def test_legal_name(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "a\n", "n" * 250])
def test_illegal_name_raises(name: str) -> None:
    with pytest.raises(TopologyException):
        check_name(name)


def test_suffix_counts_towards_the_length() -> None:
    with pytest.raises(TopologyException, match="at most 249"):
        NameCounter().suffixed_or_next("n" * 245, "-sink", "KSTREAM-SINK-")


def test_repartition_is_numbered_unless_the_user_names_it() -> None:
    names = NameCounter()
    numbered = repartition_node(names, "KSTREAM-KEY-SELECT-0000000001", None, None)
    assert (numbered.sink, numbered.null_key_filter, numbered.name) == (
        "KSTREAM-SINK-0000000000", "KSTREAM-FILTER-0000000001", "KSTREAM-SOURCE-0000000002",
    )
    given = repartition_node(names, "by-store", None, None)
    assert (given.sink, given.null_key_filter, given.name, given.topic) == (
        "by-store-repartition-sink", "by-store-repartition-filter",
        "by-store-repartition-source", "by-store-repartition",
    )


def test_table_consumes_three_numbers() -> None:
    builder = StreamsBuilder()
    builder.table("in")
    builder.stream("other")
    assert names_of(builder) == [
        "KSTREAM-SOURCE-0000000001", "KTABLE-SOURCE-0000000002", "KSTREAM-SOURCE-0000000003",
    ]


def test_named_store_names_its_repartition_topic() -> None:
    builder = StreamsBuilder()
    text = Serdes.string()
    stream = builder.stream("in", key=text, value=text)
    stream.group_by(lambda value: value).count(store="counts")
    topology = builder.build()
    assert list(topology.internal_topics) == ["counts-repartition"]


def test_branch_names_start_with_the_name_of_the_split() -> None:
    builder = StreamsBuilder()
    branches = (
        builder.stream("in").split(name="by-size-")
        .branch(lambda value: True, "large").branch(lambda value: True).default_branch("rest")
    )
    assert list(branches) == ["by-size-large", "by-size-2", "by-size-rest"]
