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
#: The space around the text of a shape.
PADDING = 12.0
#: Between shapes of a row, between a node and its store, around the nodes of a box.
GAP = 24.0
STORE_GAP = 22.0
MARGIN = 20.0
#: Longer lines are shortened. A tooltip shows the complete name.
LONGEST_LINE = 44

#: A generated name: a prefix and a number of ten digits, with an optional suffix.
_GENERATED = re.compile(r"(.+?)-?(\d{10})(-.+)?")

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a kind of picture."""

    #: The height and the least width of a shape.
    height: float = 40.0
    narrowest: float = 0.0
    #: Between rows, and for the title of a box.
    row_gap: float = 40.0
    title: float = 26.0
    #: The least width of a store: it shows reads and writes.
    narrowest_store: float = 0.0


PLAIN = Sizes()
#: With room for a line of values in each shape, and for one at the tip of each arrow.
WITH_VALUES = Sizes(58.0, 170.0, 58.0, 46.0, 200.0)


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
class PlacedUse:
    """The line between a node and a store, and its points."""

    points: tuple[Point, ...]
    #: Between them are other shapes of their row: the line goes below these.
    is_below: bool = False

    def moved(self, x: float, y: float) -> PlacedUse:
        """Return the line at another place."""
        return replace(self, points=tuple((px + x, py + y) for px, py in self.points))


@dataclass(frozen=True, slots=True)
class Layout:
    """A picture with the places of everything."""

    width: float
    height: float
    clusters: tuple[PlacedCluster, ...]
    shapes: tuple[PlacedShape, ...]
    arrows: tuple[PlacedArrow, ...]
    uses: tuple[PlacedUse, ...]


def label_lines(name: str) -> tuple[str, ...]:
    """Return a name in lines; the number of a generated name has a line of its own."""
    found = _GENERATED.fullmatch(name)
    lines = (name,) if found is None else (found[1], found[2] + (found[3] or ""))
    return tuple(
        line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…" for line in lines
    )


def _width(shape: Shape, sizes: Sizes) -> float:
    extra = 2 * PADDING if shape.kind is not ShapeKind.TOPIC else 3 * PADDING
    text = max(len(line) for line in label_lines(shape.name)) * CHARACTER
    is_store = shape.kind is ShapeKind.STORE
    return max(text + extra, sizes.narrowest_store if is_store else sizes.narrowest)


# ---- one sub-topology ------------------------------------------------------------------------


class _ClusterLayout:
    """The places inside of a sub-topology, relative to its upper left corner."""

    def __init__(self, cluster: Cluster, sizes: Sizes) -> None:
        self.cluster = cluster
        self._sizes = sizes
        self.shapes: dict[str, PlacedShape] = {}
        #: Store -> the node that it stands beside.
        self._owners: dict[str, str] = {}
        stores = {store.id: store for store in cluster.stores}
        beside: dict[str, list[Shape]] = defaultdict(list)
        for use in cluster.uses:
            if use.store in stores:
                beside[use.node].append(stores.pop(use.store))
                self._owners[use.store] = use.node
        edges = [(edge.source, edge.target) for edge in cluster.edges]
        self._layers = layers = longest_paths([node.id for node in cluster.nodes], edges)
        last = max(layers.values())
        layers |= {node.id: last for node in cluster.nodes if node.kind is ShapeKind.SINK}
        widths = {
            node.id: _width(node, sizes)
            + sum(STORE_GAP + _width(each, sizes) for each in beside[node.id])
            for node in cluster.nodes
        }
        self._graph = LayeredGraph(
            widths, layers, list(dict.fromkeys((*edges, *self._uses_across_rows()))), GAP
        )
        left, right = self._graph.bounds()
        title = len(cluster.title) * CHARACTER
        # Arrows from topics pass beside the title.
        inputs = [
            self._graph.centres[node.id] - left + (_width(node, sizes) - widths[node.id]) / 2
            for node in cluster.nodes if node.kind is ShapeKind.SOURCE
        ]
        beside_title = max(0.0, title + 2 * PADDING - MARGIN - min(inputs, default=title))
        self.width = max(right - left + beside_title, title) + 2 * MARGIN
        self.height = sizes.title + (last + 1) * sizes.height + last * sizes.row_gap + MARGIN
        self._shift = (self.width - (right - left) + beside_title) / 2 - left
        for node in cluster.nodes:
            x = self._graph.centres[node.id] - widths[node.id] / 2 + self._shift
            for shape in (node, *beside[node.id]):
                box = Box(x, self._row_y(layers[node.id]), _width(shape, sizes), sizes.height)
                self.shapes[shape.id] = PlacedShape(shape, box, label_lines(shape.name))
                x = box.right + STORE_GAP
        self.arrows = [
            PlacedArrow(source, target, tuple(_points(
                self.shapes[source].box, self.shapes[target].box, self._passes(source, target)
            )))
            for source, target in dict.fromkeys(edges)
        ]

    def _row_y(self, layer: int) -> float:
        return self._sizes.title + layer * (self._sizes.height + self._sizes.row_gap)

    def _uses_across_rows(self) -> Iterator[tuple[str, str]]:
        """The pairs of nodes in different rows that share a store: the upper one first."""
        for use in self.cluster.uses:
            pair = self._owners[use.store], use.node
            upper, lower = sorted(pair, key=self._layers.__getitem__)
            if self._layers[upper] < self._layers[lower]:
                yield upper, lower

    def _passes(self, upper: str, lower: str) -> Iterator[tuple[float, float, float]]:
        """Where a line between two nodes crosses the rows between them."""
        for number, item in enumerate(self._graph.paths[upper, lower], start=1):
            y = self._row_y(self._layers[upper] + number)
            yield self._graph.centres[item] + self._shift, y, self._sizes.height

    def uses(self) -> Iterator[PlacedUse]:
        """The lines between nodes and stores."""
        edges = {(arrow.source, arrow.target) for arrow in self.arrows}
        for use in self.cluster.uses:
            node, store = self.shapes[use.node].box, self.shapes[use.store].box
            owner = self._owners[use.store]
            if owner == use.node:
                y = node.y + node.height / 2
                stores = [each for each in self._owners if self._owners[each] == owner]
                before = self.shapes[stores[stores.index(use.store) - 1]].box
                is_first = stores[0] == use.store
                yield PlacedUse((((node if is_first else before).right, y), (store.x, y)))
            elif self._layers[owner] == self._layers[use.node]:
                yield PlacedUse((
                    (store.centre_x, store.bottom), (_side(node, store), node.bottom)
                ), is_below=True)
            else:
                is_down = self._layers[owner] < self._layers[use.node]
                ends = (owner, use.node) if is_down else (use.node, owner)
                # Beside an arrow between the same nodes.
                shift = GAP / 3 if ends in edges else 0.0
                passes = [(x + shift, y, height) for x, y, height in self._passes(*ends)]
                upper, lower = (store, node) if is_down else (node, store)
                start = (upper.centre_x if is_down else _side(node, store), upper.bottom)
                end = (_side(node, store) if is_down else lower.centre_x, lower.y)
                yield PlacedUse((start, *_through(passes), end))


def _side(node: Box, store: Box) -> float:
    """Where the line to a store meets the edge of a node: not in the middle, where arrows do."""
    return node.centre_x + node.width / (4 if store.centre_x > node.centre_x else -4)


def _through(passes: Iterable[tuple[float, float, float]]) -> Iterator[Point]:
    for x, y, height in passes:
        yield x, y
        yield x, y + height


def _points(
    source: Box, target: Box, passes: Iterable[tuple[float, float, float]]
) -> Iterator[Point]:
    """The points of an arrow. `passes`: (x, y, height) of the rows that it crosses."""
    yield source.centre_x, source.bottom
    yield from _through(passes)
    yield target.centre_x, target.y


# ---- the picture -----------------------------------------------------------------------------


def build_layout(graph: PictureGraph, sizes: Sizes = PLAIN) -> Layout:
    """Return the places of everything in a picture."""
    clusters = {cluster.id: _ClusterLayout(cluster, sizes) for cluster in graph.clusters}
    owner = {node.id: cluster.id for cluster in graph.clusters for node in cluster.nodes}
    topics = {topic.id: topic for topic in graph.topics}
    writes = list(_acyclic_writes(graph, owner, topics))
    edges = list(dict.fromkeys((
        *((edge.source, owner[edge.target]) for edge in graph.reads),
        *((owner[edge.source], edge.target) for edge in writes),
    )))
    layers = _rows(topics, clusters, edges)
    areas = {name: (_width(topic, sizes), sizes.height) for name, topic in topics.items()}
    areas |= {name: (inner.width, inner.height) for name, inner in clusters.items()}
    rows = LayeredGraph(
        {name: area[0] for name, area in areas.items()}, layers, edges, 2 * GAP,
        dict(_ports((*graph.reads, *writes), owner, clusters)),
    )
    heights = [max(areas[item][1] for item in row if item in areas) for row in rows.rows]
    tops = [
        MARGIN + sum(heights[:number]) + 1.5 * sizes.row_gap * number
        for number in range(len(heights))
    ]
    left, right = rows.bounds()
    shift = MARGIN - left
    boxes = {
        name: Box(rows.centres[name] - width / 2 + shift, tops[layers[name]], width, height)
        for name, (width, height) in areas.items()
    }
    shapes = {
        name: PlacedShape(topic, boxes[name], label_lines(topic.name))
        for name, topic in topics.items()
    }
    arrows: list[PlacedArrow] = []
    uses: list[PlacedUse] = []
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
        uses += [use.moved(x, y) for use in inner.uses()]
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
