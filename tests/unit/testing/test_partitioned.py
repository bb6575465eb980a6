"""The driver with partitions: one task per sub-topology and partition."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from penstock import (
    KStream,
    Materialized,
    Processor,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    TaskId,
    TimeWindows,
    Topology,
)
from penstock.errors import MissingSourceTopicException, TopologyException
from penstock.partitioning import partition_of
from penstock.testing import TopologyTestDriver

CONFIG = StreamsConfig(
    application_id="app", default_key_serde=Serdes.string(), default_value_serde=Serdes.string(),
    statestore_cache_max_bytes=0,
)
KEYS = [f"key-{n}" for n in range(20)]
LONG = Serdes.long()


def partition_for(key: str, partitions: int) -> int:
    return partition_of(key.encode(), partitions)


def by_value() -> Topology:
    """Count by value: records move to the partition of their new key."""
    builder = StreamsBuilder()
    builder.stream("in").select_key(lambda key, value: value).group_by_key().count(
        store="counts"
    ).to_stream().to("out", value=LONG)
    return builder.build()


class CountInStore(Processor[str, str]):
    def process(self, record: Record[str, str]) -> None:
        store = self.context.get_state_store("seen")
        count = (store.get(record.key) or 0) + 1
        store.put(record.key, count)
        self.context.forward(record.with_value(count))


def without_repartition() -> Topology:
    """A common bug: a stateful processor after a change of key, without a repartition."""
    builder = StreamsBuilder()
    builder.add_state_store(
        Stores.key_value_store_builder(Stores.in_memory_key_value_store("seen"), None, LONG)
    )
    stream: KStream[Any, Any] = builder.stream("in")
    stream.select_key(lambda key, value: value).process(CountInStore, "seen").to("out", value=LONG)
    return builder.build()


def test_one_task_per_subtopology_and_partition() -> None:
    with TopologyTestDriver(by_value(), CONFIG, partitions=3) as driver:
        assert driver.tasks == tuple(TaskId(s, p) for s in (0, 1) for p in range(3))


def test_record_goes_to_the_partition_of_its_key() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with TopologyTestDriver(builder.build(), CONFIG, partitions=4) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_key_value_list([(key, "v") for key in KEYS])
        records = driver.create_output_topic("out").read_records_to_list()
        assert {r.key: r.partition for r in records} == {key: partition_for(key, 4) for key in KEYS}
        assert len({r.partition for r in records}) == 4


def test_records_without_a_key_are_distributed_round_robin() -> None:
    class ForwardPosition(Processor[str, str]):
        def process(self, record: Record[str, str]) -> None:
            metadata = self.context.record_metadata
            assert metadata is not None
            position = f"{self.context.task_id}/{metadata.partition}/{metadata.offset}"
            self.context.forward(record.with_value(position))

    builder = StreamsBuilder()
    builder.stream("in").process(ForwardPosition).to("out")
    with TopologyTestDriver(builder.build(), CONFIG, partitions={"in": 2}) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_value_list(["a", "b", "c"])
        topic.pipe_input("k", "v", partition=1)
        out = driver.create_output_topic("out")
        assert out.read_values_to_list() == ["0_0/0/0", "0_1/1/0", "0_0/0/1", "0_1/1/1"]


def test_repartition_groups_equal_keys() -> None:
    with TopologyTestDriver(by_value(), CONFIG, partitions=3) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_key_value_list([(key, "same") for key in KEYS])
        out = driver.create_output_topic("out", value=LONG)
        assert out.read_key_values_to_map() == {"same": len(KEYS)}
        partition = partition_for("same", 3)
        assert driver.get_key_value_store("counts", partition=partition)["same"] == 20


def test_missing_repartition_gives_wrong_results() -> None:
    def counts(partitions: int | None) -> dict[str, int]:
        driver = TopologyTestDriver(without_repartition(), CONFIG, partitions=partitions)
        with driver:
            topic = driver.create_input_topic("in")
            topic.pipe_key_value_list([(key, "same") for key in KEYS])
            return driver.create_output_topic("out", value=LONG).read_key_values_to_map()

    assert counts(None) == {"same": 20}
    assert counts(3)["same"] < 20


def test_each_task_has_its_own_stream_time() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(
        TimeWindows.of(timedelta(milliseconds=10))
    ).count(store="w").to_stream(lambda windowed, count: windowed.key).to("out", value=LONG)
    early, late = sorted(KEYS, key=lambda key: partition_for(key, 2))[:: len(KEYS) - 1]
    assert partition_for(early, 2) != partition_for(late, 2)
    for partitions, dropped in ((1, 1), (2, 0)):
        with TopologyTestDriver(builder.build(), CONFIG, partitions=partitions) as driver:
            topic = driver.create_input_topic("in")
            topic.pipe_input(late, "v", timestamp=1_000)
            topic.pipe_input(early, "v", timestamp=5)
            assert driver.metrics()["dropped-records-total"] == dropped


def test_foreign_key_join_across_tasks() -> None:
    builder = StreamsBuilder()
    orders = builder.table("orders")
    customers = builder.table("customers")
    orders.join(customers, lambda order: order, lambda order, name: f"{order}:{name}").to_stream(
    ).to("out")
    partitions = {"orders": 3, "customers": 2}
    with TopologyTestDriver(builder.build(), CONFIG, partitions=partitions) as driver:
        driver.create_input_topic("orders").pipe_key_value_list([(key, "c1") for key in KEYS])
        driver.create_input_topic("customers").pipe_input("c1", "Ann")
        driver.create_input_topic("customers").pipe_input("c1", "Bea")
        out = driver.create_output_topic("out")
        assert out.read_key_values_to_map() == dict.fromkeys(KEYS, "c1:Bea")


def test_global_store_reads_all_partitions() -> None:
    builder = StreamsBuilder()
    table = builder.global_table("names", store="names")
    builder.stream("in").join(table, lambda key, value: value, lambda value, name: name).to("out")
    partitions = {"in": 2, "names": 3}
    with TopologyTestDriver(builder.build(), CONFIG, partitions=partitions) as driver:
        driver.create_input_topic("names").pipe_key_value_list([(key, key) for key in KEYS])
        driver.create_input_topic("in").pipe_key_value_list([(key, key) for key in KEYS])
        out = driver.create_output_topic("out")
        assert sorted(out.read_values_to_list()) == sorted(KEYS)
        assert driver.get_key_value_store("names")["key-3"] == "key-3"


def test_store_of_several_tasks_can_be_read_as_one() -> None:
    builder = StreamsBuilder()
    builder.table("in", store=Materialized("table", key=Serdes.string(), value=Serdes.string()))
    with TopologyTestDriver(builder.build(), CONFIG, partitions=3) as driver:
        driver.create_input_topic("in").pipe_key_value_list([(key, f"{key}!") for key in KEYS])
        store = driver.get_key_value_store("table")
        assert {key: store.get(key) for key in KEYS} == {key: f"{key}!" for key in KEYS}
        assert store["key-7"] == "key-7!"
        assert "key-7" in store
        assert "nobody" not in store
        assert store.get("nobody") is None
        assert sorted(key for key, _ in store.all()) == sorted(KEYS)
        assert list(store.reverse_all()) == list(store.all())[::-1]
        assert sorted(store) == sorted(KEYS)
        assert store.approximate_num_entries == 20
        stamped = driver.get_timestamped_key_value_store("table", key="key-7")
        assert stamped["key-7"].value == "key-7!"
        assert dict(stamped.all()).keys() == {
            key for key in KEYS if partition_for(key, 3) == partition_for("key-7", 3)
        }
        with pytest.raises(ValueError, match="is read-only"):
            store.put("a", "b")
        with pytest.raises(KeyError):
            store["nobody"]


def test_window_store_of_several_tasks_can_be_read_as_one() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1))).count(
        store="w"
    )
    with TopologyTestDriver(builder.build(), CONFIG, partitions=3) as driver:
        driver.create_input_topic("in").pipe_key_value_list([(key, "v") for key in KEYS])
        store = driver.get_window_store("w")
        assert {key: store.fetch(key, 0) for key in KEYS} == dict.fromkeys(KEYS, 1)
        assert [list(store.fetch(key, 0, 999)) for key in KEYS] == [[(0, 1)]] * len(KEYS)
        assert len(list(store.all())) == len(KEYS)


def test_joined_topics_with_different_counts_raise() -> None:
    builder = StreamsBuilder()
    builder.table("a").join(builder.table("b"), lambda left, right: left)
    with pytest.raises(TopologyException, match=re.escape("Topics not co-partitioned")):
        TopologyTestDriver(builder.build(), CONFIG, partitions={"a": 2, "b": 3})


def test_missing_source_topic_raises() -> None:
    with pytest.raises(MissingSourceTopicException, match=re.escape("Missing source topics [in]")):
        TopologyTestDriver(by_value(), CONFIG, partitions={"out": 2})
    builder = StreamsBuilder()
    builder.global_table("names", store="names")
    with pytest.raises(MissingSourceTopicException, match="Missing source topic names"):
        TopologyTestDriver(builder.build(), CONFIG, partitions={})


def test_topics_of_a_pattern_must_be_listed() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("in-.*")).to("out")
    with pytest.raises(ValueError, match="List these topics"):
        TopologyTestDriver(builder.build(), CONFIG, partitions=2)
    with TopologyTestDriver(builder.build(), CONFIG, partitions={"in-a": 1, "in-b": 2}) as driver:
        assert driver.tasks == (TaskId(0, 0), TaskId(0, 1))
        driver.create_input_topic("in-b").pipe_value_list(["x", "y"])
        assert driver.create_output_topic("out").read_values_to_list() == ["x", "y"]


def test_written_topic_has_one_partition_by_default() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    for named, expected in (({}, {0}), ({"out": 5}, {partition_for(key, 5) for key in KEYS})):
        with TopologyTestDriver(builder.build(), CONFIG, partitions={"in": 2, **named}) as driver:
            driver.create_input_topic("in").pipe_key_value_list([(key, "v") for key in KEYS])
            records = driver.create_output_topic("out").read_records_to_list()
            assert {record.partition for record in records} == expected
