"""The tasks of a test, and the topics and partitions that they read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.config import StreamsConfig
from penstock.errors import MissingSourceTopicException
from penstock.record import TaskId
from penstock.task.blueprint import Blueprint
from penstock.topology.java_order import partition_order
from penstock.topology.nodes import SinkNode, SourceNode
from penstock.topology.partitions import resolve_partitions
from penstock.topology.topology import Topology


@dataclass(frozen=True)
class TaskSpec:
    """A task to run: its blueprint, and the (source, queue, partition) triples that it reads."""

    task_id: TaskId
    blueprint: Blueprint
    queues: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class TaskLayout:
    """All tasks of a test, and the partition counts of topics.

    A queue is the input of a source partition: a topic, or a pattern whose topics it combines.
    """

    tasks: tuple[TaskSpec, ...]
    #: Partition counts of source topics, by their full names.
    partitions: Mapping[str, int]
    #: The partition count of topics that are only written.
    default_partitions: int = 1
    #: Patterns; each is one queue.
    patterns: tuple[re.Pattern[str], ...] = ()
    readers: dict[tuple[str, int], TaskId] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for spec in self.tasks:
            for _, queue, partition in spec.queues:
                self.readers[queue, partition] = spec.task_id

    def queue_of(self, topic: str) -> str | None:
        """Return the queue of a topic; None if no task reads it."""
        if topic in self.partitions and (topic, 0) in self.readers:
            return topic
        return next(
            (pattern.pattern for pattern in self.patterns if pattern.fullmatch(topic)), None
        )

    def partitions_of(self, topic: str) -> int:
        """Return the partition count of a topic."""
        return self.partitions.get(topic, self.default_partitions)


def single_task_layout(topology: Topology, config: StreamsConfig) -> TaskLayout:
    """Return the layout of Kafka's test driver: one task, and one partition per topic."""
    blueprint = Blueprint.of(topology, config)
    readers = {}
    patterns = []
    for source in blueprint.sources:
        if source.pattern is not None:
            readers[source.pattern.pattern] = source.name
            patterns.append(source.pattern)
        for topic in source.topics:
            readers[blueprint.topic(topic)] = source.name
    order = partition_order((queue, 0) for queue in readers)
    spec = TaskSpec(
        TaskId(0, 0), blueprint, tuple((readers[queue], queue, 0) for queue, _ in order)
    )
    return TaskLayout((spec,), dict.fromkeys(readers, 1), patterns=tuple(patterns))


def partitioned_layout(
    topology: Topology, config: StreamsConfig, partitions: int | Mapping[str, int]
) -> TaskLayout:
    """Return the layout of a cluster: one task per sub-topology and partition (F9)."""
    if isinstance(partitions, int):
        external = _counts_for_all_topics(topology, partitions)
        default_partitions = partitions
    else:
        external = dict(partitions)
        default_partitions = 1
    global_topics = {store.topic for store in topology.global_stores.values()}
    for topic in sorted(global_topics - set(external)):
        raise MissingSourceTopicException(
            f"Missing source topic {topic} of a global store. "
            f"Topics: {', '.join(sorted(external)) or 'none'}. Add it to partitions=."
        )
    plan = resolve_partitions(topology, external)
    specs = []
    counts = dict(external)
    for group, count in plan.tasks.items():
        blueprint = Blueprint.of(topology, config, [group])
        readers = {
            blueprint.topic(topic): source
            for source, topics in plan.sources[group].items() for topic in topics
        }
        counts |= {
            blueprint.topic(topic): plan.partitions[topic]
            for topics in plan.sources[group].values() for topic in topics
        }
        for number in range(count):
            order = partition_order((topic, number) for topic in readers if number < counts[topic])
            specs.append(TaskSpec(
                TaskId(group, number), blueprint,
                tuple((readers[topic], topic, number) for topic, _ in order),
            ))
    return TaskLayout(tuple(specs), counts, default_partitions)


def _counts_for_all_topics(topology: Topology, count: int) -> dict[str, int]:
    """Return the same partition count for all external topics of the topology."""
    named: set[str] = set()
    for node in topology.nodes:
        if isinstance(node, SourceNode):
            if node.pattern is not None:
                raise ValueError(
                    f"Source {node.name} reads all topics that match {node.pattern.pattern!r}. "
                    "List these topics: partitions={topic: count, ...}."
                )
            named.update(node.topics)
        elif isinstance(node, SinkNode) and isinstance(node.topic, str):
            named.add(node.topic)
    return dict.fromkeys(named - set(topology.internal_topics), count)
