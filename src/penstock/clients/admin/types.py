"""What `AdminClient` takes and answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from penstock.clients.errors import KafkaException
from penstock.clients.types import BrokerMetadata, PartitionMetadata, TopicPartition


@dataclass(slots=True)
class NewTopic:
    """A topic to be created. Replicas are Kafka's; -1 partitions are one."""

    topic: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignment: Sequence[Sequence[int]] | None = None
    config: Mapping[str, object] | None = None


@dataclass(slots=True)
class NewPartitions:
    """A topic, and how many partitions it shall have in all."""

    topic: str
    new_total_count: int
    replica_assignment: Sequence[Sequence[int]] | None = None


class ResourceType(Enum):
    """What has a configuration."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    BROKER = 4


class ConfigSource(Enum):
    """Where the value of a setting comes from."""

    UNKNOWN_CONFIG = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DEFAULT_CONFIG = 5


class AlterConfigOpType(Enum):
    """What to do with a setting."""

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
    """A topic whose settings are asked for or changed."""

    Type = ResourceType

    def __init__(
        self,
        restype: ResourceType | str,
        name: str,
        set_config: Mapping[str, object] | None = None,
        incremental_configs: Iterable[ConfigEntry] | None = None,
    ) -> None:
        given = restype if isinstance(restype, ResourceType) else ResourceType[restype.upper()]
        self.restype = given
        self.name = name
        self.set_config_dict: dict[str, object] = dict(set_config or {})
        self.incremental_configs = list(incremental_configs or ())

    def set_config(self, name: str, value: object) -> None:
        """Set a value, for `alter_configs`."""
        self.set_config_dict[name] = value

    def add_incremental_config(self, entry: ConfigEntry) -> None:
        """Change one setting, for `incremental_alter_configs`."""
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
    """A group that there is."""

    group_id: str
    is_simple_consumer_group: bool
    state: ConsumerGroupState


@dataclass(frozen=True, slots=True)
class ListConsumerGroupsResult:
    """All groups, and what could not be asked."""

    valid: list[ConsumerGroupListing]
    errors: list[KafkaException] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """What a member works on."""

    topic_partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group."""

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
    """A group and offsets of it; None: of all partitions it has any for."""

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
    """Where a partition begins after `delete_records`."""

    low_watermark: int


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Which offset `list_offsets` looks for."""

    #: A time, or one of Kafka's numbers for places.
    timestamp: int

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """The oldest record."""
        return cls(-2)

    @classmethod
    def latest(cls) -> OffsetSpec:
        """The next record to come."""
        return cls(-1)

    @classmethod
    def for_timestamp(cls, timestamp: int) -> OffsetSpec:
        """The first record that is not older."""
        if timestamp < 0:
            raise ValueError(f"A time must not be negative: {timestamp}.")
        return cls(timestamp)


@dataclass(frozen=True, slots=True)
class ListOffsetsResultInfo:
    """What `list_offsets` found: -1 if there is no such record."""

    offset: int
    timestamp: int = -1
    leader_epoch: int | None = None
