"""`KTable` and `GlobalKTable`: the newest value of every key, and how it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.dsl.functions import key_value_function, value_function
from penstock.dsl.grouped import KGroupedTable
from penstock.dsl.options import Materialized, StoreOption, Suppressed, as_materialized
from penstock.dsl.plan_builder import AnySerde, NodeRef, PlanBuilder
from penstock.dsl.table_joins import TableJoins
from penstock.errors import TopologyException
from penstock.processors.api import ValueTransformer
from penstock.processors.suppress import NO_LIMIT, Suppress
from penstock.processors.table_source import TableRepartitionMap, ToStream
from penstock.processors.tables import TableFilter, TableMapValues, TableTransformValues
from penstock.processors.user import transformer_factory
from penstock.serdes.builtin import Serde
from penstock.topology.plan import Plan, SuppressedTable, ViewTable
from penstock.topology.plan_nodes import (
    PlanNode,
    Regrouping,
    StreamStep,
    Suppression,
    TableView,
)
from penstock.topology.store_specs import BufferSpec, KeyValueSpec

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


class KTable(TableJoins[K, V], Generic[K, V]):
    """A table: for every key its newest value, None meaning that the row is gone.

    Every method answers a new table (or stream) and leaves this one as it is. A table that is
    given `store=` keeps its rows in a store of that name, which can be queried; others are
    computed from their parents when something reads them.
    """

    def __init__(self, place: NodeRef, table: str, store: str | None) -> None:
        self._place = place
        self._id = table
        self._store = store

    @property
    def queryable_store_name(self) -> str | None:
        """The store to query for this table's rows, None if the user named none."""
        return self._store

    # ---- row by row --------------------------------------------------------------------------

    @overload
    def filter(
        self, predicate: Callable[[V], object], *, name: str | None = None,
        store: StoreOption[K, V] = None,
    ) -> KTable[K, V]: ...
    @overload
    def filter(
        self, predicate: Callable[[K, V], object], *, name: str | None = None,
        store: StoreOption[K, V] = None,
    ) -> KTable[K, V]: ...
    def filter(
        self, predicate: Callable[..., Any], *, name: str | None = None,
        store: StoreOption[Any, Any] = None,
    ) -> KTable[K, V]:
        """Only the rows for which the predicate is true; others are deleted."""
        return self._filtered(predicate, name, store, negate=False)

    @overload
    def filter_not(
        self, predicate: Callable[[V], object], *, name: str | None = None,
        store: StoreOption[K, V] = None,
    ) -> KTable[K, V]: ...
    @overload
    def filter_not(
        self, predicate: Callable[[K, V], object], *, name: str | None = None,
        store: StoreOption[K, V] = None,
    ) -> KTable[K, V]: ...
    def filter_not(
        self, predicate: Callable[..., Any], *, name: str | None = None,
        store: StoreOption[Any, Any] = None,
    ) -> KTable[K, V]:
        """Only the rows for which the predicate is false."""
        return self._filtered(predicate, name, store, negate=True)

    @overload
    def map_values(
        self, mapper: Callable[[V], V2], *, name: str | None = None,
        store: StoreOption[K, V2] = None,
    ) -> KTable[K, V2]: ...
    @overload
    def map_values(
        self, mapper: Callable[[K, V], V2], *, name: str | None = None,
        store: StoreOption[K, V2] = None,
    ) -> KTable[K, V2]: ...
    def map_values(
        self, mapper: Callable[..., V2], *, name: str | None = None,
        store: StoreOption[Any, Any] = None,
    ) -> KTable[K, V2]:
        """Every row with a new value; deleted rows are not shown to the mapper."""
        wanted = self._wanted(store, name or "map_values", "KTABLE-MAPVALUES-")
        step = self._place.said.names.given_or_next(name, "KTABLE-MAPVALUES-")
        with_key = value_function(mapper, step=step, what="the mapper")
        operator = TableMapValues(mapper, _LATER, with_key)
        return self._view(step, operator, wanted, None if wanted is None else wanted.value)

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer[K, V, V2]],
        *stores: str,
        name: str | None = None,
        store: StoreOption[K, V2] = None,
    ) -> KTable[K, V2]:
        """Every row, deleted ones too, through a transformer with access to stores.

        The supplier makes objects with `init(context)`, `transform(key, value)` and `close()`.
        """
        wanted = as_materialized(store, step=name or "transform_values")
        step = self._place.said.names.given_or_next(name, "KTABLE-TRANSFORMVALUES-")
        operator = TableTransformValues(transformer_factory(supplier, step=step), _LATER)
        return self._view(
            step, operator, wanted, None if wanted is None else wanted.value, stores
        )

    @overload
    def to_stream(self, key_fn: None = None, *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def to_stream(
        self, key_fn: Callable[[V], K2], *, name: str | None = None
    ) -> KStream[K2, V]: ...
    @overload
    def to_stream(
        self, key_fn: Callable[[K, V], K2], *, name: str | None = None
    ) -> KStream[K2, V]: ...
    def to_stream(
        self, key_fn: Callable[..., Any] | None = None, *, name: str | None = None
    ) -> KStream[Any, V]:
        """Every change of the table as a record, with a new key if `key_fn` is given."""
        from penstock.dsl.stream import KStream

        here = self._place
        step = here.said.names.given_or_next(name, "KTABLE-TOSTREAM-")
        node = StreamStep(name=step, operator=ToStream())
        here.said.plan.add(node, here.node)
        stream: KStream[K, V] = KStream(
            NodeRef(here.said, node, step, here.key, here.value, here.sources)
        )
        return stream if key_fn is None else stream.select_key(key_fn)

    def suppress(self, suppressed: Suppressed) -> KTable[K, V]:
        """Hold changes back: until their window closes, or for a time."""
        here = self._place
        said = here.said
        if not isinstance(suppressed, Suppressed):
            raise TypeError(
                f"{here.name}: suppress takes a Suppressed, not {type(suppressed).__name__}. "
                "Suppressed.until_window_closes(), for example."
            )
        if here.node.versioned:
            raise TopologyException(
                f"{here.name}: suppress() is only supported for non-versioned KTables."
            )
        if suppressed.name is not None:
            step = suppressed.name
        else:
            step = said.names.processor("KTABLE-SUPPRESS-")
        until_close = suppressed.time_limit_ms is None
        wait_ms = suppressed.time_limit_ms
        if wait_ms is None:
            wait_ms = window_grace(said.plan, here.node)
        if suppressed.name is not None:
            buffer_name = f"{suppressed.name}-store"
        else:
            buffer_name = said.names.store("KTABLE-SUPPRESS-")
            if suppressed.buffer.logging:
                said.plan.generated_names.append(f"topic {buffer_name}-changelog")
        limits = suppressed.buffer
        operator = Suppress(
            buffer_name, wait_ms, until_close,
            NO_LIMIT if limits.record_limit is None else limits.record_limit,
            NO_LIMIT if limits.byte_limit is None else limits.byte_limit,
            emit_early=limits.when_full == "emit_early",
        )
        spec = BufferSpec.for_suppress(
            buffer_name, here.key, here.value, limits.logging, limits.log_config
        )
        said.wants_old_values(self._id)
        node = Suppression(
            name=step, table=step, parent=self._id, operator=operator, store=spec
        )
        said.plan.add(node, here.node)
        said.plan.tables[step] = SuppressedTable(step, self._id)
        place = NodeRef(said, node, step, here.key, here.value, frozenset((here.name,)))
        return KTable(place, step, None)

    # ---- grouping ----------------------------------------------------------------------------

    @overload
    def group_by(
        self, selector: Callable[[V], tuple[K2, V2]], *, name: str | None = None,
        key: Serde[K2] | None = None, value: Serde[V2] | None = None,
    ) -> KGroupedTable[K2, V2]: ...
    @overload
    def group_by(
        self, selector: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None,
        key: Serde[K2] | None = None, value: Serde[V2] | None = None,
    ) -> KGroupedTable[K2, V2]: ...
    def group_by(
        self,
        selector: Callable[..., tuple[K2, V2]],
        *,
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
    ) -> KGroupedTable[K2, V2]:
        """Every row mapped to a (key, value) of the group it belongs to."""
        here = self._place
        said = here.said
        step = said.names.given_or_next(name, "KTABLE-SELECT-")
        function = key_value_function(selector, step=step, what="the selector")
        node = Regrouping(name=step, parent=self._id, operator=TableRepartitionMap(function))
        said.plan.add(node, here.node)
        said.wants_old_values(self._id)
        return KGroupedTable(NodeRef(said, node, step, key, value, here.sources), name)

    # ---- inside ------------------------------------------------------------------------------

    def _wanted(self, store: Any, step: str, prefix: str) -> Materialized[Any, Any] | None:
        """`store=`; one without a name uses up a number, as Kafka's does."""
        wanted = as_materialized(store, step=step)
        if wanted is not None and wanted.store_name is None:
            self._place.said.names.store(prefix)
        return wanted

    def _filtered(
        self, predicate: Callable[..., Any], name: str | None, store: Any, *, negate: bool
    ) -> KTable[K, V]:
        here = self._place
        wanted = self._wanted(store, name or "filter", "KTABLE-FILTER-")
        step = here.said.names.given_or_next(name, "KTABLE-FILTER-")
        function = key_value_function(predicate, step=step, what="the predicate")
        here.said.wants_old_values(self._id, force=False, by_filter=step)
        # The table goes on with the serdes of its parent; the store does not take them over.
        value: AnySerde = here.value if wanted is None or wanted.value is None else wanted.value
        return self._view(
            step, TableFilter(function, _LATER, negate), wanted, value, minds_versions=True
        )

    def _view(
        self,
        step: str,
        operator: Any,
        wanted: Materialized[Any, Any] | None,
        value: AnySerde,
        stores: tuple[str, ...] = (),
        *,
        minds_versions: bool = False,
    ) -> KTable[Any, Any]:
        here = self._place
        key, spec = here.key, None
        if wanted is not None:
            key = wanted.key if wanted.key is not None else here.key
            if wanted.store_name is not None:
                spec = KeyValueSpec(wanted)
                operator = replace(operator, store_name=spec.name)
        store = None if spec is None else spec.name
        node = TableView(
            name=step, table=step, parent=self._id, operator=operator, store=spec,
            is_versioned=None if wanted is None else KeyValueSpec(wanted).is_versioned,
            connected_stores=stores, minds_versions=minds_versions,
        )
        here.said.plan.add(node, here.node)
        here.said.plan.tables[step] = ViewTable(step, self._id, store)
        return KTable(NodeRef(here.said, node, step, key, value, here.sources), step, store)


#: Stands for the getter of the parent until the plan is lowered.
_LATER: Any = None


class GlobalKTable(Generic[K, V]):
    """A table of which every task has all rows; a stream can be joined to it by any key."""

    def __init__(self, said: PlanBuilder, store: str, queryable: bool) -> None:
        self._said = said
        self._store = store
        self._queryable = queryable

    @property
    def queryable_store_name(self) -> str | None:
        """The store to query, None if the user named none."""
        return self._store if self._queryable else None


def window_grace(plan: Plan, node: PlanNode, chain: str = "") -> int:
    """The grace of the windowed aggregation upstream; the longest if there are several."""
    if node.grace_ms is not None:
        return node.grace_ms
    chain = f"{node.name}->{chain}" if chain else node.name
    parents = plan.parents(node)
    if not parents:
        raise TopologyException(
            f"Window close time is only defined for windowed computations. Got [{chain}]. "
            "Use suppress(until_window_closes) behind a windowed aggregation."
        )
    return max(window_grace(plan, parent, chain) for parent in parents)
