"""The arguments and results of `AdminClient`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from penstock.clients.errors import KafkaException
from penstock.clients.types import BrokerMetadata, PartitionMetadata, TopicPartition


@dataclass(slots=True)
class NewTopic:
    """A topic to create. -1 partitions means one. Only Kafka uses `replication_factor`.

    `replica_assignment` is not used: the cluster chooses the brokers.
    """

    topic: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignment: Sequence[Sequence[int]] | None = None
    config: Mapping[str, object] | None = None


@dataclass(slots=True)
class NewPartitions:
    """A topic and its new total number of partitions."""

    topic: str
    new_total_count: int
    replica_assignment: Sequence[Sequence[int]] | None = None


class ResourceType(Enum):
    """The kind of a resource."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    BROKER = 4


class ConfigSource(Enum):
    """The origin of a value."""

    UNKNOWN_CONFIG = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DEFAULT_CONFIG = 5


class AlterConfigOpType(Enum):
    """The change of a setting."""

    SET = 0
    DELETE = 1


@dataclass(slots=True)
class ConfigEntry:
    """A setting of a topic."""

    name: str
    value: str | None
    source: ConfigSource = ConfigSource.UNKNOWN_CONFIG
    is_default: bool = False
    is_read_only: bool = False
    is_sensitive: bool = False
    is_synonym: bool = False
    incremental_operation: AlterConfigOpType | None = None

    def __str__(self) -> str:
        return f'{self.name}="{self.value}"'


class ConfigResource:
    """A topic whose settings are described or changed.

    Args:
        restype: The type of the resource.
        name: The name of the topic.
        set_config: All settings, for `alter_configs`.
        incremental_configs: Single changes, for `incremental_alter_configs`.
    """

    Type = ResourceType

    def __init__(
        self,
        restype: ResourceType | str,
        name: str,
        set_config: Mapping[str, object] | None = None,
        incremental_configs: Iterable[ConfigEntry] | None = None,
    ) -> None:
        if not isinstance(restype, ResourceType):
            restype = ResourceType[restype.upper()]
        self.restype = restype
        self.name = name
        self.set_config_dict: dict[str, object] = dict(set_config or {})
        self.incremental_configs = list(incremental_configs or ())

    def set_config(self, name: str, value: object) -> None:
        """Add a value for `alter_configs`.

        Args:
            name: The name of the setting.
            value: The new value.
        """
        self.set_config_dict[name] = value

    def add_incremental_config(self, entry: ConfigEntry) -> None:
        """Add a change for `incremental_alter_configs`.

        Args:
            entry: The setting and what to do with it.
        """
        self.incremental_configs.append(entry)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConfigResource):
            return NotImplemented
        return (self.restype, self.name) == (other.restype, other.name)

    def __hash__(self) -> int:
        return hash((self.restype, self.name))

    def __repr__(self) -> str:
        return f"ConfigResource({self.restype.name}, '{self.name}')"


class ConsumerGroupState(Enum):
    """Whether a group has members."""

    UNKNOWN = 0
    STABLE = 3
    DEAD = 4
    EMPTY = 5


@dataclass(frozen=True, slots=True)
class ConsumerGroupListing:
    """An existing group."""

    group_id: str
    is_simple_consumer_group: bool
    state: ConsumerGroupState


@dataclass(frozen=True, slots=True)
class ListConsumerGroupsResult:
    """The groups, and the errors of brokers that could not be queried."""

    valid: list[ConsumerGroupListing]
    errors: list[KafkaException] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The partitions of a member."""

    topic_partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group; confluent-kafka's `MemberDescription`."""

    member_id: str
    client_id: str
    assignment: MemberAssignment
    host: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A group and its members."""

    group_id: str
    is_simple_consumer_group: bool
    members: list[GroupMember]
    state: ConsumerGroupState
    partition_assignor: str = ""
    coordinator: BrokerMetadata | None = None


@dataclass(slots=True)
class ConsumerGroupTopicPartitions:
    """A group and its offsets; None requests all committed partitions."""

    group_id: str
    topic_partitions: list[TopicPartition] | None = None


@dataclass(frozen=True, slots=True)
class TopicCollection:
    """Topics by name."""

    topic_names: list[str]


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """A topic and its partitions; confluent-kafka's `TopicDescription`."""

    name: str
    topic_id: str
    partitions: list[PartitionMetadata]
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """The first offset of a partition after `delete_records`."""

    low_watermark: int


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """The offset that `list_offsets` finds.

    Example:
        >>> OffsetSpec.for_timestamp(1_000).timestamp
        1000
    """

    #: Epoch milliseconds, or one of Kafka's constants for the first and the end offset.
    timestamp: int

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """Select the first offset.

        Returns:
            The specification, for `AdminClient.list_offsets`.
        """
        return cls(-2)

    @classmethod
    def latest(cls) -> OffsetSpec:
        """Select the end offset.

        Returns:
            The specification, for `AdminClient.list_offsets`.
        """
        return cls(-1)

    @classmethod
    def for_timestamp(cls, timestamp: int) -> OffsetSpec:
        """Select the first record at or after a time.

        Args:
            timestamp: The timestamp, in milliseconds since the epoch.

        Returns:
            The specification, for `AdminClient.list_offsets`.
        """
        if timestamp < 0:
            raise ValueError(f"The timestamp must not be negative: {timestamp}.")
        return cls(timestamp)


@dataclass(frozen=True, slots=True)
class ListOffsetsResultInfo:
    """The result of `list_offsets`; -1 if there is no such record."""

    offset: int
    timestamp: int = -1
    leader_epoch: int | None = None
