"""Topics and their partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from penstock.log.errors import InvalidTopic, OffsetOutOfRange, UnknownTopic
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.pool import ClientPool
from penstock.log.kafka.client.retry import Retry
from penstock.log.kafka.ranges import KafkaRanges
from penstock.log.topic_config import (
    check_partitions,
    check_setting_name,
    check_topic_name,
    checked_config,
)
from penstock.log.types import TopicDescription

_PAUSE_S = 0.005


def _check_config(config: Mapping[str, object]) -> dict[str, str]:
    """Return settings as strings. The broker judges those that penstock does not know."""
    checked = {}
    for name, value in config.items():
        try:
            check_setting_name(name)
        except InvalidTopic:
            checked[name] = str(value).strip()
        else:
            checked |= checked_config({name: value})
    return checked


class KafkaTopics:
    """Creates, describes, changes and deletes topics."""

    def __init__(
        self, connection: Connection, clients: ClientPool, ranges: KafkaRanges
    ) -> None:
        self._connection = connection
        self._clients = clients
        self._ranges = ranges

    def create(
        self, name: str, partitions: int, config: Mapping[str, object],
        replication_factor: int = -1,
    ) -> TopicDescription:
        """Create a topic, and wait until the brokers know it."""
        check_topic_name(name)
        check_partitions(partitions)
        new = NewTopic(
            name, partitions, replication_factor=replication_factor, config=_check_config(config)
        )
        futures = self._connection.admin.create_topics(
            [new], request_timeout=self._connection.timeout
        )
        self._connection.result(futures[name], f"Creating topic '{name}' failed", name)
        self._clients.topics.expect(name)
        created = self._wait_until(
            name, lambda found: found is not None and found.partitions == partitions
        )
        self._connection.changed.set()
        assert created is not None
        return created

    def _wait_until(
        self, name: str, is_done: Callable[[TopicDescription | None], bool]
    ) -> TopicDescription | None:
        """Wait until the brokers know of a change, a moment after the controller made it."""
        retry = Retry(self._connection.timeout, _PAUSE_S)
        while True:
            info = self._clients.topics.fetch([name]).get(name)
            found = None if info is None else info.description
            if is_done(found):
                return found
            if retry.is_over:
                raise self._connection.unavailable(f"Topic '{name}' has not changed")
            retry.wait()

    def describe_all(self) -> list[TopicDescription]:
        """Describe all topics, ordered by name."""
        found = self._clients.topics.fetch(self._clients.topics.names())
        return [found[name].description for name in sorted(found)]

    def describe(self, name: str) -> TopicDescription:
        """Describe one topic."""
        self._clients.topics.invalidate(name)
        return self._clients.topics.find(name).description

    def alter(self, name: str, config: Mapping[str, object | None]) -> TopicDescription:
        """Change settings; None removes one."""
        given = _check_config({key: value for key, value in config.items() if value is not None})
        removed = [key for key, value in config.items() if value is None]
        for key in removed:
            check_setting_name(key)
        wanted = {**self.describe(name).config, **given}
        for key in removed:
            wanted.pop(key, None)
        changes = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in given.items()
        ] + [
            ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE)
            for key in removed
        ]
        resource = ConfigResource(
            ConfigResource.Type.TOPIC, name, incremental_configs=changes
        )
        futures: Any = self._connection.admin.incremental_alter_configs(
            [resource], request_timeout=self._connection.timeout
        )
        self._connection.result(futures[resource], f"Altering topic '{name}' failed", name)
        altered = self._wait_until(
            name, lambda found: found is None or dict(found.config) == wanted
        )
        if altered is None:
            raise UnknownTopic(name)
        return altered

    def add_partitions(self, name: str, partitions: int) -> TopicDescription:
        """Increase the number of partitions to `partitions`."""
        now = self.describe(name)
        if partitions < now.partitions:
            raise InvalidTopic(
                f"Topic '{name}' has {now.partitions} partitions and cannot be reduced to "
                f"{partitions}. Partitions can only be added."
            )
        if partitions == now.partitions:
            return now
        futures = self._connection.admin.create_partitions(
            [NewPartitions(name, partitions)], request_timeout=self._connection.timeout
        )
        what = f"Adding partitions to topic '{name}' failed"
        self._connection.result(futures[name], what, name)
        altered = self._wait_until(
            name, lambda found: found is None or found.partitions >= partitions
        )
        self._connection.changed.set()
        if altered is None:
            raise UnknownTopic(name)
        return altered

    def delete(self, name: str) -> None:
        """Delete a topic, and wait until the brokers have forgotten it."""
        self.describe(name)
        futures = self._connection.admin.delete_topics(
            [name], request_timeout=self._connection.timeout
        )
        self._connection.result(futures[name], f"Deleting topic '{name}' failed", name)
        self._clients.topics.expect_none(name)
        self._wait_until(name, lambda found: found is None)
        self._clients.topics.invalidate(name)
        # A new topic of the same name is another topic. Keep no client that knows this one.
        self._clients.readers.close_topic(name)
        self._clients.producers.discard_all()
        self._connection.changed.set()

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Move the start of a partition up to `before`. Returns the new start."""
        self._clients.topics.find_partition(topic, partition)
        bounds = self._ranges.bounds(topic, partition)
        if not 0 <= before <= bounds[1]:
            raise OffsetOutOfRange(topic, partition, before, bounds)
        if before <= bounds[0]:
            return bounds[0]

        def send() -> Any:
            futures: Any = self._connection.admin.delete_records(
                [KafkaPartition(topic, partition, before)],
                request_timeout=self._connection.request_timeout,
            )
            return next(iter(futures.values()))

        what = f"Deleting records of '{topic}' [{partition}] failed"
        deleted = self._connection.request(send, what, topic)
        return int(deleted.low_watermark)
