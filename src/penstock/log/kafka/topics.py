"""Topics and their partitions."""

from __future__ import annotations

import time
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
from penstock.log.kafka.ranges import Ranges
from penstock.log.topic_config import (
    check_partitions,
    check_setting_name,
    check_topic_name,
    checked_config,
)
from penstock.log.types import TopicDescription

_PAUSE_S = 0.005


def _checked(config: Mapping[str, object]) -> dict[str, str]:
    """Settings as texts. What penstock does not know is left to the broker to judge."""
    checked = {}
    for name, value in config.items():
        try:
            check_setting_name(name)
        except InvalidTopic:
            checked[name] = str(value).strip()
        else:
            checked |= checked_config({name: value})
    return checked


class Topics(Ranges):
    """The part of the log that changes topics."""

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> TopicDescription:
        """See `Log.create_topic`."""
        check_topic_name(name)
        check_partitions(partitions)
        new = NewTopic(name, partitions, config=_checked(config or {}))
        futures = self._connection.admin.create_topics(
            [new], request_timeout=self._connection.timeout
        )
        self._connection.answer(futures[name], f"Topic '{name}' was to be created", name)
        made = self._await(name, lambda found: found is not None and found.partitions == partitions)
        self._connection.changed.set()
        assert made is not None
        return made

    def _await(
        self, name: str, done: Callable[[TopicDescription | None], bool]
    ) -> TopicDescription | None:
        """Brokers hear of a change a moment after the controller has made it."""
        deadline = time.monotonic() + self._connection.timeout
        while True:
            facts = self.topic_book.look_up([name]).get(name)
            found = None if facts is None else facts.description
            if done(found):
                return found
            if time.monotonic() > deadline:
                raise self._connection.unavailable(f"Topic '{name}' has not changed")
            time.sleep(_PAUSE_S)

    def topics(self) -> list[TopicDescription]:
        """See `Log.topics`."""
        found = self.topic_book.look_up(self.topic_book.names())
        return [found[name].description for name in sorted(found)]

    def topic(self, name: str) -> TopicDescription:
        """See `Log.topic`."""
        self.topic_book.forget(name)
        return self.topic_book.find(name).description

    def alter_topic(self, name: str, config: Mapping[str, object | None]) -> TopicDescription:
        """See `Log.alter_topic`."""
        given = _checked({key: value for key, value in config.items() if value is not None})
        removed = [key for key, value in config.items() if value is None]
        for key in removed:
            check_setting_name(key)
        before = dict(self.topic(name).config)
        wanted = {**before, **given}
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
        self._connection.answer(futures[resource], f"Topic '{name}' was to be changed", name)
        made = self._await(name, lambda found: found is None or dict(found.config) == wanted)
        if made is None:
            raise UnknownTopic(name)
        return made

    def add_partitions(self, name: str, partitions: int) -> TopicDescription:
        """See `Log.add_partitions`."""
        now = self.topic(name)
        if partitions < now.partitions:
            raise InvalidTopic(
                f"Topic '{name}' has {now.partitions} partitions; "
                f"it cannot have {partitions}: partitions are only ever added."
            )
        if partitions == now.partitions:
            return now
        futures = self._connection.admin.create_partitions(
            [NewPartitions(name, partitions)], request_timeout=self._connection.timeout
        )
        self._connection.answer(futures[name], f"Topic '{name}' was to get partitions", name)
        made = self._await(name, lambda found: found is None or found.partitions >= partitions)
        self._connection.changed.set()
        if made is None:
            raise UnknownTopic(name)
        return made

    def delete_topic(self, name: str) -> None:
        """See `Log.delete_topic`."""
        self.topic(name)
        futures = self._connection.admin.delete_topics(
            [name], request_timeout=self._connection.timeout
        )
        self._connection.answer(futures[name], f"Topic '{name}' was to be deleted", name)
        self._await(name, lambda found: found is None)
        self.topic_book.forget(name)
        # The next topic of the name is another one: nobody who knew this one is kept.
        self.readers.let_go_of(name)
        self.producers.let_go()
        self._connection.changed.set()

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """See `Log.delete_records`."""
        self.topic_book.find_partition(topic, partition)
        bounds = self.bounds_of(topic, partition)
        if not 0 <= before <= bounds[1]:
            raise OffsetOutOfRange(topic, partition, before, bounds)
        if before <= bounds[0]:
            return bounds[0]

        def ask() -> Any:
            asked: Any = self._connection.admin.delete_records(
                [KafkaPartition(topic, partition, before)],
                request_timeout=self._connection.request_timeout,
            )
            return next(iter(asked.values()))

        what = f"Records of '{topic}' [{partition}] were to be deleted"
        deleted = self._connection.ask(ask, what, topic)
        return int(deleted.low_watermark)
