"""`BranchedKStream`: what `split()` gives, until its branches are all named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.dsl.functions import key_value_function
from penstock.dsl.options import Branched
from penstock.dsl.plan_builder import NodeRef
from penstock.errors import TopologyException
from penstock.processors.stateless import Branch, PassThrough
from penstock.topology.plan_nodes import OperatorNode

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream

K = TypeVar("K")
V = TypeVar("V")


class BranchedKStream(Generic[K, V]):
    """Branches of a stream; a record goes down the first one whose predicate accepts it.

    Finish with `default_branch()` or `no_default_branch()`: both answer the streams by name.
    """

    def __init__(
        self, ref: NodeRef, name: str | None, stream: Callable[[NodeRef], KStream[K, V]]
    ) -> None:
        builder = ref.builder
        self._ref = ref
        self._stream = stream
        self._name = builder.names.given_or_next(name, "KSTREAM-BRANCH-")
        self._node = OperatorNode(name=self._name, operator=Branch((), ()))
        self._branches: dict[str, KStream[K, V]] = {}
        builder.plan.add(self._node, ref.node)

    @overload
    def branch(
        self, predicate: Callable[[V], object], branched: Branched[K, V] | str | None = None
    ) -> BranchedKStream[K, V]: ...
    @overload
    def branch(
        self, predicate: Callable[[K, V], object], branched: Branched[K, V] | str | None = None
    ) -> BranchedKStream[K, V]: ...
    def branch(
        self, predicate: Callable[..., Any], branched: Branched[K, V] | str | None = None
    ) -> BranchedKStream[K, V]:
        """Records the predicate accepts, unless an earlier branch took them."""
        function = key_value_function(predicate, step=self._name, what="the predicate")
        operator = self._node.operator
        assert isinstance(operator, Branch)
        self._add_branch((*operator.predicates, function), branched, len(operator.predicates) + 1)
        return self

    def default_branch(
        self, branched: Branched[K, V] | str | None = None
    ) -> dict[str, KStream[K, V]]:
        """Everything else; answers all branches by their names."""
        operator = self._node.operator
        assert isinstance(operator, Branch)
        self._add_branch(operator.predicates, branched, 0)
        return self._branches

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """What no branch took is dropped; answers all branches by their names."""
        return self._branches

    def _add_branch(
        self,
        predicates: tuple[Callable[[Any, Any], bool], ...],
        branched: Branched[K, V] | str | None,
        number: int,
    ) -> None:
        if not isinstance(branched, Branched):
            branched = Branched(branched)
        ref = self._ref
        builder = ref.builder
        child = self._name + (branched.name if branched.name is not None else str(number))
        builder.names.next_processor_name(child)
        operator = self._node.operator
        assert isinstance(operator, Branch)
        if len(operator.children) > len(operator.predicates):
            raise TopologyException(
                f"{self._name}: the default branch is there already. Say branch() before it, and "
                "default_branch() once."
            )
        grown = replace(self._node, operator=Branch(predicates, (*operator.children, child)))
        builder.plan.replace(self._node, grown)
        self._node = grown
        node = OperatorNode(name=child, operator=PassThrough())
        builder.plan.add(node, grown)
        stream = self._stream(
            NodeRef(builder, node, child, ref.key, ref.value, ref.sources, ref.rekeyed)
        )
        self._apply_branched(child, stream, branched)

    def _apply_branched(self, child: str, stream: KStream[K, V], branched: Branched[K, V]) -> None:
        if branched.function is not None:
            result = branched.function(stream)
            if result is not None:
                self._branches[child] = result
        elif branched.consumer is not None:
            branched.consumer(stream)
        else:
            self._branches[child] = stream
