"""`KStream`: a stream of independent records, and what can be said of it one record at a time."""

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
from penstock.dsl.stream_processing import StreamProcessing
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
from penstock.serdes.builtin import Serde
from penstock.topology.nodes import Partitioner, TopicNameExtractor
from penstock.topology.plan import SourceTable
from penstock.topology.plan_nodes import OperatorNode, StreamSinkNode, ToTableNode
from penstock.topology.store_specs import KeyValueSpec

if TYPE_CHECKING:
    from penstock.dsl.table import KTable

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


class KStream(StreamJoins[K, V], StreamProcessing[K, V], Generic[K, V]):
    """A stream of records with keys of type K and values of type V.

    Every method adds a step and answers the stream that comes out of it; this one stays as it is
    and can be used again. `name=` names the step. Functions take (key, value), or only the value
    where they have one parameter.
    """

    def __init__(self, new_ref: NodeRef) -> None:
        self._ref = new_ref

    # ---- one record at a time ----------------------------------------------------------------

    @overload
    def filter(
        self, predicate: Callable[[V], object], *, name: str | None = None
    ) -> KStream[K, V]: ...
    @overload
    def filter(
        self, predicate: Callable[[K, V], object], *, name: str | None = None
    ) -> KStream[K, V]: ...
    def filter(self, predicate: Callable[..., Any], *, name: str | None = None) -> KStream[K, V]:
        """Only the records for which the predicate is true."""
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
        """Only the records for which the predicate is false."""
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
        """Every record with a new key; grouping or joining it will repartition."""
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
        """Every record with a new value."""
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
        """Every record with a new key and value, given as a pair."""
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
        """For every record, any number of records, given as pairs."""
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
        """For every record, any number of records with the same key."""
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
        """Call an action for every record and pass the record on."""
        step = self._name_step(name, "KSTREAM-PEEK-")
        function = key_value_function(action, step=step, what="the action")
        return self._add_type_preserving_step(step, Peek(function))

    @overload
    def foreach(self, action: Callable[[V], object], *, name: str | None = None) -> None: ...
    @overload
    def foreach(self, action: Callable[[K, V], object], *, name: str | None = None) -> None: ...
    def foreach(self, action: Callable[..., object], *, name: str | None = None) -> None:
        """Call an action for every record; nothing comes out."""
        step = self._name_step(name, "KSTREAM-FOREACH-")
        function = key_value_function(action, step=step, what="the action")
        self._add_type_preserving_step(step, Foreach(function))

    def print(self, printed: Printed[K, V] | None = None) -> None:
        """Show every record, by default as `[step]: key, value` on standard output."""
        printed = printed if printed is not None else Printed()
        if not isinstance(printed, Printed):
            raise TypeError(
                f"{self._ref.name}: print takes a Printed, not {type(printed).__name__}. "
                "Printed(label), for example."
            )
        step = self._name_step(printed.name, "KSTREAM-PRINTER-")
        label = printed.label if printed.label is not None else self._ref.name
        mapper = printed.mapper if printed.mapper is not None else key_and_value
        self._add_type_preserving_step(step, Print(label, mapper, printed.file))

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Send every record down the first branch whose predicate accepts it."""
        return BranchedKStream(self._ref, name, KStream)

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records of both streams."""
        step = self._name_step(name, "KSTREAM-MERGE-")
        if not isinstance(other, KStream):
            raise TypeError(
                f"{step}: merge takes a KStream, not {type(other).__name__}. "
                "A table becomes a stream with to_stream()."
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

    # ---- through and to topics ---------------------------------------------------------------

    def repartition(
        self,
        *,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
    ) -> KStream[K, V]:
        """Send the records through a topic of their own, partitioned by their present key."""
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
        """Write the records to a topic, or to the topic a function (key, value, context) names."""
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
        """The stream read as a table: a record is the newest value of its key, None deletes it."""
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
        """The records grouped by their key.

        Without any option the serdes of the stream are kept; with one, only what is given counts.
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
        """The records grouped by a new key."""
        ref = self._ref
        if name is None and key is None and value is None:
            value = ref.value
        step = self._name_step(name, "KSTREAM-KEY-SELECT-")
        function = key_value_function(selector, step=step, what="the key selector")
        node = OperatorNode(name=step, operator=SelectKey(function), key_changed=True)
        ref.builder.plan.add(node, ref.node)
        new_ref = NodeRef(ref.builder, node, step, key, value, ref.sources, rekeyed=True)
        return KGroupedStream(new_ref, name)

    # ---- inside ------------------------------------------------------------------------------

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
