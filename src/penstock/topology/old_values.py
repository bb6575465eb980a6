"""Properties that depend on the whole plan: which tables send old values, which are materialized or
versioned."""

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

    Requests are processed in the order of the user's calls: a filter gets old values without
    forcing a store only if its parent is already materialized at that point (C1).
    """

    plan: Plan
    #: Names of nodes that send old values.
    sending: set[str] = field(default_factory=set)
    #: Names of source tables that are kept in a store.
    materialized: set[str] = field(default_factory=set)
    _enabled: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, plan: Plan) -> OldValues:
        """Process all requests and reads of the plan."""
        old_values = cls(plan)
        for name, table in plan.tables.items():
            if isinstance(table, SourceTable) and table.named:
                old_values.materialized.add(name)
        for event in plan.events:
            if not isinstance(event, OldValuesRequest):
                old_values._materialize(event.table)
            elif old_values._enable(event.table, event.force) and event.by_filter is not None:
                old_values.sending.add(event.by_filter)
        return old_values

    def _enable(self, name: str, force: bool) -> bool:
        """Make a table send old values; False if this needs a store and `force` is not set."""
        if name in self._enabled:
            return True
        table = self.plan.tables[name]
        if isinstance(table, SourceTable):
            if not force and name not in self.materialized:
                return False
            self.materialized.add(name)
            self.sending.add(table.node)
        elif isinstance(table, AggregateTable):
            self.sending.update(table.nodes)
        elif isinstance(table, JoinedTable):
            self.sending.update((table.node, *table.sides))
            for side in table.tables:
                self._enable(side, True)
        elif isinstance(table, SuppressedTable):
            if not self._enable(table.parent, force):
                return False
        else:
            if table.store is not None or self._enable(table.parent, force):
                self.sending.add(table.node)
            if table.node not in self.sending:
                return False
        self._enabled.add(name)
        return True

    def _materialize(self, name: str) -> None:
        """Materialize the source tables that are needed to read the rows of a table."""
        table = self.plan.tables[name]
        if isinstance(table, SourceTable):
            self.materialized.add(name)
        elif isinstance(table, SuppressedTable) or (
            isinstance(table, ViewTable) and table.store is None
        ):
            self._materialize(table.parent)
        elif isinstance(table, JoinedTable) and table.store is None:
            for side in table.tables:
                self._materialize(side)


def is_versioned(plan: Plan, node: PlanNode) -> bool:
    """Return whether the output of a node is a versioned table."""
    if node.versioned is not None:
        return node.versioned
    return reads_versioned(plan, node)


def reads_versioned(plan: Plan, node: PlanNode) -> bool:
    """Return whether all parents of a node are versioned tables."""
    parents = plan.parents(node)
    return bool(parents) and all(is_versioned(plan, parent) for parent in parents)
