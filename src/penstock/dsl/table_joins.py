"""Joins of two tables: on their keys, or on a foreign key in the rows of the left table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack, overload

from penstock.dsl.checks import check_options, check_same_builder
from penstock.dsl.foreign_key import add_foreign_key_join
from penstock.dsl.functions import check_function, key_value_function
from penstock.dsl.options import Materialized, StoreOption, as_materialized
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


class _ForeignKeyOptions(TypedDict, total=False):
    """Options of a foreign-key join. Kafka: `TableJoined` for the partitioners."""

    name: str | None
    store: StoreOption[Any, Any]
    partitioner: Partitioner | None
    other_partitioner: Partitioner | None


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
    def join(self, other: Any, *args: Any, **options: Any) -> KTable[Any, Any]:
        """Return a table of the keys that match in both tables: an inner join.

        Takes `(table, joiner)`, or `(table, foreign_key, joiner)` for a foreign-key join: then
        `foreign_key`, a function of (value) or (key, value), returns a key of the other table, or
        None for no match. A joiner takes (left, right). Options: `name`, `store`; of a foreign-key
        join also `partitioner` and `other_partitioner`.
        """
        return self._add_join("inner", other, args, options)

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
    def left_join(self, other: Any, *args: Any, **options: Any) -> KTable[Any, Any]:
        """Keep also rows of this table without a match; the right value is then None.

        Takes the arguments of `join`.
        """
        return self._add_join("left", other, args, options)

    def outer_join(
        self, other: KTable[K, V2], joiner: Callable[[V | None, V2 | None], VR], /, *,
        name: str | None = None, store: StoreOption[K, VR] = None,
    ) -> KTable[K, VR]:
        """Keep the rows of both tables, matched or not; either value may be None."""
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
        spec = None
        key, value = ref.key, None
        if materialized is not None:
            spec = KeyValueSpec(materialized.with_serdes(ref.key, None))
            key, value = spec.key, spec.value
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
        return KTable(NodeRef(builder, node, merge, key, value, sources), merge, store_name)
