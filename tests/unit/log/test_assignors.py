"""Assignment strategies: every partition is assigned, evenly, and few partitions move."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log import TopicPartition
from penstock.log.embedded.assignors import (
    ASSIGNORS,
    assign_range,
    assign_round_robin,
    assign_sticky,
)

TOPICS = ("a", "b", "c")
SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from("uvwxyz"), st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=1
)
COUNTS = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})


def all_partitions(counts: dict[str, int]) -> set[TopicPartition]:
    return {TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)}


@pytest.mark.parametrize("strategy", ASSIGNORS)
@given(subscriptions=SUBSCRIPTIONS, counts=COUNTS)
def test_every_partition_has_one_subscribed_owner(
    strategy: str, subscriptions: dict[str, frozenset[str]], counts: dict[str, int]
) -> None:
    assigned = ASSIGNORS[strategy](subscriptions, counts, {})
    partitions = [partition for share in assigned.values() for partition in share]
    subscribed = frozenset().union(*subscriptions.values())
    assert len(partitions) == len(set(partitions))
    assert set(partitions) == {p for p in all_partitions(counts) if p.topic in subscribed}
    for member, share in assigned.items():
        assert {partition.topic for partition in share} <= subscriptions[member]


@given(
    members=st.lists(st.frozensets(st.sampled_from("uvwxyz"), min_size=1), min_size=2),
    counts=COUNTS,
)
def test_sticky_is_even_and_moves_as_little_as_possible(
    members: list[frozenset[str]], counts: dict[str, int]
) -> None:
    assigned: dict[str, set[TopicPartition]] = {}
    history = []
    for present in members:
        assigned = assign_sticky(
            {member: frozenset(TOPICS) for member in present}, counts, assigned
        )
        sizes = [len(share) for share in assigned.values()]
        assert max(sizes) - min(sizes) <= 1
        history.append(assigned)
    for before, after in pairwise(history):
        if before.keys() == after.keys():
            assert before == after
        if before.keys() > after.keys():
            for member, share in after.items():
                assert before[member] <= share


def test_range_and_roundrobin_divide_as_kafka_does() -> None:
    both = {"x": frozenset(("a", "b")), "y": frozenset(("a", "b"))}
    counts = {"a": 3, "b": 3}

    def shown(assigned: dict[str, set[TopicPartition]]) -> dict[str, str]:
        return {m: " ".join(f"{t}{n}" for t, n in sorted(s)) for m, s in assigned.items()}

    assert shown(assign_range(both, counts, {})) == {"x": "a0 a1 b0 b1", "y": "a2 b2"}
    assert shown(assign_round_robin(both, counts, {})) == {"x": "a0 a2 b1", "y": "a1 b0 b2"}
