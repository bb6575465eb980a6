"""Joins of two tables: on their keys, or on a foreign key in the rows of the left table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack, overload

from penstock.dsl.checks import check_options, check_same_builder, given_options
from penstock.dsl.foreign_key import add_foreign_key_join
from penstock.dsl.functions import check_function, key_value_function
from penstock.dsl.inference import joined_flow, joiner_flow
from penstock.dsl.known_options import lists_options
from penstock.dsl.options import Materialized, StoreOption, as_materialized, store_call
from penstock.dsl.plan_builder import NodeRef
from penstock.topology.nodes import Partitioner
from penstock.topology.plan import JoinedTable
from penstock.topology.plan_nodes import JoinKind, TableTableJoinNode
from penstock.topology.store_specs import KeyValueSpec

if TYPE_CHECKING:
    from penstock.dsl.table import KTable

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
VR = TypeVar("VR")

_METHODS: dict[JoinKind, str] = {"inner": "join", "left": "left_join", "outer": "outer_join"}


class _ForeignKeyOptions(TypedDict, total=False):
    """Options of a foreign-key join. Kafka: `TableJoined` for the partitioners."""

    name: str | None
    store: StoreOption[Any, Any]
    partitioner: Partitioner | None
    other_partitioner: Partitioner | None
    subscription_store: str | None


@lists_options
class TableJoins(Generic[K, V]):
    """The joins of `KTable`.

    `join(table, joiner)` joins rows with equal keys. `join(table, foreign_key, joiner)` joins each
    row with the row of the other table whose key `foreign_key` returns.
    """

    _ref: NodeRef
    _id: str

    @overload
    def join(
        self, other: KTable[K, V2], joiner: Callable[[V, V2], VR], /, *,
        name: str | None = None, store: StoreOption[K, VR] = None,
    ) -> KTable[K, VR]: ...
    @overload
    def join(
        self, other: KTable[K2, V2], foreign_key: Callable[[V], K2 | None],
        joiner: Callable[[V, V2], VR], /, **options: Unpack[_ForeignKeyOptions],
    ) -> KTable[K, VR]: ...
    @overload
    def join(
        self, other: KTable[K2, V2], foreign_key: Callable[[K, V], K2 | None],
        joiner: Callable[[V, V2], VR], /, **options: Unpack[_ForeignKeyOptions],
    ) -> KTable[K, VR]: ...
    def join(
        self,
        other: Any,
        *arguments: Any,
        name: str | None = None,
        store: StoreOption[Any, Any] = None,
        partitioner: Partitioner | None = None,
        other_partitioner: Partitioner | None = None,
        subscription_store: str | None = None,
    ) -> KTable[Any, Any]:
        """Return a table of the keys that match in both tables: an inner join.

        Args:
            other: A table of the same builder.
            arguments: `joiner`, or `foreign_key, joiner` for a foreign-key join: `foreign_key` is a
                function of (value) or (key, value) that returns a key of the other table, or None
                for no match. A joiner takes (left, right).
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.
            partitioner: The partitioner of the responses of a foreign-key join.
            other_partitioner: The partitioner of its subscriptions.
            subscription_store: The exact name of the store that keeps which rows refer to which, to
                keep the name of an earlier version.

        Returns:
            The table of the results of the joiner.

        Example:
            table.join(customers, lambda order, name: name, store="joined")
            table.join(customers, lambda order: order.customer, lambda order, name: name)

        Kafka: `KTable#join`
        """
        options = given_options(
            name=name, store=store, partitioner=partitioner, other_partitioner=other_partitioner,
            subscription_store=subscription_store,
        )
        return self._add_join("inner", other, arguments, options)

    @overload
    def left_join(
        self, other: KTable[K, V2], joiner: Callable[[V, V2 | None], VR], /, *,
        name: str | None = None, store: StoreOption[K, VR] = None,
    ) -> KTable[K, VR]: ...
    @overload
    def left_join(
        self, other: KTable[K2, V2], foreign_key: Callable[[V], K2 | None],
        joiner: Callable[[V, V2 | None], VR], /, **options: Unpack[_ForeignKeyOptions],
    ) -> KTable[K, VR]: ...
    @overload
    def left_join(
        self, other: KTable[K2, V2], foreign_key: Callable[[K, V], K2 | None],
        joiner: Callable[[V, V2 | None], VR], /, **options: Unpack[_ForeignKeyOptions],
    ) -> KTable[K, VR]: ...
    def left_join(
        self,
        other: Any,
        *arguments: Any,
        name: str | None = None,
        store: StoreOption[Any, Any] = None,
        partitioner: Partitioner | None = None,
        other_partitioner: Partitioner | None = None,
        subscription_store: str | None = None,
    ) -> KTable[Any, Any]:
        """Keep also rows of this table without a match; the right value is then None.

        Args:
            other: A table of the same builder.
            arguments: `joiner`, or `foreign_key, joiner` for a foreign-key join: `foreign_key` is a
                function of (value) or (key, value) that returns a key of the other table, or None
                for no match. A joiner takes (left, right).
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.
            partitioner: The partitioner of the responses of a foreign-key join.
            other_partitioner: The partitioner of its subscriptions.
            subscription_store: The exact name of the store that keeps which rows refer to which, to
                keep the name of an earlier version.

        Returns:
            The table of the results of the joiner.

        Example:
            table.left_join(customers, lambda order, name: name or "unknown")

        Kafka: `KTable#leftJoin`
        """
        options = given_options(
            name=name, store=store, partitioner=partitioner, other_partitioner=other_partitioner,
            subscription_store=subscription_store,
        )
        return self._add_join("left", other, arguments, options)

    def outer_join(
        self, other: KTable[K, V2], joiner: Callable[[V | None, V2 | None], VR], /, *,
        name: str | None = None, store: StoreOption[K, VR] = None,
    ) -> KTable[K, VR]:
        """Keep the rows of both tables, matched or not; either value may be None.

        Args:
            other: A table of the same builder.
            joiner: A function of (left, right).
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of the results of the joiner.

        Example:
            table.outer_join(customers, lambda order, name: name or "unknown")

        Kafka: `KTable#outerJoin`
        """
        return self._add_join("outer", other, (joiner,), {"name": name, "store": store})

    def _add_join(
        self, kind: JoinKind, other: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> KTable[Any, Any]:
        from penstock.dsl.table import KTable

        step = options.get("name") or f"{kind} join of {self._ref.name}"
        if not isinstance(other, KTable):
            raise TypeError(
                f"{step}: the {kind} join of a table takes a KTable, not {type(other).__name__}. "
                "Convert a stream with to_table(), or join the stream with the table."
            )
        check_same_builder(step, self._ref.builder, other._ref.builder)
        known = _ForeignKeyOptions.__annotations__ if len(args) > 1 else ("name", "store")
        check_options(step, options, known)
        if len(args) == 1:
            return self._join_on_key(kind, other, args[0], **options)
        if len(args) == 2 and kind != "outer":
            foreign_key = key_value_function(args[0], step=step, what="the foreign-key function")
            check_function(args[1], 2, step=step, what="the joiner of two tables")
            left = self
            assert isinstance(left, KTable)
            return add_foreign_key_join(
                left, other, foreign_key, args[1], left_join=kind == "left", **options
            )
        signatures = "(table, joiner)" + (kind != "outer") * " or (table, foreign_key, joiner)"
        raise TypeError(
            f"{step}: the {kind} join of a table takes {signatures}, but {len(args)} arguments "
            "were given after the table."
        )

    def _join_on_key(
        self,
        kind: JoinKind,
        other: KTable[Any, Any],
        joiner: Callable[..., Any],
        *,
        name: str | None = None,
        store: Any = None,
    ) -> KTable[Any, Any]:
        from penstock.dsl.table import KTable

        ref, other_ref = self._ref, other._ref
        builder = ref.builder
        requested = as_materialized(store, step=name or f"{kind} join")
        materialized: Materialized[Any, Any] | None = None
        if requested is not None:
            materialized, _ = builder.name_store(requested, "KTABLE-MERGE-")
        merge = builder.names.given_or_next(name, "KTABLE-MERGE-")
        check_function(joiner, 2, step=merge, what="the joiner of two tables")
        sources = builder.copartition(ref.sources, other_ref.sources)
        if kind != "inner":
            builder.require_old_values(self._id)
        if kind == "outer":
            builder.require_old_values(other._id)
        table = replace(
            ref, name=merge, value=None, sources=sources, rekeyed=False,
            keys=joined_flow(ref.keys, other_ref.keys, "key", merge),
            values=joiner_flow(joiner, merge, ref.keys, ref.values, other_ref.values),
        )
        spec = None
        if materialized is not None:
            call = store_call(f"{_METHODS[kind]}(..., ", store)
            spec = KeyValueSpec(
                materialized.with_serdes(ref.key, None), table.fallback(call)
            )
            table = replace(table, key=spec.key, value=spec.value)
        builder.add_table_read(self._id)
        builder.add_table_read(other._id)
        this_name = builder.names.suffixed_or_next(name, "-join-this", "KTABLE-JOINTHIS-")
        other_name = builder.names.suffixed_or_next(name, "-join-other", "KTABLE-JOINOTHER-")
        node = TableTableJoinNode(
            name=merge, table=merge, this_name=this_name, other_name=other_name,
            this_table=self._id, other_table=other._id, kind=kind, joiner=joiner, store=spec,
            is_versioned=spec is not None and spec.is_versioned,
        )
        builder.plan.add(node, ref.node)
        builder.plan.add(node, other_ref.node)
        store_name = None if spec is None else spec.name
        builder.plan.tables[merge] = JoinedTable(
            merge, (this_name, other_name), (self._id, other._id), store_name
        )
        return KTable(replace(table, node=node), merge, store_name)
