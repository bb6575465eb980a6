"""A cache of topic metadata.

Every append and every transaction needs the metadata of its topics. An entry is valid for
`_VALID_S`. Changes by this handle are visible at once. Callers that must not wait for the brokers
accept older entries, which a thread then refreshes.

Brokers learn of a new topic one after the other. So a topic that one broker does not know is asked
for again while another broker lists it, and for some time after this handle has created it.
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

from penstock.log.errors import LogBusy, LogError, UnknownPartition, UnknownTopic
from penstock.log.kafka.client.connection import Connection
from penstock.log.kafka.client.retry import Retry
from penstock.log.topic_config import DEFAULTS, TopicSettings
from penstock.log.types import TopicDescription, TopicPartition

#: The prefix of Kafka's own topics and of the topic of leases, which are hidden from users.
INTERNAL_PREFIX = "__"
_VALID_S = 5.0
#: The largest age of an entry beyond `_VALID_S`, for callers that accept old ones.
_STALE_S = 60.0
_PAUSE_S = 0.02
#: How long brokers may not know a topic that was created.
_SPREAD_S = 10.0


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """The metadata of a topic."""

    description: TopicDescription
    #: The effective settings, with the defaults of the brokers.
    settings: TopicSettings
    valid_until: float


class TopicMetadataCache:
    """The metadata of topics in one process. Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._cached: dict[str, TopicInfo] = {}
        #: The topics that this handle has created -> until when brokers may not know them.
        self._created: dict[str, float] = {}
        self._is_refreshing = False

    def find(self, name: str, *, may_be_stale: bool = False) -> TopicInfo:
        """Return a topic, possibly from the cache, or raise `UnknownTopic`."""
        with self._lock:
            cached = self._cached.get(name)
        if cached is not None:
            age_s = time.monotonic() - cached.valid_until
            if age_s < 0:
                return cached
            if may_be_stale and age_s < _STALE_S:
                self._refresh_later()
                return cached
        return self.fetch([name]).get(name) or self._fetch_again(name)

    def _fetch_again(self, name: str) -> TopicInfo:
        """Fetch a topic that one broker does not know."""
        self.invalidate(name)
        retry = Retry(self._connection.timeout, _PAUSE_S)
        while True:
            known = self.names()
            is_expected = name in known or time.monotonic() < self._created.get(name, 0.0)
            if not is_expected or retry.is_over:
                raise UnknownTopic(name, known)
            retry.wait()
            found = self.fetch([name]).get(name)
            if found is not None:
                return found

    def expect(self, name: str) -> None:
        """Expect a topic that this handle has created."""
        self._created[name] = time.monotonic() + _SPREAD_S

    def expect_none(self, name: str) -> None:
        """Expect a topic no longer: this handle has deleted it."""
        self._created.pop(name, None)

    def _refresh_later(self) -> None:
        """Refresh the entries that are no longer valid, in a thread."""
        with self._lock:
            now = time.monotonic()
            names = [name for name, info in self._cached.items() if info.valid_until < now]
            if self._is_refreshing or not names:
                return
            self._is_refreshing = True
        threading.Thread(
            target=self._refresh, args=(names,), name="penstock-kafka-topics", daemon=True
        ).start()

    def _refresh(self, names: Collection[str]) -> None:
        try:
            for missing in set(names) - self.fetch(names).keys():
                self.invalidate(missing)
        except LogError:
            # The next caller that needs a valid entry gets the error.
            pass
        finally:
            self._is_refreshing = False

    def find_partition(
        self, name: str, partition: int, *, may_be_stale: bool = False
    ) -> TopicInfo:
        """Return the topic of a partition, or raise `UnknownTopic` or `UnknownPartition`."""
        found = self.find(name, may_be_stale=may_be_stale)
        if partition >= found.description.partitions:
            # The partition may be new.
            self.invalidate(name)
            found = self.find(name)
        if not 0 <= partition < found.description.partitions:
            raise UnknownPartition(name, partition, found.description.partitions)
        return found

    def invalidate(self, name: str) -> None:
        """Remove a topic from the cache."""
        with self._lock:
            self._cached.pop(name, None)

    def names(self) -> list[str]:
        """Return the names of all topics except the internal ones."""
        return sorted({topic for topic, _ in self.partitions()})

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions except those of internal topics, in order."""
        connection = self._connection
        retry = Retry(connection.timeout)
        while True:
            try:
                found = connection.admin.list_topics(timeout=connection.request_timeout)
            except KafkaException as raised:
                if retry.is_over:
                    raise connection.unavailable("Listing the topics failed") from raised
            else:
                return sorted(
                    TopicPartition(name, partition)
                    for name, topic in found.topics.items()
                    if not name.startswith(INTERNAL_PREFIX)
                    for partition in topic.partitions
                )

    def fetch(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """Fetch the topics that exist, and cache them."""
        if not names:
            return {}
        retry = Retry(self._connection.timeout, _PAUSE_S)
        while True:
            try:
                found = self._describe(names)
            except LogBusy as error:
                self._connection.wait_and_refresh(retry, error)
            else:
                break
        with self._lock:
            self._cached.update(found)
        return found

    def _describe(self, names: Collection[str]) -> dict[str, TopicInfo]:
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
                topic = self._result(described[name], name)
                entries = self._result(configs[resource], name)
            except UnknownTopic:
                continue
            found[name] = _topic_info(topic, entries)
        return found

    def _result(self, future: Future[Any], name: str) -> Any:
        return self._connection.result(future, f"Describing topic '{name}' failed", name)


def _topic_info(topic: Any, entries: Mapping[str, ConfigEntry]) -> TopicInfo:
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
    return TopicInfo(description, TopicSettings.of(effective), time.monotonic() + _VALID_S)
