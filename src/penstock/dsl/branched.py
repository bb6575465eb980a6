"""`BranchedKStream`: the result of `KStream.split()`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.dsl.functions import key_value_function
from penstock.dsl.known_options import lists_options
from penstock.dsl.options import Branched
from penstock.dsl.plan_builder import NodeRef
from penstock.errors import TopologyException
from penstock.java_names import JavaNames
from penstock.processors.stateless import Branch, PassThrough
from penstock.topology.plan_nodes import OperatorNode

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream

K = TypeVar("K")
V = TypeVar("V")


@lists_options
class BranchedKStream(JavaNames, Generic[K, V]):
    """The branches of a split stream; a record goes to the first branch that accepts it.

    Add branches with `branch`, then call `default_branch` or `no_default_branch`. Both return the
    branches as a dictionary; its keys are the name of the split followed by that of the branch.
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
        """Add a branch for the records that the predicate accepts and no earlier branch took.

        Args:
            predicate: A function of (value) or (key, value).
            branched: The name of the branch, or a `Branched`. Without a name it is numbered.

        Returns:
            These branches.

        Example:
            orders.split().branch(lambda order: order.amount > 100, "large").no_default_branch()

        Kafka: `BranchedKStream#branch`
        """
        function = key_value_function(predicate, step=self._name, what="the predicate")
        operator = self._node.operator
        assert isinstance(operator, Branch)
        self._add_branch((*operator.predicates, function), branched, len(operator.predicates) + 1)
        return self

    def default_branch(
        self, branched: Branched[K, V] | str | None = None
    ) -> dict[str, KStream[K, V]]:
        """Add a branch for all other records.

        Args:
            branched: The name of the branch, or a `Branched`. Without a name it is numbered.

        Returns:
            All branches by name.

        Example:
            branches = orders.split(name="orders-").default_branch("rest")

        Kafka: `BranchedKStream#defaultBranch`
        """
        operator = self._node.operator
        assert isinstance(operator, Branch)
        self._add_branch(operator.predicates, branched, 0)
        return self._branches

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """Drop all other records.

        Returns:
            All branches by name.

        Example:
            orders.split().branch(bool).no_default_branch()

        Kafka: `BranchedKStream#noDefaultBranch`
        """
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
                f"{self._name} already has a default branch. "
                "Call branch() before default_branch(), and default_branch() once."
            )
        grown = replace(self._node, operator=Branch(predicates, (*operator.children, child)))
        builder.plan.replace(self._node, grown)
        self._node = grown
        node = OperatorNode(name=child, operator=PassThrough())
        builder.plan.add(node, grown)
        stream = self._stream(replace(ref, node=node, name=child))
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
