"""A topology as text for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.topology.picture.graph import PictureGraph, Shape, ShapeKind

_SHAPES = {
    ShapeKind.TOPIC: "parallelogram",
    ShapeKind.SOURCE: "oval",
    ShapeKind.PROCESSOR: "box",
    ShapeKind.SINK: "oval",
    ShapeKind.STORE: "cylinder",
}


def to_dot(graph: PictureGraph) -> str:
    """Return the graph in Graphviz's language."""
    lines = ["digraph topology {", "  node [fontname=monospace];", *_lines(graph), "}", ""]
    return "\n".join(lines)


def _lines(graph: PictureGraph) -> Iterator[str]:
    for topic in graph.topics:
        yield f"  {_shape(topic)}"
    for cluster in graph.clusters:
        yield f"  subgraph {cluster.id} {{"
        yield f"    label={_quoted(cluster.title)};"
        for shape in (*cluster.nodes, *cluster.stores):
            yield f"    {_shape(shape)}"
        for edge in cluster.edges:
            yield f"    {edge.source} -> {edge.target};"
        for use in cluster.uses:
            yield f"    {use.node} -> {use.store} [style=dashed, dir=none, constraint=false];"
        yield "  }"
    for edge in (*graph.reads, *graph.writes):
        yield f"  {edge.source} -> {edge.target};"


def _shape(shape: Shape) -> str:
    return f"{shape.id} [label={_quoted(shape.name)}, shape={_SHAPES[shape.kind]}];"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
