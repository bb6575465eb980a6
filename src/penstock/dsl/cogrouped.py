"""`CogroupedKStream`: several grouped streams aggregated into one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.dsl.checks import check_same_builder
from penstock.dsl.functions import check_function
from penstock.dsl.grouped import Grouping, KGroupedStream, check_windows
from penstock.dsl.inference import aggregate_flow, joined_flow, windowed_flow
from penstock.dsl.known_options import lists_options
from penstock.dsl.options import Materialized, StoreOption, as_materialized, store_call
from penstock.dsl.plan_builder import NodeRef, PlanBuilder
from penstock.dsl.windowed import windowed_aggregation
from penstock.java_names import JavaNames
from penstock.processors.aggregates import StreamAggregate
from penstock.processors.session_aggregates import SessionAggregate
from penstock.processors.tables import TablePassThrough
from penstock.serdes.builtin import Serde
from penstock.serdes.windowed import WindowedSerdes
from penstock.topology.default_serdes import Fallback, InferredSerde
from penstock.topology.plan import AggregateTable
from penstock.topology.plan_nodes import AggregateNode, CogroupMergeNode, PlanNode
from penstock.topology.store_specs import KeyValueSpec, SessionSpec
from penstock.windows import EmitStrategy, SessionWindows, SlidingWindows, Windowed, Windows

if TYPE_CHECKING:
    from penstock.dsl.table import KTable

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")

AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"
MERGE = "COGROUPKSTREAM-MERGE-"

Aggregator = Callable[[Any, Any, Any], Any]


class _Cogroup:
    """The grouped streams and their aggregators, in the order of the calls."""

    def __init__(self, builder: PlanBuilder) -> None:
        self.builder = builder
        self.members: dict[int, tuple[Grouping, Aggregator]] = {}
        #: The parents of the aggregations; a second aggregation uses the same repartitions.
        self.parents: dict[int, PlanNode] = {}

    def build(
        self,
        name: str | None,
        spec: Any,
        named: bool,
        flows: Fallback,
        operator_of: Callable[[Aggregator], Any],
        *,
        wrap: Callable[[Serde[Any]], Serde[Any]] | None = None,
        grace_ms: int | None = None,
    ) -> KTable[Any, Any]:
        """Add one aggregation per stream, all into one store, and the node that merges them."""
        from penstock.dsl.table import KTable

        builder = self.builder
        self._repartition_members(spec.name, named)
        # As in Kafka, a windowed result is versioned if the tables behind its streams are.
        versioned = spec.is_versioned if wrap is None else None
        nodes = []
        for number, (identity, (_, aggregator)) in enumerate(self.members.items()):
            step = builder.names.suffixed_or_next(name, f"-cogroup-agg-{number}", AGGREGATE)
            node = AggregateNode(
                name=step, table=step, operator=operator_of(aggregator), store=spec,
                window_grace_ms=grace_ms, is_versioned=versioned,
            )
            builder.plan.add(node, self.parents[identity])
            nodes.append(node)
        step = builder.names.suffixed_or_next(name, "-cogroup-merge", MERGE)
        merge = CogroupMergeNode(name=step, operator=TablePassThrough(spec.name))
        builder.plan.add(merge, *nodes)
        builder.plan.tables[step] = AggregateTable(tuple(node.name for node in nodes), spec.name)
        assert flows.key is not None
        assert flows.value is not None
        key, keys = spec.key, flows.key.flow
        if wrap is not None:
            key, keys = None if key is None else wrap(key), windowed_flow(keys, wrap)
        ref = NodeRef(
            builder, merge, step, key, spec.value, frozenset((step,)), keys=keys,
            values=flows.value.flow,
        )
        return KTable(ref, step, spec.name if named else None)

    def fallback(self, initializer: Any, name: str | None, store: Any) -> Fallback:
        """Return the serdes of the store, if none are given."""
        step = name or "cogroup"
        groupings = [grouping for grouping, _ in self.members.values()]
        keys = groupings[0].ref.keys
        for grouping in groupings[1:]:
            keys = joined_flow(keys, grouping.ref.keys, "key", step)
        aggregators = tuple(aggregator for _, aggregator in self.members.values())
        values = aggregate_flow(
            initializer, aggregators, keys, tuple(each.ref.values for each in groupings), step
        )
        call = store_call("aggregate(..., ", store)
        return Fallback(
            InferredSerde("key", keys, call), InferredSerde("value", values, call)
        )

    def _repartition_members(self, store: str, named: bool) -> None:
        sources = []
        for identity, (grouping, _) in self.members.items():
            ref = grouping.ref
            sources.append(ref.sources)
            if not ref.rekeyed:
                self.parents[identity] = ref.node
                continue
            base = grouping.name if grouping.name is not None else store
            given = grouping.name is not None or named
            repartition = self.builder.repartition(base, *grouping.serdes, given=given)
            if identity not in self.parents:
                self.builder.plan.add(repartition, ref.node)
                self.parents[identity] = repartition
        self.builder.copartition(*sources)


@lists_options
class CogroupedKStream(JavaNames, Generic[K, VA]):
    """Grouped streams to be aggregated into one table; add more with `cogroup`."""

    def __init__(self, builder: PlanBuilder) -> None:
        self._cogroup = _Cogroup(builder)

    def cogroup(
        self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, VA], VA]
    ) -> CogroupedKStream[K, VA]:
        """Add a grouped stream with its own aggregator.

        Args:
            grouped: A grouped stream with the same keys.
            aggregator: A function of (key, value, aggregate) for the records of that stream.

        Returns:
            These streams.

        Example:
            cogrouped.cogroup(lines.group_by_key(), lambda key, line, total: total + len(line))

        Kafka: `CogroupedKStream#cogroup`
        """
        if not isinstance(grouped, KGroupedStream):
            raise TypeError(
                f"cogroup takes a KGroupedStream, not {type(grouped).__name__}. "
                "Group the stream first with group_by_key() or group_by()."
            )
        check_function(aggregator, 3, step="cogroup", what="the aggregator")
        check_same_builder("cogroup", self._cogroup.builder, grouped._grouping.ref.builder)
        self._cogroup.members[id(grouped)] = (grouped._grouping, aggregator)
        return self

    def aggregate(
        self, initializer: Callable[[], VA], *, name: str | None = None,
        store: StoreOption[K, VA] = None,
    ) -> KTable[K, VA]:
        """Aggregate all streams into one table.

        Args:
            initializer: A function without arguments that returns the first aggregate; a class
                works.
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of aggregates.

        Example:
            cogrouped.aggregate(float, store="totals")

        Kafka: `CogroupedKStream#aggregate`
        """
        check_function(initializer, 0, step=name or "aggregate", what="the initializer")
        cogroup = self._cogroup
        requested = as_materialized(store, step=name or "aggregate") or Materialized()
        materialized, named = cogroup.builder.name_store(requested, AGGREGATE)
        flows = cogroup.fallback(initializer, name, store)
        spec = KeyValueSpec(materialized, flows)
        return cogroup.build(
            name, spec, named, flows,
            lambda aggregator: StreamAggregate(spec.name, initializer, aggregator),
        )

    @overload
    def windowed_by(
        self, windows: Windows | SlidingWindows
    ) -> TimeWindowedCogroupedKStream[K, VA]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream[K, VA]: ...
    def windowed_by(
        self, windows: Windows | SlidingWindows | SessionWindows
    ) -> TimeWindowedCogroupedKStream[K, VA] | SessionWindowedCogroupedKStream[K, VA]:
        """Aggregate in windows; the keys of the result are `Windowed`.

        Args:
            windows: `TimeWindows`, `SlidingWindows`, `SessionWindows` or `UnlimitedWindows`.

        Returns:
            The streams in windows.

        Example:
            cogrouped.windowed_by(TimeWindows.of(timedelta(minutes=1))).aggregate(float)

        Kafka: `CogroupedKStream#windowedBy`
        """
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._cogroup, windows)
        check_windows(windows, step="cogroup")
        return TimeWindowedCogroupedKStream(self._cogroup, windows)


@lists_options
class TimeWindowedCogroupedKStream(JavaNames, Generic[K, VA]):
    """Cogrouped streams in time or sliding windows."""

    def __init__(self, cogroup: _Cogroup, windows: Windows | SlidingWindows) -> None:
        self._cogroup = cogroup
        self._windows = windows

    def aggregate(
        self, initializer: Callable[[], VA], *, name: str | None = None,
        store: StoreOption[K, VA] = None,
    ) -> KTable[Windowed[K], VA]:
        """Aggregate all streams per key and window into one table.

        Args:
            initializer: A function without arguments that returns the first aggregate; a class
                works.
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of aggregates.

        Example:
            cogrouped.windowed_by(TimeWindows.of(timedelta(minutes=1))).aggregate(float)

        Kafka: `TimeWindowedCogroupedKStream#aggregate`
        """
        check_function(initializer, 0, step=name or "aggregate", what="the initializer")
        cogroup, windows = self._cogroup, self._windows
        requested = as_materialized(store, step=name or "aggregate") or Materialized()
        materialized, named = cogroup.builder.name_store(requested, AGGREGATE)
        emit = EmitStrategy.on_window_update()
        flows = cogroup.fallback(initializer, name, store)
        spec, _, size_ms = windowed_aggregation(
            windows, materialized, emit, initializer, _placeholder_aggregator, flows
        )
        return cogroup.build(
            name, spec, named, flows,
            lambda aggregator: windowed_aggregation(
                windows, materialized, emit, initializer, aggregator, flows
            )[1],
            wrap=lambda key: WindowedSerdes.time_windowed(key, size_ms),
            grace_ms=windows.grace_period_ms,
        )


@lists_options
class SessionWindowedCogroupedKStream(JavaNames, Generic[K, VA]):
    """Cogrouped streams in sessions."""

    def __init__(self, cogroup: _Cogroup, windows: SessionWindows) -> None:
        self._cogroup = cogroup
        self._windows = windows

    def aggregate(
        self,
        initializer: Callable[[], VA],
        # Not VA: mypy cannot infer the aggregate's type from a merger like a + b.
        merger: Callable[[K, VA, VA], object],
        *,
        name: str | None = None,
        store: StoreOption[K, VA] = None,
    ) -> KTable[Windowed[K], VA]:
        """Aggregate all streams per session into one table.

        Args:
            initializer: A function without arguments that returns the first aggregate; a class
                works.
            merger: A function of (key, aggregate, aggregate) that returns that of two merged
                sessions.
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of aggregates.

        Example:
            cogrouped.windowed_by(SessionWindows.of(timedelta(minutes=1))).aggregate(
                float, lambda key, a, b: a + b
            )

        Kafka: `SessionWindowedCogroupedKStream#aggregate`
        """
        check_function(initializer, 0, step=name or "aggregate", what="the initializer")
        check_function(merger, 3, step=name or "aggregate", what="the merger")
        cogroup, windows = self._cogroup, self._windows
        requested = as_materialized(store, step=name or "aggregate") or Materialized()
        materialized, named = cogroup.builder.name_store(requested, AGGREGATE)
        emit = EmitStrategy.on_window_update()
        flows = cogroup.fallback(initializer, name, store)
        spec = SessionSpec(materialized, windows, emit, flows)
        return cogroup.build(
            name, spec, named, flows,
            lambda aggregator: SessionAggregate(
                spec.name, windows, initializer, aggregator, merger
            ),
            wrap=WindowedSerdes.session_windowed,
            grace_ms=windows.grace_ms + windows.gap_ms,
        )


def _placeholder_aggregator(key: Any, value: Any, aggregate: Any) -> Any:
    raise AssertionError("the placeholder aggregator was called")
