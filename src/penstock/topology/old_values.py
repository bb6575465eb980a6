"""What follows from a whole plan: who sends old values, what is materialized, what is versioned."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.topology.plan import (
    AggregateTable,
    JoinedTable,
    OldValuesRequest,
    Plan,
    SourceTable,
    SuppressedTable,
    ViewTable,
)
from penstock.topology.plan_nodes import PlanNode


@dataclass
class OldValues:
    """Which nodes send old values, and which source tables must be kept in a store.

    Demands are taken in the order in which the user's calls made them: a filter gets old values
    for nothing only if its parent is materialized already when the filter is attached (C1).
    """

    plan: Plan
    #: Names of nodes that send old values.
    sending: set[str] = field(default_factory=set)
    #: Names of source tables that are kept in a store.
    materialized: set[str] = field(default_factory=set)
    _granted: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, plan: Plan) -> OldValues:
        """Go through all demands and readings of the plan."""
        facts = cls(plan)
        for table, fact in plan.tables.items():
            if isinstance(fact, SourceTable) and fact.named:
                facts.materialized.add(table)
        for event in plan.events:
            if not isinstance(event, OldValuesRequest):
                facts._read(event.table)
            elif facts._grant(event.table, event.force) and event.by_filter is not None:
                facts.sending.add(event.by_filter)
        return facts

    def _grant(self, table: str, force: bool) -> bool:
        """Make a table send old values; False if it could only by being materialized."""
        if table in self._granted:
            return True
        fact = self.plan.tables[table]
        if isinstance(fact, SourceTable):
            if not force and table not in self.materialized:
                return False
            self.materialized.add(table)
            self.sending.add(fact.node)
        elif isinstance(fact, AggregateTable):
            self.sending.update(fact.nodes)
        elif isinstance(fact, JoinedTable):
            self.sending.update((fact.node, *fact.sides))
            for side in fact.tables:
                self._grant(side, True)
        elif isinstance(fact, SuppressedTable):
            if not self._grant(fact.parent, force):
                return False
        else:
            if fact.store is not None or self._grant(fact.parent, force):
                self.sending.add(fact.node)
            if fact.node not in self.sending:
                return False
        self._granted.add(table)
        return True

    def _read(self, table: str) -> None:
        """Materialize what must be there for the table's rows to be read."""
        fact = self.plan.tables[table]
        if isinstance(fact, SourceTable):
            self.materialized.add(table)
        elif isinstance(fact, SuppressedTable) or (
            isinstance(fact, ViewTable) and fact.store is None
        ):
            self._read(fact.parent)
        elif isinstance(fact, JoinedTable) and fact.store is None:
            for side in fact.tables:
                self._read(side)


def is_versioned(plan: Plan, node: PlanNode) -> bool:
    """Whether the table that leaves a node is versioned: as it says, or as all its parents are."""
    if node.versioned is not None:
        return node.versioned
    return reads_versioned(plan, node)


def reads_versioned(plan: Plan, node: PlanNode) -> bool:
    """Whether all that reaches a node is versioned."""
    parents = plan.parents(node)
    return bool(parents) and all(is_versioned(plan, parent) for parent in parents)
