"""Kafka clients with the API of confluent-kafka: `Producer`, `Consumer` and `AdminClient`.

They work on the embedded log and on Kafka; the configuration selects the log.

    producer/         Producer
    consumer/         Consumer
    admin/            AdminClient, its arguments and results
    log_handler.py    TopicHandler, a logging handler that writes to a topic
    types.py          messages, partitions, metadata
    errors.py         exceptions and error codes
    settings.py       reads a configuration and opens the log
    setting_names.py  the names of all settings
    serialization.py  serializers and deserializers
    topic_cache.py    the topic metadata cache
"""

from __future__ import annotations

from penstock.clients.admin.client import AdminClient
from penstock.clients.admin.types import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    DeletedRecords,
    ListConsumerGroupsResult,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicCollection,
)
from penstock.clients.consumer.client import Consumer
from penstock.clients.errors import (
    ConsumeError,
    KafkaError,
    KafkaException,
    KeyDeserializationError,
    KeySerializationError,
    ProduceError,
    ValueDeserializationError,
    ValueSerializationError,
    WakeupException,
)
from penstock.clients.log_handler import TopicHandler
from penstock.clients.producer.client import Producer
from penstock.clients.types import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    ClusterMetadata,
    ConsumerGroupMetadata,
    Message,
    TopicMetadata,
    TopicPartition,
)

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AdminClient",
    "AlterConfigOpType",
    "ClusterMetadata",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConsumeError",
    "Consumer",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "ConsumerGroupMetadata",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "DeletedRecords",
    "KafkaError",
    "KafkaException",
    "KeyDeserializationError",
    "KeySerializationError",
    "ListConsumerGroupsResult",
    "ListOffsetsResultInfo",
    "Message",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "ProduceError",
    "Producer",
    "ResourceType",
    "TopicCollection",
    "TopicHandler",
    "TopicMetadata",
    "TopicPartition",
    "ValueDeserializationError",
    "ValueSerializationError",
    "WakeupException",
]
