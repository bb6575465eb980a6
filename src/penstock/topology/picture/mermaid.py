"""A topology as Mermaid text, which GitHub and many editors draw."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.topology.picture.graph import PictureGraph, Shape, ShapeKind

#: The brackets around the label of a shape.
_BRACKETS = {
    ShapeKind.TOPIC: ("[/", "/]"),
    ShapeKind.SOURCE: ("([", "])"),
    ShapeKind.PROCESSOR: ("[", "]"),
    ShapeKind.SINK: ("([", "])"),
    ShapeKind.STORE: ("[(", ")]"),
}


def to_mermaid(graph: PictureGraph) -> str:
    """Return the flowchart of a topology."""
    return "\n".join(["flowchart TD", *_lines(graph), ""])


def _lines(graph: PictureGraph) -> Iterator[str]:
    for topic in graph.topics:
        yield f"  {_shape(topic)}"
    for cluster in graph.clusters:
        yield f"  subgraph {cluster.id}[{_quoted(cluster.title)}]"
        for shape in (*cluster.nodes, *cluster.stores):
            yield f"    {_shape(shape)}"
        for edge in cluster.edges:
            yield f"    {edge.source} --> {edge.target}"
        for use in cluster.uses:
            yield f"    {use.node} -.- {use.store}"
        yield "  end"
    for edge in (*graph.reads, *graph.writes):
        yield f"  {edge.source} --> {edge.target}"


def _shape(shape: Shape) -> str:
    left, right = _BRACKETS[shape.kind]
    return f"{shape.id}{left}{_quoted(shape.name)}{right}"


def _quoted(text: str) -> str:
    """Quote a label. Mermaid has entities in place of escapes, and reads labels as HTML."""
    for character, entity in (
        ("#", "#35;"), ("&", "#amp;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("`", "#96;"),
    ):
        text = text.replace(character, entity)
    return f'"{text}"'
