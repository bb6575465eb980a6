"""`Topology.describe()`: the nodes of a topology, and Kafka's text for it (Q26)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.topology.java_order import hash_order, tree_insert, tree_walk
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode

if TYPE_CHECKING:
    import re

    from penstock.topology.topology import Topology


@dataclass(frozen=True)
class NodeDescription:
    """The name of a node and of its neighbours, in Kafka's order."""

    kind: ClassVar[str]
    name: str
    predecessors: tuple[str, ...]
    successors: tuple[str, ...]


@dataclass(frozen=True)
class SourceDescription(NodeDescription):
    """A source node: reads topics."""

    kind = "source"
    topic_set: tuple[str, ...] | None
    topic_pattern: re.Pattern[str] | None

    def __str__(self) -> str:
        if self.topic_pattern is not None:
            topics = self.topic_pattern.pattern
        else:
            topics = _bracketed(self.topic_set or ())
        return f"Source: {self.name} (topics: {topics})\n      --> {_names(self.successors)}"


@dataclass(frozen=True)
class ProcessorDescription(NodeDescription):
    """A processor node: runs an operator or a user processor."""

    kind = "processor"
    stores: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"Processor: {self.name} (stores: {_bracketed(self.stores)})\n"
            f"      --> {_names(self.successors)}\n      <-- {_names(self.predecessors)}"
        )


@dataclass(frozen=True)
class SinkDescription(NodeDescription):
    """A sink node: writes to a topic."""

    kind = "sink"
    topic: str | None
    topic_name_extractor: Callable[..., str] | None

    def __str__(self) -> str:
        what = (
            f"topic: {self.topic}" if self.topic is not None
            else f"extractor class: {_function_name(self.topic_name_extractor)}"
        )
        return f"Sink: {self.name} ({what})\n      <-- {_names(self.predecessors)}"


@dataclass(frozen=True)
class SubtopologyDescription:
    """A connected part of the topology; it runs as one task per partition."""

    id: int
    nodes: tuple[SourceDescription | ProcessorDescription | SinkDescription, ...]

    def __str__(self) -> str:
        lines = "".join(f"    {node}\n" for node in self.nodes)
        return f"Sub-topology: {self.id}\n{lines}\n"


@dataclass(frozen=True)
class GlobalStoreDescription:
    """A global table or store: has no tasks and exists on every host."""

    id: int
    source: SourceDescription
    processor: ProcessorDescription

    def __str__(self) -> str:
        return (
            f"Sub-topology: {self.id} for global store (will not generate tasks)\n"
            f"    {self.source}\n    {self.processor}\n"
        )


@dataclass(frozen=True)
class TopologyDescription:
    """All sub-topologies and global stores of a topology; `str()` returns Kafka's text."""

    subtopologies: tuple[SubtopologyDescription, ...]
    global_stores: tuple[GlobalStoreDescription, ...]

    def __str__(self) -> str:
        by_id = {part.id: str(part) for part in self.subtopologies}
        by_id |= {part.id: str(part) for part in self.global_stores}
        return "Topologies:\n " + "".join(f"  {by_id[number]}" for number in sorted(by_id))

    def to_mermaid(self) -> str:
        """Return the topology as a Mermaid flowchart, which GitHub and many editors draw."""
        from penstock.topology.picture.graph import build_graph  # noqa: PLC0415
        from penstock.topology.picture.mermaid import to_mermaid  # noqa: PLC0415

        return to_mermaid(build_graph(self))

    def to_dot(self) -> str:
        """Return the topology as text for Graphviz."""
        from penstock.topology.picture.dot import to_dot  # noqa: PLC0415
        from penstock.topology.picture.graph import build_graph  # noqa: PLC0415

        return to_dot(build_graph(self))

    def to_svg(self, *, styled: bool = True) -> str:
        """Return a picture of the topology as an SVG document.

        Args:
            styled: Whether the document has styles. A web page may have its own.
        """
        from penstock.topology.picture.graph import build_graph  # noqa: PLC0415
        from penstock.topology.picture.svg import to_svg  # noqa: PLC0415

        return to_svg(build_graph(self), styled=styled)

    def to_png(self) -> bytes:
        """Return a picture of the topology as PNG. Needs `penstock[pictures]`, and a font."""
        from penstock.topology.picture.graph import build_graph  # noqa: PLC0415
        from penstock.topology.picture.svg import to_png  # noqa: PLC0415

        return to_png(build_graph(self))

    def _repr_svg_(self) -> str:
        """The picture that Jupyter shows."""
        return self.to_svg()


def describe(topology: Topology) -> TopologyDescription:
    """Describe the topology."""
    subtopologies: list[SubtopologyDescription] = []
    global_stores: list[GlobalStoreDescription] = []
    for group in topology.groups():
        if group.is_global:
            global_stores.append(_describe_global(topology, group.id, group.nodes))
        else:
            subtopologies.append(_describe_group(topology, group.id, group.nodes))
    return TopologyDescription(tuple(subtopologies), tuple(global_stores))


def _describe_global(
    topology: Topology, number: int, names: tuple[str, ...]
) -> GlobalStoreDescription:
    nodes = [topology.node(name) for name in names]
    source = next(node for node in nodes if isinstance(node, SourceNode))
    processor = next(node for node in nodes if isinstance(node, ProcessorNode))
    stores = topology.stores_of(processor.name)
    return GlobalStoreDescription(
        number,
        SourceDescription(source.name, (), (processor.name,), source.topics, None),
        ProcessorDescription(processor.name, (source.name,), (), stores[:1]),
    )


class _SizedNode:
    """A node with its size so far: Kafka orders neighbours by their sizes at insertion."""

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


def _compare_sizes(left: _SizedNode, right: _SizedNode) -> int:
    if left is right:
        return 0
    if left.size != right.size:
        return right.size - left.size
    return -1 if left.name < right.name else 1


def _describe_group(
    topology: Topology, number: int, names: tuple[str, ...]
) -> SubtopologyDescription:
    sized = {name: _SizedNode(topology.node(name)) for name in hash_order(hash_order(names))}
    for node in sized.values():
        for parent in node.node.parents:
            predecessor = sized[parent]
            node.predecessors = tree_insert(node.predecessors, predecessor, _compare_sizes)
            predecessor.successors = tree_insert(predecessor.successors, node, _compare_sizes)
            predecessor.grow(node.size)
    ordered = sorted(sized.values(), key=lambda node: (-node.size, node.name))
    return SubtopologyDescription(number, tuple(_describe_node(topology, node) for node in ordered))


def _describe_node(
    topology: Topology, sized: _SizedNode
) -> SourceDescription | ProcessorDescription | SinkDescription:
    node = sized.node
    before = tuple(other.name for other in tree_walk(sized.predecessors))
    after = tuple(other.name for other in tree_walk(sized.successors))
    if isinstance(node, SourceNode):
        topics = None if node.pattern is not None else tuple(hash_order(node.topics))
        return SourceDescription(node.name, before, after, topics, node.pattern)
    if isinstance(node, SinkNode):
        if isinstance(node.topic, str):
            return SinkDescription(node.name, before, after, node.topic, None)
        return SinkDescription(node.name, before, after, None, node.topic)
    stores = tuple(hash_order(topology.stores_of(node.name)))
    return ProcessorDescription(node.name, before, after, stores)


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _bracketed(names: Iterable[str]) -> str:
    return "[" + ", ".join(names) + "]"


def _function_name(function: Callable[..., str] | None) -> str:
    return getattr(function, "__name__", type(function).__name__)


def description_as_json(description: TopologyDescription) -> dict[str, object]:
    """Return the output of `penstock describe --json`."""
    return {
        "subtopologies": [
            {"id": part.id, "nodes": [_node_as_json(node) for node in part.nodes]}
            for part in description.subtopologies
        ],
        "global_stores": [
            {"id": store.id, "source": _node_as_json(store.source),
             "processor": _node_as_json(store.processor)}
            for store in description.global_stores
        ],
    }


def _node_as_json(node: NodeDescription) -> dict[str, object]:
    row: dict[str, object] = {"name": node.name, "kind": node.kind}
    if isinstance(node, SourceDescription):
        row["topics"] = None if node.topic_set is None else list(node.topic_set)
        row["topic_pattern"] = None if node.topic_pattern is None else node.topic_pattern.pattern
    elif isinstance(node, ProcessorDescription):
        row["stores"] = list(node.stores)
    elif isinstance(node, SinkDescription):
        row["topic"] = node.topic
    row["predecessors"] = list(node.predecessors)
    row["successors"] = list(node.successors)
    return row
