"""`Layout`: the position of every shape and edge of a picture, in pixels.

Topics and sub-topologies alternate in rows, from the input at the top to the output at the bottom.
Inside of a sub-topology, sources are at its upper edge and sinks at its lower edge. Edges run
through the space between rows, and pass other shapes of a row vertically. A topic that would need
an upward arrow, because a sub-topology reads what a later one writes, appears twice.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.topology.picture.graph import Cluster, Edge, PictureGraph, Shape, ShapeKind
from penstock.topology.picture.layers import LayeredGraph, longest_paths

#: The width of a character in a monospaced font of `FONT_SIZE` pixels, and the height of a line.
FONT_SIZE = 12
CHARACTER = 7.25
LINE = 15.0
#: The height of a shape, and the space around its text.
HEIGHT = 40.0
PADDING = 12.0
#: Between shapes of a row, between rows, between a node and its store, around the nodes of a box.
GAP = 24.0
ROW_GAP = 40.0
STORE_GAP = 22.0
MARGIN = 20.0
TITLE = 26.0
#: Longer lines are shortened. A tooltip shows the complete name.
LONGEST_LINE = 44

#: A generated name: a prefix and a number of ten digits, with an optional suffix.
_GENERATED = re.compile(r"(.+?)-?(\d{10})(-.+)?")

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    @property
    def centre_x(self) -> float:
        """The middle between the left and the right edge."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.y + self.height

    @property
    def right(self) -> float:
        """The right edge."""
        return self.x + self.width

    def moved(self, x: float, y: float) -> Box:
        """Return the rectangle at another place."""
        return replace(self, x=self.x + x, y=self.y + y)


@dataclass(frozen=True, slots=True)
class PlacedShape:
    """A shape, its place, and the lines of its label."""

    shape: Shape
    box: Box
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlacedCluster:
    """A sub-topology and its place."""

    cluster: Cluster
    box: Box


@dataclass(frozen=True, slots=True)
class PlacedArrow:
    """An arrow between two shapes, by their ids, and its points from start to end."""

    source: str
    target: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A picture with the places of everything."""

    width: float
    height: float
    clusters: tuple[PlacedCluster, ...]
    shapes: tuple[PlacedShape, ...]
    arrows: tuple[PlacedArrow, ...]
    #: The ends of the lines between nodes and stores.
    uses: tuple[tuple[Point, Point], ...]


def label_lines(name: str) -> tuple[str, ...]:
    """Return a name in lines; the number of a generated name has a line of its own."""
    found = _GENERATED.fullmatch(name)
    lines = (name,) if found is None else (found[1], found[2] + (found[3] or ""))
    return tuple(
        line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…" for line in lines
    )


def _width(shape: Shape) -> float:
    extra = 2 * PADDING if shape.kind is not ShapeKind.TOPIC else 3 * PADDING
    return max(len(line) for line in label_lines(shape.name)) * CHARACTER + extra


# ---- one sub-topology ------------------------------------------------------------------------


class _ClusterLayout:
    """The places inside of a sub-topology, relative to its upper left corner."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.shapes: dict[str, PlacedShape] = {}
        self.arrows: list[PlacedArrow] = []
        stores = {store.id: store for store in cluster.stores}
        beside: dict[str, list[Shape]] = defaultdict(list)
        for use in cluster.uses:
            if use.store in stores:
                beside[use.node].append(stores.pop(use.store))
        edges = [(edge.source, edge.target) for edge in cluster.edges]
        layers = longest_paths([node.id for node in cluster.nodes], edges)
        last = max(layers.values())
        layers |= {node.id: last for node in cluster.nodes if node.kind is ShapeKind.SINK}
        widths = {
            node.id: _width(node) + sum(STORE_GAP + _width(each) for each in beside[node.id])
            for node in cluster.nodes
        }
        graph = LayeredGraph(widths, layers, edges, GAP)
        left, right = graph.bounds()
        title = len(cluster.title) * CHARACTER
        self.width = max(right - left, title) + 2 * MARGIN
        self.height = TITLE + (last + 1) * HEIGHT + last * ROW_GAP + MARGIN
        shift = (self.width - (right - left)) / 2 - left
        for node in cluster.nodes:
            x = graph.centres[node.id] - widths[node.id] / 2 + shift
            for shape in (node, *beside[node.id]):
                box = Box(x, _row_y(layers[node.id]), _width(shape), HEIGHT)
                self.shapes[shape.id] = PlacedShape(shape, box, label_lines(shape.name))
                x = box.right + STORE_GAP
        for (source, target), path in graph.paths.items():
            self.arrows.append(PlacedArrow(source, target, tuple(_points(
                self.shapes[source].box, self.shapes[target].box, (
                    (graph.centres[item] + shift, _row_y(layers[source] + number), HEIGHT)
                    for number, item in enumerate(path, start=1)
                ),
            ))))

    def uses(self) -> Iterator[tuple[Point, Point]]:
        """The lines between nodes and stores: from side to side."""
        for use in self.cluster.uses:
            node, store = self.shapes[use.node].box, self.shapes[use.store].box
            is_left = node.centre_x < store.centre_x
            yield (
                (node.right if is_left else node.x, node.y + node.height / 2),
                (store.x if is_left else store.right, store.y + store.height / 2),
            )


def _row_y(layer: int) -> float:
    return TITLE + layer * (HEIGHT + ROW_GAP)


def _points(
    source: Box, target: Box, passes: Iterable[tuple[float, float, float]]
) -> Iterator[Point]:
    """The points of an arrow. `passes`: (x, y, height) of the rows that it crosses."""
    yield source.centre_x, source.bottom
    for x, y, height in passes:
        yield x, y
        yield x, y + height
    yield target.centre_x, target.y


# ---- the picture -----------------------------------------------------------------------------


def build_layout(graph: PictureGraph) -> Layout:
    """Return the places of everything in a picture."""
    clusters = {cluster.id: _ClusterLayout(cluster) for cluster in graph.clusters}
    owner = {node.id: cluster.id for cluster in graph.clusters for node in cluster.nodes}
    topics = {topic.id: topic for topic in graph.topics}
    writes = list(_acyclic_writes(graph, owner, topics))
    edges = list(dict.fromkeys((
        *((edge.source, owner[edge.target]) for edge in graph.reads),
        *((owner[edge.source], edge.target) for edge in writes),
    )))
    layers = _rows(topics, clusters, edges)
    sizes = {name: (_width(topic), HEIGHT) for name, topic in topics.items()}
    sizes |= {name: (inner.width, inner.height) for name, inner in clusters.items()}
    rows = LayeredGraph(
        {name: size[0] for name, size in sizes.items()}, layers, edges, 2 * GAP,
        dict(_ports((*graph.reads, *writes), owner, clusters)),
    )
    heights = [max(sizes[item][1] for item in row if item in sizes) for row in rows.rows]
    tops = [
        MARGIN + sum(heights[:number]) + 1.5 * ROW_GAP * number for number in range(len(heights))
    ]
    left, right = rows.bounds()
    shift = MARGIN - left
    boxes = {
        name: Box(rows.centres[name] - width / 2 + shift, tops[layers[name]], width, height)
        for name, (width, height) in sizes.items()
    }
    shapes = {
        name: PlacedShape(topic, boxes[name], label_lines(topic.name))
        for name, topic in topics.items()
    }
    arrows: list[PlacedArrow] = []
    uses: list[tuple[Point, Point]] = []
    for name, inner in clusters.items():
        x, y = boxes[name].x, boxes[name].y
        shapes |= {
            each: replace(placed, box=placed.box.moved(x, y))
            for each, placed in inner.shapes.items()
        }
        arrows += [
            replace(arrow, points=tuple((px + x, py + y) for px, py in arrow.points))
            for arrow in inner.arrows
        ]
        uses += [((ax + x, ay + y), (bx + x, by + y)) for (ax, ay), (bx, by) in inner.uses()]
    for edge in (*graph.reads, *writes):
        ends = owner.get(edge.source, edge.source), owner.get(edge.target, edge.target)
        passes = [
            (rows.centres[item] + shift, tops[layers[ends[0]] + number],
             heights[layers[ends[0]] + number])
            for number, item in enumerate(rows.paths[ends], start=1)
        ]
        row_end = tops[layers[ends[0]]] + heights[layers[ends[0]]]
        points = list(_points(shapes[edge.source].box, shapes[edge.target].box, passes))
        # Out of a box to the end of its row, which other boxes may share.
        arrows.append(PlacedArrow(
            edge.source, edge.target, (points[0], (points[0][0], row_end), *points[1:])
        ))
    return Layout(
        right - left + 2 * MARGIN, tops[-1] + heights[-1] + MARGIN if tops else 2 * MARGIN,
        tuple(PlacedCluster(inner.cluster, boxes[name]) for name, inner in clusters.items()),
        tuple(shapes.values()), tuple(arrows), tuple(uses),
    )


def _ports(
    edges: Iterable[Edge], owner: dict[str, str], clusters: dict[str, _ClusterLayout]
) -> Iterator[tuple[tuple[str, str], float]]:
    """Where the edges of topics end in sub-topologies, from the middle of the sub-topology."""
    for edge in edges:
        node, topic = (
            (edge.source, edge.target) if edge.source in owner else (edge.target, edge.source)
        )
        inner = clusters[owner[node]]
        yield (owner[node], topic), inner.shapes[node].box.centre_x - inner.width / 2


def _acyclic_writes(
    graph: PictureGraph, owner: dict[str, str], topics: dict[str, Shape]
) -> Iterator[Edge]:
    """The edges from sinks to topics, without cycles. Adds second shapes of topics to `topics`."""
    after: dict[str, set[str]] = defaultdict(set)
    for edge in graph.reads:
        after[edge.source].add(owner[edge.target])

    def reaches(start: str, end: str) -> bool:
        seen, pending = {start}, [start]
        while pending:
            found = after[pending.pop()] - seen
            seen |= found
            pending += found
        return end in seen

    for edge in graph.writes:
        cluster, target = owner[edge.source], edge.target
        if reaches(target, cluster):
            again = f"{target}_again"
            topics[again] = Shape(again, ShapeKind.TOPIC, topics[target].name)
            target = again
        after[cluster].add(target)
        yield Edge(edge.source, target)


def _rows(
    topics: Iterable[str], clusters: Iterable[str], edges: Sequence[tuple[str, str]]
) -> dict[str, int]:
    """Return the row of each topic and sub-topology. Input stands right above its first reader."""
    rows = longest_paths([*topics, *clusters], edges)
    written = {target for _, target in edges}
    for topic in topics:
        readers = [rows[target] for source, target in edges if source == topic]
        if topic not in written and readers:
            rows[topic] = min(readers) - 1
    return rows
