"""Applies `processor_wrapper` to processors (A7, KIP-1112).

A wrapper receives the supplier of each processor. The built-in operators of the DSL are adapted to
processors: `process` takes a `Record` (with a `Change` as the value of a table), and they forward
through the context that `init` receives. The processors of global and read-only stores are not
wrapped, as in Kafka. Without a wrapper, this module is not used.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.errors import StreamsException, TopologyException
from penstock.processors.base import Forward, NodeContext, Operator
from penstock.processors.stateless import Filter, FlatMapValues, MapValues, NullKeyFilter, Peek
from penstock.processors.user import UserProcessor, supplied_stores
from penstock.record import Headers, Record, fixed_key_record
from penstock.topology.default_serdes import DefaultSerdes, Deferred, resolve
from penstock.topology.nodes import ProcessorNode

#: In Kafka these operators are fixed-key processors.
_FIXED_KEY = (Filter, NullKeyFilter, MapValues, FlatMapValues, Peek)


def wrap_node(wrapper: Any, node: ProcessorNode) -> tuple[ProcessorNode, tuple[Any, ...]]:
    """Return the node with its wrapped supplier, and the stores that the supplier lists."""
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
    wrapped = wrap(node.name, supplier)
    if not callable(wrapped):
        raise TopologyException(
            f"{node.name}: the processor wrapper {type(wrapper).__name__} returned {wrapped!r}. "
            "It must return a supplier: a function without arguments that returns a processor."
        )
    stores = supplied_stores(wrapped)
    names = {builder.name for builder in stores}
    # A wrapper does not have to list the stores of the wrapped supplier.
    others = [builder for builder in supplied_stores(supplier) if builder.name not in names]
    return replace(node, operator=UserProcessor(wrapped, fixed_key)), (*stores, *others)


class OperatorSupplier:
    """Creates processors that run a built-in operator."""

    def __init__(self, name: str, operator: Operator | Deferred, fixed_key: bool) -> None:
        self.name = name
        self.operator = operator
        self.fixed_key = fixed_key

    def __call__(self) -> OperatorProcessor:
        return OperatorProcessor(self)


class OperatorProcessor:
    """Adapts a built-in operator to the interface of a processor."""

    _process: Forward

    def __init__(self, supplier: OperatorSupplier) -> None:
        self._supplier = supplier

    def init(self, context: Any) -> None:
        """Attach the operator; it forwards through `context`."""
        supplier = self._supplier
        node: Any = getattr(context, "node", None)
        if node is None:
            raise StreamsException(
                f"{supplier.name}: init() of a wrapped processor received a "
                f"{type(context).__name__}, which is not the context of the task. "
                "Pass the context that the wrapper's own init() received, or an object that "
                "delegates all other attributes to it with __getattr__."
            )
        operator: Operator = resolve(supplier.operator, DefaultSerdes(node.config))
        new_record: Any = fixed_key_record if supplier.fixed_key else Record
        send = context.forward

        def forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            send(new_record(key, value, timestamp, headers))

        operator_context: Any = _OperatorContext(node, send, new_record)
        self._process = operator.attach(operator_context, forward)

    def process(self, record: Any) -> None:
        """Run the operator for a record."""
        self._process(record.key, record.value, record.timestamp, record.headers)

    def close(self) -> None:
        """Do nothing: the task closes the resources of the operator."""


class _OperatorContext:
    """The node context of a wrapped operator; it forwards through the processor context."""

    def __init__(self, node: NodeContext, send: Any, new_record: Any) -> None:
        self._node = node
        self._send = send
        self._new_record = new_record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def forward_to(self, child: str) -> Forward:
        self._node.forward_to(child)
        send, new_record = self._send, self._new_record

        def forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            send(new_record(key, value, timestamp, headers), child)

        return forward

    def at_start(self, action: Any) -> None:
        # Processors are initialized when all nodes are attached, so this is the start.
        action()
