"""The serdes of a topic that a source reads."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.dsl.inference import serde_flow, source_flow
from penstock.dsl.plan_builder import AnySerde, NodeRef, NodeSerde, PlanBuilder
from penstock.topology.default_serdes import Fallback, Flow, InferredSerde, Which
from penstock.topology.plan_nodes import PlanNode


@dataclass(frozen=True)
class SourceSerdes:
    """The serdes given to a source, and what applies without them.

    `call` is the user's call up to its serdes, for errors: "stream('orders'".
    """

    call: str
    key: AnySerde
    value: AnySerde

    @property
    def keys(self) -> Flow:
        """The knowledge about the keys."""
        return self._flow("key", self.key)

    @property
    def values(self) -> Flow:
        """The knowledge about the values."""
        return self._flow("value", self.value)

    @property
    def key_of_node(self) -> NodeSerde:
        """The key serde of the source node."""
        return self.key if self.key is not None else self._inferred("key", self.keys)

    @property
    def value_of_node(self) -> NodeSerde:
        """The value serde of the source node."""
        return self.value if self.value is not None else self._inferred("value", self.values)

    @property
    def fallback(self) -> Fallback:
        """The serdes of the store of a table, if none are given."""
        return Fallback(
            self._inferred("key", self.keys), self._inferred("value", self.values)
        )

    def ref(self, builder: PlanBuilder, node: PlanNode, sources: frozenset[str]) -> NodeRef:
        """Return the reference to the source node."""
        return NodeRef(
            builder, node, node.name, self.key, self.value, sources,
            keys=self.keys, values=self.values,
        )

    def _flow(self, which: Which, serde: AnySerde) -> Flow:
        return source_flow(which, f"{self.call})") if serde is None else serde_flow(serde)

    def _inferred(self, which: Which, flow: Flow) -> InferredSerde:
        return InferredSerde(which, flow, self.call)
