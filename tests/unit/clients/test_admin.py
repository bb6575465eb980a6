from __future__ import annotations

from typing import Any

import pytest

from penstock.clients import (
    OFFSET_END,
    OFFSET_INVALID,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicCollection,
    TopicPartition,
)
from penstock.log import Log
from penstock.log.types import TopicPartition as LogPartition


@pytest.fixture
def admin(clients: Any) -> AdminClient:
    admin: AdminClient = clients.admin()
    return admin


def code(future: Any) -> int:
    error = future.exception(0)
    assert isinstance(error, KafkaException)
    return error.error.code()


def test_each_topic_is_created_independently(admin: AdminClient, log: Log) -> None:
    log.create_topic("old")
    futures = admin.create_topics([
        NewTopic("new", 3, 1, config={"retention.ms": "5"}), NewTopic("old"), NewTopic("bad name"),
        NewTopic("plain"),
    ])
    assert futures["new"].result() is None
    assert code(futures["old"]) == KafkaError.TOPIC_ALREADY_EXISTS
    assert code(futures["bad name"]) == KafkaError.TOPIC_EXCEPTION
    assert [(topic.name, topic.partitions) for topic in log.topics()] == [
        ("new", 3), ("old", 1), ("plain", 1),
    ]
    assert log.topic("new").setting("retention.ms") == "5"


def test_validate_only_changes_nothing(admin: AdminClient, log: Log) -> None:
    log.create_topic("old")
    futures = admin.create_topics(
        [NewTopic("new"), NewTopic("old"), NewTopic("none", 0)], validate_only=True)
    assert futures["new"].result() is None
    assert code(futures["old"]) == KafkaError.TOPIC_ALREADY_EXISTS
    assert code(futures["none"]) == KafkaError.INVALID_PARTITIONS
    admin.create_partitions([NewPartitions("old", 5)], validate_only=True)["old"].result()
    assert [(topic.name, topic.partitions) for topic in log.topics()] == [("old", 1)]


def test_topics_are_listed_described_and_deleted(admin: AdminClient, log: Log) -> None:
    log.create_topic("a", 2)
    assert sorted(admin.list_topics().topics["a"].partitions) == [0, 1]
    described = admin.describe_topics(TopicCollection(["a", "x"]))
    assert len(described["a"].result().partitions) == 2
    assert code(described["x"]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    futures = admin.delete_topics(["a", "x"])
    assert futures["a"].result() is None
    assert code(futures["x"]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert log.topics() == []


def test_partition_count_cannot_shrink(admin: AdminClient, log: Log) -> None:
    log.create_topic("a", 2)
    assert code(admin.create_partitions([NewPartitions("a", 2)])["a"]) == (
        KafkaError.INVALID_PARTITIONS)
    admin.create_partitions([NewPartitions("a", 3)])["a"].result()
    assert log.topic("a").partitions == 3


def test_described_settings_include_defaults(admin: AdminClient, log: Log) -> None:
    log.create_topic("a", config={"retention.ms": 7})
    resource = ConfigResource("topic", "a")
    entries = admin.describe_configs([resource])[resource].result()
    assert entries["retention.ms"] == ConfigEntry(
        "retention.ms", "7", ConfigSource.DYNAMIC_TOPIC_CONFIG, False)
    assert entries["cleanup.policy"].is_default
    assert entries["cleanup.policy"].value == "delete"
    broker = ConfigResource(ConfigResource.Type.BROKER, "0")
    assert code(admin.describe_configs([broker])[broker]) == KafkaError.INVALID_REQUEST


def test_alter_configs_replaces_and_incremental_alter_changes_settings(
    admin: AdminClient, log: Log
) -> None:
    log.create_topic("a", config={"retention.ms": 7, "retention.bytes": 8})
    replaced = ConfigResource("TOPIC", "a", set_config={"retention.ms": "9"})
    admin.alter_configs([replaced])[replaced].result()
    assert log.topic("a").config == {"retention.ms": "9"}
    changed = ConfigResource("TOPIC", "a", incremental_configs=[
        ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET),
    ])
    admin.incremental_alter_configs([changed], validate_only=True)[changed].result()
    assert log.topic("a").config == {"retention.ms": "9"}
    admin.incremental_alter_configs([changed])[changed].result()
    assert log.topic("a").config == {"cleanup.policy": "compact"}
    wrong = ConfigResource("TOPIC", "a", set_config={"colour": "red"})
    assert code(admin.alter_configs([wrong])[wrong]) == KafkaError.INVALID_CONFIG


def test_groups_are_listed_and_described(admin: AdminClient, clients: Any, log: Log) -> None:
    log.create_topic("a", 2)
    log.commit_offsets("idle", {LogPartition("a", 0): 1})
    consumer = clients.consumer(group_id="busy", client_id="me")
    consumer.subscribe(["a"])
    consumer.poll(0)
    listed = admin.list_consumer_groups().result().valid
    assert [(group.group_id, group.state) for group in listed] == [
        ("busy", ConsumerGroupState.STABLE), ("idle", ConsumerGroupState.EMPTY),
    ]
    (member,) = admin.describe_consumer_groups(["busy"])["busy"].result().members
    assert (member.client_id, member.member_id) == ("me", consumer.memberid())
    assert [part.partition for part in member.assignment.topic_partitions] == [0, 1]


def test_group_offsets_are_listed_and_altered(admin: AdminClient, clients: Any, log: Log) -> None:
    log.create_topic("a", 2)
    offsets = ConsumerGroupTopicPartitions("g", [TopicPartition("a", 1, 4, "by hand")])
    admin.alter_consumer_group_offsets([offsets])["g"].result()
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])["g"].result()
    assert listed.topic_partitions is not None
    assert [(part.partition, part.offset, part.metadata) for part in listed.topic_partitions] == [
        (1, 4, "by hand"),
    ]
    request = ConsumerGroupTopicPartitions("g", [TopicPartition("a", 0), TopicPartition("a", 1)])
    found = admin.list_consumer_group_offsets([request])["g"].result().topic_partitions
    assert [part.offset for part in found or []] == [OFFSET_INVALID, 4]
    unset = ConsumerGroupTopicPartitions("g", [TopicPartition("a", 0)])
    assert code(admin.alter_consumer_group_offsets([unset])["g"]) == KafkaError._INVALID_ARG


def test_group_with_members_cannot_be_changed_or_deleted(
    admin: AdminClient, clients: Any, log: Log
) -> None:
    log.create_topic("a")
    consumer = clients.consumer(group_id="g")
    consumer.subscribe(["a"])
    consumer.poll(0)
    offsets = ConsumerGroupTopicPartitions("g", [TopicPartition("a", 0, 1)])
    assert code(admin.alter_consumer_group_offsets([offsets])["g"]) == KafkaError.NON_EMPTY_GROUP
    assert code(admin.delete_consumer_groups(["g"])["g"]) == KafkaError.NON_EMPTY_GROUP
    consumer.close()
    admin.delete_consumer_groups(["g"])["g"].result()
    assert log.groups() == []
    assert code(admin.delete_consumer_groups(["g"])["g"]) == KafkaError.GROUP_ID_NOT_FOUND


def test_records_are_deleted_up_to_an_offset(
    admin: AdminClient, clients: Any, log: Log
) -> None:
    log.create_topic("a")
    clients.fill("a", "1", "2", "3")
    upto = TopicPartition("a", 0, 2)
    assert admin.delete_records([upto])[upto].result().low_watermark == 2
    upto = TopicPartition("a", 0, OFFSET_END)
    assert admin.delete_records([upto])[upto].result().low_watermark == 3
    beyond = TopicPartition("a", 0, 99)
    assert code(admin.delete_records([beyond])[beyond]) == KafkaError.OFFSET_OUT_OF_RANGE


def test_list_offsets_finds_first_end_and_time(
    admin: AdminClient, clients: Any, log: Log
) -> None:
    log.create_topic("a")
    for timestamp in (100, 200):
        clients.fill("a", "v", timestamp=timestamp)
    partition = TopicPartition("a", 0)
    for spec, offset in (
        (OffsetSpec.earliest(), 0), (OffsetSpec.latest(), 2), (OffsetSpec.for_timestamp(150), 1),
        (OffsetSpec.for_timestamp(201), -1),
    ):
        assert admin.list_offsets({partition: spec})[partition].result().offset == offset


def test_arguments_of_the_wrong_type_raise_type_error(admin: AdminClient) -> None:
    with pytest.raises(TypeError, match="not the string"):
        admin.delete_topics("orders")
    with pytest.raises(TypeError, match="must be of type NewTopic"):
        admin.create_topics(["orders"])  # type: ignore[list-item]
