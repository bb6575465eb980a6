"""How many partitions internal topics get, and how many tasks each sub-topology has (F9, J11).

Kafka Streams decides this when the group is assigned, from the topics it finds in the cluster.
Here it is a function of the topology and of the partitions that all other topics have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import MissingSourceTopicException, TopologyException
from penstock.topology.nodes import SinkNode, SourceNode
from penstock.topology.topology import Topology


@dataclass(frozen=True)
class PartitionPlan:
    """The partitions of all topics that are read, and the tasks that follow from them.

    Internal topics have the names they have without the application id.
    """

    #: Every topic that a sub-topology reads, internal ones too.
    partitions: Mapping[str, int]
    #: Sub-topology -> how many tasks it has: as many as its widest source topic has partitions.
    tasks: Mapping[int, int]
    #: Sub-topology -> source -> the topics it reads; those a pattern matches are named here.
    sources: Mapping[int, Mapping[str, tuple[str, ...]]]


@dataclass(frozen=True)
class _Group:
    """A sub-topology: what each of its sources reads, and where it writes."""

    sources: dict[str, tuple[str, ...]]
    sinks: frozenset[str]

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics it reads."""
        return tuple(topic for topics in self.sources.values() for topic in topics)


def resolve_partitions(topology: Topology, external: Mapping[str, int]) -> PartitionPlan:
    """Decide by Kafka's rules. `external`: the partitions of every topic that exists already.

    A repartition topic has the number of partitions it was given. If it has none, it has as many as
    the widest topic that the sub-topologies which write it read. Topics that are joined must agree:
    those that were not given a number follow the others.
    """
    for topic, count in external.items():
        if count < 1:
            raise ValueError(f"Topic {topic} must have at least one partition, not {count}.")
    groups = {
        group.id: _group(topology, group.nodes, external)
        for group in topology.groups() if not group.is_global
    }
    _check_sources(topology, groups, external)
    partitions = {
        topic: external[topic] for group in groups.values() for topic in group.topics
        if topic not in topology.internal_topics
    }
    partitions |= _widths(topology, groups, partitions)
    for joined in _copartitioned(topology, groups):
        _agree(topology, joined, partitions)
    return PartitionPlan(
        partitions,
        {
            number: max((partitions[topic] for topic in group.topics), default=0)
            for number, group in groups.items()
        },
        {number: group.sources for number, group in groups.items()},
    )


def _group(topology: Topology, names: tuple[str, ...], external: Mapping[str, int]) -> _Group:
    nodes = [topology.node(name) for name in names]
    sources = {}
    for node in nodes:
        if isinstance(node, SourceNode):
            topics = node.topics
            if node.pattern is not None:
                topics = tuple(sorted(filter(node.pattern.fullmatch, external)))
            sources[node.name] = topics
    sinks = {node.topic for node in nodes if isinstance(node, SinkNode)}
    return _Group(sources, frozenset(topic for topic in sinks if isinstance(topic, str)))


def _check_sources(
    topology: Topology, groups: dict[int, _Group], external: Mapping[str, int]
) -> None:
    internal = topology.internal_topics
    for number, group in groups.items():
        missing = sorted(
            topic for topic in group.topics if topic not in internal and topic not in external
        )
        if missing:
            raise MissingSourceTopicException(
                f"Missing source topics [{', '.join(missing)}] for subtopology {number}. "
                f"Create them first. Topics: {', '.join(sorted(external)) or 'none'}."
            )


def _widths(
    topology: Topology, groups: dict[int, _Group], known: Mapping[str, int]
) -> dict[str, int]:
    """The internal topics' numbers, before those that are joined have agreed.

    A topic waits until all that is upstream of it is known; where topics wait for each other, in a
    circle, what is known of it has to do.
    """
    widths = {
        name: topic.partitions for name, topic in topology.internal_topics.items()
        if topic.partitions is not None
    }
    waiting = [name for name in topology.internal_topics if name not in widths]
    while waiting:
        upstream = {
            name: [
                widths.get(topic, known.get(topic)) for group in groups.values()
                if name in group.sinks for topic in group.topics
            ]
            for name in waiting
        }
        ready = [name for name in waiting if upstream[name] and None not in upstream[name]]
        if not ready:
            ready = [name for name in waiting if any(upstream[name])][:1]
        if not ready:
            raise TopologyException(
                "Failed to compute number of partitions for all repartition topics, make sure all "
                "user input topics are created and all Pattern subscriptions match at least one "
                f"topic in the cluster. Not known: {', '.join(waiting)}."
            )
        for name in ready:
            widths[name] = max(count for count in upstream[name] if count is not None)
            waiting.remove(name)
    return widths


def _copartitioned(topology: Topology, groups: dict[int, _Group]) -> list[frozenset[str]]:
    """The topics that are joined; sets that share a topic are one."""
    topics_of = {
        source: topics for group in groups.values() for source, topics in group.sources.items()
    }
    united: list[frozenset[str]] = []
    for sources in topology.copartition_groups:
        topics = frozenset(topic for source in sources for topic in topics_of.get(source, ()))
        for other in [each for each in united if not each.isdisjoint(topics)]:
            united.remove(other)
            topics |= other
        if topics:
            united.append(topics)
    return united


def _agree(topology: Topology, joined: frozenset[str], partitions: dict[str, int]) -> None:
    """Give topics that are joined the same number, or say why they cannot have it."""
    internal = topology.internal_topics
    outside = {topic: partitions[topic] for topic in sorted(joined) if topic not in internal}
    inside = sorted(topic for topic in joined if topic in internal)
    given = {topic: count for topic in inside if (count := internal[topic].partitions) is not None}
    if outside:
        count = _same(
            outside, f"Topics not co-partitioned: [{_shown(outside)}]",
            "Create them with the same number of partitions, or call repartition() on one side.",
        )
    elif given:
        count = _same(
            given,
            "Following topics do not have the same number of partitions: "
            f"[{_shown({topic: partitions[topic] for topic in inside})}]",
            "Give the repartition steps the same partitions=, or give it to one of them only.",
        )
    else:
        count = max(partitions[topic] for topic in inside)
    for topic in inside:
        if given.get(topic, count) != count:
            raise TopologyException(
                f"Number of partitions [{given[topic]}] of repartition topic [{topic}] doesn't "
                f"match number of partitions [{count}] of the source topic. It is joined with "
                f"{_shown(outside)}: give the repartition step partitions={count}, or leave it out."
            )
        partitions[topic] = count


def _same(counts: dict[str, int], message: str, hint: str) -> int:
    count = next(iter(counts.values()))
    if any(other != count for other in counts.values()):
        raise TopologyException(f"{message}. Topics that are joined must match. {hint}")
    return count


def _shown(counts: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{topic}={counts[topic]}" for topic in sorted(counts)) + "}"
