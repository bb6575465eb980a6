"""The execution graph of an application: stages, tasks, and how records travel between them.

A graph is built from the topology and the partition counts of the topics, and never changes. A
stage is run by a number of lanes: a lane is a slot of a stage, one Spark task.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any

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
from penstock.processors.emit_final import close_clock
from penstock.record import TaskId
from penstock.stores.buffers.join_grace import JoinGraceBufferBuilder
from penstock.stores.buffers.suppress import SuppressBufferBuilder
from penstock.suggestions import did_you_mean, user_topics_first
from penstock.task.blueprint import Blueprint
from penstock.topology.java_order import partition_order
from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode, StoreSpec
from penstock.topology.partitions import PartitionPlan, resolve_partitions
from penstock.topology.topology import Topology

#: Returns the name of a topic in the log. Internal topics are prefixed with the application id.
_TopicName = Callable[[str], str]
#: (writing sub-topology, reading sub-topology)
Edge = tuple[int, int]
#: The attributes of a store supplier that determine the layout of rows.
_LAYOUT_ATTRIBUTES = (
    "persistent", "retain_duplicates", "time_ordered", "indexed", "segment_interval_ms",
    "history_retention_ms",
)
#: The buffers' names in the layout. Another name would rebuild the replicas of existing state
#: directories.
_BUFFER_NAMES = {
    SuppressBufferBuilder: "ChangeBufferBuilder", JoinGraceBufferBuilder: "GraceBufferBuilder",
}


@dataclass(frozen=True)
class SubTopology:
    """A sub-topology and its tasks."""

    id: int
    #: The longest path from a source. Records are shuffled to later stages only.
    stage: int
    #: The number of tasks. Task n reads partition n of every topic that has one.
    tasks: int
    #: (source node, topic) in the order of a task's queues. A task that does not read all topics
    #: has another order, see `ExecutionGraph.queues`.
    reads: tuple[tuple[str, str], ...]
    #: The topics whose records come from earlier stages of the same batch.
    shuffled: frozenset[str]
    #: Store -> the topic that it is restored from: its changelog (then it is in
    #: `ExecutionGraph.changelogs`), or the source topic that serves as one. Stores without
    #: logging are not included.
    restore_topics: Mapping[str, str] = field(default_factory=dict)
    #: A fingerprint of the row layout of its stores. Replicas with another one are not used.
    layout: str = ""


@dataclass(frozen=True)
class ExecutionGraph:
    """All sub-topologies of an application. Topics have the names that they have in the log."""

    application_id: str
    subtopologies: Mapping[int, SubTopology]
    #: The partitions of every topic that is read or written by name, including internal ones.
    partitions: Mapping[str, int]
    #: Repartition topic that the shuffle carries -> the sub-topology that reads it.
    shuffled: Mapping[str, int]
    #: Repartition topic that exists in the log, because of a cycle -> its settings.
    repartition_topics: Mapping[str, Mapping[str, str]]
    #: Changelog topic -> (partitions, settings).
    changelogs: Mapping[str, tuple[int, Mapping[str, str]]]
    #: The topics of global tables.
    global_topics: frozenset[str]
    #: Repartition topic that the shuffle carries -> the sub-topologies that write it.
    writers: Mapping[str, frozenset[int]] = field(default_factory=dict)
    #: Changelog of a window or session store -> how long its records are needed, measured in the
    #: stream time of the store.
    window_retention_ms: Mapping[str, int] = field(default_factory=dict)
    #: Like `SubTopology.layout`, for the stores of global tables.
    global_layout: str = ""
    #: The clock of an aggregation that emits on close -> its store.
    close_clocks: Mapping[str, str] = field(default_factory=dict)

    @property
    def stages(self) -> tuple[tuple[TaskId, ...], ...]:
        """The tasks of each stage, in order. The index of a task determines its lane."""
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
        """Return the (source node, topic) pairs of a task, in the order of its queues."""
        number = task_id.partition
        sources = {topic: source for source, topic in self.subtopologies[task_id.subtopology].reads}
        order = partition_order(
            (topic, number) for topic in sources if number < self.partitions[topic]
        )
        return tuple((sources[topic], topic) for topic, _ in order)

    def log_topics(self, task_id: TaskId) -> tuple[str, ...]:
        """Return the topics that a task reads from the log, in the order of its queues."""
        return tuple(topic for _, topic in self.queues(task_id) if topic not in self.shuffled)

    def shuffled_inputs(self, subtopology: int) -> frozenset[str]:
        """Return the topics of the log whose records reach a sub-topology through the shuffle."""
        upstream: set[int] = set()
        pending = [subtopology]
        while pending:
            topics = self.subtopologies[pending.pop()].shuffled
            writers = {each for topic in topics for each in self.writers[topic]} - upstream
            upstream |= writers
            pending += writers
        return frozenset(
            topic for number in upstream for _, topic in self.subtopologies[number].reads
            if topic not in self.shuffled
        )

    def restore_partitions(self, task_id: TaskId) -> dict[str, TopicPartition]:
        """Return store -> the partition from which a task restores it."""
        return {
            store: TopicPartition(topic, task_id.partition)
            for store, topic in self.subtopologies[task_id.subtopology].restore_topics.items()
        }

    @property
    def source_topics(self) -> dict[str, int]:
        """Topic that tasks read from the log -> its partitions."""
        return {
            topic: self.partitions[topic] for each in self.subtopologies.values()
            for _, topic in each.reads if topic not in self.shuffled
        }

    @property
    def global_partitions(self) -> list[TopicPartition]:
        """The partitions of the topics of global tables."""
        return [
            TopicPartition(topic, number) for topic in sorted(self.global_topics)
            for number in range(self.partitions[topic])
        ]

    def sends(self, subtopology: int) -> bool:
        """Whether a sub-topology sends records to other tasks of the batch."""
        return any(subtopology in writers for writers in self.writers.values())

    def downstream(self, subtopologies: Iterable[int]) -> set[int]:
        """Return the sub-topologies that may receive records in the same batch if these run."""
        found: set[int] = set()
        pending = set(subtopologies)
        while pending:
            below = {
                reader for topic, reader in self.shuffled.items()
                if not pending.isdisjoint(self.writers[topic])
            }
            pending = below - found
            found |= below
        return found


def build_graph_for_log(
    log: Log, topology: Topology, config: StreamsConfig, in_log: Collection[str] = ()
) -> ExecutionGraph:
    """Build the graph with the current topics of the log. For `in_log` see `build_graph`."""
    return build_graph(
        topology, config, {topic.name: topic.partitions for topic in log.topics()}, in_log
    )


def build_graph(
    topology: Topology, config: StreamsConfig, log_partitions: Mapping[str, int],
    in_log: Collection[str] = (),
) -> ExecutionGraph:
    """Build the graph. `log_partitions`: topic -> partitions of every topic in the log.

    The shuffle carries a repartition topic unless that would close a cycle, in which a record would
    go to a task that has run already. Such a topic exists in the log and is read in a later batch,
    like a user's topic that the application both writes and reads. In continuous mode there is no
    shuffle, and all repartition topics exist in the log. `in_log`: topics that must be read from
    the log in batch mode, too, because they hold unread records.
    """
    external = _external_topics(topology, config, log_partitions)
    plan = resolve_partitions(topology, external)
    log_name = Blueprint.of(topology, config).topic
    writers = _writers(topology, log_name)
    readers = {
        log_name(topic): number for number, sources in plan.sources.items()
        for topics in sources.values() for topic in topics
    }
    internal = {log_name(name): plan.partitions[name] for name in topology.internal_topics
                if name in plan.partitions}
    shuffled = [
        topic for topic in _shuffled_topics(internal, writers, readers, topology, log_name)
        if not config.is_continuous and topic not in in_log
    ]
    settings = repartition_settings(config)
    changelogs, retention_ms = _changelogs(topology, config, plan)
    global_topics = frozenset(store.topic for store in topology.global_stores.values())
    named = readers.keys() | writers.keys() | global_topics
    return ExecutionGraph(
        application_id=config.application_id,
        subtopologies=_subtopologies(
            topology, config, plan, _stages(shuffled, writers, readers, plan.tasks),
            frozenset(shuffled),
        ),
        partitions={topic: n for topic, n in external.items() if topic in named} | internal,
        shuffled={topic: readers[topic] for topic in shuffled},
        repartition_topics={topic: settings for topic in internal if topic not in shuffled},
        changelogs=changelogs,
        global_topics=global_topics,
        writers={topic: writers[topic] for topic in shuffled},
        window_retention_ms=retention_ms,
        global_layout=_layout(
            config, (store.store for store in topology.global_stores.values()),
            {name: store.topic for name, store in topology.global_stores.items()},
        ),
        close_clocks=_close_clocks(topology),
    )


def _close_clocks(topology: Topology) -> dict[str, str]:
    operators: dict[str, Any] = {
        node.name: node.operator for node in topology.nodes if isinstance(node, ProcessorNode)
    }
    return {
        close_clock(name): operator.store_name for name, operator in operators.items()
        if getattr(operator, "emit_final", False)
    }


def _external_topics(
    topology: Topology, config: StreamsConfig, partitions: Mapping[str, int]
) -> dict[str, int]:
    """Return the topics that are not internal, so that no pattern matches internal topics."""
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
                f"Missing source topic {store.topic} of the global store {store.store.name}."
                f"{did_you_mean(store.topic, external)} Create it first. Topics: "
                f"{', '.join(user_topics_first(external)) or 'none'}."
            )
    return external


def _writers(topology: Topology, log_name: _TopicName) -> dict[str, frozenset[int]]:
    """Return topic -> the sub-topologies with a sink that always writes to it."""
    writers: dict[str, set[int]] = {}
    for group in topology.groups():
        for name in group.nodes:
            node = topology.node(name)
            if isinstance(node, SinkNode) and isinstance(node.topic, str):
                writers.setdefault(log_name(node.topic), set()).add(group.id)
    return {topic: frozenset(groups) for topic, groups in writers.items()}


def _shuffled_topics(
    internal: Iterable[str], writers: Mapping[str, frozenset[int]], readers: Mapping[str, int],
    topology: Topology, log_name: _TopicName,
) -> list[str]:
    """Return the internal topics that do not have to exist in the log."""
    # A topic from which a store is restored must exist.
    required = {log_name(topic) for topic in topology.source_changelogs.values()}
    candidates = [
        topic for topic in internal
        if topic in readers and topic in writers and topic not in required
    ]
    closing = cycle_edges(_edges(candidates, writers, readers))
    return [
        topic for topic in candidates
        if closing.isdisjoint((writer, readers[topic]) for writer in writers[topic])
    ]


def _edges(
    topics: Iterable[str], writers: Mapping[str, frozenset[int]], readers: Mapping[str, int]
) -> set[Edge]:
    return {(writer, readers[topic]) for topic in topics for writer in writers[topic]}


def cycle_edges(edges: Iterable[Edge]) -> set[Edge]:
    """Return edges whose removal breaks all cycles.

    A depth-first search visits smaller numbers first. An edge back to a node on the current path
    closes a cycle. The result is deterministic, so a topic does not move between the shuffle and
    the log from one start to the next.
    """
    below: dict[int, list[int]] = {}
    for writer, reader in sorted(edges):
        below.setdefault(writer, []).append(reader)
    closing: set[Edge] = set()
    done: set[int] = set()
    for root in sorted(below):
        if root in done:
            continue
        path = {root: iter(below[root])}
        while path:
            here = next(reversed(path))
            for reader in path[here]:
                if reader in path:
                    closing.add((here, reader))
                elif reader not in done:
                    path[reader] = iter(below.get(reader, ()))
                    break
            else:
                del path[here]
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
            _layout(
                config, (store.spec for store in blueprint.stores),
                # Rows that were copied from the topic are not those of the processor.
                {**restored, **{
                    store.name: f"{restored[store.name]} processed"
                    for store in blueprint.stores if store.feed is not None
                }},
            ),
        )
    return found


def _layout(
    config: StreamsConfig, stores: Iterable[StoreSpec], restored: Mapping[str, str]
) -> str:
    """Return a hash of everything that determines the layout of the stores' rows."""
    attributes = []
    for spec in sorted(stores, key=lambda each: each.name):
        builder = spec.resolve(config)
        supplier = getattr(builder, "supplier", None)
        value_format = getattr(supplier, "format", None)
        type_name = _BUFFER_NAMES.get(type(builder), type(builder).__name__)
        attributes.append((
            spec.name, restored.get(spec.name), getattr(builder, "kind", type_name),
            getattr(value_format, "name", None),
            *(getattr(supplier, name, None) for name in _LAYOUT_ATTRIBUTES),
        ))
    return hashlib.sha256(repr(attributes).encode()).hexdigest()[:16]


def _changelogs(
    topology: Topology, config: StreamsConfig, plan: PartitionPlan
) -> tuple[dict[str, tuple[int, Mapping[str, str]]], dict[str, int]]:
    """Return changelog -> (partitions, settings), and changelog -> retention for window stores."""
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
