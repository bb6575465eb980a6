"""Producer, Consumer and AdminClient, in the shape that Python people know from confluent-kafka.

The configuration says which log they work on (see `settings.py`).

    producer.py       Producer; outbox.py, sender.py and transactions.py are its inside
    consumer.py       Consumer; places.py, fetching.py, groups.py and commits.py are its inside
    admin.py          AdminClient
    log_handler.py    TopicHandler: ships what a program logs
    words.py          messages and partitions; admin_words.py what AdminClient takes and answers
    errors.py         what they raise and report
    settings.py       the configuration, and the one place that opens a log
    partitioners.py   which partition a record goes to
    serialization.py  from values to bytes and back
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
