"""Adds the nodes and stores of the joins of a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.dsl.checks import as_serdes
from penstock.dsl.functions import joiner_takes_key, key_value_function
from penstock.dsl.inference import joined_flow, joiner_flow
from penstock.dsl.options import StoreType
from penstock.dsl.plan_builder import AnySerde, NodeRef
from penstock.dsl.stream_stream_join import add_stream_join
from penstock.topology.default_serdes import Fallback, InferredSerde
from penstock.topology.join_store_specs import JoinStoreOptions
from penstock.topology.naming import check_name
from penstock.topology.plan_nodes import (
    JoinKind,
    RepartitionNode,
    StreamGlobalTableJoinNode,
    StreamTableJoinNode,
)
from penstock.topology.store_specs import BufferSpec
from penstock.windows import JoinWindows, to_ms

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream
    from penstock.dsl.table import GlobalKTable, KTable
    from penstock.stores.api.dsl_suppliers import DslStoreSuppliers

K = TypeVar("K")
V = TypeVar("V")

_METHODS: dict[JoinKind, str] = {"inner": "join", "left": "left_join", "outer": "outer_join"}


class StreamJoinSteps(Generic[K, V]):
    """Joins of a stream with arguments that are already checked."""

    _ref: NodeRef
    _repartition: RepartitionNode | None = None

    # ---- with a stream -----------------------------------------------------------------------

    def _join_stream(
        self,
        kind: JoinKind,
        other: KStream[Any, Any],
        joiner: Callable[..., Any],
        windows: JoinWindows,
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        other_value: AnySerde = None,
        name: str | None = None,
        store_name: str | None = None,
        this_store: Any = None,
        other_store: Any = None,
        shared_store: str | None = None,
        dsl_store_suppliers: StoreType | DslStoreSuppliers | None = None,
        logging: bool = True,
        log_config: Mapping[str, str] | None = None,
    ) -> KStream[Any, Any]:
        from penstock.dsl.stream import KStream

        builder = self._ref.builder
        step = name or f"{kind} join of {self._ref.name}"
        if not isinstance(windows, JoinWindows):
            raise TypeError(
                f"{step}: a join of two streams needs JoinWindows as its third argument, not "
                f"{windows!r}. JoinWindows.of(timedelta(minutes=5)), for example."
            )
        if name is not None:
            check_name(name)
        key, value, other_value = as_serdes(step, key=key, value=value, other_value=other_value)
        call = f"{_METHODS[kind]}(..."
        keys = joined_flow(self._ref.keys, other._ref.keys, "key", step)
        inferred_key = InferredSerde("key", keys, call)
        left: KStream[Any, Any] = self._repartition_if_rekeyed(
            "-left", name, key, value, inferred_key
        )
        right = other._repartition_if_rekeyed(
            "-right", name, key, other_value, inferred_key, "other_value"
        )
        sources = builder.copartition(left._ref.sources, right._ref.sources)
        if isinstance(dsl_store_suppliers, StoreType):
            dsl_store_suppliers = dsl_store_suppliers.suppliers
        exact = tuple(each if isinstance(each, str) else None for each in (this_store, other_store))
        this_store, other_store = (
            None if isinstance(each, str) else each for each in (this_store, other_store)
        )
        options = JoinStoreOptions(
            key if key is not None else inferred_key,
            value if value is not None else left._ref.inferred_value(call),
            other_value if other_value is not None else InferredSerde(
                "value", right._ref.values, call, "other_value"
            ),
            store_name, this_store, other_store, dsl_store_suppliers, logging,
            (*exact, shared_store), log_config=dict(log_config or {}),
        )
        node = add_stream_join(kind, left._ref, right._ref, joiner, windows, name, options)
        return KStream(
            NodeRef(
                builder, node, node.name, key, None, sources, keys=keys,
                values=joiner_flow(joiner, node.name, keys, left._ref.values, right._ref.values),
            )
        )

    def _repartition_if_rekeyed(
        self, suffix: str, name: str | None, key: AnySerde, value: AnySerde,
        inferred_key: InferredSerde, argument: str = "value",
    ) -> KStream[Any, Any]:
        """Return this stream, or its repartitioned form if the key has changed."""
        ref = self._ref
        if not ref.rekeyed:
            return self  # type: ignore[return-value]
        given = None if name is None else name + suffix
        return self._add_repartition(given, key, value, inferred_key, argument)

    def _add_repartition(
        self, given: str | None, key: AnySerde, value: AnySerde, inferred_key: InferredSerde,
        argument: str = "value",
    ) -> KStream[Any, Any]:
        from penstock.dsl.stream import KStream

        ref = self._ref
        key_serde = key if key is not None else ref.key
        value_serde = value if value is not None else ref.value
        inferred_value = replace(
            inferred_key, which="value", flow=ref.values, argument=argument
        )
        topic = given if given is not None else ref.name
        repartition = ref.builder.repartition(
            topic, key_serde if key_serde is not None else inferred_key,
            value_serde if value_serde is not None else inferred_value, given=given is not None,
        )
        if self._repartition is None or ref.name != topic:
            self._repartition = repartition
            ref.builder.plan.add(repartition, ref.node)
        return KStream(
            NodeRef(
                ref.builder, self._repartition, repartition.name, key_serde, value_serde,
                frozenset((repartition.name,)), keys=inferred_key.flow, values=ref.values,
            )
        )

    # ---- with tables -------------------------------------------------------------------------

    def _join_table(
        self,
        kind: JoinKind,
        table: KTable[Any, Any],
        joiner: Callable[..., Any],
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        other_value: AnySerde = None,
        name: str | None = None,
        grace: timedelta | int | None = None,
        buffer_store: str | None = None,
    ) -> KStream[Any, Any]:
        from penstock.dsl.stream import KStream

        if name is not None:
            check_name(name)
        label = name or f"{kind} join of {self._ref.name}"
        key, value, _ = as_serdes(label, key=key, value=value, other_value=other_value)
        keys = joined_flow(self._ref.keys, table._ref.keys, "key", label)
        inferred_key = InferredSerde("key", keys, f"{_METHODS[kind]}(...")
        rekeyed = self._ref.rekeyed
        stream = self._add_repartition(name, key, value, inferred_key) if rekeyed else self
        ref = stream._ref
        builder = ref.builder
        sources = builder.copartition(ref.sources, table._ref.sources)
        prefix = "KSTREAM-LEFTJOIN-" if kind == "left" else "KSTREAM-JOIN-"
        step = builder.names.given_or_next(name, prefix)
        key_serde = key if key is not None else ref.key
        grace_ms = None if grace is None else to_ms(grace)
        buffer = None
        if grace_ms is not None:
            if table._ref.node.versioned is False:
                raise ValueError(
                    f"{step}: KTable must be versioned to use a grace period in a stream table "
                    "join. Give it a store of Stores.persistent_versioned_key_value_store."
                )
            buffer = BufferSpec.for_join(
                builder.name_hidden_store(f"{step}-Buffer", buffer_store, given=name is not None),
                key_serde, value if value is not None else ref.value, grace_ms,
                Fallback(inferred_key, ref.inferred_value(inferred_key.call)),
            )
            if name is None and buffer_store is None:
                builder.plan.generated_names.append(f"store {buffer.name}")
        elif buffer_store is not None:
            raise ValueError(
                f"{step}: buffer_store= names the buffer of a join with grace=, but grace= is not "
                "given. Leave out buffer_store=."
            )
        node = StreamTableJoinNode(
            name=step, table=table._id, left=kind == "left", joiner=joiner,
            with_key=joiner_takes_key(joiner, step=step), join_grace_ms=grace_ms, buffer=buffer,
        )
        builder.add_table_read(table._id)
        builder.plan.add(node, ref.node)
        return KStream(
            NodeRef(
                builder, node, step, key_serde, None, sources, keys=keys,
                values=joiner_flow(joiner, step, keys, ref.values, table._ref.values),
            )
        )

    def _join_global(
        self,
        kind: JoinKind,
        table: GlobalKTable[Any, Any],
        key_selector: Callable[..., Any],
        joiner: Callable[..., Any],
        *,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        from penstock.dsl.stream import KStream

        ref = self._ref
        step = ref.builder.names.given_or_next(name, "KSTREAM-LEFTJOIN-")
        node = StreamGlobalTableJoinNode(
            name=step, store_name=table._store, left=kind == "left",
            key_selector=key_value_function(key_selector, step=step, what="the key selector"),
            joiner=joiner, with_key=joiner_takes_key(joiner, step=step),
        )
        ref.builder.plan.add(node, ref.node)
        return KStream(
            NodeRef(
                ref.builder, node, step, ref.key, None, ref.sources, ref.rekeyed, keys=ref.keys,
                values=joiner_flow(joiner, step, ref.keys, ref.values, table._values),
            )
        )
