"""Joins of a stream: with another stream in a window, with a table, with a global table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

from penstock.dsl.checks import check_options, check_same_builder, given_options
from penstock.dsl.known_options import lists_options
from penstock.dsl.options import NamedSupplier, StoreType
from penstock.dsl.stream_join_steps import StreamJoinSteps
from penstock.serdes.base import SerdeOrType
from penstock.topology.plan_nodes import JoinKind
from penstock.windows import JoinWindows

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

    key: SerdeOrType[Any] | None
    value: SerdeOrType[Any] | None
    other_value: SerdeOrType[Any] | None
    name: str | None
    grace: timedelta | int | None
    buffer_store: str | None


class _StreamJoinOptions(TypedDict, total=False):
    """Options of a join of two streams. Kafka: `StreamJoined`."""

    key: SerdeOrType[Any] | None
    value: SerdeOrType[Any] | None
    other_value: SerdeOrType[Any] | None
    name: str | None
    store_name: str | None
    this_store: NamedSupplier | str | None
    other_store: NamedSupplier | str | None
    shared_store: str | None
    dsl_store_suppliers: StoreType | DslStoreSuppliers | None
    logging: bool
    log_config: Mapping[str, str] | None


@lists_options
class StreamJoins(StreamJoinSteps[K, V]):
    """The joins of `KStream`.

    `join(stream, joiner, windows)` pairs records with equal keys and close timestamps.
    `join(table, joiner)` looks up the key of each record in a table.
    `join(global_table, key_selector, joiner)` looks up the key that `key_selector` returns.
    A joiner takes (left, right) or (key, left, right) and returns the value of the result.
    """

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
    def join(
        self,
        other: Any,
        *arguments: Any,
        key: SerdeOrType[Any] | None = None,
        value: SerdeOrType[Any] | None = None,
        other_value: SerdeOrType[Any] | None = None,
        name: str | None = None,
        grace: timedelta | int | None = None,
        buffer_store: str | None = None,
        store_name: str | None = None,
        this_store: NamedSupplier | str | None = None,
        other_store: NamedSupplier | str | None = None,
        shared_store: str | None = None,
        dsl_store_suppliers: StoreType | DslStoreSuppliers | None = None,
        logging: bool = True,
        log_config: Mapping[str, str] | None = None,
    ) -> KStream[Any, Any]:
        """Emit a result for each pair of matching records: an inner join.

        `join(stream, joiner, windows)` pairs records with equal keys and close timestamps.
        `join(table, joiner)` looks up the key of each record. `join(global_table, key_selector,
        joiner)` looks up the key that `key_selector` returns.

        Args:
            other: A stream, a table or a global table of the same builder. `outer_join` takes a
                stream.
            arguments: `joiner, windows` for a stream, `joiner` for a table, `key_selector, joiner`
                for a global table. A joiner takes (left, right) or (key, left, right).
            key: The serde of the keys, or a type that has one; inferred if it is None.
            value: The serde of the values of this stream.
            other_value: The serde of the values of the other side.
            name: The name of the step; generated if it is None.
            grace: With a versioned table: how long records wait, so that they find the version of
                their timestamp.
            buffer_store: The exact name of the buffer of a join with `grace`.
            store_name: The beginning of the names of the stores of a stream join.
            this_store: A supplier or the exact name of the store of this stream.
            other_store: The same for the other stream.
            shared_store: The exact name of the store of unmatched records.
            dsl_store_suppliers: The implementation of the stores.
            logging: Whether the stores have changelogs.
            log_config: Settings of the changelog topics.

        Returns:
            The stream of the results of the joiner.

        Example:
            orders.join(customers, lambda order, name: f"{name}: {order.amount}")
            orders.join(lines, lambda order, line: line, JoinWindows.of(timedelta(minutes=5)))
            orders.join(regions, lambda order: order.customer, lambda order, region: region)

        Kafka: `KStream#join`
        """
        options = given_options(
            key=key, value=value, other_value=other_value, name=name, grace=grace,
            buffer_store=buffer_store, store_name=store_name, this_store=this_store,
            other_store=other_store, shared_store=shared_store,
            dsl_store_suppliers=dsl_store_suppliers, logging=None if logging else False,
            log_config=log_config,
        )
        return self._add_join("inner", other, arguments, options)

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
    def left_join(
        self,
        other: Any,
        *arguments: Any,
        key: SerdeOrType[Any] | None = None,
        value: SerdeOrType[Any] | None = None,
        other_value: SerdeOrType[Any] | None = None,
        name: str | None = None,
        grace: timedelta | int | None = None,
        buffer_store: str | None = None,
        store_name: str | None = None,
        this_store: NamedSupplier | str | None = None,
        other_store: NamedSupplier | str | None = None,
        shared_store: str | None = None,
        dsl_store_suppliers: StoreType | DslStoreSuppliers | None = None,
        logging: bool = True,
        log_config: Mapping[str, str] | None = None,
    ) -> KStream[Any, Any]:
        """Emit also records of this stream without a match; the right value is then None.

        In a stream join, unmatched records are emitted when their window closes.

        Args:
            other: A stream, a table or a global table of the same builder. `outer_join` takes a
                stream.
            arguments: `joiner, windows` for a stream, `joiner` for a table, `key_selector, joiner`
                for a global table. A joiner takes (left, right) or (key, left, right).
            key: The serde of the keys, or a type that has one; inferred if it is None.
            value: The serde of the values of this stream.
            other_value: The serde of the values of the other side.
            name: The name of the step; generated if it is None.
            grace: With a versioned table: how long records wait, so that they find the version of
                their timestamp.
            buffer_store: The exact name of the buffer of a join with `grace`.
            store_name: The beginning of the names of the stores of a stream join.
            this_store: A supplier or the exact name of the store of this stream.
            other_store: The same for the other stream.
            shared_store: The exact name of the store of unmatched records.
            dsl_store_suppliers: The implementation of the stores.
            logging: Whether the stores have changelogs.
            log_config: Settings of the changelog topics.

        Returns:
            The stream of the results of the joiner.

        Example:
            orders.left_join(customers, lambda order, name: name or "unknown")

        Kafka: `KStream#leftJoin`
        """
        options = given_options(
            key=key, value=value, other_value=other_value, name=name, grace=grace,
            buffer_store=buffer_store, store_name=store_name, this_store=this_store,
            other_store=other_store, shared_store=shared_store,
            dsl_store_suppliers=dsl_store_suppliers, logging=None if logging else False,
            log_config=log_config,
        )
        return self._add_join("left", other, arguments, options)

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
    def outer_join(
        self,
        other: Any,
        *arguments: Any,
        key: SerdeOrType[Any] | None = None,
        value: SerdeOrType[Any] | None = None,
        other_value: SerdeOrType[Any] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        this_store: NamedSupplier | str | None = None,
        other_store: NamedSupplier | str | None = None,
        shared_store: str | None = None,
        dsl_store_suppliers: StoreType | DslStoreSuppliers | None = None,
        logging: bool = True,
        log_config: Mapping[str, str] | None = None,
    ) -> KStream[Any, Any]:
        """Join two streams and emit the unmatched records of both; either value may be None.

        Unmatched records are emitted when their window closes.

        Args:
            other: A stream, a table or a global table of the same builder. `outer_join` takes a
                stream.
            arguments: `joiner, windows` for a stream, `joiner` for a table, `key_selector, joiner`
                for a global table. A joiner takes (left, right) or (key, left, right).
            key: The serde of the keys, or a type that has one; inferred if it is None.
            value: The serde of the values of this stream.
            other_value: The serde of the values of the other side.
            name: The name of the step; generated if it is None.
            store_name: The beginning of the names of the stores of a stream join.
            this_store: A supplier or the exact name of the store of this stream.
            other_store: The same for the other stream.
            shared_store: The exact name of the store of unmatched records.
            dsl_store_suppliers: The implementation of the stores.
            logging: Whether the stores have changelogs.
            log_config: Settings of the changelog topics.

        Returns:
            The stream of the results of the joiner.

        Example:
            orders.outer_join(lines, lambda order, line: line, JoinWindows.of(timedelta(minutes=5)))

        Kafka: `KStream#outerJoin`
        """
        options = given_options(
            key=key, value=value, other_value=other_value, name=name, store_name=store_name,
            this_store=this_store, other_store=other_store, shared_store=shared_store,
            dsl_store_suppliers=dsl_store_suppliers, logging=None if logging else False,
            log_config=log_config,
        )
        return self._add_join("outer", other, arguments, options)

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
