"""Repartition topics with unread records, which batch mode consumes before it uses the shuffle.

In continuous mode, and in Kafka Streams for Java, repartition topics are in the log. An application
that changes to batch mode may have records in them that no task has read yet.
"""

from __future__ import annotations

import logging

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
    partitions = _shuffled_partitions(target, topology, config)
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


def delete_consumed(target: Log, topology: Topology, config: StreamsConfig) -> None:
    """Delete the consumed records of the topics that the shuffle replaces.

    Batch mode does not commit offsets for these topics any more. Should the broker forget the
    committed ones, a later change to continuous mode must not find the records again.
    """
    partitions = _shuffled_partitions(target, topology, config)
    bounds = target.offsets(partitions)
    for at, committed in target.committed(config.application_id, partitions).items():
        if committed.offset > bounds[at].start:
            target.delete_records(*at, committed.offset)


def _shuffled_partitions(
    target: Log, topology: Topology, config: StreamsConfig
) -> list[TopicPartition]:
    """The partitions of existing topics that the shuffle would carry."""
    existing = {topic.name: topic.partitions for topic in target.topics()}
    shuffled = build_graph(topology, config, existing).shuffled.keys() & existing.keys()
    return [
        TopicPartition(topic, number) for topic in shuffled for number in range(existing[topic])
    ]
