"""`TopicRows`: the topics of an application, their ends, and how far it has read them."""

from __future__ import annotations

from typing import Any

from penstock.log.base import Log
from penstock.log.errors import UnknownTopic
from penstock.log.types import TopicPartition
from penstock.web.app_topics import AppTopics


class TopicRows:
    """Reads the topics of an application. One thread uses it at a time."""

    def __init__(self, application_id: str, topics: AppTopics) -> None:
        self._application_id = application_id
        self._topics = topics
        #: Topic -> whether the application reads it.
        self._names = topics.named
        #: Pattern of a source -> the topics that it matches.
        self.patterns: dict[str, list[str]] = {}
        #: Topic -> its partitions. Topics that do not exist are missing.
        self._partitions: dict[str, list[TopicPartition]] = {}

    def forget_partitions(self) -> None:
        """Look for new topics and partitions in the next call."""
        self._partitions = {}

    def read(self, log: Log) -> list[dict[str, Any]]:
        """Return a row for each topic that exists, with two requests to the log."""
        if not self._partitions:
            self._partitions = self._find_partitions(log)
        found = self._partitions
        try:
            bounds = log.offsets([at for partitions in found.values() for at in partitions])
        except UnknownTopic:
            # A topic was deleted.
            self._partitions = found = self._find_partitions(log)
            bounds = log.offsets([at for partitions in found.values() for at in partitions])
        committed = log.committed(self._application_id, [
            at for name, partitions in found.items() if self._names[name] for at in partitions
        ])
        rows = []
        for name, partitions in found.items():
            lag = None if not self._names[name] else sum(
                max(0, bounds[at].end - max(bounds[at].start, committed[at].offset))
                for at in partitions if at in committed
            )
            rows.append({
                "name": name, "partitions": len(partitions), "lag": lag,
                "end": sum(bounds[at].end for at in partitions),
                "records": sum(bounds[at].end - bounds[at].start for at in partitions),
            })
        return rows

    def _find_partitions(self, log: Log) -> dict[str, list[TopicPartition]]:
        found = {}
        if self._topics.has_patterns:
            self.patterns = self._topics.matched(topic.name for topic in log.topics())
            matched = (name for names in self.patterns.values() for name in names)
            self._names = {**self._topics.named, **dict.fromkeys(matched, True)}
        for name in self._names:
            try:
                number = log.topic(name).partitions
            except UnknownTopic:
                continue
            found[name] = [TopicPartition(name, each) for each in range(number)]
        return found
