"""Pictures of topologies: complete, without overlaps, and safe for every name."""

from __future__ import annotations

import re
import xml.etree.ElementTree as Xml
from collections.abc import Iterator
from contextlib import suppress
from itertools import combinations
from typing import Any

import pytest

from conformance.cases import CASES, case_files, in_sample, read_cases
from conformance.runner import CaseResult, Run
from penstock import Processor, Record, Serdes, Stores, StreamsBuilder, Topology
from penstock.topology.picture.graph import ShapeKind, build_graph
from penstock.topology.picture.layout import CHARACTER, WITH_VALUES, Box, Layout, build_layout
from penstock.topology.picture.svg import LID

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '<script>alert("&")</script>`#'


def orders() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=str, value=str)
    counts = orders.group_by(lambda key, value: value, name="by-value").count(store="counts")
    counts.to_stream().to("out")
    orders.to(lambda key, value, context: value)
    return builder.build()


def feedback() -> Topology:
    """A topology that writes to the topic that it reads."""
    builder = StreamsBuilder()
    builder.stream("again", key=str, value=str).map_values(str.upper).to("again")
    return builder.build()


def hostile() -> Topology:
    topology = Topology()
    topology.add_source(HOSTILE, "topic")
    topology.add_sink(f"{HOSTILE}-sink", "out", HOSTILE)
    return topology


def overlaps(left: Box, right: Box) -> bool:
    return (
        left.x < right.right and right.x < left.right
        and left.y < right.bottom and right.y < left.bottom
    )


def contains(outer: Box, inner: Box) -> bool:
    return (
        outer.x <= inner.x and inner.right <= outer.right
        and outer.y <= inner.y and inner.bottom <= outer.bottom
    )


def check_picture(topology: Topology) -> None:
    graph = build_graph(topology.describe())
    layout = build_layout(graph)
    page = Box(0, 0, layout.width, layout.height)
    for left, right in combinations(layout.shapes, 2):
        assert not overlaps(left.box, right.box), (left.shape, right.shape)
    for first, second in combinations(layout.clusters, 2):
        assert not overlaps(first.box, second.box)
    boxes = {placed.cluster.id: placed.box for placed in layout.clusters}
    owners = {
        shape.id: cluster.id for cluster in graph.clusters
        for shape in (*cluster.nodes, *cluster.stores)
    }
    for placed in layout.shapes:
        assert max(map(len, placed.lines)) * CHARACTER < placed.box.width
        assert contains(boxes[owners[placed.shape.id]] if placed.shape.id in owners else page,
                        placed.box)
        if placed.shape.kind is ShapeKind.TOPIC:
            assert not any(overlaps(box, placed.box) for box in boxes.values())
    for arrow in layout.arrows:
        heights = [y for _, y in arrow.points]
        assert heights == sorted(heights), "An arrow points up."
    svg = topology.describe().to_svg()
    Xml.fromstring(svg)
    live, with_values = topology.describe().to_svg(styled=False), build_layout(graph, WITH_VALUES)
    for each, its_layout in ((svg, layout), (live, with_values)):
        check_lines(each, its_layout)
        check_stores(each, its_layout)


def check_lines(svg: str, layout: Layout) -> None:
    """No arrow and no line to a store crosses a shape, and no arrow the title of a box."""
    inside = [
        (placed.shape.name, Box(box.x + 1, box.y + 1, box.width - 2, box.height - 2))
        for placed in layout.shapes for box in [placed.box]
    ]
    titles = [
        (each.cluster.title, Box(
            each.box.x + 10, each.box.y + 5, len(each.cluster.title) * CHARACTER, 14
        ))
        for each in layout.clusters
    ]
    for kind, path in re.findall(r'<path class="(arrow|use)"[^>]* d="([^"]+)"', svg):
        for x, y in points_of(path):
            for name, box in (*inside, *(titles if kind == "arrow" else ())):
                assert not (box.x < x < box.right and box.y < y < box.bottom), (kind, path, name)


def check_stores(svg: str, layout: Layout) -> None:
    """The text of a store is between its lid and its bottom."""
    groups = {group[0].text: group for group in _elements(svg, "g")}
    for placed in layout.shapes:
        if placed.shape.kind is ShapeKind.STORE:
            texts = groups[f"store {placed.shape.name}"].iter(f"{SVG}text")
            baselines = [float(each.attrib["y"]) for each in texts]
            # A capital letter of `FONT_SIZE` is 9 pixels high.
            assert baselines[0] - 9 > placed.box.y + 2 * LID
            assert baselines[-1] + 3 < placed.box.bottom


def points_of(path: str) -> Iterator[tuple[float, float]]:
    """Points of a path, close to each other."""
    at = (0.0, 0.0)
    for step in re.findall(r"[MLC][^MLC]+", path):
        numbers = [float(each) for each in re.findall(r"-?[\d.]+", step)]
        ends = list(zip(numbers[::2], numbers[1::2], strict=True))
        # A line is a curve whose inner points are its ends.
        curve = [at, *ends] if step[0] == "C" else [at, at, ends[0], ends[0]]
        if step[0] != "M":
            for number in range(25):
                share = number / 24
                weights = [(1 - share) ** 3, 3 * share * (1 - share) ** 2,
                           3 * share ** 2 * (1 - share), share ** 3]
                yield (
                    sum(w * x for w, (x, _) in zip(weights, curve, strict=True)),
                    sum(w * y for w, (_, y) in zip(weights, curve, strict=True)),
                )
        at = ends[-1]


def shared_stores() -> Topology:
    """Stores that nodes of the same row, of the next one and of a later one use."""
    builder = StreamsBuilder()
    tables = [builder.table(name, key=str, value=str, store=f"{name}-store")
              for name in ("clients", "accounts", "offers")]
    first, second, third = tables
    first.join(second, lambda one, other: one + other).left_join(
        third, lambda one, other: one
    ).to_stream().to("joined")
    return builder.build()


def siblings() -> Topology:
    """Two stores of a node, which nodes of its row and one of the next row use."""
    topology = Topology()
    topology.add_source("read", "topic")
    for name in ("left", "middle", "right"):
        topology.add_processor(name, Pass, "read")
    topology.add_processor("below", Pass, "left")
    for store in ("one", "two"):
        builder = Stores.key_value_store_builder(
            Stores.in_memory_key_value_store(store), Serdes.string(), Serdes.string()
        )
        topology.add_state_store(builder, "right", "below", "left", "middle")
    return topology


class Pass(Processor[Any, Any]):
    """Ignores records."""

    def process(self, record: Record[Any, Any]) -> None:
        """Ignore a record."""


@pytest.mark.parametrize("build", [orders, feedback, hostile, shared_stores, siblings])
def test_shapes_do_not_overlap(build: object) -> None:
    check_picture(build())  # type: ignore[operator]


class Building(Run):
    """Builds the topology of a case, without its events."""

    built: Topology | None = None

    def _driver(self, topology: Topology, config: object) -> object:
        self.built = topology
        raise StopIteration


def test_topologies_of_conformance_cases_have_pictures_without_overlaps() -> None:
    drawn = 0
    for path in case_files([CASES]):
        for case in read_cases(path):
            if in_sample(case, 24):
                building = Building(case, CaseResult())
                # Some cases are about an error of the builder.
                with suppress(Exception):
                    building.run()
                if building.built is not None:
                    check_picture(building.built)
                    drawn += 1
    assert drawn > 100


def test_picture_shows_every_node_topic_and_store() -> None:
    description = orders().describe()
    texts = {element.text for element in _elements(description.to_svg(), "title")}
    assert {
        "topic orders", "topic out", "topic by-value-repartition", "topic (chosen for each record)",
        "store counts", "source KSTREAM-SOURCE-0000000000", "sink by-value-repartition-sink",
    } <= texts
    assert description._repr_svg_() == orders()._repr_svg_() == description.to_svg()


def test_topic_that_feeds_itself_appears_twice() -> None:
    texts = [element.text for element in _elements(feedback().describe().to_svg(), "title")]
    assert texts.count("topic again") == 2


def test_names_are_escaped() -> None:
    description = hostile().describe()
    titles = [element.text for element in _elements(description.to_svg(), "title")]
    assert f"source {HOSTILE}" in titles
    assert "<script>" not in description.to_svg()
    assert "<script>" not in description.to_mermaid()
    assert '\\"&\\"' in description.to_dot()


def test_mermaid_has_a_box_for_each_subtopology() -> None:
    text = orders().describe().to_mermaid()
    assert text.startswith("flowchart TD\n")
    assert text.count("subgraph cluster_") == text.count("  end\n") == 2
    for shape in ('[/"orders"/]', '[("counts")]', '(["KSTREAM-SOURCE-0000000000"])'):
        assert shape in text


def test_dot_connects_the_ids_that_it_declares() -> None:
    text = orders().describe().to_dot()
    declared = set(re.findall(r"(\w+) \[label", text))
    used = {name for pair in re.findall(r"(\w+) -> (\w+)", text) for name in pair}
    assert used <= declared
    assert text.startswith("digraph topology {")


def test_png_has_the_size_of_the_picture() -> None:
    pytest.importorskip("resvg_py", reason="needs the extra 'pictures'")
    data = orders().describe().to_png()
    layout = build_layout(build_graph(orders().describe()))
    assert data.startswith(b"\x89PNG")
    assert abs(int.from_bytes(data[16:20], "big") - 2 * layout.width) <= 2


def _elements(svg: str, name: str) -> Iterator[Xml.Element]:
    return Xml.fromstring(svg).iter(SVG + name)
