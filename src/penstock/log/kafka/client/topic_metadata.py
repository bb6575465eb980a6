"""What a process knows of topics.

What is known of a topic is kept for a moment (`_FRESH_S`), because every append and every
transaction asks for it; what this handle changes itself it sees at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import ConfigEntry, ConfigResource, ConfigSource

from penstock.log.errors import LogBusy, UnknownPartition, UnknownTopic
from penstock.log.kafka.client.connection import Connection
from penstock.log.topic_config import DEFAULTS, TopicSettings
from penstock.log.types import TopicDescription, TopicPartition

#: Kafka's own topics, and the one of the leases; nobody else has business with them.
INTERNAL_PREFIX = "__"
_FRESH_S = 5.0


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic, with what its brokers say of its settings."""

    description: TopicDescription
    #: With the brokers' own defaults.
    settings: TopicSettings
    until: float


class TopicMetadataCache:
    """What a process knows of topics. May be used by many threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._known: dict[str, TopicInfo] = {}

    def find(self, name: str) -> TopicInfo:
        """A topic as it was a moment ago, or `UnknownTopic`."""
        with self._lock:
            known = self._known.get(name)
        if known is not None and time.monotonic() < known.until:
            return known
        found = self.look_up([name])
        if name not in found:
            self.forget(name)
            raise UnknownTopic(name, self.names())
        return found[name]

    def find_partition(self, name: str, partition: int) -> TopicInfo:
        """The topic, if it has the partition."""
        found = self.find(name)
        if partition >= found.description.partitions:
            # It may have been added a moment ago.
            self.forget(name)
            found = self.find(name)
        if not 0 <= partition < found.description.partitions:
            raise UnknownPartition(name, partition, found.description.partitions)
        return found

    def forget(self, name: str) -> None:
        """Ask again next time."""
        with self._lock:
            self._known.pop(name, None)

    def names(self) -> list[str]:
        """All topics but the internal ones."""
        return sorted({topic for topic, _ in self.partitions()})

    def partitions(self) -> list[TopicPartition]:
        """All partitions of all topics but the internal ones, by name and number."""
        connection = self._connection
        deadline = time.monotonic() + connection.timeout
        while True:
            try:
                found = connection.admin.list_topics(timeout=connection.request_timeout)
            except KafkaException as raised:
                if time.monotonic() > deadline:
                    raise connection.unavailable("The topics were asked for") from raised
            else:
                return sorted(
                    TopicPartition(name, partition)
                    for name, topic in found.topics.items()
                    if not name.startswith(INTERNAL_PREFIX)
                    for partition in topic.partitions
                )

    def look_up(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """Those of the topics that there are, as they stand now."""
        if not names:
            return {}
        deadline = time.monotonic() + self._connection.timeout
        while True:
            try:
                found = self._asked(names)
            except LogBusy:
                if time.monotonic() > deadline:
                    raise
                self._connection.look_around()
            else:
                break
        with self._lock:
            self._known.update(found)
        return found

    def _asked(self, names: Collection[str]) -> dict[str, TopicInfo]:
        admin = self._connection.admin
        timeout = self._connection.request_timeout
        resources = {name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in names}
        configs: Any = admin.describe_configs(list(resources.values()), request_timeout=timeout)
        described: Any = admin.describe_topics(
            TopicCollection(list(names)), request_timeout=timeout
        )
        found = {}
        for name, resource in resources.items():
            try:
                topic = self._answer(described[name], name)
                entries = self._answer(configs[resource], name)
            except UnknownTopic:
                continue
            found[name] = _facts(topic, entries)
        return found

    def _answer(self, future: Future[Any], name: str) -> Any:
        return self._connection.answer(future, f"Topic '{name}' was asked for", name)


def _facts(topic: Any, entries: Mapping[str, ConfigEntry]) -> TopicInfo:
    given = {
        name: str(entry.value) for name, entry in entries.items()
        if ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }
    effective = {
        name: str(entry.value) for name, entry in entries.items() if entry.value is not None
    }
    description = TopicDescription(
        topic.name, str(topic.topic_id), len(topic.partitions), dict(sorted(given.items())),
        {name: effective.get(name, usual) for name, usual in DEFAULTS.items()},
    )
    return TopicInfo(description, TopicSettings.of(effective), time.monotonic() + _FRESH_S)
