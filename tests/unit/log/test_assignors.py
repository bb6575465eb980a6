"""Division of partitions: everything is given, evenly, and little moves."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log import TopicPartition
from penstock.log.embedded.assignors import ASSIGNORS, by_range, in_turn, sticky

TOPICS = ("a", "b", "c")
SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from("uvwxyz"), st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=1
)
COUNTS = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})


def everything(counts: dict[str, int]) -> set[TopicPartition]:
    return {TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)}


@pytest.mark.parametrize("strategy", ASSIGNORS)
@given(subscriptions=SUBSCRIPTIONS, counts=COUNTS)
def test_every_partition_has_one_owner_who_wants_it(
    strategy: str, subscriptions: dict[str, frozenset[str]], counts: dict[str, int]
) -> None:
    shares = ASSIGNORS[strategy](subscriptions, counts, {})
    given_out = [partition for share in shares.values() for partition in share]
    wanted = frozenset().union(*subscriptions.values())
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == {p for p in everything(counts) if p.topic in wanted}
    for member, share in shares.items():
        assert {partition.topic for partition in share} <= subscriptions[member]


@given(
    members=st.lists(st.frozensets(st.sampled_from("uvwxyz"), min_size=1), min_size=2),
    counts=COUNTS,
)
def test_sticky_is_even_and_moves_no_more_than_it_must(
    members: list[frozenset[str]], counts: dict[str, int]
) -> None:
    had: dict[str, set[TopicPartition]] = {}
    history = []
    for present in members:
        had = sticky({member: frozenset(TOPICS) for member in present}, counts, had)
        sizes = [len(share) for share in had.values()]
        assert max(sizes) - min(sizes) <= 1
        history.append(had)
    for before, after in pairwise(history):
        if before.keys() == after.keys():
            assert before == after
        if before.keys() > after.keys():
            for member, share in after.items():
                assert before[member] <= share


def test_range_and_roundrobin_divide_as_kafka_does() -> None:
    both = {"x": frozenset(("a", "b")), "y": frozenset(("a", "b"))}
    counts = {"a": 3, "b": 3}

    def shown(shares: dict[str, set[TopicPartition]]) -> dict[str, str]:
        return {m: " ".join(f"{t}{n}" for t, n in sorted(s)) for m, s in shares.items()}

    assert shown(by_range(both, counts, {})) == {"x": "a0 a1 b0 b1", "y": "a2 b2"}
    assert shown(in_turn(both, counts, {})) == {"x": "a0 a2 b1", "y": "a1 b0 b2"}
