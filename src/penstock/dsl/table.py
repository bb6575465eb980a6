"""`KTable` and `GlobalKTable`: the latest value of each key. Joins are in `table_joins`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.dsl.checks import as_serdes
from penstock.dsl.functions import key_value_function, takes_key
from penstock.dsl.grouped import KGroupedTable
from penstock.dsl.inference import pair_key, pair_value, transformer_flow
from penstock.dsl.known_options import lists_options
from penstock.dsl.options import (
    Materialized,
    StoreOption,
    Suppressed,
    as_materialized,
    store_call,
)
from penstock.dsl.plan_builder import AnySerde, NodeRef, PlanBuilder
from penstock.dsl.table_joins import TableJoins
from penstock.errors import TopologyException
from penstock.java_names import JavaNames
from penstock.processors.api import ValueTransformer
from penstock.processors.suppress import NO_LIMIT, Suppress
from penstock.processors.table_source import TableRepartitionMap, ToStream
from penstock.processors.tables import TableFilter, TableMapValues, TableTransformValues
from penstock.processors.user import transformer_factory
from penstock.serdes.base import SerdeOrType
from penstock.topology.default_serdes import Flow
from penstock.topology.plan import Plan, SuppressedTable, ViewTable
from penstock.topology.plan_nodes import (
    OperatorNode,
    PlanNode,
    SuppressNode,
    TableGroupByNode,
    TableViewNode,
)
from penstock.topology.store_specs import BufferSpec, KeyValueSpec

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


@lists_options
class KTable(TableJoins[K, V], JavaNames, Generic[K, V]):
    """A table: the latest value of each key. A null value deletes the row.

    Each method returns a new table or stream; this table is unchanged. `store=` is a store name, a
    supplier or a `Materialized`: the table then keeps its rows in that store, which can be queried.
    Without it, rows are computed from the parent table when an operator reads them. `name=` names
    the step.
    """

    def __init__(self, ref: NodeRef, table: str, store: str | None) -> None:
        self._ref = ref
        self._id = table
        self._store = store

    def __repr__(self) -> str:
        return self._ref.describe("KTable")

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the store of this table; None if the user did not name one."""
        return self._store

    # ---- row operators -----------------------------------------------------------------------

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
        """Keep the rows for which the predicate is true; a row that no longer fits is deleted.

        Args:
            predicate: A function of (value) or (key, value).
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of these rows.

        Example:
            table.filter(lambda order: order.amount > 100)

        Kafka: `KTable#filter`
        """
        return self._add_filter(predicate, name, store, negate=False)

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
        """Drop the rows for which the predicate is true.

        Args:
            predicate: A function of (value) or (key, value).
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of the other rows.

        Example:
            table.filter_not(lambda order: order.amount == 0)

        Kafka: `KTable#filterNot`
        """
        return self._add_filter(predicate, name, store, negate=True)

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
        """Replace the value of each row. The mapper is not called for deletions.

        Args:
            mapper: A function of (value) or (key, value) that returns the new value.
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table with new values.

        Example:
            table.map_values(lambda order: order.amount, store="amounts")

        Kafka: `KTable#mapValues`
        """
        requested = self._materialized(store, name or "map_values", "KTABLE-MAPVALUES-")
        step = self._ref.builder.names.given_or_next(name, "KTABLE-MAPVALUES-")
        with_key = takes_key(mapper, step=step, what="the mapper")
        operator = TableMapValues(mapper, _GETTER_PLACEHOLDER, with_key)
        value = None if requested is None else requested.value
        values = self._ref.result(mapper, "value", "the mapper", step)
        table = replace(self._ref, value=value, values=values)
        return self._add_view(step, operator, requested, table, "map_values(..., ")

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer[K, V, V2]],
        *stores: str,
        name: str | None = None,
        store: StoreOption[K, V2] = None,
    ) -> KTable[K, V2]:
        """Replace the value of each row with a transformer that can use stores.

        It is also called for deletions. Its context has the `timestamp` and `headers` of the
        current record.

        Args:
            supplier: Returns a new `ValueTransformer`: `init(context)`, `transform(key, value)`,
                `close()`.
            stores: Names of stores to connect.
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table with new values.

        Example:
            table.transform_values(Transformer)

        Kafka: `KTable#transformValues`
        """
        requested = as_materialized(store, step=name or "transform_values")
        step = self._ref.builder.names.given_or_next(name, "KTABLE-TRANSFORMVALUES-")
        make_transformer = transformer_factory(supplier, step=step)
        operator = TableTransformValues(make_transformer, _GETTER_PLACEHOLDER)
        value = None if requested is None else requested.value
        table = replace(self._ref, value=value, values=transformer_flow(supplier, step))
        return self._add_view(
            step, operator, requested, table, "transform_values(..., ", stores
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
        """Return the changes of the table as a stream; a deletion is a record with a null value.

        Args:
            key_fn: A function of (value) or (key, value) that returns a new key; see
                `KStream.select_key`.
            name: The name of the step; generated if it is None.

        Returns:
            The stream of changes.

        Example:
            table.to_stream().to("changes")

        Kafka: `KTable#toStream`
        """
        from penstock.dsl.stream import KStream

        ref = self._ref
        step = ref.builder.names.given_or_next(name, "KTABLE-TOSTREAM-")
        node = OperatorNode(name=step, operator=ToStream())
        ref.builder.plan.add(node, ref.node)
        stream: KStream[K, V] = KStream(
            replace(ref, node=node, name=step, rekeyed=False)
        )
        return stream if key_fn is None else stream.select_key(key_fn)

    def suppress(self, suppressed: Suppressed) -> KTable[K, V]:
        """Buffer the changes of each row and emit only the latest.

        `Suppressed.until_window_closes()` emits one final result per window,
        `Suppressed.until_time_limit(...)` limits the rate of updates per key.

        Args:
            suppressed: When to emit, and the limits of the buffer.

        Returns:
            The table with fewer changes.

        Example:
            table.suppress(Suppressed.until_time_limit(timedelta(minutes=1)))

        Kafka: `KTable#suppress`
        """
        ref = self._ref
        builder = ref.builder
        if not isinstance(suppressed, Suppressed):
            raise TypeError(
                f"{ref.name}: suppress takes a Suppressed, not {type(suppressed).__name__}. "
                "Suppressed.until_window_closes(), for example."
            )
        if ref.node.versioned:
            raise TopologyException(
                f"{ref.name}: suppress() is only supported for non-versioned KTables. "
                "Keep the table in a store that is not versioned."
            )
        if suppressed.name is not None:
            step = suppressed.name
        else:
            step = builder.names.next_processor_name("KTABLE-SUPPRESS-")
        until_close = suppressed.time_limit_ms is None
        wait_ms = suppressed.time_limit_ms
        if wait_ms is None:
            wait_ms = window_grace(builder.plan, ref.node)
        if suppressed.name is not None:
            buffer_name = f"{suppressed.name}-store"
        else:
            buffer_name = builder.names.next_store_name("KTABLE-SUPPRESS-")
        buffer_name = builder.name_hidden_store(
            buffer_name, suppressed.store, given=suppressed.name is not None
        )
        if buffer_name in builder.plan.generated_stores and suppressed.buffer.logging:
            builder.plan.generated_names.append(f"topic {buffer_name}-changelog")
        limits = suppressed.buffer
        operator = Suppress(
            buffer_name, wait_ms, until_close,
            NO_LIMIT if limits.record_limit is None else limits.record_limit,
            NO_LIMIT if limits.byte_limit is None else limits.byte_limit,
            emit_early=limits.when_full == "emit_early",
        )
        spec = BufferSpec.for_suppress(
            buffer_name, ref.key, ref.value, limits.logging, limits.log_config,
            ref.fallback("aggregate(..., store=Materialized("),
        )
        builder.require_old_values(self._id)
        node = SuppressNode(
            name=step, table=step, parent=self._id, operator=operator, store=spec
        )
        builder.plan.add(node, ref.node)
        builder.plan.tables[step] = SuppressedTable(step, self._id)
        new_ref = replace(ref, node=node, name=step, sources=frozenset((ref.name,)))
        return KTable(new_ref, step, None)

    # ---- grouping ----------------------------------------------------------------------------

    @overload
    def group_by(
        self, selector: Callable[[V], tuple[K2, V2]], *, name: str | None = None,
        key: SerdeOrType[K2] | None = None, value: SerdeOrType[V2] | None = None,
    ) -> KGroupedTable[K2, V2]: ...
    @overload
    def group_by(
        self, selector: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None,
        key: SerdeOrType[K2] | None = None, value: SerdeOrType[V2] | None = None,
    ) -> KGroupedTable[K2, V2]: ...
    def group_by(
        self,
        selector: Callable[..., tuple[K2, V2]],
        *,
        name: str | None = None,
        key: SerdeOrType[K2] | None = None,
        value: SerdeOrType[V2] | None = None,
    ) -> KGroupedTable[K2, V2]:
        """Group the rows by a new key, for aggregations.

        Aggregations of the result subtract the old row and add the new one.

        Args:
            selector: A function of (value) or (key, value) that returns a (key, value) pair.
            name: The name of the step and the repartition topic.
            key: The serde of the keys, or a type that has one; inferred if it is None.
            value: The serde of the values, or a type that has one; inferred if it is None.

        Returns:
            The grouped table.

        Example:
            table.group_by(lambda order: (order.customer, order.amount)).count()

        Kafka: `KTable#groupBy`
        """
        ref = self._ref
        builder = ref.builder
        step = builder.names.given_or_next(name, "KTABLE-SELECT-")
        function = key_value_function(selector, step=step, what="the selector")
        node = TableGroupByNode(name=step, parent=self._id, operator=TableRepartitionMap(function))
        builder.plan.add(node, ref.node)
        builder.require_old_values(self._id)
        key_serde, value_serde = as_serdes(step, key=key, value=value)
        new_ref = NodeRef(
            builder, node, step, key_serde, value_serde, ref.sources,
            keys=ref.result(selector, "key", "the selector", step, pair_key),
            values=ref.result(selector, "value", "the selector", step, pair_value),
        )
        return KGroupedTable(new_ref, name)

    # ---- internals ---------------------------------------------------------------------------

    def _materialized(self, store: Any, step: str, prefix: str) -> Materialized[Any, Any] | None:
        """Return `store=` as a `Materialized`. Without a name it consumes a number, as in Kafka."""
        requested = as_materialized(store, step=step)
        if requested is not None and requested.store_name is None:
            self._ref.builder.names.next_store_name(prefix)
        return requested

    def _add_filter(
        self, predicate: Callable[..., Any], name: str | None, store: Any, *, negate: bool
    ) -> KTable[K, V]:
        ref = self._ref
        requested = self._materialized(store, name or "filter", "KTABLE-FILTER-")
        step = ref.builder.names.given_or_next(name, "KTABLE-FILTER-")
        function = key_value_function(predicate, step=step, what="the predicate")
        ref.builder.require_old_values(self._id, force=False, by_filter=step)
        # The table keeps the serdes of its parent; the store does not use them.
        value: AnySerde = ref.value
        if requested is not None and requested.value is not None:
            value = requested.value
        operator = TableFilter(function, _GETTER_PLACEHOLDER, negate)
        return self._add_view(
            step, operator, requested, replace(ref, value=value), "filter(..., ", version_aware=True
        )

    def _add_view(
        self,
        step: str,
        operator: Any,
        requested: Materialized[Any, Any] | None,
        table: NodeRef,
        call: str,
        stores: tuple[str, ...] = (),
        *,
        version_aware: bool = False,
    ) -> KTable[Any, Any]:
        """Add a view; `table` has its value serde, `call` is the user's call up to `store=`."""
        ref, spec = self._ref, None
        if requested is not None:
            if requested.key is not None:
                table = replace(table, key=requested.key)
            if requested.store_name is not None:
                spec = KeyValueSpec(requested, table.fallback(store_call(call, requested)))
                operator = replace(operator, store_name=spec.name)
        store = None if spec is None else spec.name
        node = TableViewNode(
            name=step, table=step, parent=self._id, operator=operator, store=spec,
            is_versioned=None if requested is None else KeyValueSpec(requested).is_versioned,
            connected_stores=stores, version_aware=version_aware,
        )
        ref.builder.plan.add(node, ref.node)
        ref.builder.plan.tables[step] = ViewTable(step, self._id, store)
        return KTable(replace(table, node=node, name=step, rekeyed=False), step, store)


#: `lowering` replaces it by the getter of the parent table.
_GETTER_PLACEHOLDER: Any = None


class GlobalKTable(JavaNames, Generic[K, V]):
    """A table whose rows are all available to every task; streams can join it by any key."""

    def __init__(self, builder: PlanBuilder, store: str, queryable: bool, values: Flow) -> None:
        self._builder = builder
        self._store = store
        self._queryable = queryable
        self._values = values

    def __repr__(self) -> str:
        return f"<GlobalKTable '{self._store}'>"

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the store of this table; None if the user did not name one."""
        return self._store if self._queryable else None


def window_grace(plan: Plan, node: PlanNode, chain: str = "") -> int:
    """Return the longest grace period of the windowed aggregations upstream."""
    if node.grace_ms is not None:
        return node.grace_ms
    chain = f"{node.name}->{chain}" if chain else node.name
    parents = plan.parents(node)
    if not parents:
        raise TopologyException(
            f"Window close time is only defined for windowed computations. Got [{chain}]. "
            "Use until_window_closes() only after a windowed aggregation."
        )
    return max(window_grace(plan, parent, chain) for parent in parents)
