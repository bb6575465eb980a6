"""Joins of a stream: with another stream in a window, with a table, with a global table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack, overload

from penstock.dsl.checks import check_options, check_same_builder, check_serdes
from penstock.dsl.functions import joiner_takes_key, key_value_function
from penstock.dsl.options import StoreType
from penstock.dsl.plan_builder import AnySerde, NodeRef
from penstock.errors import StreamsException
from penstock.topology.naming import check_name
from penstock.topology.plan_nodes import (
    JoinKind,
    JoinWindowNode,
    RepartitionNode,
    StreamGlobalTableJoinNode,
    StreamStreamJoinNode,
    StreamTableJoinNode,
)
from penstock.topology.store_specs import (
    BufferSpec,
    JoinStoreOptions,
    JoinWindowSpec,
    SharedJoinSpec,
)
from penstock.windows import JoinWindows, to_ms

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream
    from penstock.dsl.table import GlobalKTable, KTable
    from penstock.stores.api.dsl_suppliers import DslStoreSuppliers

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")
VR = TypeVar("VR")
GK = TypeVar("GK")

_PARTNERS = "a KStream, a KTable or a GlobalKTable"


class _TableJoinOptions(TypedDict, total=False):
    """Options of a join with a table. Kafka: `Joined`."""

    key: AnySerde
    value: AnySerde
    other_value: AnySerde
    name: str | None
    grace: timedelta | int | None


class _StreamJoinOptions(TypedDict, total=False):
    """Options of a join of two streams. Kafka: `StreamJoined`."""

    key: AnySerde
    value: AnySerde
    other_value: AnySerde
    name: str | None
    store_name: str | None
    this_store: Any
    other_store: Any
    dsl_store_suppliers: StoreType | DslStoreSuppliers | None
    logging: bool


class StreamJoins(Generic[K, V]):
    """The joins of `KStream`.

    `join(stream, joiner, windows)` pairs records with equal keys and close timestamps.
    `join(table, joiner)` looks up the key of each record in a table.
    `join(global_table, key_selector, joiner)` looks up the key that `key_selector` returns.
    A joiner takes (left, right) or (key, left, right) and returns the value of the result.
    """

    _ref: NodeRef
    _repartition: RepartitionNode | None = None

    @overload
    def join(
        self, other: KStream[K, V2], joiner: Callable[[V, V2], VR],
        windows: JoinWindows, /, **options: Unpack[_StreamJoinOptions],
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self, other: KStream[K, V2], joiner: Callable[[K, V, V2], VR],
        windows: JoinWindows, /, **options: Unpack[_StreamJoinOptions],
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self, other: KTable[K, V2], joiner: Callable[[V, V2], VR], /,
        **options: Unpack[_TableJoinOptions],
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self, other: KTable[K, V2], joiner: Callable[[K, V, V2], VR], /,
        **options: Unpack[_TableJoinOptions],
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self, other: GlobalKTable[GK, V2], key_selector: Callable[[V], GK | None],
        joiner: Callable[[V, V2], VR], /, *, name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self, other: GlobalKTable[GK, V2], key_selector: Callable[[K, V], GK | None],
        joiner: Callable[[V, V2], VR], /, *, name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self, other: GlobalKTable[GK, V2], key_selector: Callable[[V], GK | None],
        joiner: Callable[[K, V, V2], VR], /, *, name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self, other: GlobalKTable[GK, V2], key_selector: Callable[[K, V], GK | None],
        joiner: Callable[[K, V, V2], VR], /, *, name: str | None = None,
    ) -> KStream[K, VR]: ...
    def join(self, other: Any, *args: Any, **options: Any) -> KStream[Any, Any]:
        """Emit a result for each pair of matching records: an inner join.

        Takes `(stream, joiner, windows)`, `(table, joiner)` or
        `(global_table, key_selector, joiner)`. Options of a stream join: the serdes `key`, `value`
        and `other_value`; `name`; `store_name`; `this_store` and `other_store` (suppliers);
        `dsl_store_suppliers`; `logging`. Of a table join: the serdes, `name`, and `grace`, for a
        lookup in a versioned table at the timestamp of the record.
        """
        return self._add_join("inner", other, args, options)

    @overload
    def left_join(
        self, other: KStream[K, V2], joiner: Callable[[V, V2 | None], VR],
        windows: JoinWindows, /, **options: Unpack[_StreamJoinOptions],
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self, other: KStream[K, V2], joiner: Callable[[K, V, V2 | None], VR],
        windows: JoinWindows, /, **options: Unpack[_StreamJoinOptions],
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self, other: KTable[K, V2], joiner: Callable[[V, V2 | None], VR], /,
        **options: Unpack[_TableJoinOptions],
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self, other: KTable[K, V2], joiner: Callable[[K, V, V2 | None], VR], /,
        **options: Unpack[_TableJoinOptions],
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self, other: GlobalKTable[GK, V2], key_selector: Callable[[V], GK | None],
        joiner: Callable[[V, V2 | None], VR], /, *, name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self, other: GlobalKTable[GK, V2], key_selector: Callable[[K, V], GK | None],
        joiner: Callable[[V, V2 | None], VR], /, *, name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self, other: GlobalKTable[GK, V2], key_selector: Callable[[V], GK | None],
        joiner: Callable[[K, V, V2 | None], VR], /, *, name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self, other: GlobalKTable[GK, V2], key_selector: Callable[[K, V], GK | None],
        joiner: Callable[[K, V, V2 | None], VR], /, *, name: str | None = None,
    ) -> KStream[K, VR]: ...
    def left_join(self, other: Any, *args: Any, **options: Any) -> KStream[Any, Any]:
        """Emit also records of this stream without a match; the right value is then None.

        Takes the arguments of `join`. In a stream join, unmatched records are emitted when their
        window closes.
        """
        return self._add_join("left", other, args, options)

    @overload
    def outer_join(
        self, other: KStream[K, V2], joiner: Callable[[V | None, V2 | None], VR],
        windows: JoinWindows, /, **options: Unpack[_StreamJoinOptions],
    ) -> KStream[K, VR]: ...
    @overload
    def outer_join(
        self, other: KStream[K, V2], joiner: Callable[[K, V | None, V2 | None], VR],
        windows: JoinWindows, /, **options: Unpack[_StreamJoinOptions],
    ) -> KStream[K, VR]: ...
    def outer_join(self, other: Any, *args: Any, **options: Any) -> KStream[Any, Any]:
        """Join two streams and emit the unmatched records of both; either value may be None.

        Takes `(stream, joiner, windows)` and the options of `join`.
        """
        return self._add_join("outer", other, args, options)

    def _add_join(
        self, kind: JoinKind, other: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> KStream[Any, Any]:
        from penstock.dsl.stream import KStream
        from penstock.dsl.table import GlobalKTable, KTable

        step = options.get("name") or f"{kind} join of {self._ref.name}"
        builder = self._ref.builder
        if isinstance(other, KStream):
            check_same_builder(step, builder, other._ref.builder)
            _check_arguments(step, "stream", args)
            check_options(step, options, _StreamJoinOptions.__annotations__)
            return self._join_stream(kind, other, args[0], args[1], **options)
        if kind != "outer" and isinstance(other, GlobalKTable):
            check_same_builder(step, builder, other._builder)
            _check_arguments(step, "global table", args)
            check_options(step, options, ("name",))
            return self._join_global(kind, other, args[0], args[1], **options)
        if kind != "outer" and isinstance(other, KTable):
            check_same_builder(step, builder, other._ref.builder)
            _check_arguments(step, "table", args)
            check_options(step, options, _TableJoinOptions.__annotations__)
            return self._join_table(kind, other, args[0], **options)
        raise TypeError(
            f"{step}: the {kind} join of a stream takes "
            f"{'a KStream' if kind == 'outer' else _PARTNERS}, not {type(other).__name__}."
        )

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
        dsl_store_suppliers: StoreType | DslStoreSuppliers | None = None,
        logging: bool = True,
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
        check_serdes(step, key=key, value=value, other_value=other_value)
        left: KStream[Any, Any] = self._repartition_if_rekeyed("-left", name, key, value)
        right = other._repartition_if_rekeyed("-right", name, key, other_value)
        sources = builder.copartition(left._ref.sources, right._ref.sources)
        if isinstance(dsl_store_suppliers, StoreType):
            dsl_store_suppliers = dsl_store_suppliers.suppliers
        options = JoinStoreOptions(
            key, value, other_value, store_name, this_store, other_store, dsl_store_suppliers,
            logging,
        )
        node = _add_stream_join(kind, left._ref, right._ref, joiner, windows, name, options)
        return KStream(NodeRef(builder, node, node.name, key, None, sources))

    def _repartition_if_rekeyed(
        self, suffix: str, name: str | None, key: AnySerde, value: AnySerde
    ) -> KStream[Any, Any]:
        """Return this stream, or its repartitioned form if the key has changed."""
        ref = self._ref
        if not ref.rekeyed:
            return self  # type: ignore[return-value]
        given = None if name is None else name + suffix
        return self._add_repartition(given, key, value)

    def _add_repartition(
        self, given: str | None, key: AnySerde, value: AnySerde
    ) -> KStream[Any, Any]:
        from penstock.dsl.stream import KStream

        ref = self._ref
        key_serde = key if key is not None else ref.key
        value_serde = value if value is not None else ref.value
        topic = given if given is not None else ref.name
        repartition = ref.builder.repartition(
            topic, key_serde, value_serde, given=given is not None
        )
        if self._repartition is None or ref.name != topic:
            self._repartition = repartition
            ref.builder.plan.add(repartition, ref.node)
        return KStream(
            NodeRef(
                ref.builder, self._repartition, repartition.name, key_serde, value_serde,
                frozenset((repartition.name,)),
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
    ) -> KStream[Any, Any]:
        from penstock.dsl.stream import KStream

        if name is not None:
            check_name(name)
        check_serdes(
            name or f"{kind} join of {self._ref.name}", key=key, value=value,
            other_value=other_value,
        )
        rekeyed = self._ref.rekeyed
        stream = self._add_repartition(name, key, value) if rekeyed else self
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
                step, key_serde, value if value is not None else ref.value, grace_ms
            )
            if name is None:
                builder.plan.generated_names.append(f"store {buffer.name}")
        node = StreamTableJoinNode(
            name=step, table=table._id, left=kind == "left", joiner=joiner,
            with_key=joiner_takes_key(joiner, step=step), join_grace_ms=grace_ms, buffer=buffer,
        )
        builder.add_table_read(table._id)
        builder.plan.add(node, ref.node)
        return KStream(NodeRef(builder, node, step, key_serde, None, sources))

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
            NodeRef(ref.builder, node, step, ref.key, None, ref.sources, ref.rekeyed)
        )


#: The positional arguments after the other side, by its kind.
_SIGNATURES = {
    "stream": ("joiner", "windows"),
    "table": ("joiner",),
    "global table": ("key_selector", "joiner"),
}


def _check_arguments(step: str, what: str, args: tuple[Any, ...]) -> None:
    requested = _SIGNATURES[what]
    if len(args) != len(requested):
        missing = "" if len(args) > len(requested) else f" {requested[len(args)]} is missing."
        raise TypeError(
            f"{step}: a join with a {what} takes ({', '.join((what, *requested))}), but "
            f"{len(args)} argument{' was' if len(args) == 1 else 's were'} given after the {what}."
            f"{missing}"
        )


def _add_stream_join(
    kind: JoinKind,
    left: NodeRef,
    right: NodeRef,
    joiner: Callable[..., Any],
    windows: JoinWindows,
    name: str | None,
    options: JoinStoreOptions,
) -> StreamStreamJoinNode:
    """Add the nodes and stores of a join, with Kafka's names and numbers."""
    builder = left.builder
    names = builder.names
    outer = kind == "outer"
    this_suffix = "-outer-this-join" if outer else "-this-join"
    other_suffix = "-other-join" if kind == "inner" else "-outer-other-join"
    this_window = names.suffixed_or_next(name, "-this-windowed", "KSTREAM-WINDOWED-")
    other_window = names.suffixed_or_next(name, "-other-windowed", "KSTREAM-WINDOWED-")
    this_number = names.next_processor_name("KSTREAM-OUTERTHIS-" if outer else "KSTREAM-JOINTHIS-")
    other_number = names.next_processor_name(
        "KSTREAM-JOINOTHER-" if kind == "inner" else "KSTREAM-OUTEROTHER-"
    )
    merge = names.suffixed_or_next(name, "-merge", "KSTREAM-MERGE-")
    _check_join_stores(options, windows)
    base = options.store_name
    this_spec = JoinWindowSpec(
        f"{this_number if base is None else base + this_suffix}-store", windows, options, "this"
    )
    other_spec = JoinWindowSpec(
        f"{other_number if base is None else base + other_suffix}-store", windows, options, "other"
    )
    shared = None
    if kind != "inner" and not windows.eager:
        shared = SharedJoinSpec.of_join(this_number, options, outer=outer)
    if base is None:
        for spec in (this_spec, other_spec, shared):
            if spec is not None:
                builder.plan.generated_names.append(f"store {spec.name}")
    this_node = JoinWindowNode(name=this_window, store=this_spec)
    other_node = JoinWindowNode(name=other_window, store=other_spec)
    builder.plan.add(this_node, left.node)
    builder.plan.add(other_node, right.node)
    node = StreamStreamJoinNode(
        name=merge,
        this_name=this_number if name is None else name + this_suffix,
        other_name=other_number if name is None else name + other_suffix,
        this_window=this_window, other_window=other_window, kind=kind, joiner=joiner,
        with_key=joiner_takes_key(joiner, step=merge), windows=windows, this_store=this_spec,
        other_store=other_spec, shared_store=shared,
        value_serdes=(options.key, options.value, options.other_value),
    )
    builder.plan.add(node, left.node, right.node)
    return node


def _check_join_stores(options: JoinStoreOptions, windows: JoinWindows) -> None:
    this_store, other_store = options.this_store, options.other_store
    if this_store is not None and other_store is not None and this_store.name == other_store.name:
        raise StreamsException(
            f"Both stores of the join are named {this_store.name!r}. Give them different names."
        )
    for supplier in (this_store, other_store):
        if supplier is None:
            continue
        if not supplier.retain_duplicates:
            raise StreamsException(
                f"The store {supplier.name!r} of a stream join does not retain duplicates. "
                "Create its supplier with retain_duplicates=True."
            )
        retention_ms = windows.size + windows.grace_ms
        if supplier.retention_ms != retention_ms or supplier.window_size_ms != windows.size:
            raise StreamsException(
                f"The store {supplier.name!r} does not match the windows of the join. "
                f"It has a retention of {supplier.retention_ms} ms and a window size of "
                f"{supplier.window_size_ms} ms; the join needs {retention_ms} ms and "
                f"{windows.size} ms."
            )
