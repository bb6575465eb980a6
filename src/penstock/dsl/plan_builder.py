"""`PlanBuilder` collects the plan; `NodeRef` points at one of its nodes.

A `StreamsBuilder` and all streams and tables created from it share one `PlanBuilder`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from penstock.config import StreamsConfig
from penstock.dsl.functions import takes_key
from penstock.dsl.inference import Part, function_flow, serde_flow, unknown_flow, whole
from penstock.dsl.options import Materialized
from penstock.serdes.builtin import Serde
from penstock.topology.default_serdes import Fallback, Flow, InferredSerde, Which
from penstock.topology.naming import NameCounter, check_name
from penstock.topology.nodes import InternalTopic, Partitioner
from penstock.topology.plan import OldValuesRequest, Plan, TableRead
from penstock.topology.plan_nodes import PlanNode, RepartitionNode, repartition_node

#: A serde, or None for the configuration's default.
AnySerde = Serde[Any] | None
#: A serde, or the one that applies if there is none: the default, or what is known about the data.
NodeSerde = Serde[Any] | InferredSerde | None


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
        self.plan.generated_stores.add(name)
        self.plan.generated_names.append(f"store {name}")
        if materialized.logging:
            self.plan.generated_names.append(f"topic {name}-changelog")
        return replace(materialized, name=name), False

    def name_hidden_store(self, name: str, kept: str | None, *, given: bool) -> str:
        """Return the name of a store that `store=` does not name.

        `name` is Kafka's name for it; `given` if it follows from a name of the user. `kept` is the
        exact name that the user wants instead, usually that of an earlier version.
        """
        if kept is not None:
            return check_name(kept)
        if not given:
            self.plan.generated_stores.add(name)
        return name

    def repartition(
        self,
        name: str,
        key: NodeSerde,
        value: NodeSerde,
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
    co-partitioning. `key` and `value` are its serdes by the rules of Kafka Streams; None stands for
    the defaults of the configuration. `keys` and `values` say what is known about the data, for
    configurations without defaults.
    """

    builder: PlanBuilder
    node: PlanNode
    name: str
    key: AnySerde
    value: AnySerde
    sources: frozenset[str]
    #: The key has changed since the last repartition.
    rekeyed: bool = False
    keys: Flow = field(default=unknown_flow("Nothing is known about the keys."), kw_only=True)
    values: Flow = field(default=unknown_flow("Nothing is known about the values."), kw_only=True)

    def __post_init__(self) -> None:
        if self.key is not None:
            self.keys = serde_flow(self.key)
        if self.value is not None:
            self.values = serde_flow(self.value)

    def key_serde(self, call: str, given: AnySerde = None) -> NodeSerde:
        """Return the serde with which a step writes the keys.

        `given` is the serde given to the step, `call` the user's call up to it, for errors.
        """
        serde = given if given is not None else self.key
        return serde if serde is not None else self.inferred_key(call)

    def value_serde(self, call: str, given: AnySerde = None) -> NodeSerde:
        """Return the serde with which a step writes the values; see `key_serde`."""
        serde = given if given is not None else self.value
        return serde if serde is not None else self.inferred_value(call)

    def inferred_key(self, call: str) -> InferredSerde:
        """Return the key serde of a step that is given none and uses none of upstream."""
        return InferredSerde("key", self.keys, call)

    def inferred_value(self, call: str) -> InferredSerde:
        """Return the value serde of a step that is given none; see `inferred_key`."""
        return InferredSerde("value", self.values, call)

    def fallback(self, call: str) -> Fallback:
        """Return the serdes of a store of this node whose `Materialized` has none."""
        return Fallback(self.inferred_key(call), self.inferred_value(call))

    def result(
        self, function: Any, which: Which, what: str, step: str, part: Part = whole
    ) -> Flow:
        """Return the flow of the result of a function of (value) or (key, value)."""
        with_key = takes_key(function, step=step, what=what)
        arguments = (self.keys, self.values) if with_key else (self.values,)
        return function_flow(
            function, which, f"{what} of step '{step}'", *arguments, part=part, keys=int(with_key)
        )

    def describe(self, kind: str) -> str:
        """The `repr` of a stream, table or grouping: its step and the serdes that are known."""
        serdes = "".join(
            f", {which} {getattr(serde, 'name', type(serde).__name__)}"
            for which, serde in (("key", self.key), ("value", self.value)) if serde is not None
        )
        return f"<{kind} '{self.name}'{serdes}>"
