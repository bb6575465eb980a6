"""Joins of a stream: with a stream over a window, with a table, with a global table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack, overload

from penstock.dsl.checks import check_options, check_same_builder, check_serdes
from penstock.dsl.functions import joiner_function, key_value_function
from penstock.dsl.options import StoreType
from penstock.dsl.plan_builder import AnySerde, NodeRef
from penstock.errors import StreamsException
from penstock.topology.naming import check_name
from penstock.topology.plan_nodes import (
    JoinKind,
    JoinWindow,
    Repartition,
    StreamGlobalJoin,
    StreamJoin,
    StreamTableJoin,
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
    """What a join with a table can be told besides."""

    key: AnySerde
    value: AnySerde
    other_value: AnySerde
    name: str | None
    grace: timedelta | int | None


class _StreamJoinOptions(TypedDict, total=False):
    """What a join of two streams can be told besides."""

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
    """The part of `KStream` that joins.

    `join(stream, joiner, windows)` pairs records of equal keys whose times are close;
    `join(table, joiner)` looks every record's key up in a table;
    `join(global_table, key_selector, joiner)` looks up a key made from the record.
    A joiner takes (left, right) or (key, left, right).
    """

    _place: NodeRef
    _hop: Repartition | None = None

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
        """Only records that have a partner."""
        return self._joined("inner", other, args, options)

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
        """All records of this stream; the other side is None where there is no partner."""
        return self._joined("left", other, args, options)

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
        """All records of both streams; either side may be None."""
        return self._joined("outer", other, args, options)

    def _joined(
        self, kind: JoinKind, other: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> KStream[Any, Any]:
        from penstock.dsl.stream import KStream
        from penstock.dsl.table import GlobalKTable, KTable

        step = options.get("name") or f"{kind} join of {self._place.name}"
        said = self._place.said
        if isinstance(other, KStream):
            check_same_builder(step, said, other._place.said)
            _check_arguments(step, "stream", args)
            check_options(step, options, _StreamJoinOptions.__annotations__)
            return self._join_stream(kind, other, args[0], args[1], **options)
        if kind != "outer" and isinstance(other, GlobalKTable):
            check_same_builder(step, said, other._said)
            _check_arguments(step, "global table", args)
            check_options(step, options, ("name",))
            return self._join_global(kind, other, args[0], args[1], **options)
        if kind != "outer" and isinstance(other, KTable):
            check_same_builder(step, said, other._place.said)
            _check_arguments(step, "table", args)
            check_options(step, options, _TableJoinOptions.__annotations__)
            return self._join_table(kind, other, args[0], **options)
        raise TypeError(
            f"{step}: a stream's {kind} join takes "
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

        said = self._place.said
        step = name or f"{kind} join of {self._place.name}"
        if not isinstance(windows, JoinWindows):
            raise TypeError(
                f"{step}: a join of two streams needs JoinWindows as its third argument, not "
                f"{windows!r}. JoinWindows.of(timedelta(minutes=5)), for example."
            )
        if name is not None:
            check_name(name)
        check_serdes(step, key=key, value=value, other_value=other_value)
        left: KStream[Any, Any] = self._together("-left", name, key, value)
        right = other._together("-right", name, key, other_value)
        sources = said.copartition(left._place.sources, right._place.sources)
        if isinstance(dsl_store_suppliers, StoreType):
            dsl_store_suppliers = dsl_store_suppliers.suppliers
        options = JoinStoreOptions(
            key, value, other_value, store_name, this_store, other_store, dsl_store_suppliers,
            logging,
        )
        node = _add_stream_join(kind, left._place, right._place, joiner, windows, name, options)
        return KStream(NodeRef(said, node, node.name, key, None, sources))

    def _together(
        self, suffix: str, name: str | None, key: AnySerde, value: AnySerde
    ) -> KStream[Any, Any]:
        """This stream with equal keys in one partition: itself, or behind a hop."""
        here = self._place
        if not here.rekeyed:
            return self  # type: ignore[return-value]
        given = None if name is None else name + suffix
        return self._hopped(given, key, value)

    def _hopped(self, given: str | None, key: AnySerde, value: AnySerde) -> KStream[Any, Any]:
        from penstock.dsl.stream import KStream

        here = self._place
        key_serde = key if key is not None else here.key
        value_serde = value if value is not None else here.value
        topic = given if given is not None else here.name
        hop = here.said.repartition(topic, key_serde, value_serde, given=given is not None)
        if self._hop is None or here.name != topic:
            self._hop = hop
            here.said.plan.add(hop, here.node)
        return KStream(
            NodeRef(here.said, self._hop, hop.name, key_serde, value_serde, frozenset((hop.name,)))
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
            name or f"{kind} join of {self._place.name}", key=key, value=value,
            other_value=other_value,
        )
        rekeyed = self._place.rekeyed
        stream = self._hopped(name, key, value) if rekeyed else self
        here = stream._place
        said = here.said
        sources = said.copartition(here.sources, table._place.sources)
        prefix = "KSTREAM-LEFTJOIN-" if kind == "left" else "KSTREAM-JOIN-"
        step = said.names.given_or_next(name, prefix)
        key_serde = key if key is not None else here.key
        grace_ms = None if grace is None else to_ms(grace)
        buffer = None
        if grace_ms is not None:
            if table._place.node.versioned is False:
                raise ValueError(
                    f"{step}: KTable must be versioned to use a grace period in a stream table "
                    "join. Keep it in Stores.persistent_versioned_key_value_store."
                )
            buffer = BufferSpec.for_join(
                step, key_serde, value if value is not None else here.value, grace_ms
            )
            if name is None:
                said.plan.generated_names.append(f"store {buffer.name}")
        node = StreamTableJoin(
            name=step, table=table._id, left=kind == "left", joiner=joiner,
            with_key=joiner_function(joiner, step=step), join_grace_ms=grace_ms, buffer=buffer,
        )
        said.reads(table._id)
        said.plan.add(node, here.node)
        return KStream(NodeRef(said, node, step, key_serde, None, sources))

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

        here = self._place
        step = here.said.names.given_or_next(name, "KSTREAM-LEFTJOIN-")
        node = StreamGlobalJoin(
            name=step, store_name=table._store, left=kind == "left",
            key_selector=key_value_function(key_selector, step=step, what="the key selector"),
            joiner=joiner, with_key=joiner_function(joiner, step=step),
        )
        here.said.plan.add(node, here.node)
        return KStream(
            NodeRef(here.said, node, step, here.key, None, here.sources, here.rekeyed)
        )


_SHAPES = {
    "stream": ("joiner", "windows"),
    "table": ("joiner",),
    "global table": ("key_selector", "joiner"),
}


def _check_arguments(step: str, what: str, args: tuple[Any, ...]) -> None:
    wanted = _SHAPES[what]
    if len(args) != len(wanted):
        missing = "" if len(args) > len(wanted) else f" {wanted[len(args)]} is missing."
        raise TypeError(
            f"{step}: a join with a {what} takes ({', '.join((what, *wanted))}), but "
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
) -> StreamJoin:
    """Number and name the nodes and stores of a join as Kafka does, and add them."""
    said = left.said
    names = said.names
    outer = kind == "outer"
    this_suffix = "-outer-this-join" if outer else "-this-join"
    other_suffix = "-other-join" if kind == "inner" else "-outer-other-join"
    this_window = names.suffixed_or_next(name, "-this-windowed", "KSTREAM-WINDOWED-")
    other_window = names.suffixed_or_next(name, "-other-windowed", "KSTREAM-WINDOWED-")
    this_number = names.processor("KSTREAM-OUTERTHIS-" if outer else "KSTREAM-JOINTHIS-")
    other_number = names.processor(
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
        shared = SharedJoinSpec.named_after(this_number, windows, options, outer=outer)
    if base is None:
        for spec in (this_spec, other_spec, shared):
            if spec is not None:
                said.plan.generated_names.append(f"store {spec.name}")
    this_node = JoinWindow(name=this_window, store=this_spec)
    other_node = JoinWindow(name=other_window, store=other_spec)
    said.plan.add(this_node, left.node)
    said.plan.add(other_node, right.node)
    node = StreamJoin(
        name=merge,
        this_name=this_number if name is None else name + this_suffix,
        other_name=other_number if name is None else name + other_suffix,
        this_window=this_window, other_window=other_window, kind=kind, joiner=joiner,
        with_key=joiner_function(joiner, step=merge), windows=windows, this_store=this_spec,
        other_store=other_spec, shared_store=shared,
        value_serdes=(options.key, options.value, options.other_value),
    )
    said.plan.add(node, left.node, right.node)
    return node


def _check_join_stores(options: JoinStoreOptions, windows: JoinWindows) -> None:
    this_store, other_store = options.this_store, options.other_store
    if this_store is not None and other_store is not None and this_store.name == other_store.name:
        raise StreamsException(
            f"Both stores of the join are named {this_store.name!r}; give them different names."
        )
    for supplier in (this_store, other_store):
        if supplier is None:
            continue
        if not supplier.retain_duplicates:
            raise StreamsException(
                f"The store {supplier.name!r} of a stream join must be made with "
                "retain_duplicates=True."
            )
        retention_ms = windows.size + windows.grace_ms
        if supplier.retention_ms != retention_ms or supplier.window_size_ms != windows.size:
            raise StreamsException(
                f"The store {supplier.name!r} does not fit the windows of the join: it has a "
                f"retention of {supplier.retention_ms} ms and a window size of "
                f"{supplier.window_size_ms} ms; they must be {retention_ms} and {windows.size}."
            )
