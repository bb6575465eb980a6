"""The settings of a producer and their defaults. Names of Kafka and librdkafka are accepted.

    key.serializer, value.serializer   none: bytes unchanged, strings as UTF-8
    partitioner           murmur2_random: Kafka's hash for keys, round robin without a key
    linger.ms             5: how long a record waits for others
    batch.size            1000000 bytes: a full batch does not wait
    batch.num.messages    10000 records: likewise
    buffer.memory         33554432: maximum bytes in the buffer
    queue.buffering.max.messages       0: maximum records in the buffer; 0 is unlimited
    max.block.ms          60000: how long `produce` waits for room before it raises `BufferError`
    acks                  all: reports contain the offset and come after the append.
                          0: reports contain neither offset nor error; there are no retries
    retries               2147483647: applies while other processes hold the log
    retry.backoff.ms      100: pause before the first retry, doubled up to
    retry.backoff.max.ms  1000
    delivery.timeout.ms   120000: no retry after this time
    enable.idempotence    true: retries never duplicate a record
    transactional.id      none: if set, records are sent in transactions
    message.max.bytes     the topic's max.message.bytes
    allow.auto.create.topics           false
    topic.metadata.refresh.interval.ms 5000: delay until added partitions are used
    on_delivery           none: callback for records without their own
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.clients.producer.buffer import BufferLimits, DeliveryCallback
from penstock.clients.producer.partitioners import ProducerPartitioner
from penstock.clients.producer.sender import SendSettings
from penstock.clients.serialization import TopicSerde
from penstock.clients.settings import UNLIMITED, ConfigReader
from penstock.errors import ConfigException


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The typed settings of a producer."""

    buffer: BufferLimits
    send: SendSettings
    key_serde: TopicSerde
    value_serde: TopicSerde
    partitioner: ProducerPartitioner
    on_delivery: DeliveryCallback | None
    #: 0: the limit of the topic.
    max_bytes: int
    #: Empty: no transactions.
    transactional_id: str
    #: Negative: topic metadata does not expire.
    metadata_refresh_ms: int
    create_topics: bool

    @classmethod
    def read(cls, reader: ConfigReader) -> ProducerSettings:
        """Read and check the configuration."""
        settings = cls(
            buffer=_read_buffer_limits(reader),
            send=_read_send(reader),
            key_serde=TopicSerde(
                "key.serializer", reader.raw("key.serializer"), is_key=True, reads=False
            ),
            value_serde=TopicSerde(
                "value.serializer", reader.raw("value.serializer"), is_key=False, reads=False
            ),
            partitioner=ProducerPartitioner(reader),
            on_delivery=reader.callback("on_delivery"),
            max_bytes=reader.integer("message.max.bytes", 0),
            transactional_id=reader.string("transactional.id"),
            metadata_refresh_ms=reader.integer("topic.metadata.refresh.interval.ms", 5_000, -1),
            create_topics=reader.boolean("allow.auto.create.topics", False),
        )
        reader.check_names()
        return settings


def _read_send(reader: ConfigReader) -> SendSettings:
    acks = reader.choice("acks", "all", {"all": "all", "-1": "all", "1": "1", "0": "0"})
    idempotent = reader.boolean("enable.idempotence", acks == "all")
    if (idempotent or reader.string("transactional.id")) and acks != "all":
        raise ConfigException(
            f"acks must be 'all' for an idempotent or transactional producer, not '{acks}'."
        )
    return SendSettings(
        acknowledge=acks != "0",
        retries=reader.integer("retries", UNLIMITED),
        retry_backoff_ms=reader.integer("retry.backoff.ms", 100, 1),
        retry_backoff_max_ms=reader.integer("retry.backoff.max.ms", 1_000, 1),
        delivery_timeout_ms=reader.integer("delivery.timeout.ms", 120_000),
    )


def _read_buffer_limits(reader: ConfigReader) -> BufferLimits:
    kilobytes = reader.integer("queue.buffering.max.kbytes", 32 * 1024, 1)
    return BufferLimits(
        linger_ms=reader.integer("linger.ms", 5),
        batch_bytes=reader.integer("batch.size", 1_000_000),
        batch_records=reader.integer("batch.num.messages", 10_000, 1),
        buffer_bytes=reader.integer("buffer.memory", kilobytes * 1024, 1),
        buffer_records=reader.integer("queue.buffering.max.messages", 0),
        max_block_ms=reader.integer("max.block.ms", 60_000),
    )
