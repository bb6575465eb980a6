"""What has been said so far: the plan being made and the counter of names.

One `PlanBuilder` is shared by a `StreamsBuilder` and every stream and table that came from it.
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
from penstock.topology.plan import Demand, Plan, Reading
from penstock.topology.plan_nodes import PlanNode, Repartition, repartition_node

#: A serde, or None for the configuration's default.
AnySerde = Serde[Any] | None


class PlanBuilder:
    """The plan, the names handed out, and the configuration the builder was given, if any."""

    def __init__(self, config: StreamsConfig | None) -> None:
        self.config = config
        self.plan = Plan()
        self.names = NameCounter()
        #: Topics of foreign-key joins.
        self.internal_topics: list[InternalTopic] = []

    def wants_old_values(
        self, table: str, *, force: bool = True, by_filter: str | None = None
    ) -> None:
        """Ask a table for old values."""
        self.plan.events.append(Demand(table, force, by_filter))

    def reads(self, table: str) -> None:
        """Note that a table's rows are read."""
        self.plan.events.append(Reading(table))

    def copartition(self, *sources: frozenset[str]) -> frozenset[str]:
        """The sources of all these must have equally many partitions; answers their union."""
        union: frozenset[str] = frozenset().union(*sources)
        self.plan.copartitioned.append(union)
        return union

    def named_store(
        self, materialized: Materialized[Any, Any], prefix: str
    ) -> tuple[Materialized[Any, Any], bool]:
        """A materialization with a store name for sure, and whether the user gave it."""
        if materialized.store_name is not None:
            return materialized, True
        name = self.names.store(prefix)
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
    ) -> Repartition:
        """A hop through a topic. Its nodes are numbered, or named after a name that was given."""
        node = repartition_node(self.names, name, key, value)
        if not given:
            self.plan.generated_names.append(f"topic {node.topic}")
        return replace(node, partitioner=partitioner, partitions=partitions, implied=implied)


@dataclass
class NodeRef:
    """Where a stream, a grouping or a table stands in the plan.

    `name` is its step's name, `sources` are the source nodes of its sub-topology as far as known
    (for co-partitioning), `key` and `value` the serdes that are known for it.
    """

    said: PlanBuilder
    node: PlanNode
    name: str
    key: AnySerde
    value: AnySerde
    sources: frozenset[str]
    #: The key was changed since the records were last brought together by it.
    rekeyed: bool = False

    def __post_init__(self) -> None:
        check_serdes(self.name, key=self.key, value=self.value)
