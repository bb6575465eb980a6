"""`TopicRows`: the topics of an application, their ends, and how far it has read them."""

from __future__ import annotations

from typing import Any

from penstock.config import StreamsConfig
from penstock.log.base import Log
from penstock.log.errors import UnknownTopic
from penstock.log.types import TopicPartition
from penstock.topology.nodes import SinkNode, SourceNode
from penstock.topology.topology import Topology


class TopicRows:
    """Reads the topics of a topology. One thread uses it at a time."""

    def __init__(self, topology: Topology, config: StreamsConfig) -> None:
        self._application_id = config.application_id
        self._names = topic_names(topology, config)
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
        for name in self._names:
            try:
                number = log.topic(name).partitions
            except UnknownTopic:
                continue
            found[name] = [TopicPartition(name, each) for each in range(number)]
        return found


def topic_names(topology: Topology, config: StreamsConfig) -> dict[str, bool]:
    """Return the topics of a topology, and whether it reads them. Internal ones have full names."""
    def full(name: str) -> str:
        return f"{config.application_id}-{name}" if name in topology.internal_topics else name

    found: dict[str, bool] = {}
    for node in topology.nodes:
        if isinstance(node, SourceNode):
            found |= {full(topic): True for topic in node.topics}
        elif isinstance(node, SinkNode) and isinstance(node.topic, str):
            found.setdefault(full(node.topic), False)
    for store in topology.global_stores.values():
        found.setdefault(store.topic, False)
    for topic in config.dead_letter_topics():
        found.setdefault(topic, False)
    return found
