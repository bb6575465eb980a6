"""Repartition topics with unread records, which batch mode consumes before it uses the shuffle.

In continuous mode, and in Kafka Streams for Java, repartition topics are in the log. An application
that changes to batch mode may have records in them that no task has read yet.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import build_graph
from penstock.log.base import Log
from penstock.log.types import TopicPartition
from penstock.topology.topology import Topology

log = logging.getLogger(__name__)


def find_unread_topics(
    target: Log, topology: Topology, config: StreamsConfig
) -> frozenset[str]:
    """Return the topics that the shuffle would carry, but that hold unread records."""
    existing = {topic.name: topic.partitions for topic in target.topics()}
    shuffled = build_graph(topology, config, existing).shuffled.keys() & existing.keys()
    partitions = list(_partitions(shuffled, existing))
    committed = target.committed(config.application_id, partitions)
    bounds = target.offsets(partitions)
    unread = {
        at: bounds[at].end - max(
            bounds[at].start, committed[at].offset if at in committed else 0
        )
        for at in partitions
    }
    found = frozenset(at.topic for at, count in unread.items() if count > 0)
    if found:
        log.info(
            "Application '%s' consumes the records in its repartition topics first: %s.",
            config.application_id, ", ".join(sorted(found)),
        )
    return found


def delete_consumed(target: Log, application_id: str, topics: Collection[str]) -> None:
    """Delete the records of consumed topics.

    Batch mode does not commit offsets for these topics any more. Should the broker forget the
    committed ones, a later change to continuous mode must not find the records again.
    """
    existing = {topic.name: topic.partitions for topic in target.topics()}
    partitions = list(_partitions(topics, existing))
    for at, committed in target.committed(application_id, partitions).items():
        target.delete_records(*at, committed.offset)


def _partitions(topics: Iterable[str], existing: dict[str, int]) -> Iterable[TopicPartition]:
    return (TopicPartition(topic, number) for topic in topics for number in range(existing[topic]))
