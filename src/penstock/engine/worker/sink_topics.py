"""Partition counts and record limits of the topics that a task writes to."""

from __future__ import annotations

from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.log.base import Log
from penstock.log.errors import UnknownTopic
from penstock.log.topic_config import TopicSettings
from penstock.log.types import TopicDescription
from penstock.task.record_limits import RecordLimits


class SinkTopics:
    """Looks up topics for sinks.

    The execution graph holds the partition counts of topics that the topology names. Other topics
    are chosen per record; they are looked up in the log once per batch, because they may be
    created or deleted at any time.
    """

    def __init__(self, log: Log, graph: ExecutionGraph) -> None:
        self._log = log
        self._graph = graph
        self._batch = (-1, 0)
        #: Topic -> its partition count and limits; None if the topic does not exist.
        self._cache: dict[str, tuple[int, RecordLimits] | None] = {}

    def begin_batch(self, number: int, now: int) -> None:
        """Drop the cache for a new batch. `now` is its clock, which differs if it is retried."""
        if (number, now) != self._batch:
            self._batch = (number, now)
            self._cache.clear()

    def partitions_of(self, topic: str) -> int | None:
        """Return the partition count, or None if the topic does not exist."""
        count = self._graph.partitions.get(topic)
        if count is not None:
            return count
        found = self._look_up(topic)
        return None if found is None else found[0]

    def limits_of(self, topic: str) -> RecordLimits | None:
        """Return the record limits of a topic. A topic in the shuffle has none."""
        if topic in self._graph.shuffled:
            return None
        found = self._look_up(topic)
        return None if found is None else found[1]

    def _look_up(self, topic: str) -> tuple[int, RecordLimits] | None:
        if topic not in self._cache:
            try:
                found = self._log.topic(topic)
            except UnknownTopic:
                self._cache[topic] = None
            else:
                self._cache[topic] = found.partitions, _limits(found, self._batch[1])
        return self._cache[topic]


def _limits(topic: TopicDescription, now: int) -> RecordLimits:
    settings = TopicSettings.of(topic.config)
    if settings.append_time:
        return RecordLimits(settings.max_message_bytes, settings.compact)
    return RecordLimits(
        settings.max_message_bytes, settings.compact, now - settings.timestamp_before_max_ms,
        min(now + settings.timestamp_after_max_ms, 2**63 - 1),
    )
