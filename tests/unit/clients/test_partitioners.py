from __future__ import annotations

import pytest

from penstock.clients.producer.partitioners import ProducerPartitioner
from penstock.clients.settings import ConfigReader
from penstock.partitioning import partition_of


def partitioner_for(setting: object = "murmur2_random") -> ProducerPartitioner:
    return ProducerPartitioner(ConfigReader({"partitioner": setting}, "Producer"))


def test_key_goes_to_the_same_partition_as_in_kafka() -> None:
    # The expected values of Kafka's own test of murmur2.
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, expected in hashes.items():
        chosen = partitioner_for().choose("t", None, None, key, 1000)
        assert chosen == (expected & 0x7FFFFFFF) % 1000


def test_cached_and_uncached_keys_have_the_same_partition() -> None:
    for key in (b"", b"k", b"k" * 64, b"k" * 65, b"k" * 5000):
        assert partitioner_for().choose("t", None, None, key, 7) == partition_of(key, 7)


def test_records_without_a_key_use_round_robin_per_topic() -> None:
    choose = partitioner_for().choose
    assert [choose("a", None, None, None, 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert [choose("b", None, None, None, 2) for _ in range(3)] == [0, 1, 0]


def test_murmur2_sends_null_keys_to_one_partition() -> None:
    choose = partitioner_for("murmur2").choose
    assert {choose("t", None, None, None, 5) for _ in range(5)} == {partition_of(b"", 5)}


def test_round_robin_accepts_the_java_class_name() -> None:
    choose = partitioner_for("org.apache.kafka.clients.producer.RoundRobinPartitioner").choose
    assert [choose("t", None, None, b"same", 2) for _ in range(4)] == [0, 1, 0, 1]


def test_partitioner_function_can_use_the_value() -> None:
    choose = partitioner_for(lambda topic, key, value, n: value["shop"] % n).choose
    assert [choose("t", None, {"shop": shop}, None, 4) for shop in (3, 4, 9)] == [3, 0, 1]


@pytest.mark.parametrize("result", [-1, 4, None, "1", True, 1.0])
def test_invalid_result_of_a_partitioner_function_raises(result: object) -> None:
    with pytest.raises(ValueError, match="has 4 partitions"):
        partitioner_for(lambda *_: result).choose("t", None, None, None, 4)


def test_random_partitioner_uses_all_partitions() -> None:
    choose = partitioner_for("random").choose
    assert {choose("t", None, None, b"k", 3) for _ in range(200)} == {0, 1, 2}
