"""`AdminClient`: manages topics, their settings, and groups.

    admin = AdminClient({"log": "orders.db"})
    for topic, future in admin.create_topics([NewTopic("orders", 4)]).items():
        future.result()

As in confluent-kafka, methods return one future for each requested object. A future raises
`KafkaException` if its request failed. Requests are done when the method returns; the timeouts are
accepted for compatibility and have no effect.
"""

from __future__ import annotations

import logging
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
from penstock.clients.consumer.commits import to_committed_offsets
from penstock.clients.errors import (
    KafkaError,
    KafkaException,
    kafka_exception,
    to_kafka_exception,
)
from penstock.clients.settings import ConfigReader, merge_config
from penstock.clients.types import (
    OFFSET_END,
    ClusterMetadata,
    PartitionMetadata,
    TopicPartition,
    describe_cluster,
    to_log_partition,
)
from penstock.log import scheme_of
from penstock.log.base import Log
from penstock.log.errors import GroupNotEmpty, InvalidTopic, LogError, TopicExists
from penstock.log.topic_config import DEFAULTS, check_partitions, check_topic_name, checked_config
from penstock.log.types import GroupDescription

log = logging.getLogger(__name__)

T = TypeVar("T")


class AdminClient:
    """Creates, changes, describes and deletes topics and groups. Thread-safe.

    Args:
        config: Settings under the names of confluent-kafka; `log` selects the log.
        settings: The same as keyword arguments, with underscores; they win.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from penstock.clients import NewTopic
        >>> with TemporaryDirectory() as directory:
        ...     with AdminClient(log=f"{directory}/orders.db") as admin:
        ...         _ = admin.create_topics([NewTopic("orders", 4)])["orders"].result()
        ...         len(admin.list_topics().topics["orders"].partitions)
        4
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        reader = ConfigReader(merge_config(config, settings), "AdminClient")
        reader.address()
        reader.check_names()
        self._log: Log = reader.open_log()

    # Topics

    def create_topics(
        self, new_topics: Sequence[NewTopic], *, validate_only: bool = False, **timeouts: float
    ) -> dict[str, Future[None]]:
        """Create topics.

        Args:
            new_topics: The topics, with partitions and settings.
            validate_only: Check the request and change nothing.
            timeouts: `request_timeout` and `operation_timeout`, in seconds.

        Returns:
            Name -> a future that ends when the topic exists, or raises `KafkaException`.
        """
        return {
            new.topic: _completed(self._create_topic, new, validate_only)
            for new in _checked_list(NewTopic, new_topics)
        }

    def _create_topic(self, new: NewTopic, validate_only: bool) -> None:
        partitions = 1 if new.num_partitions == -1 else new.num_partitions
        _check(KafkaError.TOPIC_EXCEPTION, check_topic_name, new.topic)
        _check(KafkaError.INVALID_PARTITIONS, check_partitions, partitions)
        _check(KafkaError.INVALID_CONFIG, checked_config, new.config or {})
        self._warn_about_ignored(new)
        if not validate_only:
            self._log.create_topic(
                new.topic, partitions, new.config, replication_factor=new.replication_factor
            )
        elif any(topic.name == new.topic for topic in self._log.topics()):
            raise TopicExists(new.topic)

    def _warn_about_ignored(self, new: NewTopic) -> None:
        settings = {f"topic.{name}": value for name, value in (new.config or {}).items()}
        settings["replication.factor"] = new.replication_factor
        for name, reason in scheme_of(self._log.address).ignored_settings(settings):
            log.warning(
                "Topic '%s': the setting %s has no effect: %s.", new.topic,
                name.removeprefix("topic."), reason,
            )

    def delete_topics(self, topics: Sequence[str], **timeouts: float) -> dict[str, Future[None]]:
        """Delete topics, their records and their committed offsets.

        Args:
            topics: The topics.
            timeouts: `request_timeout` and `operation_timeout`, in seconds.

        Returns:
            Name -> a future that ends when the change is made, or raises `KafkaException`.
        """
        return {
            topic: _completed(self._log.delete_topic, topic)
            for topic in _checked_list(str, topics)
        }

    def create_partitions(
        self, new_partitions: Sequence[NewPartitions], *, validate_only: bool = False,
        **timeouts: float,
    ) -> dict[str, Future[None]]:
        """Add partitions to topics. Keys may then be assigned to another partition than before.

        Args:
            new_partitions: The topics, with their new numbers of partitions.
            validate_only: Check the request and change nothing.
            timeouts: `request_timeout` and `operation_timeout`, in seconds.

        Returns:
            Name -> a future that ends when the change is made, or raises `KafkaException`.
        """
        return {
            new.topic: _completed(self._add_partitions, new, validate_only)
            for new in _checked_list(NewPartitions, new_partitions)
        }

    def _add_partitions(self, new: NewPartitions, validate_only: bool) -> None:
        current = self._log.topic(new.topic).partitions
        if new.new_total_count <= current:
            raise kafka_exception(
                KafkaError.INVALID_PARTITIONS,
                f"Topic '{new.topic}' has {current} partitions already. new_total_count must be "
                f"greater, not {new.new_total_count}.",
            )
        if not validate_only:
            self._log.add_partitions(new.topic, new.new_total_count)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the metadata of all topics, or of one.

        Args:
            topic: One topic; None for all.
            timeout: How long to wait, in seconds; -1 or None waits without a limit.
        """
        return describe_cluster(self._log, topic)

    def describe_topics(
        self, topics: TopicCollection, **timeouts: float
    ) -> dict[str, Future[DescribedTopic]]:
        """Describe topics and their partitions, by name.

        Args:
            topics: The topics.
            timeouts: `request_timeout` and `operation_timeout`, in seconds.

        Returns:
            Name -> a future of the description.
        """
        return {name: _completed(self._describe_topic, name) for name in topics.topic_names}

    def _describe_topic(self, name: str) -> DescribedTopic:
        topic = self._log.topic(name)
        partitions = [PartitionMetadata(number) for number in range(topic.partitions)]
        return DescribedTopic(name, topic.id, partitions)

    def delete_records(
        self, topic_partition_offsets: Sequence[TopicPartition], **timeouts: float
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Delete the records before each partition's offset; `OFFSET_END` deletes all.

        Args:
            topic_partition_offsets: The partitions, with an offset or an `OffsetSpec`.
            timeouts: `request_timeout` and `operation_timeout`, in seconds.

        Returns:
            Partition -> a future with the first offset that is left.
        """
        return {
            partition: _completed(self._delete_records, partition)
            for partition in _checked_list(TopicPartition, topic_partition_offsets)
        }

    def _delete_records(self, partition: TopicPartition) -> DeletedRecords:
        log_partition = to_log_partition(partition)
        before = partition.offset
        if before == OFFSET_END:
            before = self._log.offsets([log_partition])[log_partition].end
        return DeletedRecords(self._log.delete_records(*log_partition, before))

    def list_offsets(
        self, topic_partition_offsets: Mapping[TopicPartition, OffsetSpec], **timeouts: Any
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Find the first offset, the end offset, or the first offset at a time.

        Args:
            topic_partition_offsets: The partitions, with an offset or an `OffsetSpec`.
            timeouts: `request_timeout` and `operation_timeout`, in seconds.

        Returns:
            Partition -> a future with the offset.
        """
        return {
            partition: _completed(self._find_offset, partition, spec)
            for partition, spec in topic_partition_offsets.items()
        }

    def _find_offset(self, partition: TopicPartition, spec: OffsetSpec) -> ListOffsetsResultInfo:
        log_partition = to_log_partition(partition)
        if spec.timestamp < 0:
            offsets = self._log.offsets([log_partition])[log_partition]
            earliest = spec == OffsetSpec.earliest()
            return ListOffsetsResultInfo(offsets.start if earliest else offsets.end)
        found = self._log.offset_for_time(*log_partition, spec.timestamp)
        return ListOffsetsResultInfo(*(found or (OFFSET_END, -1)))

    # Settings

    def describe_configs(
        self, resources: Sequence[ConfigResource], **timeouts: float
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """Return all settings of topics, including defaults.

        Args:
            resources: The topics and brokers.
            timeouts: `request_timeout` and `operation_timeout`, in seconds.
        """
        return {
            resource: _completed(self._describe_config, resource)
            for resource in _checked_list(ConfigResource, resources)
        }

    def _describe_config(self, resource: ConfigResource) -> dict[str, ConfigEntry]:
        _check_topic_resource(resource)
        config = self._log.topic(resource.name).config
        entries = {}
        for name in sorted({*DEFAULTS, *config}):
            source = ConfigSource.DYNAMIC_TOPIC_CONFIG
            if name not in config:
                source = ConfigSource.DEFAULT_CONFIG
            entries[name] = ConfigEntry(
                name, config.get(name, DEFAULTS.get(name)), source, name not in config
            )
        return entries

    def alter_configs(
        self, resources: Sequence[ConfigResource], *, validate_only: bool = False,
        **timeouts: float,
    ) -> dict[ConfigResource, Future[None]]:
        """Replace all settings of topics.

        Args:
            resources: The topics and brokers.
            validate_only: Check the request and change nothing.
            timeouts: `request_timeout` and `operation_timeout`, in seconds.

        Returns:
            Resource -> a future that ends when the settings are changed.
        """
        return {
            resource: _completed(self._replace_config, resource, validate_only)
            for resource in _checked_list(ConfigResource, resources)
        }

    def _replace_config(self, resource: ConfigResource, validate_only: bool) -> None:
        _check_topic_resource(resource)
        removed = dict.fromkeys(self._log.topic(resource.name).config)
        self._alter(resource.name, {**removed, **resource.set_config_dict}, validate_only)

    def incremental_alter_configs(
        self, resources: Sequence[ConfigResource], *, validate_only: bool = False,
        **timeouts: float,
    ) -> dict[ConfigResource, Future[None]]:
        """Set or delete single settings of topics.

        Args:
            resources: The topics and brokers.
            validate_only: Check the request and change nothing.
            timeouts: `request_timeout` and `operation_timeout`, in seconds.

        Returns:
            Resource -> a future that ends when the settings are changed.
        """
        return {
            resource: _completed(self._change_config, resource, validate_only)
            for resource in _checked_list(ConfigResource, resources)
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
        values = {name: value for name, value in changes.items() if value is not None}
        _check(KafkaError.INVALID_CONFIG, checked_config, values)
        if not validate_only:
            self._log.alter_topic(topic, changes)

    # Groups

    def list_consumer_groups(self, **options: Any) -> Future[ListConsumerGroupsResult]:
        """List the groups that have members or committed offsets.

        Args:
            options: Options of confluent-kafka, such as `request_timeout`.

        Returns:
            A future of the groups.
        """
        return _completed(self._list_groups)

    def _list_groups(self) -> ListConsumerGroupsResult:
        return ListConsumerGroupsResult([
            ConsumerGroupListing(name, False, _state(self._log.group(name)))
            for name in self._log.groups()
        ])

    def describe_consumer_groups(
        self, group_ids: Sequence[str], **options: Any
    ) -> dict[str, Future[ConsumerGroupDescription]]:
        """Return the members of groups and their partitions.

        Args:
            group_ids: The ids of the consumer groups.
            options: Options of confluent-kafka, such as `request_timeout`.
        """
        return {
            name: _completed(self._describe_group, name)
            for name in _checked_list(str, group_ids)
        }

    def _describe_group(self, name: str) -> ConsumerGroupDescription:
        group = self._log.group(name)
        members = [
            GroupMember(
                member.member_id, member.client_id,
                MemberAssignment([TopicPartition(*partition) for partition in member.partitions]),
            )
            for member in group.members
        ]
        return ConsumerGroupDescription(name, False, members, _state(group))

    def delete_consumer_groups(
        self, group_ids: Sequence[str], **timeouts: float
    ) -> dict[str, Future[None]]:
        """Delete groups and their committed offsets. Fails for a group that has members.

        Args:
            group_ids: The ids of the consumer groups.
            timeouts: `request_timeout` and `operation_timeout`, in seconds.

        Returns:
            Name -> a future that ends when the change is made, or raises `KafkaException`.
        """
        return {
            name: _completed(self._delete_group, name)
            for name in _checked_list(str, group_ids)
        }

    def _delete_group(self, name: str) -> None:
        if name not in self._log.groups():
            raise kafka_exception(KafkaError.GROUP_ID_NOT_FOUND, f"Group '{name}' does not exist.")
        self._log.delete_group(name)

    def list_consumer_group_offsets(
        self, list_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        **options: Any,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Return committed offsets with their metadata; `OFFSET_INVALID` without one.

        Args:
            list_consumer_group_offsets_request: One group, and its partitions or None for all.
            options: Options of confluent-kafka, such as `request_timeout`.
        """
        return {
            request.group_id: _completed(self._group_offsets, request)
            for request in list_consumer_group_offsets_request
        }

    def _group_offsets(
        self, request: ConsumerGroupTopicPartitions
    ) -> ConsumerGroupTopicPartitions:
        requested = None
        if request.topic_partitions is not None:
            requested = [to_log_partition(partition) for partition in request.topic_partitions]
        committed = self._log.committed(request.group_id, requested)
        partitions = []
        for log_partition in sorted(committed) if requested is None else requested:
            partition = TopicPartition(*log_partition)
            if log_partition in committed:
                partition.offset, partition.metadata = committed[log_partition]
            partitions.append(partition)
        return ConsumerGroupTopicPartitions(request.group_id, partitions)

    def alter_consumer_group_offsets(
        self, alter_consumer_group_offsets_request: Sequence[ConsumerGroupTopicPartitions],
        **timeouts: float,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Set the committed offsets of groups. Fails for a group that has members.

        Args:
            alter_consumer_group_offsets_request: One group, and its partitions with new offsets.
            timeouts: `request_timeout` and `operation_timeout`, in seconds.

        Returns:
            Name -> a future with the offsets that were set.
        """
        return {
            request.group_id: _completed(self._alter_group_offsets, request)
            for request in alter_consumer_group_offsets_request
        }

    def _alter_group_offsets(
        self, request: ConsumerGroupTopicPartitions
    ) -> ConsumerGroupTopicPartitions:
        partitions = request.topic_partitions or []
        if any(partition.offset < 0 for partition in partitions):
            raise kafka_exception(
                KafkaError._INVALID_ARG, "The offset of every partition must be 0 or more."
            )
        members = self._log.group(request.group_id).members
        if members:
            raise GroupNotEmpty(request.group_id, [member.member_id for member in members])
        self._log.commit_offsets(request.group_id, to_committed_offsets(partitions))
        return ConsumerGroupTopicPartitions(request.group_id, partitions)

    def poll(self, timeout: float = -1) -> int:
        """Return 0: there are no callbacks.

        Args:
            timeout: How long to wait, in seconds; -1 or None waits without a limit.
        """
        return 0

    def close(self) -> None:
        """Close the log."""
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
        raise kafka_exception(
            KafkaError.INVALID_REQUEST,
            f"Only topics have settings. '{resource.name}' is a "
            f"{resource.restype.name.lower()}.",
        )


def _check(code: int, check: Callable[[Any], object], value: object) -> None:
    """Check before the log does, to raise Kafka's code for the invalid part of a request."""
    try:
        check(value)
    except InvalidTopic as error:
        raise kafka_exception(code, str(error)) from error


def _checked_list(kind: type[T], values: Iterable[T]) -> list[T]:
    if isinstance(values, str):
        raise TypeError(f"The argument must be a list, not the string '{values}'.")
    items = list(values)
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"The elements must be of type {kind.__name__}, not {item!r}.")
    return items


def _completed(function: Callable[..., T], *arguments: Any) -> Future[T]:
    """Call a function and return a completed future of its result."""
    future: Future[T] = Future()
    try:
        future.set_result(function(*arguments))
    except KafkaException as error:
        future.set_exception(error)
    except LogError as error:
        exception = to_kafka_exception(error)
        exception.__cause__ = error
        future.set_exception(exception)
    return future
