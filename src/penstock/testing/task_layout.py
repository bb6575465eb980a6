"""Which tasks a test runs and what each of them reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.config import StreamsConfig
from penstock.errors import MissingSourceTopicException
from penstock.record import TaskId
from penstock.task.blueprint import Blueprint
from penstock.task.task import partition_order
from penstock.topology.nodes import SinkNode, SourceNode
from penstock.topology.partitions import resolve_partitions
from penstock.topology.topology import Topology


@dataclass(frozen=True)
class TaskSpec:
    """A task that is to run: what it is made of, and (source, queue, partition) it reads."""

    task_id: TaskId
    blueprint: Blueprint
    queues: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class TaskLayout:
    """All tasks of a test, and how many partitions topics have."""

    places: tuple[TaskSpec, ...]
    #: Topics that are read, by their real names.
    partitions: Mapping[str, int]
    #: Partitions of a topic that is only written.
    otherwise: int = 1
    #: Patterns that are read as one queue each.
    patterns: tuple[re.Pattern[str], ...] = ()
    readers: dict[tuple[str, int], TaskId] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place in self.places:
            for _, queue, partition in place.queues:
                self.readers[queue, partition] = place.task_id

    def queue_of(self, topic: str) -> str | None:
        """The queue that a topic's records go to, None if no task reads it."""
        if topic in self.partitions and (topic, 0) in self.readers:
            return topic
        return next(
            (pattern.pattern for pattern in self.patterns if pattern.fullmatch(topic)), None
        )

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has."""
        return self.partitions.get(topic, self.otherwise)


def one_task(topology: Topology, config: StreamsConfig) -> TaskLayout:
    """As under Kafka's test driver: one task holds everything, topics have one partition."""
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
    place = TaskSpec(
        TaskId(0, 0), blueprint, tuple((readers[queue], queue, 0) for queue, _ in order)
    )
    return TaskLayout((place,), dict.fromkeys(readers, 1), patterns=tuple(patterns))


def task_for_each_partition(
    topology: Topology, config: StreamsConfig, partitions: int | Mapping[str, int]
) -> TaskLayout:
    """As on a cluster: a task for each sub-topology and partition (F9)."""
    if isinstance(partitions, int):
        external = _everywhere(topology, partitions)
        otherwise = partitions
    else:
        external = dict(partitions)
        otherwise = 1
    global_topics = {store.topic for store in topology.global_stores.values()}
    for topic in sorted(global_topics - set(external)):
        raise MissingSourceTopicException(
            f"Missing source topic {topic} of a global store. Name it in partitions=. "
            f"Topics: {', '.join(sorted(external)) or 'none'}."
        )
    plan = resolve_partitions(topology, external)
    places = []
    counts = dict(external)
    for group, tasks in plan.tasks.items():
        blueprint = Blueprint.of(topology, config, [group])
        readers = {
            blueprint.topic(topic): source
            for source, topics in plan.sources[group].items() for topic in topics
        }
        counts |= {
            blueprint.topic(topic): plan.partitions[topic]
            for topics in plan.sources[group].values() for topic in topics
        }
        for number in range(tasks):
            order = partition_order((topic, number) for topic in readers if number < counts[topic])
            places.append(TaskSpec(
                TaskId(group, number), blueprint,
                tuple((readers[topic], topic, number) for topic, _ in order),
            ))
    return TaskLayout(tuple(places), counts, otherwise)


def _everywhere(topology: Topology, count: int) -> dict[str, int]:
    """The same number for every topic that is named in the topology and not its own."""
    named: set[str] = set()
    for node in topology.nodes:
        if isinstance(node, SourceNode):
            if node.pattern is not None:
                raise ValueError(
                    f"Source {node.name} reads the topics that match {node.pattern.pattern!r}. "
                    "Name them: partitions={topic: number, ...}."
                )
            named.update(node.topics)
        elif isinstance(node, SinkNode) and isinstance(node.topic, str):
            named.add(node.topic)
    return dict.fromkeys(named - set(topology.internal_topics), count)
