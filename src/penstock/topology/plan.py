"""The plan: what the user said, as a graph of frozen nodes, before anything is optimized.

The DSL adds nodes; `rules` rewrite copies of the graph; `lowering` turns it into a `Topology`. A
node's *priority* is the order in which it was last attached to a parent: nodes are lowered in that
order, which decides both the order of processing and what a sub-topology's number is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.topology.plan_nodes import PlanNode


@dataclass(frozen=True)
class SourceTable:
    """A table read from a topic, or made of a stream, or the result of a foreign-key join.

    It is materialized if the user named its store, or as soon as something reads it or needs its
    old values.
    """

    node: str
    store: str
    named: bool


@dataclass(frozen=True)
class AggregateTable:
    """The result of an aggregation: always materialized, always able to send old values."""

    nodes: tuple[str, ...]
    store: str


@dataclass(frozen=True)
class ViewTable:
    """A table computed row by row from its parent (filter, map_values, transform_values)."""

    node: str
    parent: str
    store: str | None


@dataclass(frozen=True)
class JoinedTable:
    """The result of a join of two tables on their keys."""

    node: str
    sides: tuple[str, str]
    tables: tuple[str, str]
    store: str | None


@dataclass(frozen=True)
class SuppressedTable:
    """A table whose changes are held back."""

    node: str
    parent: str


TableInfo = SourceTable | AggregateTable | ViewTable | JoinedTable | SuppressedTable


@dataclass(frozen=True)
class OldValuesRequest:
    """Something asks a table for its old values; `force` makes it materialize for that."""

    table: str
    force: bool
    #: The filter that asks, if it sends old values itself only when it can have them.
    by_filter: str | None = None


@dataclass(frozen=True)
class TableRead:
    """Something reads a table's rows, so that it must be materialized."""

    table: str


class Plan:
    """A graph of plan nodes below an invisible root, and what is known of its tables.

    Invariants: edges are kept in both directions; `first_added` never changes for a node,
    `priority` grows with every edge added to it.
    """

    def __init__(self) -> None:
        self._parents: dict[PlanNode, list[PlanNode]] = {}
        self._children: dict[PlanNode | None, list[PlanNode]] = {None: []}
        self._priority: dict[PlanNode, int] = {}
        self._next_priority = 0
        self.tables: dict[str, TableInfo] = {}
        #: Demands and readings in the order in which the user's calls caused them.
        self.events: list[OldValuesRequest | TableRead] = []
        self.copartitioned: list[frozenset[str]] = []
        #: Names of topics and stores that were generated, for those who want none (KIP-1111).
        self.generated_names: list[str] = []

    def copy(self) -> Plan:
        """A plan that a rule may change."""
        other = Plan()
        other._parents = {node: list(parents) for node, parents in self._parents.items()}
        other._children = {node: list(children) for node, children in self._children.items()}
        other._priority = dict(self._priority)
        other._next_priority = self._next_priority
        other.tables = dict(self.tables)
        other.events = list(self.events)
        other.copartitioned = list(self.copartitioned)
        other.generated_names = list(self.generated_names)
        return other

    def add(self, node: PlanNode, *parents: PlanNode) -> None:
        """Attach a node below its parents, below the root if there are none."""
        self._parents.setdefault(node, [])
        self._children.setdefault(node, [])
        for parent in parents or (None,):
            self.link(parent, node)
            self._priority[node] = self._next_priority
            self._next_priority += 1

    def link(self, parent: PlanNode | None, child: PlanNode) -> None:
        """Add an edge; an edge that is there already stays where it is."""
        if child not in self._children[parent]:
            self._children[parent].append(child)
        if parent is not None and parent not in self._parents[child]:
            self._parents[child].append(parent)

    def unlink(self, parent: PlanNode | None, child: PlanNode) -> None:
        """Remove an edge if it is there."""
        if child in self._children[parent]:
            self._children[parent].remove(child)
        if parent is not None and parent in self._parents[child]:
            self._parents[child].remove(parent)

    def insert(self, node: PlanNode, priority: int) -> None:
        """A node without edges, to be lowered at a given place."""
        self._parents[node] = []
        self._children[node] = []
        self._priority[node] = priority

    def replace(self, old: PlanNode, new: PlanNode) -> None:
        """Put a node in the place of another: same edges, same order."""

        def swapped(nodes: list[PlanNode]) -> list[PlanNode]:
            return [new if node is old else node for node in nodes]

        self._parents = {
            new if node is old else node: swapped(nodes) for node, nodes in self._parents.items()
        }
        self._children = {
            new if node is old else node: swapped(nodes) for node, nodes in self._children.items()
        }
        self._priority = {
            new if node is old else node: value for node, value in self._priority.items()
        }

    def parents(self, node: PlanNode) -> tuple[PlanNode, ...]:
        """The parents in the order of their edges; the root is not one."""
        return tuple(self._parents[node])

    def children(self, node: PlanNode | None) -> tuple[PlanNode, ...]:
        """The children in the order of their edges; of the root for None."""
        return tuple(self._children[node])

    def priority(self, node: PlanNode) -> int:
        """When the node was last attached."""
        return self._priority[node]

    def __iter__(self) -> Iterator[PlanNode]:
        """All nodes in the order in which they were first added."""
        return iter(self._parents)
