"""A picture of a topology as SVG, and as PNG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from penstock.extras import explain_missing_extra
from penstock.topology.picture.graph import PictureGraph, ShapeKind
from penstock.topology.picture.layout import (
    FONT_SIZE,
    LINE,
    PLAIN,
    WITH_VALUES,
    Box,
    PlacedArrow,
    PlacedCluster,
    PlacedShape,
    PlacedUse,
    Point,
    build_layout,
)

#: The space between an arrow and its label: beside it, and above its end.
BESIDE = 7.0
ABOVE_TIP = 14.0
#: How far a line between shapes of a row goes down.
DEPTH = 26.0
#: Half the height of the lid of a store, and how much lower its text is.
LID = 4.0
BELOW_LID = 3.0

#: The colours work on white and on black pages: shapes have a background of their own.
_STYLE = f"""
  .page {{ fill: #ffffff; }}
  text {{ font-family: 'DejaVu Sans Mono', Menlo, Consolas, monospace; font-size: {FONT_SIZE}px;
    fill: #1f2933; text-anchor: middle; }}
  .number {{ fill: #616e7c; font-size: 11px; }}
  .cluster {{ fill: #f5f7fa; stroke: #9aa5b1; }}
  .title {{ fill: #52606d; text-anchor: start; font-weight: bold; }}
  .title-back {{ fill: #f5f7fa; }}
  .topic {{ fill: #fff3c4; stroke: #cb6e17; }}
  .source {{ fill: #d9f2e6; stroke: #199473; }}
  .processor {{ fill: #e0effe; stroke: #2b6cb0; }}
  .sink {{ fill: #fbe3e4; stroke: #b44d5b; }}
  .store {{ fill: #e9e2f8; stroke: #653cad; }}
  .arrow {{ fill: none; stroke: #52606d; stroke-width: 1.3; }}
  .use {{ fill: none; stroke: #653cad; stroke-dasharray: 4 3; }}
"""


def to_svg(graph: PictureGraph, *, styled: bool = True) -> str:
    """Return the picture as an SVG document.

    Without styles, its reader has them. Arrows then name their ends, and empty texts are places for
    values: of the class `live` in each shape, and of the class `edge` at each arrow.
    """
    layout = build_layout(graph, PLAIN if styled else WITH_VALUES)
    names = {} if styled else {
        placed.shape.id: f"{placed.shape.kind.value} {placed.shape.name}"
        for placed in layout.shapes
    }
    width, height = f"{layout.width:.0f}", f"{layout.height:.0f}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="Topology">',
        *([f"<style>{_STYLE}</style>"] if styled else ()),
        '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#52606d"/></marker>',
        f'<rect class="page" width="{width}" height="{height}"/>',
        *(_rectangle(placed.box, "cluster", radius=10) for placed in layout.clusters),
        *(f'<path class="arrow"{_ends(arrow, names)} d="{_curve(arrow.points)}" '
          'marker-end="url(#tip)"/>' for arrow in layout.arrows),
        *(f'<path class="use" d="{_use(use)}"/>' for use in layout.uses),
    ]
    for placed in layout.clusters:
        lines += _title(placed)
    for shape in layout.shapes:
        lines += _shape(shape, has_value=not styled)
    if not styled:
        inputs = Counter(arrow.target for arrow in layout.arrows)
        outputs = Counter(arrow.source for arrow in layout.arrows)
        topics = {each.shape.id for each in layout.shapes if each.shape.kind is ShapeKind.TOPIC}
        for arrow in layout.arrows:
            at_start = inputs[arrow.target] > 1 == outputs[arrow.source]
            is_outside = (arrow.source if at_start else arrow.target) in topics
            lines.append(_arrow_label(
                arrow.points, "edge outside" if is_outside else "edge", at_start=at_start
            ))
    return "\n".join([*lines, "</svg>", ""])


def to_png(graph: PictureGraph, *, zoom: float = 2.0) -> bytes:
    """Return the picture as PNG. Text needs a font on this machine.

    Raises `MissingDependencyException` without the extra `pictures`.
    """
    with explain_missing_extra("pictures"):
        import resvg_py  # noqa: PLC0415
    return bytes(resvg_py.svg_to_bytes(svg_string=to_svg(graph), zoom=zoom))


def _ends(arrow: PlacedArrow, names: Mapping[str, str]) -> str:
    if not names:
        return ""
    source, target = quoteattr(names[arrow.source]), quoteattr(names[arrow.target])
    return f" data-from={source} data-to={target}"


def _title(placed: PlacedCluster) -> Iterator[str]:
    """The title of a box, on a background: arrows may pass behind it."""
    x, y = placed.box.x + 10, placed.box.y + 17
    width = len(placed.cluster.title) * 7.6 + 4
    yield _rectangle(Box(x - 2, y - 13, width, 17), "title-back", radius=0)
    yield f'<text class="title" x="{x:.1f}" y="{y:.1f}">{escape(placed.cluster.title)}</text>'


def _shape(placed: PlacedShape, *, has_value: bool) -> Iterator[str]:
    box, kind = placed.box, placed.shape.kind.value
    yield f"<g><title>{escape(f'{kind} {placed.shape.name}')}</title>"
    if placed.shape.kind is ShapeKind.STORE:
        yield _cylinder(box)
    elif placed.shape.kind is ShapeKind.TOPIC:
        yield _slanted(box)
    else:
        yield _rectangle(box, kind, radius=6)
    lines = [*placed.lines, ""] if has_value else placed.lines
    first = box.y + box.height / 2 + 4 - (len(lines) - 1) * LINE / 2
    if placed.shape.kind is ShapeKind.STORE:
        first += BELOW_LID
    for number, line in enumerate(lines):
        name = ' class="number"' if number else ""
        if number == len(placed.lines):
            name = ' class="live"'
        y = first + number * LINE
        yield f'<text{name} x="{box.centre_x:.1f}" y="{y:.1f}">{escape(line)}</text>'
    yield "</g>"


def _arrow_label(points: Sequence[Point], name: str, *, at_start: bool) -> str:
    """The place for the value of an arrow: at its end, on the side that it does not come from.

    `at_start`: where it begins, because several arrows end there.
    """
    (start_x, start_y), (end_x, end_y) = points[0], points[-1]
    # The last point with another position: between boxes, an arrow first goes straight down.
    before_x = next((x for x, _ in reversed(points) if x != end_x), end_x)
    x, y, is_left = end_x, end_y - ABOVE_TIP, before_x > end_x
    if at_start:
        x, y, is_left = start_x, start_y + ABOVE_TIP, end_x > start_x
    anchor = ' text-anchor="end"' if is_left else ""
    x += -BESIDE if is_left else BESIDE
    return f'<text class="{name}"{anchor} x="{x:.1f}" y="{y:.1f}"></text>'


def _rectangle(box: Box, name: str, *, radius: int) -> str:
    return (
        f"<rect class={quoteattr(name)} x=\"{box.x:.1f}\" y=\"{box.y:.1f}\" "
        f'width="{box.width:.1f}" height="{box.height:.1f}" rx="{radius}"/>'
    )


def _slanted(box: Box) -> str:
    """A parallelogram."""
    corners = [
        (box.x + 10, box.y), (box.right, box.y), (box.right - 10, box.bottom), (box.x, box.bottom),
    ]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polygon class="topic" points="{points}"/>'


def _cylinder(box: Box) -> str:
    """A cylinder: sides, a rounded bottom, and a lid."""
    x, y, width, radius = box.x, box.y, box.width, box.width / 2
    return (
        f'<path class="store" d="M{x:.1f},{y + LID:.1f} '
        f"a{radius:.1f},{LID} 0 0 1 {width:.1f},0 v{box.height - 2 * LID:.1f} "
        f"a{radius:.1f},{LID} 0 0 1 {-width:.1f},0 z "
        f'M{x:.1f},{y + LID:.1f} a{radius:.1f},{LID} 0 0 0 {width:.1f},0"/>'
    )


def _curve(points: Sequence[Point]) -> str:
    """A path through points that leaves and enters each of them vertically."""
    (x, y), *rest = points
    steps = [f"M{x:.1f},{y:.1f}"]
    for to_x, to_y in rest:
        if x == to_x:
            steps.append(f"L{to_x:.1f},{to_y:.1f}")
        else:
            middle = (y + to_y) / 2
            steps.append(f"C{x:.1f},{middle:.1f} {to_x:.1f},{middle:.1f} {to_x:.1f},{to_y:.1f}")
        x, y = to_x, to_y
    return " ".join(steps)


def _use(use: PlacedUse) -> str:
    """The line between a node and a store."""
    if not use.is_below:
        return _curve(use.points)
    (x, y), (to_x, to_y) = use.points
    low = y + DEPTH
    return f"M{x:.1f},{y:.1f} C{x:.1f},{low:.1f} {to_x:.1f},{low:.1f} {to_x:.1f},{to_y:.1f}"
