"""What a client remembers of topics, for a while."""

from __future__ import annotations

import contextlib
import time
from typing import NamedTuple

from penstock.clients.errors import translated
from penstock.log.base import Log
from penstock.log.errors import LogError, TopicExists, UnknownTopic
from penstock.log.types import TopicDescription


class KnownTopic(NamedTuple):
    """What a producer has to know of a topic, and when to ask again."""

    partitions: int
    max_bytes: int
    until: float


class KnownTopics:
    """Topics as they were a short while ago. May be used by many threads."""

    def __init__(self, log: Log, refresh_ms: int, *, create: bool) -> None:
        self._log = log
        self._refresh = float("inf") if refresh_ms < 0 else refresh_ms / 1000
        self._create = create
        self._known: dict[str, KnownTopic] = {}

    def find(self, name: str) -> KnownTopic:
        """The topic; `KafkaException` if it is not there and may not be created."""
        known = self._known.get(name)
        if known is None or known.until < time.monotonic():
            try:
                topic = find_topic(self._log, name, create=self._create)
            except LogError as error:
                self.forget(name)
                raise translated(error) from error
            known = KnownTopic(
                topic.partitions, int(topic.setting("max.message.bytes")),
                time.monotonic() + self._refresh,
            )
            self._known[name] = known
        return known

    def forget(self, name: str) -> None:
        """Ask again next time."""
        self._known.pop(name, None)


def find_topic(log: Log, name: str, *, create: bool) -> TopicDescription:
    """A topic, made with one partition if it is not there and may be."""
    if not create:
        return log.topic(name)
    try:
        return log.topic(name)
    except UnknownTopic:
        with contextlib.suppress(TopicExists):
            return log.create_topic(name)
        return log.topic(name)
