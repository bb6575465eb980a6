"""`KGroupedStream` and `KGroupedTable`: records or rows grouped by key, ready to aggregate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.dsl.functions import check_function
from penstock.dsl.inference import aggregate_flow, windowed_flow
from penstock.dsl.known_options import lists_options
from penstock.dsl.options import Materialized, StoreOption, as_materialized, store_call
from penstock.dsl.plan_builder import AnySerde, NodeRef, NodeSerde
from penstock.java_names import JavaNames
from penstock.processors.aggregates import (
    StreamAggregate,
    StreamReduce,
    TableAggregate,
    TableReduce,
    count_down,
    count_up,
    zero,
)
from penstock.serdes.builtin import Serde, Serdes
from penstock.topology.default_serdes import Fallback, Flow, InferredSerde
from penstock.topology.plan import AggregateTable
from penstock.topology.plan_nodes import AggregateNode, PlanNode, TableRepartitionNode
from penstock.topology.store_specs import KeyValueSpec
from penstock.windows import JoinWindows, SessionWindows, SlidingWindows, Windows

if TYPE_CHECKING:
    from penstock.dsl.cogrouped import CogroupedKStream
    from penstock.dsl.table import KTable
    from penstock.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")

STREAM_AGGREGATE = "KSTREAM-AGGREGATE-"
STREAM_REDUCE = "KSTREAM-REDUCE-"
TABLE_AGGREGATE = "KTABLE-AGGREGATE-"
TABLE_REDUCE = "KTABLE-REDUCE-"
_TABLE_CALL = "group_by(..."


@dataclass
class Grouping:
    """A grouped stream before its aggregation, windowed or not.

    If the key has changed, a repartition comes first: one for all aggregations if the grouping has
    a name, otherwise one for each, named after its store.
    """

    ref: NodeRef
    name: str | None
    #: The user's call that can give the serdes, for errors: "group_by(...".
    call: str
    repartition: PlanNode | None = None

    def repartition_if_rekeyed(
        self, store: str, *, queryable: bool
    ) -> tuple[PlanNode, frozenset[str]]:
        """Return the parent node of the aggregation, and the sources of its sub-topology."""
        ref = self.ref
        if not ref.rekeyed:
            return ref.node, ref.sources
        given = self.name is not None or queryable
        base = self.name if self.name is not None else store
        repartition = ref.builder.repartition(base, *self.serdes, given=given)
        if self.repartition is None or self.name is None:
            self.repartition = repartition
        ref.builder.plan.add(self.repartition, ref.node)
        return self.repartition, frozenset((repartition.name,))

    @property
    def serdes(self) -> tuple[NodeSerde, NodeSerde]:
        """The serdes of the repartition topic."""
        return self.ref.key_serde(self.call), self.ref.value_serde(self.call)

    def aggregated(
        self, spec: Any, values: Flow, wrap: Callable[[Serde[Any]], Serde[Any]] | None = None
    ) -> NodeRef:
        """Return the reference to the table of an aggregation; its node follows.

        `wrap` makes the serde of windowed keys from that of the keys.
        """
        ref = self.ref
        key, keys = spec.key, ref.keys
        if wrap is not None:
            key, keys = None if key is None else wrap(key), windowed_flow(keys, wrap)
        return replace(
            ref, key=key, value=spec.value, rekeyed=False, keys=keys, values=values
        )

    def fallback(self, values: Flow, store: Any) -> Fallback:
        """Return the serdes of the store of an aggregation, if none are given."""
        call = self.call
        if values is not self.ref.values:
            call = store_call("aggregate(..., ", store)
        return Fallback(
            self.ref.inferred_key(self.call), InferredSerde("value", values, call)
        )


@lists_options
class KGroupedStream(JavaNames, Generic[K, V]):
    """A stream grouped by key: aggregate it directly, or in windows.

    Aggregations return a `KTable` and ignore records with a null key or value. `store=` is a store
    name, a supplier or a `Materialized`; a named store can be queried. `name=` names the step.
    """

    def __init__(self, ref: NodeRef, name: str | None, call: str) -> None:
        self._grouping = Grouping(ref, name, call)

    def __repr__(self) -> str:
        return self._grouping.ref.describe("KGroupedStream")

    def count(
        self, *, name: str | None = None, store: StoreOption[K, int] = None
    ) -> KTable[K, int]:
        """Count the records of each key.

        Args:
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of counts.

        Example:
            grouped.count(store="counts")

        Kafka: `KGroupedStream#count`
        """
        ref = self._grouping.ref
        requested = as_materialized(store, step=name or "count")
        if requested is None:
            requested = Materialized(key=ref.key, value=Serdes.long())
        elif requested.store_name is None:
            ref.builder.names.next_store_name(STREAM_AGGREGATE)
        materialized, named = ref.builder.name_store(requested, STREAM_AGGREGATE)
        step = ref.builder.names.given_or_next(name, STREAM_AGGREGATE)
        return self._aggregate(
            step, lambda store: StreamAggregate(store, zero, count_up),
            materialized.with_serdes(ref.key, Serdes.long()), named, ref.values, store,
        )

    def reduce(
        self, reducer: Callable[[V, V], V], *, name: str | None = None,
        store: StoreOption[K, V] = None,
    ) -> KTable[K, V]:
        """Combine the values of each key.

        Args:
            reducer: A function of (aggregate, value) that returns the next aggregate. The first
                value is the first aggregate.
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of aggregates.

        Example:
            lines.group_by_key().reduce(lambda longest, line: max(longest, line, key=len))

        Kafka: `KGroupedStream#reduce`
        """
        ref = self._grouping.ref
        requested = as_materialized(store, step=name or "reduce")
        materialized, named = ref.builder.name_store(requested or Materialized(), STREAM_REDUCE)
        step = ref.builder.names.given_or_next(name, STREAM_REDUCE)
        check_function(reducer, 2, step=step, what="the reducer")
        return self._aggregate(
            step, lambda store: StreamReduce(store, reducer),
            materialized.with_serdes(ref.key, ref.value), named, ref.values, store,
        )

    def aggregate(
        self,
        initializer: Callable[[], VA],
        aggregator: Callable[[K, V, VA], VA],
        *,
        name: str | None = None,
        store: StoreOption[K, VA] = None,
    ) -> KTable[K, VA]:
        """Aggregate the records of each key.

        Args:
            initializer: A function without arguments that returns the first aggregate; a class
                works.
            aggregator: A function of (key, value, aggregate) that returns the next aggregate; None
                deletes it.
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of aggregates.

        Example:
            grouped.aggregate(float, lambda key, order, total: total + order.amount)

        Kafka: `KGroupedStream#aggregate`
        """
        ref = self._grouping.ref
        requested = as_materialized(store, step=name or "aggregate")
        materialized, named = ref.builder.name_store(requested or Materialized(), STREAM_AGGREGATE)
        step = ref.builder.names.given_or_next(name, STREAM_AGGREGATE)
        check_function(initializer, 0, step=step, what="the initializer")
        check_function(aggregator, 3, step=step, what="the aggregator")
        return self._aggregate(
            step, lambda store: StreamAggregate(store, initializer, aggregator),
            materialized.with_serdes(ref.key, None), named,
            aggregate_flow(initializer, (aggregator,), ref.keys, (ref.values,), step),
            store,
        )

    @overload
    def windowed_by(self, windows: Windows | SlidingWindows) -> TimeWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...
    def windowed_by(
        self, windows: Windows | SlidingWindows | SessionWindows
    ) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V]:
        """Aggregate in windows; the keys of the result are `Windowed`.

        Args:
            windows: `TimeWindows`, `SlidingWindows`, `SessionWindows` or `UnlimitedWindows`.

        Returns:
            The stream in windows.

        Example:
            grouped.windowed_by(TimeWindows.of(timedelta(minutes=1))).count()

        Kafka: `KGroupedStream#windowedBy`
        """
        from penstock.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream

        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self._grouping, windows)
        check_windows(windows, step=self._grouping.ref.name)
        return TimeWindowedKStream(self._grouping, windows)

    def cogroup(self, aggregator: Callable[[K, V, VA], VA]) -> CogroupedKStream[K, VA]:
        """Start an aggregation of several grouped streams into one table.

        Args:
            aggregator: A function of (key, value, aggregate) for the records of this stream.

        Returns:
            The streams, to which more can be added.

        Example:
            grouped.cogroup(lambda key, order, total: total + order.amount).aggregate(float)

        Kafka: `KGroupedStream#cogroup`
        """
        from penstock.dsl.cogrouped import CogroupedKStream

        cogrouped: CogroupedKStream[K, VA] = CogroupedKStream(self._grouping.ref.builder)
        return cogrouped.cogroup(self, aggregator)

    def _aggregate(
        self,
        step: str,
        operator_of: Callable[[str], Any],
        materialized: Materialized[Any, Any],
        named: bool,
        values: Flow,
        store: Any,
    ) -> KTable[Any, Any]:
        grouping = self._grouping
        spec = KeyValueSpec(materialized, grouping.fallback(values, store))
        return add_aggregation(
            grouping, step, operator_of(spec.name), spec, named,
            grouping.aggregated(spec, values), versioned=spec.is_versioned,
        )


def check_windows(windows: Any, *, step: str) -> None:
    """Raise unless `windows` can be used for an aggregation."""
    if isinstance(windows, JoinWindows) or not isinstance(windows, Windows | SlidingWindows):
        raise TypeError(
            f"{step}: windowed_by takes TimeWindows, SlidingWindows, SessionWindows or "
            f"UnlimitedWindows, not {windows!r}. TimeWindows.of(timedelta(minutes=1)), for example."
        )


def add_aggregation(
    grouping: Grouping,
    step: str,
    operator: Any,
    spec: Any,
    named: bool,
    table: NodeRef,
    *,
    grace_ms: int | None = None,
    versioned: bool = False,
) -> KTable[Any, Any]:
    """Add an aggregation below its grouping and return its table; `table` has its serdes."""
    from penstock.dsl.table import KTable

    ref = grouping.ref
    parent, sources = grouping.repartition_if_rekeyed(spec.name, queryable=named)
    node = AggregateNode(
        name=step, table=step, operator=operator, store=spec, window_grace_ms=grace_ms,
        is_versioned=versioned,
    )
    ref.builder.plan.add(node, parent)
    ref.builder.plan.tables[step] = AggregateTable((step,), spec.name)
    new_ref = replace(table, node=node, name=step, sources=sources)
    return KTable(new_ref, step, spec.name if named else None)


@lists_options
class KGroupedTable(JavaNames, Generic[K, V]):
    """A grouped table: for each changed row the old value is subtracted and the new one added.

    `store=` is a store name, a supplier or a `Materialized`. `name=` names the step.
    """

    def __init__(self, ref: NodeRef, name: str | None) -> None:
        self._ref = ref
        self._name = name
        self._repartition: TableRepartitionNode | None = None

    def __repr__(self) -> str:
        return self._ref.describe("KGroupedTable")

    def count(
        self, *, name: str | None = None, store: StoreOption[K, int] = None
    ) -> KTable[K, int]:
        """Count the rows of each group.

        Args:
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of counts.

        Example:
            grouped_table.count(store="counts")

        Kafka: `KGroupedTable#count`
        """
        spec, named = self._store_spec(store, Serdes.long(), "count", self._ref.values)
        operator = TableAggregate(spec.name, zero, count_up, count_down)
        return self._aggregate(name, TABLE_AGGREGATE, operator, spec, named)

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        *,
        name: str | None = None,
        store: StoreOption[K, V] = None,
    ) -> KTable[K, V]:
        """Combine the rows of each group.

        Args:
            adder: A function of (aggregate, value) that adds a row and returns the next aggregate.
            subtractor: A function of (aggregate, value) that removes an old row and returns the
                next aggregate.
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of aggregates.

        Example:
            grouped_table.reduce(lambda total, new: total + new, lambda total, old: total - old)

        Kafka: `KGroupedTable#reduce`
        """
        step = name or "reduce"
        spec, named = self._store_spec(store, self._ref.value, step, self._ref.values)
        check_function(adder, 2, step=step, what="the adder")
        check_function(subtractor, 2, step=step, what="the subtractor")
        operator = TableReduce(spec.name, adder, subtractor)
        return self._aggregate(name, TABLE_REDUCE, operator, spec, named)

    def aggregate(
        self,
        initializer: Callable[[], VA],
        adder: Callable[[K, V, VA], VA],
        subtractor: Callable[[K, V, VA], VA],
        *,
        name: str | None = None,
        store: StoreOption[K, VA] = None,
    ) -> KTable[K, VA]:
        """Aggregate the rows of each group.

        Args:
            initializer: A function without arguments that returns the first aggregate; a class
                works.
            adder: A function of (key, value, aggregate) that adds a row and returns the next
                aggregate.
            subtractor: A function of (key, value, aggregate) that removes an old row and returns
                the next aggregate.
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of aggregates.

        Example:
            grouped_table.aggregate(
                float, lambda key, new, total: total + new, lambda key, old, total: total - old
            )

        Kafka: `KGroupedTable#aggregate`
        """
        ref = self._ref
        step = name or "aggregate"
        check_function(initializer, 0, step=step, what="the initializer")
        check_function(adder, 3, step=step, what="the adder")
        check_function(subtractor, 3, step=step, what="the subtractor")
        values = aggregate_flow(
            initializer, (adder, subtractor), ref.keys, (ref.values, ref.values), step
        )
        spec, named = self._store_spec(store, None, step, values)
        operator = TableAggregate(spec.name, initializer, adder, subtractor)
        return self._aggregate(name, TABLE_AGGREGATE, operator, spec, named)

    def _store_spec(
        self, store: Any, value: AnySerde, step: str, values: Flow
    ) -> tuple[KeyValueSpec, bool]:
        requested = as_materialized(store, step=step) or Materialized()
        materialized, named = self._ref.builder.name_store(requested, TABLE_AGGREGATE)
        call = _TABLE_CALL
        if values is not self._ref.values:
            call = store_call("aggregate(..., ", store)
        fallback = Fallback(
            self._ref.inferred_key(_TABLE_CALL), InferredSerde("value", values, call)
        )
        return KeyValueSpec(materialized.with_serdes(self._ref.key, value), fallback), named

    def _aggregate(
        self, name: str | None, prefix: str, operator: Any, spec: KeyValueSpec, named: bool
    ) -> KTable[Any, Any]:
        from penstock.dsl.table import KTable

        ref = self._ref
        builder = ref.builder
        sink = builder.names.suffixed_or_next(name, "-sink", "KSTREAM-SINK-")
        source = builder.names.suffixed_or_next(name, "-source", "KSTREAM-SOURCE-")
        step = builder.names.given_or_next(name, prefix)
        if self._repartition is None or self._name is None:
            topic = f"{self._name if self._name is not None else spec.name}-repartition"
            self._repartition = TableRepartitionNode(
                name=source, sink=sink, topic=topic, key=ref.key_serde(_TABLE_CALL),
                value=ref.value_serde(_TABLE_CALL),
            )
        builder.plan.add(self._repartition, ref.node)
        node = AggregateNode(
            name=step, table=step, operator=operator, store=spec, is_versioned=spec.is_versioned
        )
        builder.plan.add(node, self._repartition)
        builder.plan.tables[step] = AggregateTable((step,), spec.name)
        assert spec.fallback.value is not None
        new_ref = NodeRef(
            builder, node, step, spec.key, spec.value, frozenset((source,)),
            keys=ref.keys, values=spec.fallback.value.flow,
        )
        return KTable(new_ref, step, spec.name if named else None)
