"""`AdminClient`: topics, their settings, and groups.

    admin = AdminClient({"log": "orders.db"})
    for topic, future in admin.create_topics([NewTopic("orders", 4)]).items():
        future.result()

As in confluent-kafka, calls answer futures: one for each thing that was asked for, which raises
`KafkaException` if that one could not be done. On the embedded log the work is done when the call
returns. Timeouts are taken for Kafka's sake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

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
    DescribedTopic,
    GroupMember,
    ListConsumerGroupsResult,
    ListOffsetsResultInfo,
    MemberAssignment,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicCollection,
)
from penstock.clients.consumer.commits import as_offsets
from penstock.clients.errors import KafkaError, KafkaException, failure, translated
from penstock.clients.settings import Settings, merged
from penstock.clients.types import (
    OFFSET_END,
    ClusterMetadata,
    PartitionMetadata,
    TopicPartition,
    cluster_metadata,
    log_partition,
)
from penstock.log.base import Log
from penstock.log.errors import GroupNotEmpty, InvalidTopic, LogError, TopicExists
from penstock.log.topic_config import DEFAULTS, check_partitions, check_topic_name, checked_config
from penstock.log.types import GroupDescription

T = TypeVar("T")


class AdminClient:
    """Creates, changes, describes and deletes. May be used by many threads."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        read = Settings(merged(config, settings), "AdminClient")
        read.address()
        read.check_names()
        self._log: Log = read.open_log()

    # Topics

    def create_topics(
        self, new_topics: Sequence[NewTopic], *, validate_only: bool = False, **timeouts: float
    ) -> dict[str, Future[None]]:
        """Create topics."""
        return {
            new.topic: _done(self._create_topic, new, validate_only)
            for new in _list_of(NewTopic, new_topics)
        }

    def _create_topic(self, new: NewTopic, validate_only: bool) -> None:
        partitions = 1 if new.num_partitions == -1 else new.num_partitions
        _check(KafkaError.TOPIC_EXCEPTION, check_topic_name, new.topic)
        _check(KafkaError.INVALID_PARTITIONS, check_partitions, partitions)
        _check(KafkaError.INVALID_CONFIG, checked_config, new.config or {})
        if not validate_only:
            self._log.create_topic(new.topic, partitions, new.config)
        elif any(topic.name == new.topic for topic in self._log.topics()):
            raise TopicExists(new.topic)

    def delete_topics(self, topics: Sequence[str], **timeouts: float) -> dict[str, Future[None]]:
        """Delete topics, their records, and what groups committed for them."""
        return {topic: _done(self._log.delete_topic, topic) for topic in _list_of(str, topics)}

    def create_partitions(
        self, new_partitions: Sequence[NewPartitions], *, validate_only: bool = False,
        **timeouts: float,
    ) -> dict[str, Future[None]]:
        """Let topics have more partitions. Keys may then go to another one than before."""
        return {
            new.topic: _done(self._add_partitions, new, validate_only)
            for new in _list_of(NewPartitions, new_partitions)
        }

    def _add_partitions(self, new: NewPartitions, validate_only: bool) -> None:
        now = self._log.topic(new.topic).partitions
        if new.new_total_count <= now:
            raise failure(
                KafkaError.INVALID_PARTITIONS,
                f"Topic '{new.topic}' has {now} partitions; {new.new_total_count} are not more.",
            )
        if not validate_only:
            self._log.add_partitions(new.topic, new.new_total_count)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """The topics and their partitions."""
        return cluster_metadata(self._log, topic)

    def describe_topics(
        self, topics: TopicCollection, **timeouts: float
    ) -> dict[str, Future[DescribedTopic]]:
        """Topics and their partitions, by name."""
        return {name: _done(self._describe_topic, name) for name in topics.topic_names}

    def _describe_topic(self, name: str) -> DescribedTopic:
        topic = self._log.topic(name)
        partitions = [PartitionMetadata(number) for number in range(topic.partitions)]
        return DescribedTopic(name, topic.id, partitions)

    def delete_records(
        self, topic_partition_offsets: Sequence[TopicPartition], **timeouts: float
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Delete what is before each partition's offset; `OFFSET_END`: all there is now."""
        return {
            partition: _done(self._delete_records, partition)
            for partition in _list_of(TopicPartition, topic_partition_offsets)
        }

    def _delete_records(self, partition: TopicPartition) -> DeletedRecords:
        where = log_partition(partition)
        before = partition.offset
        if before == OFFSET_END:
            before = self._log.offsets([where])[where].end
        return DeletedRecords(self._log.delete_records(*where, before))

    def list_offsets(
        self, topic_partition_offsets: Mapping[TopicPartition, OffsetSpec], **timeouts: Any
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """The first, the next, or the first offset at a time, of partitions."""
        return {
            partition: _done(self._find_offset, partition, spec)
            for partition, spec in topic_partition_offsets.items()
        }

    def _find_offset(self, partition: TopicPartition, spec: OffsetSpec) -> ListOffsetsResultInfo:
        where = log_partition(partition)
        if spec.timestamp < 0:
            offsets = self._log.offsets([where])[where]
            earliest = spec == OffsetSpec.earliest()
            return ListOffsetsResultInfo(offsets.start if earliest else offsets.end)
        found = self._log.offset_for_time(*where, spec.timestamp)
        return ListOffsetsResultInfo(*(found or (OFFSET_END, -1)))

    # Settings

    def describe_configs(
        self, resources: Sequence[ConfigResource], **timeouts: float
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """The settings of topics, with those that were not given."""
        return {
            resource: _done(self._describe_config, resource)
            for resource in _list_of(ConfigResource, resources)
        }

    def _describe_config(self, resource: ConfigResource) -> dict[str, ConfigEntry]:
        _check_topic_resource(resource)
        given = self._log.topic(resource.name).config
        entries = {}
        for name in sorted({*DEFAULTS, *given}):
            source = ConfigSource.DYNAMIC_TOPIC_CONFIG
            if name not in given:
                source = ConfigSource.DEFAULT_CONFIG
            entries[name] = ConfigEntry(
                name, given.get(name, DEFAULTS.get(name)), source, name not in given
            )
        return entries

    def alter_configs(
        self, resources: Sequence[ConfigResource], *, validate_only: bool = False,
        **timeouts: float,
    ) -> dict[ConfigResource, Future[None]]:
        """Give topics these settings and no others."""
        return {
            resource: _done(self._replace_config, resource, validate_only)
            for resource in _list_of(ConfigResource, resources)
        }

    def _replace_config(self, resource: ConfigResource, validate_only: bool) -> None:
        _check_topic_resource(resource)
        removed = dict.fromkeys(self._log.topic(resource.name).config)
        self._alter(resource.name, {**removed, **resource.set_config_dict}, validate_only)

    def incremental_alter_configs(
        self, resources: Sequence[ConfigResource], *, validate_only: bool = False,
        **timeouts: float,
    ) -> dict[ConfigResource, Future[None]]:
        """Change some settings of topics and leave the others."""
        return {
            resource: _done(self._change_config, resource, validate_only)
            for resource in _list_of(ConfigResource, resources)
        }

    def _change_config(self, resource: ConfigResource, validate_only: bool) -> None:
        _check_topic_resource(resource)
        changes: dict[str, object | None] = {}
        for entry in resource.incremental_configs:
            is_delete = entry.incremental_operation is AlterConfigOpType.DELETE
            changes[entry.name] = None if is_delete else entry.value
        self._alter(resource.name, changes, validate_only)

    def _alter(self, topic: str, changes: dict[str, object | None], validate_only: bool) -> None:
        self._log.topic(topic)
        wanted = {name: value for name, value in changes.items() if value is not None}
        _check(KafkaError.INVALID_CONFIG, checked_config, wanted)
        if not validate_only:
            self._log.alter_topic(topic, changes)

    # Groups

    def list_consumer_groups(self, **options: Any) -> Future[ListConsumerGroupsResult]:
        """All groups that have members or offsets."""
        return _done(self._list_groups)

    def _list_groups(self) -> ListConsumerGroupsResult:
        return ListConsumerGroupsResult([
            ConsumerGroupListing(name, False, _state(self._log.group(name)))
            for name in self._log.groups()
        ])

    def describe_consumer_groups(
        self, group_ids: Sequence[str], **options: Any
    ) -> dict[str, Future[ConsumerGroupDescription]]:
        """Who is in each group, and works on what."""
        return {name: _done(self._describe_group, name) for name in _list_of(str, group_ids)}

    def _describe_group(self, name: str) -> ConsumerGroupDescription:
        group = self._log.group(name)
        members = [
            GroupMember(
                member.member_id, member.client_id,
                MemberAssignment([TopicPartition(*where) for where in member.partitions]),
            )
            for member in group.members
        ]
        return ConsumerGroupDescription(name, False, members, _state(group))

    def delete_consumer_groups(
        self, group_ids: Sequence[str], **timeouts: float
    ) -> dict[str, Future[None]]:
        """Forget groups and what they committed; refused while they have members."""
        return {name: _done(self._delete_group, name) for name in _list_of(str, group_ids)}

    def _delete_group(self, name: str) -> None:
        if name not in self._log.groups():
            raise failure(KafkaError.GROUP_ID_NOT_FOUND, f"No group '{name}'.")
        self._log.delete_group(name)

    def list_consumer_group_offsets(
        self, list_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        **options: Any,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """What groups have committed, with their texts; -1001 where they have nothing."""
        return {
            request.group_id: _done(self._group_offsets, request)
            for request in list_consumer_group_offsets_request
        }

    def _group_offsets(
        self, request: ConsumerGroupTopicPartitions
    ) -> ConsumerGroupTopicPartitions:
        asked = request.topic_partitions
        wanted = None if asked is None else [log_partition(partition) for partition in asked]
        found = self._log.committed(request.group_id, wanted)
        answer = []
        for where in sorted(found) if wanted is None else wanted:
            partition = TopicPartition(*where)
            if where in found:
                partition.offset, partition.metadata = found[where].offset, found[where].metadata
            answer.append(partition)
        return ConsumerGroupTopicPartitions(request.group_id, answer)

    def alter_consumer_group_offsets(
        self, alter_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        **timeouts: float,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Set where groups go on; refused while they have members."""
        return {
            request.group_id: _done(self._alter_group_offsets, request)
            for request in alter_consumer_group_offsets_request
        }

    def _alter_group_offsets(
        self, request: ConsumerGroupTopicPartitions
    ) -> ConsumerGroupTopicPartitions:
        partitions = request.topic_partitions or []
        if any(partition.offset < 0 for partition in partitions):
            raise failure(KafkaError._INVALID_ARG, "Every partition needs an offset of 0 or more.")
        members = self._log.group(request.group_id).members
        if members:
            raise GroupNotEmpty(request.group_id, [member.member_id for member in members])
        self._log.commit_offsets(request.group_id, as_offsets(partitions))
        return ConsumerGroupTopicPartitions(request.group_id, partitions)

    def poll(self, timeout: float = -1) -> int:
        """Nothing is ever under way here; answers 0."""
        return 0

    def close(self) -> None:
        """Let go of the log."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _state(group: GroupDescription) -> ConsumerGroupState:
    return ConsumerGroupState.STABLE if group.members else ConsumerGroupState.EMPTY


def _check_topic_resource(resource: ConfigResource) -> None:
    if resource.restype is not ResourceType.TOPIC:
        raise failure(
            KafkaError.INVALID_REQUEST,
            f"Only topics have settings here, not {resource.restype.name.lower()} "
            f"'{resource.name}'.",
        )


def _check(code: int, check: Callable[[Any], object], given: object) -> None:
    """Refuse with Kafka's own code what the log would refuse without saying which part it is."""
    try:
        check(given)
    except InvalidTopic as error:
        raise failure(code, str(error)) from error


def _list_of(kind: type[T], given: Iterable[T]) -> list[T]:
    if isinstance(given, str):
        raise TypeError(f"A list is expected, not the text '{given}'.")
    items = list(given)
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"{kind.__name__} is expected, not {item!r}.")
    return items


def _done(work: Callable[..., T], *arguments: Any) -> Future[T]:
    """The work, done, as a future of its outcome."""
    future: Future[T] = Future()
    try:
        future.set_result(work(*arguments))
    except KafkaException as error:
        future.set_exception(error)
    except LogError as error:
        raised = translated(error)
        raised.__cause__ = error
        future.set_exception(raised)
    return future
