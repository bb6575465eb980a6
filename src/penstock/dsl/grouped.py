"""`KGroupedStream` and `KGroupedTable`: records or rows brought together by key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.dsl.functions import plain_function
from penstock.dsl.options import Materialized, StoreOption, as_materialized
from penstock.dsl.plan_builder import AnySerde, NodeRef
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
from penstock.topology.plan_nodes import Aggregation, PlanNode, TableRepartition
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
    """A grouped stream before it is aggregated, windowed or not.

    Where the key was changed, a hop through a topic comes first: one for all aggregations if the
    grouping was named, otherwise one for each, named after its store.
    """

    place: NodeRef
    name: str | None
    hop: PlanNode | None = None

    def brought_together(
        self, store: str, *, queryable: bool
    ) -> tuple[PlanNode, frozenset[str]]:
        """The node below which equal keys are together, and the sources of its sub-topology."""
        place = self.place
        if not place.rekeyed:
            return place.node, place.sources
        given = self.name is not None or queryable
        base = self.name if self.name is not None else store
        hop = place.said.repartition(base, place.key, place.value, given=given)
        if self.hop is None or self.name is None:
            self.hop = hop
        place.said.plan.add(self.hop, place.node)
        return self.hop, frozenset((hop.name,))


class KGroupedStream(Generic[K, V]):
    """A stream grouped by key: aggregate it, or put it into windows first.

    `store=` names the result's store (a name, a supplier or a `Materialized`), so that it can be
    queried; `name=` names the step.
    """

    def __init__(self, place: NodeRef, name: str | None) -> None:
        self._grouping = Grouping(place, name)

    def count(
        self, *, name: str | None = None, store: StoreOption[K, int] = None
    ) -> KTable[K, int]:
        """How many records each key has had. Records without key or value are not counted."""
        place = self._grouping.place
        wanted = as_materialized(store, step=name or "count")
        if wanted is None:
            wanted = Materialized(key=place.key, value=Serdes.long())
        elif wanted.store_name is None:
            place.said.names.store(STREAM_AGGREGATE)
        materialized, named = place.said.named_store(wanted, STREAM_AGGREGATE)
        spec = KeyValueSpec(materialized.with_serdes(place.key, Serdes.long()))
        step = place.said.names.given_or_next(name, STREAM_AGGREGATE)
        return self._aggregated(step, StreamAggregate(spec.name, zero, count_up), spec, named)

    def reduce(
        self, reducer: Callable[[V, V], V], *, name: str | None = None,
        store: StoreOption[K, V] = None,
    ) -> KTable[K, V]:
        """The values of each key folded together; the first one is the start."""
        place = self._grouping.place
        wanted = as_materialized(store, step=name or "reduce")
        materialized, named = place.said.named_store(wanted or Materialized(), STREAM_REDUCE)
        spec = KeyValueSpec(materialized.with_serdes(place.key, place.value))
        step = place.said.names.given_or_next(name, STREAM_REDUCE)
        plain_function(reducer, 2, step=step, what="the reducer")
        return self._aggregated(step, StreamReduce(spec.name, reducer), spec, named)

    def aggregate(
        self,
        initializer: Callable[[], VA],
        aggregator: Callable[[K, V, VA], VA],
        *,
        name: str | None = None,
        store: StoreOption[K, VA] = None,
    ) -> KTable[K, VA]:
        """The records of each key folded into an aggregate: aggregator(key, value, aggregate)."""
        place = self._grouping.place
        wanted = as_materialized(store, step=name or "aggregate")
        materialized, named = place.said.named_store(wanted or Materialized(), STREAM_AGGREGATE)
        spec = KeyValueSpec(materialized.with_serdes(place.key, None))
        step = place.said.names.given_or_next(name, STREAM_AGGREGATE)
        plain_function(initializer, 0, step=step, what="the initializer")
        plain_function(aggregator, 3, step=step, what="the aggregator")
        operator = StreamAggregate(spec.name, initializer, aggregator)
        return self._aggregated(step, operator, spec, named)

    @overload
    def windowed_by(self, windows: Windows | SlidingWindows) -> TimeWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...
    def windowed_by(
        self, windows: Windows | SlidingWindows | SessionWindows
    ) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V]:
        """Aggregate each key's records window by window."""
        from penstock.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream

        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self._grouping, windows)
        check_windows(windows, step=self._grouping.place.name)
        return TimeWindowedKStream(self._grouping, windows)

    def cogroup(self, aggregator: Callable[[K, V, VA], VA]) -> CogroupedKStream[K, VA]:
        """Aggregate several grouped streams into one table."""
        from penstock.dsl.cogrouped import CogroupedKStream

        cogrouped: CogroupedKStream[K, VA] = CogroupedKStream(self._grouping.place.said)
        return cogrouped.cogroup(self, aggregator)

    def _aggregated(
        self, step: str, operator: Any, spec: KeyValueSpec, named: bool
    ) -> KTable[Any, Any]:
        return add_aggregation(
            self._grouping, step, operator, spec, named, spec.key, spec.value,
            versioned=spec.is_versioned,
        )


def check_windows(windows: Any, *, step: str) -> None:
    """Windows that records can be put into."""
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
    """Add an aggregation below its grouping and answer its table."""
    from penstock.dsl.table import KTable

    place = grouping.place
    parent, sources = grouping.brought_together(spec.name, queryable=named)
    node = Aggregation(
        name=step, table=step, operator=operator, store=spec, window_grace_ms=grace_ms,
        is_versioned=versioned,
    )
    place.said.plan.add(node, parent)
    place.said.plan.tables[step] = AggregateTable((step,), spec.name)
    return KTable(
        NodeRef(place.said, node, step, key, value, sources), step, spec.name if named else None
    )


class KGroupedTable(Generic[K, V]):
    """A table whose rows were mapped to groups: a changed row is taken out and put in again."""

    def __init__(self, place: NodeRef, name: str | None) -> None:
        self._place = place
        self._name = name
        self._hop: TableRepartition | None = None

    def count(
        self, *, name: str | None = None, store: StoreOption[K, int] = None
    ) -> KTable[K, int]:
        """How many rows each group has."""
        spec, named = self._stored(store, Serdes.long(), "count")
        operator = TableAggregate(spec.name, zero, count_up, count_down)
        return self._aggregated(name, TABLE_AGGREGATE, operator, spec, named)

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        *,
        name: str | None = None,
        store: StoreOption[K, V] = None,
    ) -> KTable[K, V]:
        """The rows of each group folded together; `subtractor` takes an old row out again."""
        spec, named = self._stored(store, self._place.value, "reduce")
        step = name or "reduce"
        plain_function(adder, 2, step=step, what="the adder")
        plain_function(subtractor, 2, step=step, what="the subtractor")
        operator = TableReduce(spec.name, adder, subtractor)
        return self._aggregated(name, TABLE_REDUCE, operator, spec, named)

    def aggregate(
        self,
        initializer: Callable[[], VA],
        adder: Callable[[K, V, VA], VA],
        subtractor: Callable[[K, V, VA], VA],
        *,
        name: str | None = None,
        store: StoreOption[K, VA] = None,
    ) -> KTable[K, VA]:
        """The rows of each group folded into an aggregate; `subtractor` takes old rows out."""
        spec, named = self._stored(store, None, "aggregate")
        step = name or "aggregate"
        plain_function(initializer, 0, step=step, what="the initializer")
        plain_function(adder, 3, step=step, what="the adder")
        plain_function(subtractor, 3, step=step, what="the subtractor")
        operator = TableAggregate(spec.name, initializer, adder, subtractor)
        return self._aggregated(name, TABLE_AGGREGATE, operator, spec, named)

    def _stored(self, store: Any, value: AnySerde, step: str) -> tuple[KeyValueSpec, bool]:
        wanted = as_materialized(store, step=step) or Materialized()
        materialized, named = self._place.said.named_store(wanted, TABLE_AGGREGATE)
        return KeyValueSpec(materialized.with_serdes(self._place.key, value)), named

    def _aggregated(
        self, name: str | None, prefix: str, operator: Any, spec: KeyValueSpec, named: bool
    ) -> KTable[Any, Any]:
        from penstock.dsl.table import KTable

        place = self._place
        said = place.said
        sink = said.names.suffixed_or_next(name, "-sink", "KSTREAM-SINK-")
        source = said.names.suffixed_or_next(name, "-source", "KSTREAM-SOURCE-")
        step = said.names.given_or_next(name, prefix)
        if self._hop is None or self._name is None:
            topic = f"{self._name if self._name is not None else spec.name}-repartition"
            self._hop = TableRepartition(
                name=source, sink=sink, topic=topic, key=place.key, value=place.value
            )
        said.plan.add(self._hop, place.node)
        node = Aggregation(
            name=step, table=step, operator=operator, store=spec, is_versioned=spec.is_versioned
        )
        said.plan.add(node, self._hop)
        said.plan.tables[step] = AggregateTable((step,), spec.name)
        return KTable(
            NodeRef(said, node, step, spec.key, spec.value, frozenset((source,))),
            step, spec.name if named else None,
        )
