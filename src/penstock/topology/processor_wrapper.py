"""Processors as `processor_wrapper` wants them (A7, KIP-1112).

A wrapper sees the supplier of every processor, also of the DSL's own, which are dressed up as
processors for it: their `process` takes a `Record` (of a table, with a `Change` as its value) and
they forward through the context they are given. Global and read-only stores are fed by
processors that are not wrapped, as in Kafka. Without a wrapper nothing of this runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.errors import StreamsException, TopologyException
from penstock.processors.base import Forward, NodeContext, Operator
from penstock.processors.stateless import Filter, FlatMapValues, MapValues, NullKeyFilter, Peek
from penstock.processors.user import UserProcessor, supplied_stores
from penstock.record import FixedKeyRecord, Headers, Record
from penstock.topology.default_serdes import DefaultSerdes, Deferred, resolved
from penstock.topology.nodes import ProcessorNode

#: Kafka makes these of fixed-key processors.
_FIXED_KEY = (Filter, NullKeyFilter, MapValues, FlatMapValues, Peek)


def wrapped(wrapper: Any, node: ProcessorNode) -> tuple[ProcessorNode, tuple[Any, ...]]:
    """The node with the supplier that the wrapper answers, and the stores it brings along."""
    operator = node.operator
    supplier: Any
    if isinstance(operator, UserProcessor):
        supplier, fixed_key = operator.supplier, operator.fixed_key
    else:
        fixed_key = isinstance(operator, _FIXED_KEY)
        supplier = OperatorSupplier(node.name, operator, fixed_key)
    wrap = (
        wrapper.wrap_fixed_key_processor_supplier if fixed_key else wrapper.wrap_processor_supplier
    )
    answer = wrap(node.name, supplier)
    if not callable(answer):
        raise TopologyException(
            f"{node.name}: the processor wrapper {type(wrapper).__name__} answered {answer!r}. "
            "It must answer a supplier: a function without arguments that makes a processor."
        )
    brought = supplied_stores(answer)
    names = {builder.name for builder in brought}
    # A wrapper need not hand on the stores of what it wraps.
    others = [builder for builder in supplied_stores(supplier) if builder.name not in names]
    return replace(node, operator=UserProcessor(answer, fixed_key)), (*brought, *others)


class OperatorSupplier:
    """Makes processors of a built-in operator."""

    def __init__(self, name: str, operator: Operator | Deferred, fixed_key: bool) -> None:
        self.name = name
        self.operator = operator
        self.fixed_key = fixed_key

    def __call__(self) -> OperatorProcessor:
        return OperatorProcessor(self)


class OperatorProcessor:
    """A built-in operator in the shape of a processor."""

    _process: Forward

    def __init__(self, supplier: OperatorSupplier) -> None:
        self._supplier = supplier

    def init(self, context: Any) -> None:
        """Set the operator up; what it forwards goes through `context`."""
        supplier = self._supplier
        node: Any = getattr(context, "node", None)
        if node is None:
            raise StreamsException(
                f"{supplier.name}: init() of a wrapped processor was given "
                f"{type(context).__name__}, which is not the context of the task. "
                "Give it the context that the wrapper's own init() got, or an object that hands "
                "on every attribute it does not have itself (__getattr__)."
            )
        operator: Operator = resolved(supplier.operator, DefaultSerdes(node.config))
        shape: Any = FixedKeyRecord if supplier.fixed_key else Record
        send = context.forward

        def forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            send(shape(key, value, timestamp, headers))

        inside: Any = _Inside(node, send, shape)
        self._process = operator.attach(inside, forward)

    def process(self, record: Any) -> None:
        """Do to a record what the operator does."""
        self._process(record.key, record.value, record.timestamp, record.headers)

    def close(self) -> None:
        """Nothing: what the operator wants closed, the task closes."""


class _Inside:
    """The node as a wrapped operator sees it: its children are reached through the context."""

    def __init__(self, node: NodeContext, send: Any, shape: Any) -> None:
        self._node = node
        self._send = send
        self._shape = shape

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def forward_to(self, child: str) -> Forward:
        self._node.forward_to(child)
        send, shape = self._send, self._shape

        def forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            send(shape(key, value, timestamp, headers), child)

        return forward

    def at_start(self, action: Any) -> None:
        # Processors are set up when all nodes are attached: this is the start.
        action()
