"""`Topology.describe()`: what stands in a topology, and Kafka's text of it (Q26)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.topology.java_order import hash_order, tree_insert, tree_walk
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode

if TYPE_CHECKING:
    import re

    from penstock.topology.topology import Topology


@dataclass(frozen=True)
class DescribedNode:
    """One node: its name and the names of its neighbours, in Kafka's order."""

    name: str
    predecessors: tuple[str, ...]
    successors: tuple[str, ...]


@dataclass(frozen=True)
class Source(DescribedNode):
    """A node that reads topics."""

    topic_set: tuple[str, ...] | None
    topic_pattern: re.Pattern[str] | None

    def __str__(self) -> str:
        if self.topic_pattern is not None:
            topics = self.topic_pattern.pattern
        else:
            topics = _listed(self.topic_set or ())
        return f"Source: {self.name} (topics: {topics})\n      --> {_names(self.successors)}"


@dataclass(frozen=True)
class Processor(DescribedNode):
    """A node that runs an operator or a processor of the user."""

    stores: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"Processor: {self.name} (stores: {_listed(self.stores)})\n"
            f"      --> {_names(self.successors)}\n      <-- {_names(self.predecessors)}"
        )


@dataclass(frozen=True)
class Sink(DescribedNode):
    """A node that writes a topic."""

    topic: str | None
    topic_name_extractor: Callable[..., str] | None

    def __str__(self) -> str:
        what = (
            f"topic: {self.topic}" if self.topic is not None
            else f"extractor class: {_function_name(self.topic_name_extractor)}"
        )
        return f"Sink: {self.name} ({what})\n      <-- {_names(self.predecessors)}"


@dataclass(frozen=True)
class Subtopology:
    """A connected part of the topology; its tasks are one for each partition."""

    id: int
    nodes: tuple[Source | Processor | Sink, ...]

    def __str__(self) -> str:
        lines = "".join(f"    {node}\n" for node in self.nodes)
        return f"Sub-topology: {self.id}\n{lines}\n"


@dataclass(frozen=True)
class GlobalStore:
    """A global table or store: no tasks, kept on every host."""

    id: int
    source: Source
    processor: Processor

    def __str__(self) -> str:
        return (
            f"Sub-topology: {self.id} for global store (will not generate tasks)\n"
            f"    {self.source}\n    {self.processor}\n"
        )


@dataclass(frozen=True)
class TopologyDescription:
    """All sub-topologies and global stores; `str()` is Kafka's text."""

    subtopologies: tuple[Subtopology, ...]
    global_stores: tuple[GlobalStore, ...]

    def __str__(self) -> str:
        parts: list[Subtopology | GlobalStore] = [*self.subtopologies, *self.global_stores]
        parts.sort(key=lambda part: part.id)
        return "Topologies:\n " + "".join(f"  {part}" for part in parts)


def describe(topology: Topology) -> TopologyDescription:
    """What stands in the topology."""
    subtopologies: list[Subtopology] = []
    global_stores: list[GlobalStore] = []
    for group in topology.groups():
        if group.is_global:
            global_stores.append(_describe_global(topology, group.id, group.nodes))
        else:
            subtopologies.append(_describe_group(topology, group.id, group.nodes))
    return TopologyDescription(tuple(subtopologies), tuple(global_stores))


def _describe_global(topology: Topology, number: int, names: tuple[str, ...]) -> GlobalStore:
    nodes = [topology.node(name) for name in names]
    source = next(node for node in nodes if isinstance(node, SourceNode))
    processor = next(node for node in nodes if isinstance(node, ProcessorNode))
    stores = topology.stores_of(processor.name)
    return GlobalStore(
        number,
        Source(source.name, (), (processor.name,), source.topics, None),
        Processor(processor.name, (source.name,), (), stores[:1]),
    )


class _Sized:
    """A node while sizes are added up: Kafka orders neighbours by size as it was at that time."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.name = node.name
        self.size = 1
        self.predecessors: Any = None
        self.successors: Any = None

    def grow(self, amount: int) -> None:
        self.size += amount
        for predecessor in tree_walk(self.predecessors):
            predecessor.grow(amount)


def _larger_first(left: _Sized, right: _Sized) -> int:
    if left is right:
        return 0
    if left.size != right.size:
        return right.size - left.size
    return -1 if left.name < right.name else 1


def _describe_group(topology: Topology, number: int, names: tuple[str, ...]) -> Subtopology:
    sized = {name: _Sized(topology.node(name)) for name in hash_order(hash_order(names))}
    for node in sized.values():
        for parent in node.node.parents:
            predecessor = sized[parent]
            node.predecessors = tree_insert(node.predecessors, predecessor, _larger_first)
            predecessor.successors = tree_insert(predecessor.successors, node, _larger_first)
            predecessor.grow(node.size)
    ordered = sorted(sized.values(), key=lambda node: (-node.size, node.name))
    return Subtopology(number, tuple(_described(topology, node) for node in ordered))


def _described(topology: Topology, sized: _Sized) -> Source | Processor | Sink:
    node = sized.node
    before = tuple(other.name for other in tree_walk(sized.predecessors))
    after = tuple(other.name for other in tree_walk(sized.successors))
    if isinstance(node, SourceNode):
        topics = None if node.pattern is not None else tuple(hash_order(node.topics))
        return Source(node.name, before, after, topics, node.pattern)
    if isinstance(node, SinkNode):
        fixed = node.topic if isinstance(node.topic, str) else None
        chosen = None if isinstance(node.topic, str) else node.topic
        return Sink(node.name, before, after, fixed, chosen)
    stores = tuple(hash_order(topology.stores_of(node.name)))
    return Processor(node.name, before, after, stores)


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _listed(names: Iterable[str]) -> str:
    return "[" + ", ".join(names) + "]"


def _function_name(function: Callable[..., str] | None) -> str:
    return getattr(function, "__name__", type(function).__name__)
