"""`PictureGraph`: what a picture of a topology shows.

Sub-topologies are boxes of nodes. Topics stand outside of them, because several may read and write
the same topic. A store stands beside a node that uses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.topology.describe import (
    GlobalStoreDescription,
    ProcessorDescription,
    SinkDescription,
    SourceDescription,
    SubtopologyDescription,
    TopologyDescription,
)

#: The topic of a sink that chooses one for each record.
DYNAMIC_TOPIC = "(chosen for each record)"


class ShapeKind(Enum):
    """The kinds of shapes."""

    TOPIC = "topic"
    SOURCE = "source"
    PROCESSOR = "processor"
    SINK = "sink"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of a picture."""

    #: Unique in the picture, and made of letters, digits and underscores only.
    id: str
    kind: ShapeKind
    name: str


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow from one shape to another, by their ids."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class StoreUse:
    """A line between a node and a store that it uses, by their ids."""

    node: str
    store: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes and stores of a sub-topology, or of a global store."""

    id: str
    title: str
    nodes: tuple[Shape, ...]
    stores: tuple[Shape, ...]
    #: Between nodes of the cluster.
    edges: tuple[Edge, ...]
    uses: tuple[StoreUse, ...]


@dataclass(frozen=True, slots=True)
class PictureGraph:
    """The clusters, the topics, and the edges between topics and nodes."""

    clusters: tuple[Cluster, ...]
    topics: tuple[Shape, ...]
    reads: tuple[Edge, ...]
    writes: tuple[Edge, ...]


def build_graph(description: TopologyDescription) -> PictureGraph:
    """Return what a picture of the topology shows."""
    parts: list[SubtopologyDescription | GlobalStoreDescription] = [
        *description.subtopologies, *description.global_stores,
    ]
    parts.sort(key=lambda part: part.id)
    topics: dict[str, Shape] = {}
    clusters, reads, writes = [], [], []

    def topic(name: str) -> Shape:
        return topics.setdefault(name, Shape(f"topic_{len(topics)}", ShapeKind.TOPIC, name))

    for part in parts:
        nodes = _nodes(part)
        shapes = {
            node.name: Shape(f"node_{part.id}_{number}", ShapeKind(node.kind), node.name)
            for number, node in enumerate(nodes)
        }
        clusters.append(_cluster(part, nodes, shapes))
        for node in nodes:
            if isinstance(node, SourceDescription):
                reads += [Edge(topic(name).id, shapes[node.name].id) for name in _topics_of(node)]
            elif isinstance(node, SinkDescription):
                target = DYNAMIC_TOPIC if node.topic is None else node.topic
                writes.append(Edge(shapes[node.name].id, topic(target).id))
    return PictureGraph(tuple(clusters), tuple(topics.values()), tuple(reads), tuple(writes))


def _nodes(
    part: SubtopologyDescription | GlobalStoreDescription,
) -> tuple[SourceDescription | ProcessorDescription | SinkDescription, ...]:
    if isinstance(part, GlobalStoreDescription):
        return (part.source, part.processor)
    return part.nodes


def _cluster(
    part: SubtopologyDescription | GlobalStoreDescription,
    nodes: tuple[SourceDescription | ProcessorDescription | SinkDescription, ...],
    shapes: dict[str, Shape],
) -> Cluster:
    stores: dict[str, Shape] = {}
    uses = []
    for node in nodes:
        for name in node.stores if isinstance(node, ProcessorDescription) else ():
            store = stores.setdefault(
                name, Shape(f"store_{part.id}_{len(stores)}", ShapeKind.STORE, name)
            )
            uses.append(StoreUse(shapes[node.name].id, store.id))
    edges = [
        Edge(shapes[node.name].id, shapes[successor].id)
        for node in nodes for successor in node.successors
    ]
    is_global = isinstance(part, GlobalStoreDescription)
    title = f"Global store {part.id}" if is_global else f"Sub-topology {part.id}"
    return Cluster(
        f"cluster_{part.id}", title, tuple(shapes.values()), tuple(stores.values()),
        tuple(edges), tuple(uses),
    )


def _topics_of(source: SourceDescription) -> tuple[str, ...]:
    if source.topic_pattern is not None:
        return (f"/{source.topic_pattern.pattern}/",)
    return source.topic_set or ()
