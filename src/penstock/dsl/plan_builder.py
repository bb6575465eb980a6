"""`PlanBuilder` collects the plan; `NodeRef` points at one of its nodes.

A `StreamsBuilder` and all streams and tables created from it share one `PlanBuilder`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.config import StreamsConfig
from penstock.dsl.checks import check_serdes
from penstock.dsl.options import Materialized
from penstock.serdes.builtin import Serde
from penstock.topology.naming import NameCounter
from penstock.topology.nodes import InternalTopic, Partitioner
from penstock.topology.plan import OldValuesRequest, Plan, TableRead
from penstock.topology.plan_nodes import PlanNode, RepartitionNode, repartition_node

#: A serde, or None for the configuration's default.
AnySerde = Serde[Any] | None


class PlanBuilder:
    """The plan, the generator of names, and the configuration given to the builder, if any."""

    def __init__(self, config: StreamsConfig | None) -> None:
        self.config = config
        self.plan = Plan()
        self.names = NameCounter()
        #: Topics of foreign-key joins.
        self.internal_topics: list[InternalTopic] = []

    def require_old_values(
        self, table: str, *, force: bool = True, by_filter: str | None = None
    ) -> None:
        """Request old values from a table. See `OldValuesRequest` for `force` and `by_filter`."""
        self.plan.events.append(OldValuesRequest(table, force, by_filter))

    def add_table_read(self, table: str) -> None:
        """Record that an operator reads the table's rows."""
        self.plan.events.append(TableRead(table))

    def copartition(self, *sources: frozenset[str]) -> frozenset[str]:
        """Require equal partition counts for all these sources; return their union."""
        union: frozenset[str] = frozenset().union(*sources)
        self.plan.copartitioned.append(union)
        return union

    def name_store(
        self, materialized: Materialized[Any, Any], prefix: str
    ) -> tuple[Materialized[Any, Any], bool]:
        """Return the options with a store name, and whether the user chose that name."""
        if materialized.store_name is not None:
            return materialized, True
        name = self.names.next_store_name(prefix)
        self.plan.generated_names.append(f"store {name}")
        if materialized.logging:
            self.plan.generated_names.append(f"topic {name}-changelog")
        return replace(materialized, name=name), False

    def repartition(
        self,
        name: str,
        key: AnySerde,
        value: AnySerde,
        *,
        given: bool,
        implied: bool = True,
        partitioner: Partitioner | None = None,
        partitions: int | None = None,
    ) -> RepartitionNode:
        """Create a repartition node. `given`: the user chose the name.

        The node is not added to the plan, but it always consumes its numbers (F1).
        """
        node = repartition_node(self.names, name, key, value)
        if not given:
            self.plan.generated_names.append(f"topic {node.topic}")
        return replace(node, partitioner=partitioner, partitions=partitions, implied=implied)


@dataclass
class NodeRef:
    """The node in the plan behind a stream, a grouping or a table.

    `name` is the name of the step. `sources` are the known source nodes of its sub-topology, for
    co-partitioning. `key` and `value` are its serdes, as far as they are known.
    """

    builder: PlanBuilder
    node: PlanNode
    name: str
    key: AnySerde
    value: AnySerde
    sources: frozenset[str]
    #: The key has changed since the last repartition.
    rekeyed: bool = False

    def __post_init__(self) -> None:
        check_serdes(self.name, key=self.key, value=self.value)

    def describe(self, kind: str) -> str:
        """The `repr` of a stream, table or grouping: its step and the serdes that are known."""
        serdes = "".join(
            f", {which} {getattr(serde, 'name', type(serde).__name__)}"
            for which, serde in (("key", self.key), ("value", self.value)) if serde is not None
        )
        return f"<{kind} '{self.name}'{serdes}>"
