"""Looks now and then whether topics have come, grown or been made again."""

from __future__ import annotations

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph, build_graph
from penstock.engine.plan.batch_size import whole_setting
from penstock.errors import StreamsException
from penstock.log.base import Log
from penstock.topology.topology import Topology

#: How often, in milliseconds; Kafka's setting of a consumer has the same name.
MAX_AGE = "metadata.max.age.ms"


class TopicChanges:
    """Compares the topics of the log with those that a graph was made from."""

    def __init__(
        self, log: Log, topology: Topology, config: StreamsConfig, graph: ExecutionGraph,
        now_ms: int,
    ) -> None:
        self._log = log
        self._topology = topology
        self._config = config
        self._graph = graph
        self._every_ms = whole_setting(config, MAX_AGE, 30_000, least=0)
        self._looked_at = now_ms
        self._seen, self._ids = self._look()
        #: The application has another graph now. Stays so.
        self.changed = False

    def look(self, now_ms: int, *, at_once: bool = False) -> None:
        """Look, if it is time. Raises what the application could not be started with, either."""
        is_early = not at_once and 0 <= now_ms - self._looked_at < self._every_ms
        if self.changed or is_early:
            return
        self._looked_at = now_ms
        seen, ids = self._look()
        for topic, number in self._ids.items():
            if ids.get(topic, number) != number:
                raise StreamsException(
                    f"The topic '{topic}' was deleted and made again while the application was "
                    "running. What was read of the old one does not fit the new one. Start anew "
                    f"with 'penstock reset {self._config.application_id}'."
                )
        if seen != self._seen:
            self._seen = seen
            self.changed = build_graph(self._topology, self._config, seen) != self._graph

    def _look(self) -> tuple[dict[str, int], dict[str, str]]:
        """Topic -> partitions of all, and topic -> id of those that are read."""
        topics = self._log.topics()
        read = {*self._graph.source_topics, *self._graph.global_topics}
        return (
            {topic.name: topic.partitions for topic in topics},
            {topic.name: topic.id for topic in topics if topic.name in read},
        )
