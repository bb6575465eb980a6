"""Processors of the user on a stream: `process` and `process_values`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.dsl.plan_builder import AnySerde, NodeRef
from penstock.processors.api import FixedKeyRecordProcessor, RecordProcessor
from penstock.processors.user import UserProcessor
from penstock.topology.naming import check_name
from penstock.topology.plan_nodes import UserProcessorNode

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream

K = TypeVar("K")
V = TypeVar("V")


class StreamProcessing(Generic[K, V]):
    """The part of `KStream` that runs processors of the user."""

    _ref: NodeRef

    def process(
        self, supplier: Callable[[], RecordProcessor[K, V]], *stores: str, name: str | None = None
    ) -> KStream[Any, Any]:
        """Run a processor; it may forward records with any key, so a grouping repartitions.

        `supplier` makes a new processor at every call (a class will do) and may bring stores along
        as its `stores`. `stores` names stores that were added to the builder.
        """
        return self._add_processor(supplier, stores, name, fixed_key=False)

    def process_values(
        self, supplier: Callable[[], FixedKeyRecordProcessor[K, V]], *stores: str,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Run a processor that cannot change keys."""
        return self._add_processor(supplier, stores, name, fixed_key=True)

    def _add_processor(
        self, supplier: Callable[[], Any], stores: tuple[str, ...], name: str | None,
        *, fixed_key: bool,
    ) -> KStream[Any, Any]:
        from penstock.dsl.stream import KStream

        ref = self._ref
        if name is None:
            prefix = "KSTREAM-PROCESSVALUES-" if fixed_key else "KSTREAM-PROCESSOR-"
            name = ref.builder.names.next_processor_name(prefix)
        else:
            check_name(name)
        UserProcessor.checked(supplier, step=name)
        for store in stores:
            if not isinstance(store, str):
                raise TypeError(
                    f"{name}: stores are connected by their names, not by {type(store).__name__}; "
                    "a processor that brings its own stores has them as `stores`."
                )
        node = UserProcessorNode(name=name, supplier=supplier, fixed_key=fixed_key, stores=stores)
        ref.builder.plan.add(node, ref.node)
        key: AnySerde = ref.key if fixed_key else None
        rekeyed = ref.rekeyed if fixed_key else True
        return KStream(NodeRef(ref.builder, node, name, key, None, ref.sources, rekeyed))
