"""What the clients take and give: messages, partitions with an offset, metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.clients.errors import KafkaError, translated
from penstock.log.base import Log, Member
from penstock.log.errors import LogError
from penstock.log.types import TopicPartition as LogPartition

#: Places that stand for an offset.
OFFSET_BEGINNING = -2
OFFSET_END = -1
OFFSET_STORED = -1000
OFFSET_INVALID = -1001

TIMESTAMP_NOT_AVAILABLE = 0
TIMESTAMP_CREATE_TIME = 1
TIMESTAMP_LOG_APPEND_TIME = 2

#: Pairs in order, or names and values.
HeadersLike: TypeAlias = (
    "Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]"
)


class TopicPartition:
    """A partition, perhaps with an offset. Two are equal if topic and partition are."""

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
        offset = _PLACES.get(self.offset, str(self.offset))
        error = "" if self.error is None else f",error={self.error}"
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},"
            f"offset={offset}{error}}}"
        )


_PLACES = {
    OFFSET_BEGINNING: "BEGINNING",
    OFFSET_END: "END",
    OFFSET_STORED: "STORED",
    OFFSET_INVALID: "INVALID",
}


def log_partition(partition: Any) -> LogPartition:
    """The partition as the log names it; either form, or a plain pair, is taken."""
    if isinstance(partition, tuple):
        topic, number = partition
        return LogPartition(topic, number)
    return LogPartition(partition.topic, partition.partition)


class Message:
    """A record that was read, the report of one that was sent, or an error in place of one."""

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
        """The topic."""
        return self._topic

    def partition(self) -> int | None:
        """The partition."""
        return self._partition

    def offset(self) -> int | None:
        """The offset; None, or -1001, where there is none."""
        return self._offset

    def key(self) -> Any:
        """The key: bytes, or what the deserializer made of them."""
        return self._key

    def value(self) -> Any:
        """The value: bytes, or what the deserializer made of them."""
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """The headers in order; None if there are none."""
        return list(self._headers) if self._headers else None

    def error(self) -> KafkaError | None:
        """The error that this message stands for; None for a real one."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """The kind of the timestamp, and epoch milliseconds."""
        return self._timestamp

    def latency(self) -> float | None:
        """Of a delivery report: the seconds from `produce` to the acknowledgement."""
        return self._latency

    def leader_epoch(self) -> int | None:
        """None: the embedded log has no leaders."""
        return None

    def set_key(self, key: Any) -> None:
        """Replace the key."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Replace the value."""
        self._value = value

    def set_headers(self, headers: Sequence[tuple[str, bytes | None]] | None) -> None:
        """Replace the headers."""
        self._headers = headers

    def __len__(self) -> int:
        return len(self._value) if self._value is not None else 0

    # A message without a value, or an error, is still a message.
    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        if self._error is not None:
            return f"Message(error={self._error})"
        return (
            f"Message({self._topic} [{self._partition}] at {self._offset}: "
            f"key={self._key!r}, value={self._value!r})"
        )


def header_pairs(headers: HeadersLike | None) -> tuple[tuple[str, bytes | None], ...]:
    """Headers in any of the forms that `produce` takes."""
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    made = []
    for pair in pairs:
        name, value = pair
        if not isinstance(name, str):
            raise TypeError(f"A header's name is a text, not {name!r}.")
        if isinstance(value, str):
            value = value.encode()
        if not (value is None or isinstance(value, bytes)):
            raise TypeError(f"The value of header '{name}' is bytes or a text, not {value!r}.")
        made.append((name, value))
    return tuple(made)


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """What a transaction needs to know of the consumer whose offsets it commits."""

    group_id: str
    #: None if the consumer assigned its partitions itself.
    member: Member | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition of a topic. The embedded log is one broker, number 0, with no replicas."""

    id: int
    leader: int = 0
    replicas: tuple[int, ...] = (0,)
    isrs: tuple[int, ...] = (0,)
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic and its partitions by number; or why it cannot be described."""

    topic: str
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=dict)
    error: KafkaError | None = None

    def __str__(self) -> str:
        return self.topic


@dataclass(frozen=True, slots=True)
class BrokerMetadata:
    """Where a log is."""

    id: int
    host: str
    port: int = 0


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """What `list_topics` answers."""

    cluster_id: str
    topics: Mapping[str, TopicMetadata]
    brokers: Mapping[int, BrokerMetadata]
    controller_id: int = 0
    orig_broker_id: int = 0
    orig_broker_name: str = ""


def cluster_metadata(log: Log, topic: str | None = None) -> ClusterMetadata:
    """All topics of a log, or one; a topic that is not there carries an error."""
    try:
        all_topics = log.topics()
    except LogError as refused:
        raise translated(refused) from refused
    topics = {
        known.name: TopicMetadata(
            known.name, {number: PartitionMetadata(number) for number in range(known.partitions)}
        )
        for known in all_topics
        if topic is None or known.name == topic
    }
    if topic is not None and topic not in topics:
        error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"Topic '{topic}' does not exist.")
        topics[topic] = TopicMetadata(topic, error=error)
    return ClusterMetadata(
        log.id, topics, {0: BrokerMetadata(0, log.address)}, orig_broker_name=log.address
    )
