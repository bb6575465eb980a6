"""The plan: the steps of the DSL as a graph of frozen nodes, before any optimization.

The DSL adds nodes, `rules` rewrites copies of the graph, `lowering` turns it into a `Topology`. The
*priority* of a node is the sequence number of its last edge. Nodes are lowered in this order, which
determines the order of processing and the numbers of sub-topologies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.topology.locations import user_line
from penstock.topology.plan_nodes import PlanNode


@dataclass(frozen=True)
class SourceTable:
    """A table read from a topic, made from a stream, or the result of a foreign-key join.

    It is materialized if the user named its store, or if an operator reads it or needs its old
    values.
    """

    node: str
    store: str
    named: bool


@dataclass(frozen=True)
class AggregateTable:
    """The result of an aggregation: always materialized, so it can always send old values."""

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
    """The result of `suppress`."""

    node: str
    parent: str


TableInfo = SourceTable | AggregateTable | ViewTable | JoinedTable | SuppressedTable


@dataclass(frozen=True)
class OldValuesRequest:
    """An operator needs the old values of a table; `force` materializes the table if necessary."""

    table: str
    force: bool
    #: The filter that makes the request; it sends old values only if the request is granted.
    by_filter: str | None = None


@dataclass(frozen=True)
class TableRead:
    """An operator reads the rows of a table, which must therefore be materialized."""

    table: str


class Plan:
    """A graph of plan nodes below an implicit root, and its tables.

    Invariants: edges are stored in both directions; nodes are iterated in the order of their first
    addition; the priority of a node increases with every edge added to it.
    """

    def __init__(self) -> None:
        self._parents: dict[PlanNode, list[PlanNode]] = {}
        self._children: dict[PlanNode | None, list[PlanNode]] = {None: []}
        self._priority: dict[PlanNode, int] = {}
        self._next_priority = 0
        self.tables: dict[str, TableInfo] = {}
        #: Requests for old values and reads of tables, in the order of the user's calls.
        self.events: list[OldValuesRequest | TableRead] = []
        self.copartitioned: list[frozenset[str]] = []
        #: Generated names of topics and stores, for ensure_explicit_internal_resource_naming.
        self.generated_names: list[str] = []
        #: Name of a node -> the line of the user's program that added it.
        self.lines: dict[str, str] = {}
        #: Stores whose names contain a generated number, so that other steps can change them.
        self.generated_stores: set[str] = set()

    def copy(self) -> Plan:
        """Return a copy that a rule can change."""
        other = Plan()
        other._parents = {node: list(parents) for node, parents in self._parents.items()}
        other._children = {node: list(children) for node, children in self._children.items()}
        other._priority = dict(self._priority)
        other._next_priority = self._next_priority
        other.tables = dict(self.tables)
        other.events = list(self.events)
        other.copartitioned = list(self.copartitioned)
        other.generated_names = list(self.generated_names)
        other.lines = dict(self.lines)
        other.generated_stores = set(self.generated_stores)
        return other

    def add(self, node: PlanNode, *parents: PlanNode) -> None:
        """Attach a node below its parents, or below the root."""
        self.lines.setdefault(node.name, user_line())
        self._parents.setdefault(node, [])
        self._children.setdefault(node, [])
        for parent in parents or (None,):
            self.link(parent, node)
            self._priority[node] = self._next_priority
            self._next_priority += 1

    def link(self, parent: PlanNode | None, child: PlanNode) -> None:
        """Add an edge; an existing edge keeps its position."""
        if child not in self._children[parent]:
            self._children[parent].append(child)
        if parent is not None and parent not in self._parents[child]:
            self._parents[child].append(parent)

    def unlink(self, parent: PlanNode | None, child: PlanNode) -> None:
        """Remove an edge if it exists."""
        if child in self._children[parent]:
            self._children[parent].remove(child)
        if parent is not None and parent in self._parents[child]:
            self._parents[child].remove(parent)

    def insert(self, node: PlanNode, priority: int) -> None:
        """Add a node without edges, with a given priority."""
        self._parents[node] = []
        self._children[node] = []
        self._priority[node] = priority

    def replace(self, old: PlanNode, new: PlanNode) -> None:
        """Replace a node; edges and order stay the same."""

        def substitute(nodes: list[PlanNode]) -> list[PlanNode]:
            return [new if node is old else node for node in nodes]

        self._parents = {
            new if node is old else node: substitute(nodes) for node, nodes in self._parents.items()
        }
        self._children = {
            new if node is old else node: substitute(nodes)
            for node, nodes in self._children.items()
        }
        self._priority = {
            new if node is old else node: value for node, value in self._priority.items()
        }

    def parents(self, node: PlanNode) -> tuple[PlanNode, ...]:
        """Return the parents in the order of their edges, without the root."""
        return tuple(self._parents[node])

    def children(self, node: PlanNode | None) -> tuple[PlanNode, ...]:
        """Return the children in the order of their edges; None stands for the root."""
        return tuple(self._children[node])

    def priority(self, node: PlanNode) -> int:
        """Return the sequence number of the node's last edge."""
        return self._priority[node]

    def __iter__(self) -> Iterator[PlanNode]:
        """Iterate over all nodes in the order of their first addition."""
        return iter(self._parents)
