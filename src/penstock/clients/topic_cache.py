"""The topic metadata cache of a producer, and the creation of missing topics."""

from __future__ import annotations

import contextlib
import time
from typing import NamedTuple

from penstock.clients.errors import to_kafka_exception
from penstock.log.base import Log
from penstock.log.errors import LogError, TopicExists, UnknownTopic
from penstock.log.types import TopicDescription


class CachedTopic(NamedTuple):
    """The metadata that a producer needs, with its expiry on the monotonic clock."""

    partitions: int
    max_bytes: int
    expires_at: float


class TopicCache:
    """Caches topic metadata for `topic.metadata.refresh.interval.ms`. Thread-safe."""

    def __init__(self, log: Log, refresh_ms: int, *, create: bool) -> None:
        self._log = log
        self._refresh_s = float("inf") if refresh_ms < 0 else refresh_ms / 1000
        self._create = create
        self._topics: dict[str, CachedTopic] = {}

    def get(self, name: str) -> CachedTopic:
        """Return a topic. Raises `KafkaException` if it does not exist and cannot be created."""
        cached = self._topics.get(name)
        if cached is None or cached.expires_at < time.monotonic():
            try:
                topic = find_or_create_topic(self._log, name, create=self._create)
            except LogError as error:
                self.invalidate(name)
                raise to_kafka_exception(error) from error
            cached = CachedTopic(
                topic.partitions, int(topic.setting("max.message.bytes")),
                time.monotonic() + self._refresh_s,
            )
            self._topics[name] = cached
        return cached

    def invalidate(self, name: str) -> None:
        """Remove a topic, so that the next `get` reads it from the log."""
        self._topics.pop(name, None)


def find_or_create_topic(log: Log, name: str, *, create: bool) -> TopicDescription:
    """Return a topic; with `create`, a missing one is created with one partition."""
    if not create:
        return log.topic(name)
    try:
        return log.topic(name)
    except UnknownTopic:
        with contextlib.suppress(TopicExists):
            return log.create_topic(name)
        return log.topic(name)
