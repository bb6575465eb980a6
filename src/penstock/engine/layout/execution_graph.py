"""The execution graph of an application: stages, tasks, and how records travel between them.

Derived once, at the start, from the topology and from the partitions that topics have; frozen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from penstock.config import StreamsConfig
from penstock.engine.layout.internal_topics import (
    changelog_settings,
    is_internal,
    repartition_settings,
    window_retention_ms,
)
from penstock.errors import MissingSourceTopicException
from penstock.log.base import Log
from penstock.log.types import TopicPartition
from penstock.record import TaskId
from penstock.task.blueprint import Blueprint
from penstock.task.task import partition_order
from penstock.topology.nodes import SinkNode, SourceNode, StoreSpec
from penstock.topology.partitions import PartitionPlan, resolve_partitions
from penstock.topology.topology import Topology

#: The name that a topic has in the log: internal ones get the application id in front.
_RealName = Callable[[str], str]
#: (writing sub-topology, reading sub-topology)
Edge = tuple[int, int]
#: What a supplier says that changes how rows are laid out.
_LAYOUT_FACTS = (
    "persistent", "retain_duplicates", "time_ordered", "indexed", "segment_interval_ms",
    "history_retention_ms",
)


@dataclass(frozen=True)
class SubTopology:
    """A sub-topology and its tasks."""

    id: int
    #: The longest way from a source: rows only ever go to later stages.
    stage: int
    #: How many tasks it has; task n reads partition n of every topic that has one.
    tasks: int
    #: (source node, topic) in the order in which a task goes through its queues; real names. A
    #: task that does not read all of them has an order of its own, see `ExecutionGraph.queues`.
    reads: tuple[tuple[str, str], ...]
    #: Those of the topics whose records come from tasks of earlier stages of the same batch.
    shuffled: frozenset[str]
    #: Store -> the topic that it is restored from: its changelog (then it is in
    #: `ExecutionGraph.changelogs`), or the source topic that serves as one. Unlogged stores are
    #: not included.
    restore_topics: Mapping[str, str] = field(default_factory=dict)
    #: Differs when rows of its stores, as a replica keeps them, would be read differently.
    layout: str = ""


@dataclass(frozen=True)
class ExecutionGraph:
    """All sub-topologies of an application. Topics have their real names here."""

    application_id: str
    subtopologies: Mapping[int, SubTopology]
    #: The partitions of every topic that is read or written by name, internal ones too.
    partitions: Mapping[str, int]
    #: Repartition topics that the shuffle carries -> the sub-topology that reads them.
    shuffled: Mapping[str, int]
    #: Internal topics that exist in the log (circles) -> their settings.
    repartition_topics: Mapping[str, Mapping[str, str]]
    #: Changelog topic -> (partitions, settings).
    changelogs: Mapping[str, tuple[int, Mapping[str, str]]]
    #: Topics that global tables are fed from.
    global_topics: frozenset[str]
    #: Repartition topics that the shuffle carries -> the sub-topologies that write them.
    writers: Mapping[str, frozenset[int]] = field(default_factory=dict)
    #: Changelogs of window and session stores -> for how long, by the time that the store has
    #: observed, a record of theirs may still be wanted.
    window_retention_ms: Mapping[str, int] = field(default_factory=dict)
    #: As `SubTopology.layout`, of the stores of global tables.
    global_layout: str = ""

    @property
    def stages(self) -> tuple[tuple[TaskId, ...], ...]:
        """The tasks of each stage, in order; a task's index decides its lane."""
        last = max((each.stage for each in self.subtopologies.values()), default=-1)
        return tuple(
            tuple(
                TaskId(each.id, number) for each in self.subtopologies.values()
                if each.stage == stage for number in range(each.tasks)
            )
            for stage in range(last + 1)
        )

    @property
    def tasks(self) -> Iterator[TaskId]:
        """All tasks, by sub-topology and partition."""
        for each in self.subtopologies.values():
            for number in range(each.tasks):
                yield TaskId(each.id, number)

    def queues(self, task_id: TaskId) -> tuple[tuple[str, str], ...]:
        """(source node, topic) of a task, in the order in which it goes through its queues."""
        number = task_id.partition
        sources = {topic: source for source, topic in self.subtopologies[task_id.subtopology].reads}
        order = partition_order(
            (topic, number) for topic in sources if number < self.partitions[topic]
        )
        return tuple((sources[topic], topic) for topic, _ in order)

    def log_topics(self, task_id: TaskId) -> tuple[str, ...]:
        """The topics that a task reads from the log, in the order of its queues."""
        return tuple(topic for _, topic in self.queues(task_id) if topic not in self.shuffled)

    def restore_partitions(self, task_id: TaskId) -> dict[str, TopicPartition]:
        """Store -> the partition that a task restores it from."""
        return {
            store: TopicPartition(topic, task_id.partition)
            for store, topic in self.subtopologies[task_id.subtopology].restore_topics.items()
        }

    @property
    def source_topics(self) -> dict[str, int]:
        """Every topic that tasks read from the log -> its partitions."""
        return {
            topic: self.partitions[topic] for each in self.subtopologies.values()
            for _, topic in each.reads if topic not in self.shuffled
        }

    def downstream(self, subtopologies: Iterable[int]) -> set[int]:
        """The sub-topologies that may get rows in the same batch if these ones run."""
        found: set[int] = set()
        waiting = set(subtopologies)
        while waiting:
            below = {
                reader for topic, reader in self.shuffled.items()
                if not waiting.isdisjoint(self.writers[topic])
            }
            waiting = below - found
            found |= below
        return found


def build_graph_for_log(log: Log, topology: Topology, config: StreamsConfig) -> ExecutionGraph:
    """The graph with the topics that the log has now."""
    return build_graph(
        topology, config, {topic.name: topic.partitions for topic in log.topics()}
    )


def build_graph(
    topology: Topology, config: StreamsConfig, external_partitions: Mapping[str, int]
) -> ExecutionGraph:
    """Derive the graph. `external_partitions`: every topic of the log.

    A repartition topic is carried by the shuffle unless that would close a circle: its record
    would have to be taken by a task that has run already. Such a topic exists in the log and is
    read in a later batch, like any topic of the user's that the application both writes and reads.
    """
    external = _external(topology, config, external_partitions)
    plan = resolve_partitions(topology, external)
    real = Blueprint.of(topology, config).topic
    writers = _writers(topology, real)
    readers = {
        real(topic): number for number, sources in plan.sources.items()
        for topics in sources.values() for topic in topics
    }
    internal = {real(name): plan.partitions[name] for name in topology.internal_topics
                if name in plan.partitions}
    direct = _direct(internal, writers, readers, topology, real)
    settings = repartition_settings(config)
    changelogs, retention_ms = _changelogs(topology, config, plan)
    global_topics = frozenset(store.topic for store in topology.global_stores.values())
    named = readers.keys() | writers.keys() | global_topics
    return ExecutionGraph(
        config.application_id,
        _subtopologies(
            topology, config, plan, _stages(direct, writers, readers, plan.tasks),
            frozenset(direct),
        ),
        {topic: count for topic, count in external.items() if topic in named} | internal,
        {topic: readers[topic] for topic in direct},
        {topic: settings for topic in internal if topic not in direct},
        changelogs,
        global_topics,
        {topic: writers[topic] for topic in direct},
        retention_ms,
        _layout(
            config, (store.store for store in topology.global_stores.values()),
            {name: store.topic for name, store in topology.global_stores.items()},
        ),
    )


def _external(
    topology: Topology, config: StreamsConfig, partitions: Mapping[str, int]
) -> dict[str, int]:
    """The topics that are not the application's own making, so that no pattern finds those."""
    named = {
        topic for node in topology.nodes if isinstance(node, SourceNode) for topic in node.topics
    }
    external = {
        topic: count for topic, count in partitions.items()
        if topic in named or not is_internal(topic, config.application_id)
    }
    for store in topology.global_stores.values():
        if store.topic not in external:
            raise MissingSourceTopicException(
                f"Missing source topic {store.topic} of the global store {store.store.name}. "
                f"Create it first. Topics: {', '.join(sorted(external)) or 'none'}."
            )
    return external


def _writers(topology: Topology, real: _RealName) -> dict[str, frozenset[int]]:
    """Topic -> the sub-topologies with a sink that always writes it."""
    writers: dict[str, set[int]] = {}
    for group in topology.groups():
        for name in group.nodes:
            node = topology.node(name)
            if isinstance(node, SinkNode) and isinstance(node.topic, str):
                writers.setdefault(real(node.topic), set()).add(group.id)
    return {topic: frozenset(groups) for topic, groups in writers.items()}


def _direct(
    internal: Iterable[str], writers: Mapping[str, frozenset[int]], readers: Mapping[str, int],
    topology: Topology, real: _RealName,
) -> list[str]:
    """The internal topics that need not be in the log."""
    # A store that is restored from a topic wants the topic to be there.
    needed = {real(topic) for topic in topology.source_changelogs.values()}
    possible = [
        topic for topic in internal
        if topic in readers and topic in writers and topic not in needed
    ]
    closing = cycle_edges(_edges(possible, writers, readers))
    return [
        topic for topic in possible
        if closing.isdisjoint((writer, readers[topic]) for writer in writers[topic])
    ]


def _edges(
    topics: Iterable[str], writers: Mapping[str, frozenset[int]], readers: Mapping[str, int]
) -> set[Edge]:
    return {(writer, readers[topic]) for topic in topics for writer in writers[topic]}


def cycle_edges(edges: Iterable[Edge]) -> set[Edge]:
    """The edges without which there is no circle.

    Found by a walk, depth first and always by the smaller number first: an edge that leads back
    to where the walk came from closes a circle. The same edges give the same answer, so a topic
    does not move between the shuffle and the log from one start to the next.
    """
    below: dict[int, list[int]] = {}
    for writer, reader in sorted(edges):
        below.setdefault(writer, []).append(reader)
    closing: set[Edge] = set()
    done: set[int] = set()
    for root in sorted(below):
        if root in done:
            continue
        way = {root: iter(below[root])}
        while way:
            here = next(reversed(way))
            for reader in way[here]:
                if reader in way:
                    closing.add((here, reader))
                elif reader not in done:
                    way[reader] = iter(below.get(reader, ()))
                    break
            else:
                del way[here]
                done.add(here)
    return closing


def _stages(
    shuffled: Iterable[str], writers: Mapping[str, frozenset[int]], readers: Mapping[str, int],
    subtopologies: Iterable[int],
) -> dict[int, int]:
    above: dict[int, set[int]] = {number: set() for number in subtopologies}
    for writer, reader in _edges(shuffled, writers, readers):
        above[reader].add(writer)
    stages: dict[int, int] = {}
    for number in TopologicalSorter(above).static_order():
        stages[number] = 1 + max((stages[each] for each in above[number]), default=-1)
    return stages


def _subtopologies(
    topology: Topology, config: StreamsConfig, plan: PartitionPlan, stages: Mapping[int, int],
    shuffled: frozenset[str],
) -> dict[int, SubTopology]:
    found = {}
    for number, sources in plan.sources.items():
        blueprint = Blueprint.of(topology, config, [number])
        reading = {
            blueprint.topic(topic): source for source, topics in sources.items() for topic in topics
        }
        order = partition_order((topic, 0) for topic in reading)
        restored = {
            store.name: blueprint.topic(store.restored_from) for store in blueprint.stores
            if store.restored_from is not None
        }
        found[number] = SubTopology(
            number, stages[number], plan.tasks[number],
            tuple((reading[topic], topic) for topic, _ in order),
            shuffled.intersection(reading), restored,
            _layout(config, (store.spec for store in blueprint.stores), restored),
        )
    return found


def _layout(
    config: StreamsConfig, stores: Iterable[StoreSpec], restored: Mapping[str, str]
) -> str:
    """A short text for all that decides what the rows of the stores look like."""
    facts = []
    for spec in sorted(stores, key=lambda each: each.name):
        builder = spec.resolve(config)
        supplier = getattr(builder, "supplier", None)
        form = getattr(supplier, "format", None)
        facts.append((
            spec.name, restored.get(spec.name), getattr(builder, "kind", type(builder).__name__),
            getattr(form, "name", None),
            *(getattr(supplier, name, None) for name in _LAYOUT_FACTS),
        ))
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _changelogs(
    topology: Topology, config: StreamsConfig, plan: PartitionPlan
) -> tuple[dict[str, tuple[int, Mapping[str, str]]], dict[str, int]]:
    """Every changelog with its partitions and settings; how long those of windows are wanted."""
    changelogs: dict[str, tuple[int, Mapping[str, str]]] = {}
    retention: dict[str, int] = {}
    for number, tasks in plan.tasks.items():
        for store in Blueprint.of(topology, config, [number]).stores:
            if store.changelog is None:
                continue
            builder = store.spec.resolve(config)
            given = store.spec.log_config
            changelogs[store.changelog] = (tasks, changelog_settings(config, builder, given))
            retention_ms = window_retention_ms(config, builder, given)
            if retention_ms is not None:
                retention[store.changelog] = retention_ms
    return changelogs, retention
