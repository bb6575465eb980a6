"""The data types of the clients: messages, partitions with an offset, metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.clients.errors import KafkaError, to_kafka_exception
from penstock.log.base import Log, Member
from penstock.log.errors import LogError
from penstock.log.types import TopicPartition as LogPartition

#: Logical offsets.
OFFSET_BEGINNING = -2
OFFSET_END = -1
OFFSET_STORED = -1000
OFFSET_INVALID = -1001

TIMESTAMP_NOT_AVAILABLE = 0
TIMESTAMP_CREATE_TIME = 1
TIMESTAMP_LOG_APPEND_TIME = 2

#: The headers of a record: a mapping, or ordered pairs.
HeadersLike: TypeAlias = (
    "Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]"
)


class TopicPartition:
    """A partition with an optional offset. Only topic and partition count for equality.

    Args:
        topic: The name of the topic.
        partition: The partition; -1 for none.
        offset: The offset, `OFFSET_BEGINNING`, `OFFSET_END` or another constant.
        metadata: Text that is committed with the offset.
        leader_epoch: The epoch of the leader; ignored.
    """

    __slots__ = ("error", "leader_epoch", "metadata", "offset", "partition", "topic")

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.leader_epoch = leader_epoch
        self.error: KafkaError | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicPartition):
            return NotImplemented
        return (self.topic, self.partition) == (other.topic, other.partition)

    def __lt__(self, other: TopicPartition) -> bool:
        return (self.topic, self.partition) < (other.topic, other.partition)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition))

    def __repr__(self) -> str:
        offset = _OFFSET_NAMES.get(self.offset, str(self.offset))
        error = "" if self.error is None else f",error={self.error}"
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},"
            f"offset={offset}{error}}}"
        )


_OFFSET_NAMES = {
    OFFSET_BEGINNING: "BEGINNING",
    OFFSET_END: "END",
    OFFSET_STORED: "STORED",
    OFFSET_INVALID: "INVALID",
}


def to_log_partition(partition: Any) -> LogPartition:
    """Convert a partition, or a pair of topic and number, to the type of the log."""
    if isinstance(partition, tuple):
        topic, number = partition
        return LogPartition(topic, number)
    return LogPartition(partition.topic, partition.partition)


class Message:
    """A consumed record, a delivery report, or an error event."""

    __slots__ = (
        "_error", "_headers", "_key", "_latency", "_offset", "_partition", "_timestamp", "_topic",
        "_value",
    )

    def __init__(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        *,
        key: Any = None,
        value: Any = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] = (TIMESTAMP_NOT_AVAILABLE, -1),
        latency: float | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        self._timestamp = timestamp
        self._latency = latency

    def topic(self) -> str | None:
        """Return the topic."""
        return self._topic

    def partition(self) -> int | None:
        """Return the partition."""
        return self._partition

    def offset(self) -> int | None:
        """Return the offset; None or `OFFSET_INVALID` if it is unknown."""
        return self._offset

    def key(self) -> Any:
        """Return the key: bytes, or the deserialized object."""
        return self._key

    def value(self) -> Any:
        """Return the value: bytes, or the deserialized object."""
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Return the headers in order; None if there are none."""
        return list(self._headers) if self._headers else None

    def error(self) -> KafkaError | None:
        """Return the error of an error event or a failed delivery; None for a record."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """Return the type of the timestamp, and epoch milliseconds."""
        return self._timestamp

    def latency(self) -> float | None:
        """Return the seconds from `produce` to the acknowledgement, for a delivery report."""
        return self._latency

    def leader_epoch(self) -> int | None:
        """Return None: the log contract has no leader epochs."""
        return None

    def set_key(self, key: Any) -> None:
        """Replace the key.

        Args:
            key: The new key.
        """
        self._key = key

    def set_value(self, value: Any) -> None:
        """Replace the value.

        Args:
            value: The new value.
        """
        self._value = value

    def set_headers(self, headers: Sequence[tuple[str, bytes | None]] | None) -> None:
        """Replace the headers.

        Args:
            headers: The new headers.
        """
        self._headers = headers

    def __len__(self) -> int:
        return len(self._value) if self._value is not None else 0

    # `__len__` returns 0 for messages without a value; they must not be false.
    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        if self._error is not None:
            return f"Message(error={self._error})"
        return (
            f"Message({self._topic} [{self._partition}] at {self._offset}: "
            f"key={self._key!r}, value={self._value!r})"
        )


def to_header_pairs(headers: HeadersLike | None) -> tuple[tuple[str, bytes | None], ...]:
    """Convert the headers that `produce` accepts to pairs of name and bytes."""
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    checked = []
    for pair in pairs:
        name, value = pair
        if not isinstance(name, str):
            raise TypeError(f"The name of a header must be a string, not {name!r}.")
        if isinstance(value, str):
            value = value.encode()
        if not (value is None or isinstance(value, bytes)):
            raise TypeError(
                f"The value of header '{name}' must be bytes or a string, not {value!r}."
            )
        checked.append((name, value))
    return tuple(checked)


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """Identifies the consumer whose offsets a transaction commits."""

    group_id: str
    #: None if the consumer uses `assign` instead of `subscribe`.
    member: Member | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition of a topic. Every log is shown as one broker with the id 0."""

    id: int
    leader: int = 0
    replicas: tuple[int, ...] = (0,)
    isrs: tuple[int, ...] = (0,)
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic and its partitions by number, or the error if it cannot be described."""

    topic: str
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=dict)
    error: KafkaError | None = None

    def __str__(self) -> str:
        return self.topic


@dataclass(frozen=True, slots=True)
class BrokerMetadata:
    """The address of a log."""

    id: int
    host: str
    port: int = 0


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The result of `list_topics`."""

    cluster_id: str
    topics: Mapping[str, TopicMetadata]
    brokers: Mapping[int, BrokerMetadata]
    controller_id: int = 0
    orig_broker_id: int = 0
    orig_broker_name: str = ""


def describe_cluster(log: Log, topic: str | None = None) -> ClusterMetadata:
    """Describe all topics of a log, or one. A topic that does not exist has an error."""
    try:
        all_topics = log.topics()
    except LogError as error:
        raise to_kafka_exception(error) from error
    topics = {
        found.name: TopicMetadata(
            found.name, {number: PartitionMetadata(number) for number in range(found.partitions)}
        )
        for found in all_topics
        if topic is None or found.name == topic
    }
    if topic is not None and topic not in topics:
        missing = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"Topic '{topic}' does not exist.")
        topics[topic] = TopicMetadata(topic, error=missing)
    return ClusterMetadata(
        log.id, topics, {0: BrokerMetadata(0, log.address)}, orig_broker_name=log.address
    )
