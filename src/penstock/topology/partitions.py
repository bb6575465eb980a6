"""Computes the partition counts of internal topics and the task counts of sub-topologies (F9, J11).

Kafka Streams computes them during an assignment, from the topics in the cluster. Here they are a
function of the topology and the partition counts of the external topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import MissingSourceTopicException, TopologyException
from penstock.suggestions import did_you_mean, user_topics_first
from penstock.topology.nodes import SinkNode, SourceNode
from penstock.topology.topology import Topology


@dataclass(frozen=True)
class PartitionPlan:
    """The partition counts of source topics and the task counts of sub-topologies.

    Internal topics have their names without the application id.
    """

    #: Each topic that a sub-topology reads, including internal ones -> its partition count.
    partitions: Mapping[str, int]
    #: Sub-topology -> its number of tasks: the largest partition count of its source topics.
    tasks: Mapping[int, int]
    #: Sub-topology -> source -> the topics it reads; patterns are resolved to topics.
    sources: Mapping[int, Mapping[str, tuple[str, ...]]]


@dataclass(frozen=True)
class _Subtopology:
    """The topics that a sub-topology reads, by source, and those that it writes."""

    sources: dict[str, tuple[str, ...]]
    sinks: frozenset[str]

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that the sub-topology reads."""
        return tuple(topic for topics in self.sources.values() for topic in topics)


def resolve_partitions(topology: Topology, external: Mapping[str, int]) -> PartitionPlan:
    """Apply Kafka's rules. `external` are the partition counts of all existing topics.

    A repartition topic has the count given to it. Without one, it has the largest count of the
    topics that are read by the sub-topologies that write to it. Joined topics must have equal
    counts: those without a given count take that of the others.
    """
    for topic, count in external.items():
        if count < 1:
            raise ValueError(f"Topic {topic} must have at least one partition, not {count}.")
    subtopologies = {
        group.id: _subtopology(topology, group.nodes, external)
        for group in topology.groups() if not group.is_global
    }
    _check_sources(topology, subtopologies, external)
    partitions = {
        topic: external[topic] for part in subtopologies.values() for topic in part.topics
        if topic not in topology.internal_topics
    }
    partitions |= _count_internal(topology, subtopologies, partitions)
    for joined in _copartitioned_topics(topology, subtopologies):
        _equalize(topology, joined, partitions)
    return PartitionPlan(
        partitions,
        {
            number: max((partitions[topic] for topic in part.topics), default=0)
            for number, part in subtopologies.items()
        },
        {number: part.sources for number, part in subtopologies.items()},
    )


def _subtopology(
    topology: Topology, names: tuple[str, ...], external: Mapping[str, int]
) -> _Subtopology:
    nodes = [topology.node(name) for name in names]
    sources = {}
    for node in nodes:
        if isinstance(node, SourceNode):
            topics = node.topics
            if node.pattern is not None:
                topics = tuple(sorted(filter(node.pattern.fullmatch, external)))
            sources[node.name] = topics
    sinks = {node.topic for node in nodes if isinstance(node, SinkNode)}
    return _Subtopology(sources, frozenset(topic for topic in sinks if isinstance(topic, str)))


def _check_sources(
    topology: Topology, subtopologies: dict[int, _Subtopology], external: Mapping[str, int]
) -> None:
    internal = topology.internal_topics
    for number, part in subtopologies.items():
        missing = sorted(
            topic for topic in part.topics if topic not in internal and topic not in external
        )
        if missing:
            similar = "".join(did_you_mean(topic, external) for topic in missing)
            raise MissingSourceTopicException(
                f"Missing source topics [{', '.join(missing)}] for subtopology {number}.{similar} "
                "Create them first. Topics: "
                f"{', '.join(user_topics_first(external)) or 'none'}."
            )


def _count_internal(
    topology: Topology, subtopologies: dict[int, _Subtopology], known: Mapping[str, int]
) -> dict[str, int]:
    """Return the partition counts of internal topics, before joined topics are equalized.

    The count of a topic is computed when all upstream counts are known. In a cycle, the known
    counts have to be sufficient.
    """
    counts = {
        name: topic.partitions for name, topic in topology.internal_topics.items()
        if topic.partitions is not None
    }
    pending = [name for name in topology.internal_topics if name not in counts]
    while pending:
        upstream = {
            name: [
                counts.get(topic, known.get(topic)) for part in subtopologies.values()
                if name in part.sinks for topic in part.topics
            ]
            for name in pending
        }
        ready = [name for name in pending if upstream[name] and None not in upstream[name]]
        if not ready:
            ready = [name for name in pending if any(upstream[name])][:1]
        if not ready:
            raise TopologyException(
                "Failed to compute number of partitions for all repartition topics, make sure all "
                "user input topics are created and all Pattern subscriptions match at least one "
                f"topic in the cluster. Unknown: {', '.join(pending)}."
            )
        for name in ready:
            counts[name] = max(count for count in upstream[name] if count is not None)
            pending.remove(name)
    return counts


def _copartitioned_topics(
    topology: Topology, subtopologies: dict[int, _Subtopology]
) -> list[frozenset[str]]:
    """Return the sets of joined topics; sets that share a topic are merged."""
    topics_of = {
        source: topics for part in subtopologies.values() for source, topics in part.sources.items()
    }
    merged: list[frozenset[str]] = []
    for sources in topology.copartition_groups:
        topics = frozenset(topic for source in sources for topic in topics_of.get(source, ()))
        for other in [each for each in merged if not each.isdisjoint(topics)]:
            merged.remove(other)
            topics |= other
        if topics:
            merged.append(topics)
    return merged


def _equalize(topology: Topology, joined: frozenset[str], partitions: dict[str, int]) -> None:
    """Give joined topics the same partition count, or raise."""
    internal = topology.internal_topics
    outside = {topic: partitions[topic] for topic in sorted(joined) if topic not in internal}
    inside = sorted(topic for topic in joined if topic in internal)
    given = {topic: count for topic in inside if (count := internal[topic].partitions) is not None}
    if outside:
        count = _check_equal(
            outside, f"Topics not co-partitioned: [{_format_counts(outside)}]",
            "Create them with the same number of partitions, or call repartition() on one side.",
        )
    elif given:
        count = _check_equal(
            given,
            "Following topics do not have the same number of partitions: "
            f"[{_format_counts({topic: partitions[topic] for topic in inside})}]",
            "Give the repartition steps the same partitions=, or give it to one of them only.",
        )
    else:
        count = max(partitions[topic] for topic in inside)
    for topic in inside:
        if given.get(topic, count) != count:
            raise TopologyException(
                f"Number of partitions [{given[topic]}] of repartition topic [{topic}] doesn't "
                f"match number of partitions [{count}] of the source topic. It is joined with "
                f"{_format_counts(outside)}. Give the repartition step partitions={count}, or "
                "leave it out."
            )
        partitions[topic] = count


def _check_equal(counts: dict[str, int], message: str, hint: str) -> int:
    count = next(iter(counts.values()))
    if any(other != count for other in counts.values()):
        raise TopologyException(f"{message}. Joined topics must have equal counts. {hint}")
    return count


def _format_counts(counts: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{topic}={counts[topic]}" for topic in sorted(counts)) + "}"
