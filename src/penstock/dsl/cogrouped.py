"""`CogroupedKStream`: several grouped streams aggregated into one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.dsl.checks import check_same_builder
from penstock.dsl.functions import plain_function
from penstock.dsl.grouped import Grouping, KGroupedStream, check_windows
from penstock.dsl.options import Materialized, StoreOption, as_materialized
from penstock.dsl.plan_builder import AnySerde, NodeRef, PlanBuilder
from penstock.dsl.windowed import window_parts
from penstock.processors.aggregates import StreamAggregate
from penstock.processors.session_aggregates import SessionAggregate
from penstock.processors.tables import TablePassThrough
from penstock.serdes.windowed import WindowedSerdes
from penstock.topology.plan import AggregateTable
from penstock.topology.plan_nodes import Aggregation, CogroupMerge, PlanNode
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


class _Groups:
    """The grouped streams and their aggregators, in the order in which they were said."""

    def __init__(self, said: PlanBuilder) -> None:
        self.said = said
        self.members: dict[int, tuple[Grouping, Aggregator]] = {}
        #: Hops that were made already: aggregating twice uses them again.
        self.parents: dict[int, PlanNode] = {}

    def build(
        self,
        name: str | None,
        spec: Any,
        named: bool,
        serdes: tuple[AnySerde, AnySerde],
        operator_of: Callable[[Aggregator], Any],
        grace_ms: int | None,
    ) -> KTable[Any, Any]:
        """One aggregation for each stream, all into one store, and the node that merges them."""
        from penstock.dsl.table import KTable

        said = self.said
        self._bring_together(spec.name, named)
        versioned = bool(getattr(spec, "is_versioned", False))
        nodes = []
        for number, (identity, (_, aggregator)) in enumerate(self.members.items()):
            step = said.names.suffixed_or_next(name, f"-cogroup-agg-{number}", AGGREGATE)
            node = Aggregation(
                name=step, table=step, operator=operator_of(aggregator), store=spec,
                window_grace_ms=grace_ms, is_versioned=versioned,
            )
            said.plan.add(node, self.parents[identity])
            nodes.append(node)
        step = said.names.suffixed_or_next(name, "-cogroup-merge", MERGE)
        merge = CogroupMerge(name=step, operator=TablePassThrough(spec.name))
        said.plan.add(merge, *nodes)
        said.plan.tables[step] = AggregateTable(tuple(node.name for node in nodes), spec.name)
        place = NodeRef(said, merge, step, *serdes, frozenset((step,)))
        return KTable(place, step, spec.name if named else None)

    def _bring_together(self, store: str, named: bool) -> None:
        sources = []
        for identity, (grouping, _) in self.members.items():
            place = grouping.place
            sources.append(place.sources)
            if not place.rekeyed:
                self.parents[identity] = place.node
                continue
            base = grouping.name if grouping.name is not None else store
            given = grouping.name is not None or named
            hop = self.said.repartition(base, place.key, place.value, given=given)
            if identity not in self.parents:
                self.said.plan.add(hop, place.node)
                self.parents[identity] = hop
        self.said.copartition(*sources)


class CogroupedKStream(Generic[K, VA]):
    """Grouped streams that will be aggregated into one table; add more with `cogroup`."""

    def __init__(self, said: PlanBuilder) -> None:
        self._groups = _Groups(said)

    def cogroup(
        self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, VA], VA]
    ) -> CogroupedKStream[K, VA]:
        """Aggregate one more stream with an aggregator of its own."""
        if not isinstance(grouped, KGroupedStream):
            raise TypeError(f"cogroup takes a grouped stream, not {type(grouped).__name__}.")
        plain_function(aggregator, 3, step="cogroup", what="the aggregator")
        check_same_builder("cogroup", self._groups.said, grouped._grouping.place.said)
        self._groups.members[id(grouped)] = (grouped._grouping, aggregator)
        return self

    def aggregate(
        self, initializer: Callable[[], VA], *, name: str | None = None,
        store: StoreOption[K, VA] = None,
    ) -> KTable[K, VA]:
        """The table of all streams' aggregates."""
        plain_function(initializer, 0, step=name or "aggregate", what="the initializer")
        groups = self._groups
        wanted = as_materialized(store, step=name or "aggregate") or Materialized()
        materialized, named = groups.said.named_store(wanted, AGGREGATE)
        spec = KeyValueSpec(materialized)
        return groups.build(
            name, spec, named, (spec.key, spec.value),
            lambda aggregator: StreamAggregate(spec.name, initializer, aggregator), None,
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
        """Aggregate window by window."""
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._groups, windows)
        check_windows(windows, step="cogroup")
        return TimeWindowedCogroupedKStream(self._groups, windows)


class TimeWindowedCogroupedKStream(Generic[K, VA]):
    """Cogrouped streams in time or sliding windows."""

    def __init__(self, groups: _Groups, windows: Windows | SlidingWindows) -> None:
        self._groups = groups
        self._windows = windows

    def aggregate(
        self, initializer: Callable[[], VA], *, name: str | None = None,
        store: StoreOption[K, VA] = None,
    ) -> KTable[Windowed[K], VA]:
        """The table of all streams' aggregates for each window."""
        plain_function(initializer, 0, step=name or "aggregate", what="the initializer")
        groups, windows = self._groups, self._windows
        wanted = as_materialized(store, step=name or "aggregate") or Materialized()
        materialized, named = groups.said.named_store(wanted, AGGREGATE)
        emit = EmitStrategy.on_window_update()
        spec, _, size_ms = window_parts(windows, materialized, emit, initializer, _never)
        key = None if spec.key is None else WindowedSerdes.time_windowed(spec.key, size_ms)
        return groups.build(
            name, spec, named, (key, spec.value),
            lambda aggregator: window_parts(
                windows, materialized, emit, initializer, aggregator
            )[1],
            windows.grace_period_ms,
        )


class SessionWindowedCogroupedKStream(Generic[K, VA]):
    """Cogrouped streams in sessions."""

    def __init__(self, groups: _Groups, windows: SessionWindows) -> None:
        self._groups = groups
        self._windows = windows

    def aggregate(
        self,
        initializer: Callable[[], VA],
        # Not VA: mypy would give up on the type of the aggregate for a merger like a + b.
        merger: Callable[[K, VA, VA], object],
        *,
        name: str | None = None,
        store: StoreOption[K, VA] = None,
    ) -> KTable[Windowed[K], VA]:
        """The table of all streams' aggregates for each session."""
        plain_function(initializer, 0, step=name or "aggregate", what="the initializer")
        plain_function(merger, 3, step=name or "aggregate", what="the merger")
        groups, windows = self._groups, self._windows
        wanted = as_materialized(store, step=name or "aggregate") or Materialized()
        materialized, named = groups.said.named_store(wanted, AGGREGATE)
        emit = EmitStrategy.on_window_update()
        spec = SessionSpec(materialized, windows, emit)
        key = None if spec.key is None else WindowedSerdes.session_windowed(spec.key)
        return groups.build(
            name, spec, named, (key, spec.value),
            lambda aggregator: SessionAggregate(
                spec.name, windows, initializer, aggregator, merger
            ),
            windows.grace_ms + windows.gap_ms,
        )


def _never(key: Any, value: Any, aggregate: Any) -> Any:
    raise AssertionError("an aggregator that only fills a place was called")
