"""The stateless operators of a stream, on one record at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock.dsl.functions import key_value_function, takes_key
from penstock.dsl.inference import element_key, element_value, pair_key, pair_value
from penstock.dsl.known_options import lists_options
from penstock.dsl.options import Printed
from penstock.dsl.plan_builder import AnySerde, NodeRef
from penstock.dsl.result_types import element_type
from penstock.processors.stateless import (
    Filter,
    FlatMap,
    FlatMapValues,
    Foreach,
    Map,
    MapValues,
    Peek,
    Print,
    SelectKey,
    key_and_value,
)
from penstock.processors.user import check_not_async
from penstock.topology.default_serdes import Flow
from penstock.topology.plan_nodes import OperatorNode

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


@lists_options
class StreamOperators(Generic[K, V]):
    """The operators of `KStream` that need no state and no topic."""

    _ref: NodeRef

    @overload
    def filter(
        self, predicate: Callable[[V], object], *, name: str | None = None
    ) -> KStream[K, V]: ...
    @overload
    def filter(
        self, predicate: Callable[[K, V], object], *, name: str | None = None
    ) -> KStream[K, V]: ...
    def filter(self, predicate: Callable[..., Any], *, name: str | None = None) -> KStream[K, V]:
        """Keep the records for which the predicate is true.

        Args:
            predicate: A function of (value) or (key, value).
            name: The name of the step; generated if it is None.

        Returns:
            The stream of these records.

        Example:
            orders.filter(lambda order: order.amount > 100)

        Kafka: `KStream#filter`
        """
        return self._add_filter(predicate, name, negate=False)

    @overload
    def filter_not(
        self, predicate: Callable[[V], object], *, name: str | None = None
    ) -> KStream[K, V]: ...
    @overload
    def filter_not(
        self, predicate: Callable[[K, V], object], *, name: str | None = None
    ) -> KStream[K, V]: ...
    def filter_not(
        self, predicate: Callable[..., Any], *, name: str | None = None
    ) -> KStream[K, V]:
        """Drop the records for which the predicate is true.

        Args:
            predicate: A function of (value) or (key, value).
            name: The name of the step; generated if it is None.

        Returns:
            The stream of the other records.

        Example:
            orders.filter_not(lambda order: order.amount == 0)

        Kafka: `KStream#filterNot`
        """
        return self._add_filter(predicate, name, negate=True)

    @overload
    def select_key(
        self, selector: Callable[[V], K2], *, name: str | None = None
    ) -> KStream[K2, V]: ...
    @overload
    def select_key(
        self, selector: Callable[[K, V], K2], *, name: str | None = None
    ) -> KStream[K2, V]: ...
    def select_key(
        self, selector: Callable[..., K2], *, name: str | None = None
    ) -> KStream[K2, V]:
        """Replace the key of each record.

        Later groupings and joins repartition the stream.

        Args:
            selector: A function of (value) or (key, value) that returns the new key.
            name: The name of the step; generated if it is None.

        Returns:
            The stream with new keys.

        Example:
            orders.select_key(lambda order: order.customer)

        Kafka: `KStream#selectKey`
        """
        step = self._name_step(name, "KSTREAM-KEY-SELECT-")
        function = key_value_function(selector, step=step, what="the key selector")
        return self._add_step(
            step, SelectKey(function), key_changed=True, value=self._ref.value,
            keys=self._ref.result(selector, "key", "the key selector", step),
        )

    @overload
    def map_values(
        self, mapper: Callable[[V], V2], *, name: str | None = None
    ) -> KStream[K, V2]: ...
    @overload
    def map_values(
        self, mapper: Callable[[K, V], V2], *, name: str | None = None
    ) -> KStream[K, V2]: ...
    def map_values(
        self, mapper: Callable[..., V2], *, name: str | None = None
    ) -> KStream[K, V2]:
        """Replace the value of each record.

        The key, and so the partitioning, stays the same.

        Args:
            mapper: A function of (value) or (key, value) that returns the new value.
            name: The name of the step; generated if it is None.

        Returns:
            The stream with new values.

        Example:
            orders.map_values(lambda order: order.amount)

        Kafka: `KStream#mapValues`
        """
        step = self._name_step(name, "KSTREAM-MAPVALUES-")
        with_key = takes_key(mapper, step=step, what="the mapper")
        return self._add_step(
            step, MapValues(mapper, with_key), value_changed=True, key=self._ref.key,
            values=self._ref.result(mapper, "value", "the mapper", step),
        )

    @overload
    def map(
        self, mapper: Callable[[V], tuple[K2, V2]], *, name: str | None = None
    ) -> KStream[K2, V2]: ...
    @overload
    def map(
        self, mapper: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None
    ) -> KStream[K2, V2]: ...
    def map(
        self, mapper: Callable[..., tuple[K2, V2]], *, name: str | None = None
    ) -> KStream[K2, V2]:
        """Replace key and value of each record.

        Later groupings and joins repartition the stream. Prefer `map_values` if keys stay the same.

        Args:
            mapper: A function of (value) or (key, value) that returns a (key, value) pair.
            name: The name of the step; generated if it is None.

        Returns:
            The stream of the new records.

        Example:
            orders.map(lambda key, order: (order.customer, order.amount))

        Kafka: `KStream#map`
        """
        step = self._name_step(name, "KSTREAM-MAP-")
        function = key_value_function(mapper, step=step, what="the mapper")
        return self._add_step(
            step, Map(function), key_changed=True,
            keys=self._ref.result(mapper, "key", "the mapper", step, pair_key),
            values=self._ref.result(mapper, "value", "the mapper", step, pair_value),
        )

    @overload
    def flat_map(
        self, mapper: Callable[[V], Iterable[tuple[K2, V2]]], *, name: str | None = None
    ) -> KStream[K2, V2]: ...
    @overload
    def flat_map(
        self, mapper: Callable[[K, V], Iterable[tuple[K2, V2]]], *, name: str | None = None
    ) -> KStream[K2, V2]: ...
    def flat_map(
        self, mapper: Callable[..., Iterable[tuple[K2, V2]]], *, name: str | None = None
    ) -> KStream[K2, V2]:
        """Replace each record by any number of records.

        Later groupings and joins repartition the stream.

        Args:
            mapper: A function of (value) or (key, value) that returns (key, value) pairs.
            name: The name of the step; generated if it is None.

        Returns:
            The stream of the new records.

        Example:
            orders.flat_map(lambda key, order: [(order.customer, 1), (key, 1)])

        Kafka: `KStream#flatMap`
        """
        step = self._name_step(name, "KSTREAM-FLATMAP-")
        function = key_value_function(mapper, step=step, what="the mapper")
        return self._add_step(
            step, FlatMap(function), key_changed=True,
            keys=self._ref.result(mapper, "key", "the mapper", step, element_key),
            values=self._ref.result(mapper, "value", "the mapper", step, element_value),
        )

    @overload
    def flat_map_values(
        self, mapper: Callable[[V], Iterable[V2]], *, name: str | None = None
    ) -> KStream[K, V2]: ...
    @overload
    def flat_map_values(
        self, mapper: Callable[[K, V], Iterable[V2]], *, name: str | None = None
    ) -> KStream[K, V2]: ...
    def flat_map_values(
        self, mapper: Callable[..., Iterable[V2]], *, name: str | None = None
    ) -> KStream[K, V2]:
        """Replace each record by any number of records with its key.

        Args:
            mapper: A function of (value) or (key, value) that returns values.
            name: The name of the step; generated if it is None.

        Returns:
            The stream of the new records.

        Example:
            lines.flat_map_values(lambda line: line.lower().split())

        Kafka: `KStream#flatMapValues`
        """
        step = self._name_step(name, "KSTREAM-FLATMAPVALUES-")
        with_key = takes_key(mapper, step=step, what="the mapper")
        return self._add_step(
            step, FlatMapValues(mapper, with_key), value_changed=True, key=self._ref.key,
            values=self._ref.result(mapper, "value", "the mapper", step, element_type),
        )

    @overload
    def peek(
        self, action: Callable[[V], object], *, name: str | None = None
    ) -> KStream[K, V]: ...
    @overload
    def peek(
        self, action: Callable[[K, V], object], *, name: str | None = None
    ) -> KStream[K, V]: ...
    def peek(self, action: Callable[..., object], *, name: str | None = None) -> KStream[K, V]:
        """Call a function for each record and forward the record unchanged.

        Args:
            action: A function of (value) or (key, value); its result is ignored.
            name: The name of the step; generated if it is None.

        Returns:
            The same stream.

        Example:
            orders.peek(lambda key, order: print(key))

        Kafka: `KStream#peek`
        """
        step = self._name_step(name, "KSTREAM-PEEK-")
        function = key_value_function(action, step=step, what="the action")
        return self._add_type_preserving_step(step, Peek(function))

    @overload
    def foreach(self, action: Callable[[V], object], *, name: str | None = None) -> None: ...
    @overload
    def foreach(self, action: Callable[[K, V], object], *, name: str | None = None) -> None: ...
    def foreach(self, action: Callable[..., object], *, name: str | None = None) -> None:
        """Call a function for each record. This ends the stream.

        Args:
            action: A function of (value) or (key, value); its result is ignored.
            name: The name of the step; generated if it is None.

        Example:
            orders.foreach(lambda key, order: print(key))

        Kafka: `KStream#foreach`
        """
        step = self._name_step(name, "KSTREAM-FOREACH-")
        function = key_value_function(action, step=step, what="the action")
        self._add_type_preserving_step(step, Foreach(function))

    def print(self, printed: Printed[K, V] | None = None) -> None:
        """Print each record, by default as `[step]: key, value` to standard output.

        Lines appear when their batch is committed. This ends the stream.

        Args:
            printed: Label, format and file of the lines.

        Example:
            orders.print(Printed("orders"))

        Kafka: `KStream#print`
        """
        printed = printed if printed is not None else Printed()
        if not isinstance(printed, Printed):
            raise TypeError(
                f"{self._ref.name}: print takes a Printed, not {type(printed).__name__}. "
                "Printed(label), for example."
            )
        step = self._name_step(printed.name, "KSTREAM-PRINTER-")
        label = printed.label if printed.label is not None else self._ref.name
        mapper = printed.mapper if printed.mapper is not None else key_and_value
        check_not_async(mapper, f"{step}: the mapper")
        self._add_type_preserving_step(step, Print(label, mapper, printed.file))

    # ---- internals ---------------------------------------------------------------------------

    def _name_step(self, name: str | None, prefix: str) -> str:
        return self._ref.builder.names.given_or_next(name, prefix)

    def _add_filter(
        self, predicate: Callable[..., Any], name: str | None, *, negate: bool
    ) -> KStream[K, V]:
        step = self._name_step(name, "KSTREAM-FILTER-")
        function = key_value_function(predicate, step=step, what="the predicate")
        return self._add_type_preserving_step(step, Filter(function, negate))

    def _add_type_preserving_step(self, step: str, operator: Any) -> KStream[K, V]:
        return self._add_step(step, operator, key=self._ref.key, value=self._ref.value)

    def _add_step(
        self,
        step: str,
        operator: Any,
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        key_changed: bool = False,
        value_changed: bool = False,
        keys: Flow | None = None,
        values: Flow | None = None,
    ) -> KStream[Any, Any]:
        from penstock.dsl.stream import KStream

        ref = self._ref
        node = OperatorNode(
            name=step, operator=operator, key_changed=key_changed, value_changed=value_changed
        )
        ref.builder.plan.add(node, ref.node)
        return KStream(
            NodeRef(
                ref.builder, node, step, key, value, ref.sources, ref.rekeyed or key_changed,
                keys=keys or ref.keys, values=values or ref.values,
            )
        )
