"""`KStream`: a stream of records. See `stream_operators` and `stream_joins` for its bases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.dsl.branched import BranchedKStream
from penstock.dsl.checks import as_serdes, check_partitioner, check_same_builder
from penstock.dsl.functions import check_function, key_value_function
from penstock.dsl.grouped import KGroupedStream
from penstock.dsl.inference import (
    merged_flow,
    processor_flow,
)
from penstock.dsl.known_options import lists_options
from penstock.dsl.options import Materialized, StoreOption, as_materialized
from penstock.dsl.plan_builder import AnySerde, NodeRef
from penstock.dsl.stream_joins import StreamJoins
from penstock.dsl.stream_operators import StreamOperators
from penstock.java_names import JavaNames
from penstock.processors.api import (
    FixedKeyProcessor,
    FixedKeyRecordProcessor,
    Processor,
    RecordProcessor,
)
from penstock.processors.stateless import (
    PassThrough,
    SelectKey,
)
from penstock.processors.user import UserProcessor
from penstock.serdes.base import SerdeOrType
from penstock.topology.default_serdes import only_written
from penstock.topology.naming import check_name
from penstock.topology.nodes import Partitioner, TopicNameExtractor
from penstock.topology.plan import SourceTable
from penstock.topology.plan_nodes import (
    OperatorNode,
    StreamSinkNode,
    ToTableNode,
    UserProcessorNode,
)
from penstock.topology.store_specs import KeyValueSpec

if TYPE_CHECKING:
    from penstock.dsl.table import KTable

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


@lists_options
class KStream(StreamOperators[K, V], StreamJoins[K, V], JavaNames, Generic[K, V]):
    """A stream of records with keys of type K and values of type V.

    Each method adds a step and returns the resulting stream; this stream is unchanged and can be
    used again. Functions take (key, value); a function with one parameter receives the value.
    `name=` names the step (Kafka: `Named`).
    """

    def __init__(self, ref: NodeRef) -> None:
        self._ref = ref

    def __repr__(self) -> str:
        return self._ref.describe("KStream")

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Split the stream into branches; see `BranchedKStream`.

        Args:
            name: The beginning of the names of all branches; generated if it is None.

        Returns:
            The branches, to be added.

        Example:
            orders.split().branch(lambda order: order.amount > 100).default_branch()

        Kafka: `KStream#split`
        """
        return BranchedKStream(self._ref, name, KStream)

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Return a stream of the records of both streams, in no particular order between them.

        Args:
            other: Another stream of the same builder.
            name: The name of the step; generated if it is None.

        Returns:
            The merged stream.

        Example:
            orders.merge(orders.filter(bool))

        Kafka: `KStream#merge`
        """
        step = self._name_step(name, "KSTREAM-MERGE-")
        if not isinstance(other, KStream):
            raise TypeError(
                f"{step}: merge takes a KStream, not {type(other).__name__}. "
                "Convert a table with to_stream()."
            )
        ref, other_ref = self._ref, other._ref
        check_same_builder(step, ref.builder, other_ref.builder)
        node = OperatorNode(name=step, operator=PassThrough(), merges=True)
        ref.builder.plan.add(node, ref.node, other_ref.node)
        return KStream(
            NodeRef(
                ref.builder, node, step, None, None, ref.sources | other_ref.sources,
                ref.rekeyed or other_ref.rekeyed,
                keys=merged_flow(ref.keys, other_ref.keys, "key", step),
                values=merged_flow(ref.values, other_ref.values, "value", step),
            )
        )

    # ---- topics ------------------------------------------------------------------------------

    def repartition(
        self,
        *,
        name: str | None = None,
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
    ) -> KStream[K, V]:
        """Write the records to an internal topic, partitioned by key, and read them from it.

        Args:
            name: The name of the topic, without `-repartition`; generated if it is None.
            key: The serde of the keys, or a type that has one; inferred if it is None.
            value: The serde of the values, or a type that has one; inferred if it is None.
            partitions: The number of partitions; by default that of the upstream topics.
            partitioner: A function of (topic, key, value, partitions).

        Returns:
            The repartitioned stream.

        Example:
            orders.repartition(partitions=4)

        Kafka: `KStream#repartition`
        """
        ref = self._ref
        base = name
        if base is None:
            base = ref.builder.names.next_processor_name("KSTREAM-REPARTITION-")
        if partitions is not None and (not isinstance(partitions, int) or partitions < 1):
            raise ValueError(f"{base}: partitions= must be at least 1, not {partitions!r}.")
        key_serde, value_serde = as_serdes(base, key=key, value=value)
        check_partitioner(base, partitioner)
        value_serde = value_serde if value_serde is not None else ref.value
        node = ref.builder.repartition(
            base,
            key_serde if key_serde is not None else ref.inferred_key("repartition("),
            ref.value_serde("repartition(", value_serde),
            given=name is not None, implied=False, partitioner=partitioner, partitions=partitions,
        )
        ref.builder.plan.add(node, ref.node)
        key_serde = key_serde if key_serde is not None else ref.key
        return KStream(
            NodeRef(
                ref.builder, node, node.name, key_serde, value_serde, frozenset((node.name,)),
                keys=ref.keys, values=ref.values,
            )
        )

    def to(
        self,
        topic: str | TopicNameExtractor,
        *,
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Write the records to a topic. This ends the stream.

        Args:
            topic: A name, or a function of (key, value, context) that returns one.
            key: The serde of the keys, or a type that has one; inferred if it is None.
            value: The serde of the values, or a type that has one; inferred if it is None.
            partitioner: A function of (topic, key, value, partitions).
            name: The name of the step; generated if it is None.

        Example:
            orders.to("copy")

        Kafka: `KStream#to`
        """
        ref = self._ref
        step = self._name_step(name, "KSTREAM-SINK-")
        if not isinstance(topic, str):
            if not callable(topic):
                raise TypeError(
                    f"{step}: to takes the name of a topic or a function that returns one, "
                    f"not {topic!r}. Call it once for each topic."
                )
            check_function(topic, 3, step=step, what="the function that names the topic")
        key_serde, value_serde = as_serdes(step, key=key, value=value)
        check_partitioner(step, partitioner)
        shown = repr(topic) if isinstance(topic, str) else "..."
        node = StreamSinkNode(
            name=step, topic=topic,
            key=only_written(ref.key_serde(f"to({shown}", key_serde)),
            value=only_written(ref.value_serde(f"to({shown}", value_serde)),
            partitioner=partitioner,
        )
        ref.builder.plan.add(node, ref.node)

    def to_table(
        self,
        *,
        name: str | None = None,
        store: StoreOption[K, V] = None,
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
    ) -> KTable[K, V]:
        """Return a table of the latest value of each key; a null value deletes the row.

        A stream with new keys is repartitioned.

        Args:
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.
            key: The serde of the keys, or a type that has one; inferred if it is None.
            value: The serde of the values, or a type that has one; inferred if it is None.

        Returns:
            The table.

        Example:
            orders.to_table(store="orders")

        Kafka: `KStream#toTable`
        """
        from penstock.dsl.table import KTable

        ref = self._ref
        step = self._name_step(name, "KSTREAM-TOTABLE-")
        requested = as_materialized(store, step=step)
        if requested is None:
            requested = Materialized(key=ref.key, value=ref.value)
        materialized, named = ref.builder.name_store(
            requested.with_serdes(*as_serdes(step, key=key, value=value)), "KSTREAM-TOTABLE-"
        )
        known = materialized.with_serdes(ref.key, ref.value)
        parent, sources = ref.node, ref.sources
        if ref.rekeyed:
            repartition = ref.builder.repartition(
                step,
                ref.key_serde("to_table(", known.key),
                ref.value_serde("to_table(", known.value),
                given=name is not None,
            )
            ref.builder.plan.add(repartition, ref.node)
            parent, sources = repartition, frozenset((repartition.name,))
        new_ref = NodeRef(
            ref.builder, ref.node, step, known.key, known.value, sources,
            keys=ref.keys, values=ref.values,
        )
        spec = KeyValueSpec(materialized, new_ref.fallback("to_table("))
        node = ToTableNode(name=step, table=step, store=spec, is_versioned=spec.is_versioned)
        ref.builder.plan.add(node, parent)
        ref.builder.plan.tables[step] = SourceTable(step, spec.name, named)
        new_ref.node = node
        return KTable(new_ref, step, spec.name if named else None)

    # ---- grouping ----------------------------------------------------------------------------

    def group_by_key(
        self,
        *,
        name: str | None = None,
        key: SerdeOrType[K] | None = None,
        value: SerdeOrType[V] | None = None,
    ) -> KGroupedStream[K, V]:
        """Group the records by key, for aggregations.

        Without options the serdes of the stream apply. With any option, serdes that are not given
        default to those of the configuration, as with Kafka's `Grouped`.

        Args:
            name: The name of the repartition topic, if there is one.
            key: The serde of the keys, or a type that has one; inferred if it is None.
            value: The serde of the values, or a type that has one; inferred if it is None.

        Returns:
            The grouped stream.

        Example:
            orders.group_by_key().count()

        Kafka: `KStream#groupByKey`
        """
        ref = self._ref
        if name is None and key is None and value is None:
            return KGroupedStream(ref, name, "group_by_key(")
        key_serde, value_serde = as_serdes(name or "group_by_key", key=key, value=value)
        new_ref = replace(ref, key=key_serde, value=value_serde)
        return KGroupedStream(new_ref, name, "group_by_key(")

    @overload
    def group_by(
        self, selector: Callable[[V], K2], *, name: str | None = None,
        key: SerdeOrType[K2] | None = None, value: SerdeOrType[V] | None = None,
    ) -> KGroupedStream[K2, V]: ...
    @overload
    def group_by(
        self, selector: Callable[[K, V], K2], *, name: str | None = None,
        key: SerdeOrType[K2] | None = None, value: SerdeOrType[V] | None = None,
    ) -> KGroupedStream[K2, V]: ...
    def group_by(
        self,
        selector: Callable[..., K2],
        *,
        name: str | None = None,
        key: SerdeOrType[K2] | None = None,
        value: SerdeOrType[V] | None = None,
    ) -> KGroupedStream[K2, V]:
        """Group the records by a new key. The stream is repartitioned.

        Args:
            selector: A function of (value) or (key, value) that returns the key.
            name: The name of the step and the repartition topic.
            key: The serde of the keys, or a type that has one; inferred if it is None.
            value: The serde of the values, or a type that has one; inferred if it is None.

        Returns:
            The grouped stream.

        Example:
            orders.group_by(lambda order: order.customer).count()

        Kafka: `KStream#groupBy`
        """
        ref = self._ref
        without_options = name is None and key is None and value is None
        step = self._name_step(name, "KSTREAM-KEY-SELECT-")
        function = key_value_function(selector, step=step, what="the key selector")
        node = OperatorNode(name=step, operator=SelectKey(function), key_changed=True)
        ref.builder.plan.add(node, ref.node)
        key_serde, value_serde = as_serdes(step, key=key, value=value)
        new_ref = NodeRef(
            ref.builder, node, step, key_serde, ref.value if without_options else value_serde,
            ref.sources, rekeyed=True, values=ref.values,
            keys=ref.result(selector, "key", "the key selector", step),
        )
        return KGroupedStream(new_ref, name, "group_by(...")

    # ---- user processors ---------------------------------------------------------------------

    @overload
    def process(
        self, supplier: Callable[[], Processor[K, V, K2, V2]], *stores: str,
        name: str | None = None,
    ) -> KStream[K2, V2]: ...
    @overload
    def process(
        self, supplier: Callable[[], RecordProcessor[K, V]], *stores: str, name: str | None = None
    ) -> KStream[Any, Any]: ...
    def process(
        self, supplier: Callable[[], RecordProcessor[K, V]], *stores: str, name: str | None = None
    ) -> KStream[Any, Any]:
        """Run a processor for each record and return the stream of the records it forwards.

        The processor may change keys, so later groupings and joins repartition the stream.

        Args:
            supplier: Returns a new processor at each call; a class works. Its attribute `stores`
                may list store builders to add.
            stores: Names of stores that were added to the builder.
            name: The name of the step; generated if it is None.

        Returns:
            The stream of forwarded records.

        Example:
            orders.process(Forward)

        Kafka: `KStream#process`
        """
        return self._add_processor(supplier, stores, name, fixed_key=False)

    @overload
    def process_values(
        self, supplier: Callable[[], FixedKeyProcessor[K, V, V2]], *stores: str,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def process_values(
        self, supplier: Callable[[], FixedKeyRecordProcessor[K, V]], *stores: str,
        name: str | None = None,
    ) -> KStream[K, Any]: ...
    def process_values(
        self, supplier: Callable[[], FixedKeyRecordProcessor[K, V]], *stores: str,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Run a processor that cannot change keys; see `process`. It gets a `FixedKeyRecord`.

        Args:
            supplier: Returns a new processor at each call; a class works.
            stores: Names of stores that were added to the builder.
            name: The name of the step; generated if it is None.

        Returns:
            The stream of forwarded records.

        Example:
            orders.process_values(ForwardValues)

        Kafka: `KStream#processValues`
        """
        return self._add_processor(supplier, stores, name, fixed_key=True)

    # ---- internals ---------------------------------------------------------------------------

    def _add_processor(
        self, supplier: Callable[[], Any], stores: tuple[str, ...], name: str | None,
        *, fixed_key: bool,
    ) -> KStream[Any, Any]:
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
                    f"{name}: stores are connected by name, not by {type(store).__name__}. "
                    "To add stores with the processor, list their builders in its attribute "
                    "`stores`."
                )
        node = UserProcessorNode(name=name, supplier=supplier, fixed_key=fixed_key, stores=stores)
        ref.builder.plan.add(node, ref.node)
        key: AnySerde = ref.key if fixed_key else None
        rekeyed = ref.rekeyed if fixed_key else True
        return KStream(
            NodeRef(
                ref.builder, node, name, key, None, ref.sources, rekeyed,
                keys=ref.keys if fixed_key else processor_flow(supplier, "key", name),
                values=processor_flow(supplier, "value", name),
            )
        )
