"""`KGroupedStream` and `KGroupedTable`: records or rows grouped by key, ready to aggregate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.dsl.functions import check_function
from penstock.dsl.options import Materialized, StoreOption, as_materialized
from penstock.dsl.plan_builder import AnySerde, NodeRef
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
from penstock.serdes.builtin import Serdes
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


@dataclass
class Grouping:
    """A grouped stream before its aggregation, windowed or not.

    If the key has changed, a repartition comes first: one for all aggregations if the grouping has
    a name, otherwise one for each, named after its store.
    """

    ref: NodeRef
    name: str | None
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
        repartition = ref.builder.repartition(base, ref.key, ref.value, given=given)
        if self.repartition is None or self.name is None:
            self.repartition = repartition
        ref.builder.plan.add(self.repartition, ref.node)
        return self.repartition, frozenset((repartition.name,))


class KGroupedStream(JavaNames, Generic[K, V]):
    """A stream grouped by key: aggregate it directly, or in windows.

    Aggregations return a `KTable` and ignore records with a null key or value. `store=` is a store
    name, a supplier or a `Materialized`; a named store can be queried. `name=` names the step.
    """

    def __init__(self, ref: NodeRef, name: str | None) -> None:
        self._grouping = Grouping(ref, name)

    def __repr__(self) -> str:
        return self._grouping.ref.describe("KGroupedStream")

    def count(
        self, *, name: str | None = None, store: StoreOption[K, int] = None
    ) -> KTable[K, int]:
        """Count the records of each key."""
        ref = self._grouping.ref
        requested = as_materialized(store, step=name or "count")
        if requested is None:
            requested = Materialized(key=ref.key, value=Serdes.long())
        elif requested.store_name is None:
            ref.builder.names.next_store_name(STREAM_AGGREGATE)
        materialized, named = ref.builder.name_store(requested, STREAM_AGGREGATE)
        spec = KeyValueSpec(materialized.with_serdes(ref.key, Serdes.long()))
        step = ref.builder.names.given_or_next(name, STREAM_AGGREGATE)
        return self._aggregate(step, StreamAggregate(spec.name, zero, count_up), spec, named)

    def reduce(
        self, reducer: Callable[[V, V], V], *, name: str | None = None,
        store: StoreOption[K, V] = None,
    ) -> KTable[K, V]:
        """Combine the values of each key: `reducer(aggregate, value)` returns the new aggregate.

        The first value of a key is its first aggregate.
        """
        ref = self._grouping.ref
        requested = as_materialized(store, step=name or "reduce")
        materialized, named = ref.builder.name_store(requested or Materialized(), STREAM_REDUCE)
        spec = KeyValueSpec(materialized.with_serdes(ref.key, ref.value))
        step = ref.builder.names.given_or_next(name, STREAM_REDUCE)
        check_function(reducer, 2, step=step, what="the reducer")
        return self._aggregate(step, StreamReduce(spec.name, reducer), spec, named)

    def aggregate(
        self,
        initializer: Callable[[], VA],
        aggregator: Callable[[K, V, VA], VA],
        *,
        name: str | None = None,
        store: StoreOption[K, VA] = None,
    ) -> KTable[K, VA]:
        """Aggregate the records of each key.

        `initializer()` returns the first aggregate of a key, `aggregator(key, value, aggregate)`
        the next one; None deletes it.
        """
        ref = self._grouping.ref
        requested = as_materialized(store, step=name or "aggregate")
        materialized, named = ref.builder.name_store(requested or Materialized(), STREAM_AGGREGATE)
        spec = KeyValueSpec(materialized.with_serdes(ref.key, None))
        step = ref.builder.names.given_or_next(name, STREAM_AGGREGATE)
        check_function(initializer, 0, step=step, what="the initializer")
        check_function(aggregator, 3, step=step, what="the aggregator")
        operator = StreamAggregate(spec.name, initializer, aggregator)
        return self._aggregate(step, operator, spec, named)

    @overload
    def windowed_by(self, windows: Windows | SlidingWindows) -> TimeWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...
    def windowed_by(
        self, windows: Windows | SlidingWindows | SessionWindows
    ) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V]:
        """Aggregate in windows; the keys of the result are `Windowed`."""
        from penstock.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream

        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self._grouping, windows)
        check_windows(windows, step=self._grouping.ref.name)
        return TimeWindowedKStream(self._grouping, windows)

    def cogroup(self, aggregator: Callable[[K, V, VA], VA]) -> CogroupedKStream[K, VA]:
        """Start an aggregation of several grouped streams into one table.

        `aggregator(key, value, aggregate)` handles the records of this stream.
        """
        from penstock.dsl.cogrouped import CogroupedKStream

        cogrouped: CogroupedKStream[K, VA] = CogroupedKStream(self._grouping.ref.builder)
        return cogrouped.cogroup(self, aggregator)

    def _aggregate(
        self, step: str, operator: Any, spec: KeyValueSpec, named: bool
    ) -> KTable[Any, Any]:
        return add_aggregation(
            self._grouping, step, operator, spec, named, spec.key, spec.value,
            versioned=spec.is_versioned,
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
    key: AnySerde,
    value: AnySerde,
    *,
    grace_ms: int | None = None,
    versioned: bool = False,
) -> KTable[Any, Any]:
    """Add an aggregation below its grouping and return its table."""
    from penstock.dsl.table import KTable

    ref = grouping.ref
    parent, sources = grouping.repartition_if_rekeyed(spec.name, queryable=named)
    node = AggregateNode(
        name=step, table=step, operator=operator, store=spec, window_grace_ms=grace_ms,
        is_versioned=versioned,
    )
    ref.builder.plan.add(node, parent)
    ref.builder.plan.tables[step] = AggregateTable((step,), spec.name)
    return KTable(
        NodeRef(ref.builder, node, step, key, value, sources), step, spec.name if named else None
    )


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
        """Count the rows of each group."""
        spec, named = self._store_spec(store, Serdes.long(), "count")
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

        `adder(aggregate, value)` adds a row, `subtractor(aggregate, value)` removes an old one;
        both return the new aggregate.
        """
        spec, named = self._store_spec(store, self._ref.value, "reduce")
        step = name or "reduce"
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

        `initializer()` returns the first aggregate, `adder(key, value, aggregate)` adds a row,
        `subtractor(key, value, aggregate)` removes an old one.
        """
        spec, named = self._store_spec(store, None, "aggregate")
        step = name or "aggregate"
        check_function(initializer, 0, step=step, what="the initializer")
        check_function(adder, 3, step=step, what="the adder")
        check_function(subtractor, 3, step=step, what="the subtractor")
        operator = TableAggregate(spec.name, initializer, adder, subtractor)
        return self._aggregate(name, TABLE_AGGREGATE, operator, spec, named)

    def _store_spec(self, store: Any, value: AnySerde, step: str) -> tuple[KeyValueSpec, bool]:
        requested = as_materialized(store, step=step) or Materialized()
        materialized, named = self._ref.builder.name_store(requested, TABLE_AGGREGATE)
        return KeyValueSpec(materialized.with_serdes(self._ref.key, value)), named

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
                name=source, sink=sink, topic=topic, key=ref.key, value=ref.value
            )
        builder.plan.add(self._repartition, ref.node)
        node = AggregateNode(
            name=step, table=step, operator=operator, store=spec, is_versioned=spec.is_versioned
        )
        builder.plan.add(node, self._repartition)
        builder.plan.tables[step] = AggregateTable((step,), spec.name)
        return KTable(
            NodeRef(builder, node, step, spec.key, spec.value, frozenset((source,))),
            step, spec.name if named else None,
        )
