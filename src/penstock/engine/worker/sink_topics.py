"""What a task must know about topics before it writes to them."""

from __future__ import annotations

from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.log.base import Log
from penstock.log.errors import UnknownTopic
from penstock.log.topic_config import TopicSettings
from penstock.log.types import TopicDescription
from penstock.task.record_limits import RecordLimits


class SinkTopics:
    """How many partitions topics have, and which records they take.

    Topics that the topology names are as the graph says. Others, which are chosen for each record,
    are looked up in the log, once a batch: they may be made or deleted at any time.
    """

    def __init__(self, log: Log, graph: ExecutionGraph) -> None:
        self._log = log
        self._graph = graph
        self._batch = (-1, 0)
        #: Topic -> its partitions and limits; None: there is no such topic.
        self._found: dict[str, tuple[int, RecordLimits] | None] = {}

    def new_batch(self, number: int, now: int) -> None:
        """Look again. `now` is the clock of the batch: a batch that is run again has another."""
        if (number, now) != self._batch:
            self._batch = (number, now)
            self._found.clear()

    def partitions_of(self, topic: str) -> int | None:
        """How many partitions a topic has, None if there is no such topic."""
        count = self._graph.partitions.get(topic)
        if count is not None:
            return count
        found = self._find(topic)
        return None if found is None else found[0]

    def limits_of(self, topic: str) -> RecordLimits | None:
        """Which records a topic takes; the shuffle takes all."""
        if topic in self._graph.shuffled:
            return None
        found = self._find(topic)
        return None if found is None else found[1]

    def _find(self, topic: str) -> tuple[int, RecordLimits] | None:
        if topic not in self._found:
            try:
                found = self._log.topic(topic)
            except UnknownTopic:
                self._found[topic] = None
            else:
                self._found[topic] = found.partitions, limits(found, self._batch[1])
        return self._found[topic]


def limits(topic: TopicDescription, now: int) -> RecordLimits:
    """Which records a topic takes at that time."""
    settings = TopicSettings.of(topic.config)
    if settings.append_time:
        return RecordLimits(settings.max_message_bytes, settings.compact)
    return RecordLimits(
        settings.max_message_bytes, settings.compact, now - settings.timestamp_before_max_ms,
        min(now + settings.timestamp_after_max_ms, 2**63 - 1),
    )
