"""`KStream`: a stream of independent records. Its joins are in `stream_joins`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.dsl.branched import BranchedKStream
from penstock.dsl.checks import check_partitioner, check_same_builder, check_serdes
from penstock.dsl.functions import check_function, key_value_function, takes_key
from penstock.dsl.grouped import KGroupedStream
from penstock.dsl.options import Materialized, Printed, StoreOption, as_materialized
from penstock.dsl.plan_builder import AnySerde, NodeRef
from penstock.dsl.stream_joins import StreamJoins
from penstock.java_names import JavaNames
from penstock.processors.api import FixedKeyRecordProcessor, RecordProcessor
from penstock.processors.stateless import (
    Filter,
    FlatMap,
    FlatMapValues,
    Foreach,
    Map,
    MapValues,
    PassThrough,
    Peek,
    Print,
    SelectKey,
    key_and_value,
)
from penstock.processors.user import UserProcessor, check_not_async
from penstock.serdes.builtin import Serde
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


class KStream(StreamJoins[K, V], JavaNames, Generic[K, V]):
    """A stream of records with keys of type K and values of type V.

    Each method adds a step and returns the resulting stream; this stream is unchanged and can be
    used again. Functions take (key, value); a function with one parameter receives the value.
    `name=` names the step (Kafka: `Named`).
    """

    def __init__(self, ref: NodeRef) -> None:
        self._ref = ref

    def __repr__(self) -> str:
        return self._ref.describe("KStream")

    # ---- stateless operators -----------------------------------------------------------------

    @overload
    def filter(
        self, predicate: Callable[[V], object], *, name: str | None = None
    ) -> KStream[K, V]: ...
    @overload
    def filter(
        self, predicate: Callable[[K, V], object], *, name: str | None = None
    ) -> KStream[K, V]: ...
    def filter(self, predicate: Callable[..., Any], *, name: str | None = None) -> KStream[K, V]:
        """Keep the records for which the predicate is true."""
        return self._add_filter(predicate, name, negate=False)

    @overload
    def filter_not(
        self, predicate: Callable[[V], object], *, name: str | None = None
    ) -> KStream[K, V]: ...
    @overload
    def filter_not(
        self, predicate: Callable[[K, V], object], *, name: str | None = None
    ) -> KStream[K, V]: ...
    def filter_not(
        self, predicate: Callable[..., Any], *, name: str | None = None
    ) -> KStream[K, V]:
        """Drop the records for which the predicate is true."""
        return self._add_filter(predicate, name, negate=True)

    @overload
    def select_key(
        self, selector: Callable[[V], K2], *, name: str | None = None
    ) -> KStream[K2, V]: ...
    @overload
    def select_key(
        self, selector: Callable[[K, V], K2], *, name: str | None = None
    ) -> KStream[K2, V]: ...
    def select_key(
        self, selector: Callable[..., K2], *, name: str | None = None
    ) -> KStream[K2, V]:
        """Replace the key of each record. Later groupings and joins repartition the stream."""
        step = self._name_step(name, "KSTREAM-KEY-SELECT-")
        function = key_value_function(selector, step=step, what="the key selector")
        return self._add_step(step, SelectKey(function), key_changed=True, value=self._ref.value)

    @overload
    def map_values(
        self, mapper: Callable[[V], V2], *, name: str | None = None
    ) -> KStream[K, V2]: ...
    @overload
    def map_values(
        self, mapper: Callable[[K, V], V2], *, name: str | None = None
    ) -> KStream[K, V2]: ...
    def map_values(
        self, mapper: Callable[..., V2], *, name: str | None = None
    ) -> KStream[K, V2]:
        """Replace the value of each record; the key, and so the partitioning, stays the same."""
        step = self._name_step(name, "KSTREAM-MAPVALUES-")
        with_key = takes_key(mapper, step=step, what="the mapper")
        return self._add_step(
            step, MapValues(mapper, with_key), value_changed=True, key=self._ref.key
        )

    @overload
    def map(
        self, mapper: Callable[[V], tuple[K2, V2]], *, name: str | None = None
    ) -> KStream[K2, V2]: ...
    @overload
    def map(
        self, mapper: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None
    ) -> KStream[K2, V2]: ...
    def map(
        self, mapper: Callable[..., tuple[K2, V2]], *, name: str | None = None
    ) -> KStream[K2, V2]:
        """Replace key and value of each record; `mapper` returns a (key, value) pair.

        Later groupings and joins repartition the stream. Prefer `map_values` if keys stay the same.
        """
        step = self._name_step(name, "KSTREAM-MAP-")
        function = key_value_function(mapper, step=step, what="the mapper")
        return self._add_step(step, Map(function), key_changed=True)

    @overload
    def flat_map(
        self, mapper: Callable[[V], Iterable[tuple[K2, V2]]], *, name: str | None = None
    ) -> KStream[K2, V2]: ...
    @overload
    def flat_map(
        self, mapper: Callable[[K, V], Iterable[tuple[K2, V2]]], *, name: str | None = None
    ) -> KStream[K2, V2]: ...
    def flat_map(
        self, mapper: Callable[..., Iterable[tuple[K2, V2]]], *, name: str | None = None
    ) -> KStream[K2, V2]:
        """Replace each record by any number of records; `mapper` returns (key, value) pairs.

        Later groupings and joins repartition the stream.
        """
        step = self._name_step(name, "KSTREAM-FLATMAP-")
        function = key_value_function(mapper, step=step, what="the mapper")
        return self._add_step(step, FlatMap(function), key_changed=True)

    @overload
    def flat_map_values(
        self, mapper: Callable[[V], Iterable[V2]], *, name: str | None = None
    ) -> KStream[K, V2]: ...
    @overload
    def flat_map_values(
        self, mapper: Callable[[K, V], Iterable[V2]], *, name: str | None = None
    ) -> KStream[K, V2]: ...
    def flat_map_values(
        self, mapper: Callable[..., Iterable[V2]], *, name: str | None = None
    ) -> KStream[K, V2]:
        """Replace each record by any number of records with its key; `mapper` returns values."""
        step = self._name_step(name, "KSTREAM-FLATMAPVALUES-")
        with_key = takes_key(mapper, step=step, what="the mapper")
        return self._add_step(
            step, FlatMapValues(mapper, with_key), value_changed=True, key=self._ref.key
        )

    @overload
    def peek(
        self, action: Callable[[V], object], *, name: str | None = None
    ) -> KStream[K, V]: ...
    @overload
    def peek(
        self, action: Callable[[K, V], object], *, name: str | None = None
    ) -> KStream[K, V]: ...
    def peek(self, action: Callable[..., object], *, name: str | None = None) -> KStream[K, V]:
        """Call `action` for each record and forward the record unchanged."""
        step = self._name_step(name, "KSTREAM-PEEK-")
        function = key_value_function(action, step=step, what="the action")
        return self._add_type_preserving_step(step, Peek(function))

    @overload
    def foreach(self, action: Callable[[V], object], *, name: str | None = None) -> None: ...
    @overload
    def foreach(self, action: Callable[[K, V], object], *, name: str | None = None) -> None: ...
    def foreach(self, action: Callable[..., object], *, name: str | None = None) -> None:
        """Call `action` for each record. This ends the stream."""
        step = self._name_step(name, "KSTREAM-FOREACH-")
        function = key_value_function(action, step=step, what="the action")
        self._add_type_preserving_step(step, Foreach(function))

    def print(self, printed: Printed[K, V] | None = None) -> None:
        """Print each record, by default as `[step]: key, value` to standard output.

        Lines appear when their batch is committed. This ends the stream.
        """
        printed = printed if printed is not None else Printed()
        if not isinstance(printed, Printed):
            raise TypeError(
                f"{self._ref.name}: print takes a Printed, not {type(printed).__name__}. "
                "Printed(label), for example."
            )
        step = self._name_step(printed.name, "KSTREAM-PRINTER-")
        label = printed.label if printed.label is not None else self._ref.name
        mapper = printed.mapper if printed.mapper is not None else key_and_value
        check_not_async(mapper, f"{step}: the mapper")
        self._add_type_preserving_step(step, Print(label, mapper, printed.file))

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Split the stream into branches; see `BranchedKStream`."""
        return BranchedKStream(self._ref, name, KStream)

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Return a stream of the records of both streams, in no particular order between them."""
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
            )
        )

    # ---- topics ------------------------------------------------------------------------------

    def repartition(
        self,
        *,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
    ) -> KStream[K, V]:
        """Write the records to an internal topic, partitioned by key, and read them from it.

        `partitions` defaults to the partition count of the upstream topics; `partitioner` is a
        function of (topic, key, value, partitions). Kafka: `Repartitioned`.
        """
        ref = self._ref
        base = name
        if base is None:
            base = ref.builder.names.next_processor_name("KSTREAM-REPARTITION-")
        if partitions is not None and (not isinstance(partitions, int) or partitions < 1):
            raise ValueError(f"{base}: partitions= must be at least 1, not {partitions!r}.")
        check_serdes(base, key=key, value=value)
        check_partitioner(base, partitioner)
        value_serde = value if value is not None else ref.value
        node = ref.builder.repartition(
            base, key, value_serde, given=name is not None, implied=False,
            partitioner=partitioner, partitions=partitions,
        )
        ref.builder.plan.add(node, ref.node)
        key_serde = key if key is not None else ref.key
        return KStream(
            NodeRef(ref.builder, node, node.name, key_serde, value_serde, frozenset((node.name,)))
        )

    def to(
        self,
        topic: str | TopicNameExtractor,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Write the records to a topic.

        `topic` is a name, or a function of (key, value, context) that returns one. `partitioner` is
        a function of (topic, key, value, partitions). Kafka: `Produced`.
        """
        ref = self._ref
        step = self._name_step(name, "KSTREAM-SINK-")
        if not isinstance(topic, str):
            check_function(topic, 3, step=step, what="the function that names the topic")
        check_serdes(step, key=key, value=value)
        check_partitioner(step, partitioner)
        node = StreamSinkNode(
            name=step, topic=topic, key=key if key is not None else ref.key,
            value=value if value is not None else ref.value, partitioner=partitioner,
        )
        ref.builder.plan.add(node, ref.node)

    def to_table(
        self,
        *,
        name: str | None = None,
        store: StoreOption[K, V] = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KTable[K, V]:
        """Return a table of the latest value of each key; a null value deletes the row.

        `store` names or configures the store of the table. A stream with new keys is repartitioned.
        """
        from penstock.dsl.table import KTable

        ref = self._ref
        step = self._name_step(name, "KSTREAM-TOTABLE-")
        requested = as_materialized(store, step=step)
        check_serdes(step, key=key, value=value)
        if requested is None:
            requested = Materialized(key=ref.key, value=ref.value)
        materialized, named = ref.builder.name_store(
            requested.with_serdes(key, value), "KSTREAM-TOTABLE-"
        )
        known = materialized.with_serdes(ref.key, ref.value)
        parent, sources = ref.node, ref.sources
        if ref.rekeyed:
            repartition = ref.builder.repartition(
                step, known.key, known.value, given=name is not None
            )
            ref.builder.plan.add(repartition, ref.node)
            parent, sources = repartition, frozenset((repartition.name,))
        spec = KeyValueSpec(materialized)
        node = ToTableNode(name=step, table=step, store=spec, is_versioned=spec.is_versioned)
        ref.builder.plan.add(node, parent)
        ref.builder.plan.tables[step] = SourceTable(step, spec.name, named)
        new_ref = NodeRef(ref.builder, node, step, known.key, known.value, sources)
        return KTable(new_ref, step, spec.name if named else None)

    # ---- grouping ----------------------------------------------------------------------------

    def group_by_key(
        self,
        *,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KGroupedStream[K, V]:
        """Group the records by key, for aggregations.

        Without options the serdes of the stream apply. With any option, serdes that are not given
        default to those of the configuration, as with Kafka's `Grouped`.
        """
        ref = self._ref
        if name is None and key is None and value is None:
            key, value = ref.key, ref.value
        new_ref = NodeRef(ref.builder, ref.node, ref.name, key, value, ref.sources, ref.rekeyed)
        return KGroupedStream(new_ref, name)

    @overload
    def group_by(
        self, selector: Callable[[V], K2], *, name: str | None = None,
        key: Serde[K2] | None = None, value: Serde[V] | None = None,
    ) -> KGroupedStream[K2, V]: ...
    @overload
    def group_by(
        self, selector: Callable[[K, V], K2], *, name: str | None = None,
        key: Serde[K2] | None = None, value: Serde[V] | None = None,
    ) -> KGroupedStream[K2, V]: ...
    def group_by(
        self,
        selector: Callable[..., K2],
        *,
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V] | None = None,
    ) -> KGroupedStream[K2, V]:
        """Group the records by the key that `selector` returns. The stream is repartitioned."""
        ref = self._ref
        if name is None and key is None and value is None:
            value = ref.value
        step = self._name_step(name, "KSTREAM-KEY-SELECT-")
        function = key_value_function(selector, step=step, what="the key selector")
        node = OperatorNode(name=step, operator=SelectKey(function), key_changed=True)
        ref.builder.plan.add(node, ref.node)
        new_ref = NodeRef(ref.builder, node, step, key, value, ref.sources, rekeyed=True)
        return KGroupedStream(new_ref, name)

    # ---- user processors ---------------------------------------------------------------------

    def process(
        self, supplier: Callable[[], RecordProcessor[K, V]], *stores: str, name: str | None = None
    ) -> KStream[Any, Any]:
        """Run a processor for each record and return the stream of the records it forwards.

        `supplier` returns a new processor at each call; a class works. Its attribute `stores` may
        list store builders to add. `stores` are names of stores that were added to the builder.
        The processor may change keys, so later groupings and joins repartition the stream.
        """
        return self._add_processor(supplier, stores, name, fixed_key=False)

    def process_values(
        self, supplier: Callable[[], FixedKeyRecordProcessor[K, V]], *stores: str,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Run a processor that cannot change keys; see `process`. It gets a `FixedKeyRecord`."""
        return self._add_processor(supplier, stores, name, fixed_key=True)

    # ---- internals ---------------------------------------------------------------------------

    def _name_step(self, name: str | None, prefix: str) -> str:
        return self._ref.builder.names.given_or_next(name, prefix)

    def _add_filter(
        self, predicate: Callable[..., Any], name: str | None, *, negate: bool
    ) -> KStream[K, V]:
        step = self._name_step(name, "KSTREAM-FILTER-")
        function = key_value_function(predicate, step=step, what="the predicate")
        return self._add_type_preserving_step(step, Filter(function, negate))

    def _add_type_preserving_step(self, step: str, operator: Any) -> KStream[K, V]:
        return self._add_step(step, operator, key=self._ref.key, value=self._ref.value)

    def _add_step(
        self,
        step: str,
        operator: Any,
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        key_changed: bool = False,
        value_changed: bool = False,
    ) -> KStream[Any, Any]:
        ref = self._ref
        node = OperatorNode(
            name=step, operator=operator, key_changed=key_changed, value_changed=value_changed
        )
        ref.builder.plan.add(node, ref.node)
        return KStream(
            NodeRef(ref.builder, node, step, key, value, ref.sources, ref.rekeyed or key_changed)
        )

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
        return KStream(NodeRef(ref.builder, node, name, key, None, ref.sources, rekeyed))
