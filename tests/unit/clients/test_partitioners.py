from __future__ import annotations

import pytest

from penstock.clients.producer.partitioners import Chooser
from penstock.clients.settings import Settings
from penstock.partitioning import partition_of


def chooser(partitioner: object = "murmur2_random") -> Chooser:
    return Chooser(Settings({"partitioner": partitioner}, "Producer"))


def test_a_key_goes_where_kafka_puts_it() -> None:
    # What Kafka's own test of murmur2 expects of these bytes.
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, expected in hashes.items():
        assert chooser().choose("t", None, None, key, 1000) == (expected & 0x7FFFFFFF) % 1000


def test_long_keys_and_short_keys_are_hashed_alike() -> None:
    for key in (b"", b"k", b"k" * 64, b"k" * 65, b"k" * 5000):
        assert chooser().choose("t", None, None, key, 7) == partition_of(key, 7)


def test_records_without_a_key_take_turns_in_each_topic() -> None:
    choose = chooser().choose
    assert [choose("a", None, None, None, 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert [choose("b", None, None, None, 2) for _ in range(3)] == [0, 1, 0]


def test_a_null_key_is_one_partition_with_plain_murmur2() -> None:
    choose = chooser("murmur2").choose
    assert {choose("t", None, None, None, 5) for _ in range(5)} == {partition_of(b"", 5)}


def test_round_robin_has_javas_name_too() -> None:
    choose = chooser("org.apache.kafka.clients.producer.RoundRobinPartitioner").choose
    assert [choose("t", None, None, b"same", 2) for _ in range(4)] == [0, 1, 0, 1]


def test_a_program_may_choose_by_the_value() -> None:
    choose = chooser(lambda topic, key, value, n: value["shop"] % n).choose
    assert [choose("t", None, {"shop": shop}, None, 4) for shop in (3, 4, 9)] == [3, 0, 1]


@pytest.mark.parametrize("answer", [-1, 4, None, "1", True, 1.0])
def test_a_choice_that_cannot_be_is_an_error(answer: object) -> None:
    with pytest.raises(ValueError, match="has 4 partitions"):
        chooser(lambda *_: answer).choose("t", None, None, None, 4)


def test_random_stays_within_the_partitions() -> None:
    choose = chooser("random").choose
    assert {choose("t", None, None, b"k", 3) for _ in range(200)} == {0, 1, 2}
