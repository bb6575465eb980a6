"""Places items in layers, from top to bottom: edges point down, few cross, nothing overlaps.

The steps are those of Sugiyama's method: items get layers by their longest path, an edge across
several layers gets a placeholder in each layer between, layers are ordered by the average position
of neighbours, and items move towards their neighbours as far as the order allows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

#: How often the order of layers, and the positions in them, are improved.
_ROUNDS = 12


def longest_paths(items: Sequence[str], edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return the layer of each item: the length of the longest path that leads to it.

    Raises `ValueError` if the edges have a cycle.
    """
    layers = dict.fromkeys(items, 0)
    after: dict[str, list[str]] = defaultdict(list)
    before = dict.fromkeys(items, 0)
    for source, target in edges:
        after[source].append(target)
        before[target] += 1
    ready = [item for item in items if not before[item]]
    for item in ready:
        for target in after[item]:
            layers[target] = max(layers[target], layers[item] + 1)
            before[target] -= 1
            if not before[target]:
                ready.append(target)
    if len(ready) < len(items):
        raise ValueError(f"A cycle between {sorted(set(items) - set(ready))}.")
    return layers


class LayeredGraph:
    """Items of given widths in layers, and the horizontal position of each item's centre.

    `paths` has the items between the ends of each edge: placeholders, one for each layer.
    """

    def __init__(
        self, widths: Mapping[str, float], layers: Mapping[str, int],
        edges: Iterable[tuple[str, str]], gap: float,
        ports: Mapping[tuple[str, str], float] | None = None,
    ) -> None:
        """Place items. `ports`: (item, neighbour) -> where their edge ends, from the centre."""
        self._gap = gap
        self._ports = ports or {}
        self._widths = dict(widths)
        #: The items of each layer, from left to right.
        self.rows: list[list[str]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
        for item, layer in layers.items():
            self.rows[layer].append(item)
        self.paths: dict[tuple[str, str], list[str]] = {}
        self._above: dict[str, list[str]] = defaultdict(list)
        self._below: dict[str, list[str]] = defaultdict(list)
        for source, target in edges:
            self._connect(source, target, layers)
        self._reorder()
        self.centres: dict[str, float] = {}
        self._place()

    def _connect(self, source: str, target: str, layers: Mapping[str, int]) -> None:
        path = []
        for layer in range(layers[source] + 1, layers[target]):
            placeholder = f"{source}>{target}@{layer}"
            self._widths[placeholder] = 0.0
            self.rows[layer].append(placeholder)
            path.append(placeholder)
        self.paths[source, target] = path
        chain = [source, *path, target]
        for upper, lower in pairwise(chain):
            self._below[upper].append(lower)
            self._above[lower].append(upper)

    # ---- order -------------------------------------------------------------------------------

    def _reorder(self) -> None:
        """Order each layer by the average position of its neighbours; keep the best order found."""
        best, fewest = [list(row) for row in self.rows], self._crossings()
        for number in range(_ROUNDS):
            neighbours = self._above if number % 2 == 0 else self._below
            rows = self.rows if number % 2 == 0 else self.rows[::-1]
            places = self._places()
            for row in rows:
                row.sort(key=lambda item, found=neighbours, at=places: _average(  # type: ignore[misc]
                    [at[other] for other in found[item]], at[item]
                ))
                places.update({item: number for number, item in enumerate(row)})
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(row) for row in self.rows], crossings
        self.rows[:] = best

    def _places(self) -> dict[str, int]:
        return {item: number for row in self.rows for number, item in enumerate(row)}

    def _crossings(self) -> int:
        places = self._places()
        count = 0
        for row in self.rows:
            ends = [(places[item], places[lower]) for item in row for lower in self._below[item]]
            count += sum(
                1 for number, (left, right) in enumerate(ends) for other, lower in ends[:number]
                if (left - other) * (right - lower) < 0
            )
        return count

    # ---- positions ---------------------------------------------------------------------------

    def _place(self) -> None:
        """Move items towards the average of their neighbours, without overlaps."""
        for row in self.rows:
            left = 0.0
            for item in row:
                self.centres[item] = left + self._widths[item] / 2
                left += self._widths[item] + self._gap
        for number in range(_ROUNDS):
            neighbours = self._above if number % 2 == 0 else self._below
            for row in self.rows if number % 2 == 0 else self.rows[::-1]:
                wanted = {item: self._wanted(item, neighbours[item]) for item in row}
                if self._ports and number < _ROUNDS // 2:
                    # Edges end at different places of an item, which the order did not consider.
                    row.sort(key=wanted.__getitem__)
                self._spread(row, [wanted[item] for item in row])

    def _wanted(self, item: str, neighbours: Sequence[str]) -> float:
        """Where the edges of an item would be vertical, on average."""
        return _average([
            self.centres[other] + self._port(other, item) - self._port(item, other)
            for other in neighbours
        ], self.centres[item])

    def _port(self, item: str, other: str) -> float:
        return self._ports.get((item, _end(other)), 0.0)

    def _spread(self, row: list[str], wanted: Sequence[float]) -> None:
        """Place a layer close to the wanted positions: items in conflict move together."""
        # Blocks of touching items, by their numbers, and the left edge of each block.
        blocks: list[list[int]] = []
        lefts: list[float] = []
        for number in range(len(row)):
            blocks.append([number])
            lefts.append(wanted[number] - self._widths[row[number]] / 2)
            while len(blocks) > 1 and (
                lefts[-2] + self._length(row, blocks[-2]) + self._gap > lefts[-1]
            ):
                merged = blocks[-2] + blocks[-1]
                blocks[-2:] = [merged]
                lefts[-2:] = [self._best_left(row, merged, wanted)]
        for block, start in zip(blocks, lefts, strict=True):
            left = start
            for number in block:
                self.centres[row[number]] = left + self._widths[row[number]] / 2
                left += self._widths[row[number]] + self._gap

    def _length(self, row: list[str], block: list[int]) -> float:
        return sum(self._widths[row[n]] for n in block) + self._gap * (len(block) - 1)

    def _best_left(self, row: list[str], block: list[int], wanted: Sequence[float]) -> float:
        offset, wishes = 0.0, []
        for number in block:
            width = self._widths[row[number]]
            wishes.append(wanted[number] - width / 2 - offset)
            offset += width + self._gap
        return sum(wishes) / len(wishes)

    def bounds(self) -> tuple[float, float]:
        """The left and the right edge of all items."""
        halves = [(centre, self._widths[item] / 2) for item, centre in self.centres.items()]
        left = min((centre - half for centre, half in halves), default=0.0)
        return left, max((centre + half for centre, half in halves), default=0.0)


def _end(item: str) -> str:
    """The item at the lower end of the edge of a placeholder; otherwise the item itself."""
    return item.rpartition("@")[0].rpartition(">")[2] or item


def _average(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default
