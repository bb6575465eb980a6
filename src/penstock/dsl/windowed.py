"""Aggregations in windows: `TimeWindowedKStream` and `SessionWindowedKStream`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.dsl.functions import check_function
from penstock.dsl.grouped import STREAM_AGGREGATE, STREAM_REDUCE, Grouping, add_aggregation
from penstock.dsl.inference import aggregate_flow
from penstock.dsl.known_options import lists_options
from penstock.dsl.options import Materialized, StoreOption, as_materialized
from penstock.java_names import JavaNames
from penstock.processors.aggregates import (
    add_counts,
    aggregator_of_reducer,
    count_up,
    merger_of_aggregator,
    no_initial_value,
    zero,
)
from penstock.processors.session_aggregates import SessionAggregate
from penstock.processors.sliding_aggregates import SlidingAggregate
from penstock.processors.window_aggregates import WindowAggregate
from penstock.serdes.builtin import Serdes
from penstock.serdes.windowed import WindowedSerdes
from penstock.topology.default_serdes import Fallback, Flow
from penstock.topology.store_specs import SessionSpec, SlidingSpec, WindowSpec
from penstock.windows import (
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    UnlimitedWindows,
    Windowed,
    Windows,
)

if TYPE_CHECKING:
    from penstock.dsl.table import KTable

K = TypeVar("K")
V = TypeVar("V")
VA = TypeVar("VA")


@lists_options
class TimeWindowedKStream(JavaNames, Generic[K, V]):
    """A grouped stream in tumbling, hopping, sliding or unlimited windows.

    Aggregations return a `KTable` with `Windowed` keys. By default they emit each update of a
    window; `emit_strategy(EmitStrategy.on_window_close())` emits only final results.
    """

    def __init__(
        self,
        grouping: Grouping,
        windows: Windows | SlidingWindows,
        emit: EmitStrategy | None = None,
    ) -> None:
        self._grouping = grouping
        self._windows = windows
        self._emit = emit or EmitStrategy.on_window_update()

    def __repr__(self) -> str:
        return self._grouping.ref.describe("TimeWindowedKStream")

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream[K, V]:
        """Choose when results are emitted: with each update, or once when the window closes.

        Args:
            strategy: `EmitStrategy.on_window_update()` or `EmitStrategy.on_window_close()`.

        Returns:
            This stream.

        Example:
            windowed.emit_strategy(EmitStrategy.on_window_close()).count()

        Kafka: `TimeWindowedKStream#emitStrategy`
        """
        check_emit(strategy, step=self._grouping.ref.name)
        if isinstance(self._windows, UnlimitedWindows) and strategy is EmitStrategy.ON_WINDOW_CLOSE:
            raise ValueError(
                "Unlimited windows never close, so they cannot emit on window close. "
                "Use EmitStrategy.on_window_update()."
            )
        self._emit = strategy
        return self

    def count(
        self, *, name: str | None = None, store: StoreOption[K, int] = None
    ) -> KTable[Windowed[K], int]:
        """Count the records of each key and window.

        Args:
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of counts.

        Example:
            windowed.count(store="counts")

        Kafka: `TimeWindowedKStream#count`
        """
        ref = self._grouping.ref
        requested = as_materialized(store, step=name or "count")
        unnamed = requested is not None and requested.store_name is None
        if unnamed and not isinstance(self._windows, SlidingWindows):
            ref.builder.names.next_store_name(STREAM_AGGREGATE)
        return self._aggregate(
            STREAM_AGGREGATE, name, requested, zero, count_up, Serdes.long(), ref.values
        )

    def reduce(
        self, reducer: Callable[[V, V], V], *, name: str | None = None,
        store: StoreOption[K, V] = None,
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key and window.

        Args:
            reducer: A function of (aggregate, value) that returns the next aggregate. The first
                value is the first aggregate.
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of aggregates.

        Example:
            windowed.reduce(lambda first, later: later)

        Kafka: `TimeWindowedKStream#reduce`
        """
        step = name or "reduce"
        check_function(reducer, 2, step=step, what="the reducer")
        requested = as_materialized(store, step=step)
        value = self._grouping.ref.value
        return self._aggregate(
            STREAM_REDUCE, name, requested, no_initial_value, aggregator_of_reducer(reducer), value,
            self._grouping.ref.values,
        )

    def aggregate(
        self,
        initializer: Callable[[], VA],
        aggregator: Callable[[K, V, VA], VA],
        *,
        name: str | None = None,
        store: StoreOption[K, VA] = None,
    ) -> KTable[Windowed[K], VA]:
        """Aggregate the records of each key and window.

        Args:
            initializer: A function without arguments that returns the first aggregate; a class
                works.
            aggregator: A function of (key, value, aggregate) that returns the next aggregate; None
                deletes it.
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of aggregates.

        Example:
            windowed.aggregate(float, lambda key, order, total: total + order.amount)

        Kafka: `TimeWindowedKStream#aggregate`
        """
        step = name or "aggregate"
        check_function(initializer, 0, step=step, what="the initializer")
        check_function(aggregator, 3, step=step, what="the aggregator")
        requested = as_materialized(store, step=step)
        ref = self._grouping.ref
        values = aggregate_flow(initializer, (aggregator,), ref.keys, (ref.values,), step)
        return self._aggregate(
            STREAM_AGGREGATE, name, requested, initializer, aggregator, None, values
        )

    def _aggregate(
        self,
        prefix: str,
        name: str | None,
        requested: Materialized[Any, Any] | None,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        value: Any,
        values: Flow,
    ) -> KTable[Any, Any]:
        grouping = self._grouping
        ref = grouping.ref
        materialized, named = ref.builder.name_store(requested or Materialized(), prefix)
        materialized = materialized.with_serdes(ref.key, value)
        step = ref.builder.names.given_or_next(name, prefix)
        fallback = grouping.fallback(values, requested)
        spec, operator, size_ms = windowed_aggregation(
            self._windows, materialized, self._emit, initializer, aggregator, fallback
        )
        table = grouping.aggregated(
            spec, values, lambda key: WindowedSerdes.time_windowed(key, size_ms)
        )
        return add_aggregation(
            grouping, step, operator, spec, named, table, grace_ms=self._windows.grace_period_ms
        )


def check_emit(strategy: Any, *, step: str) -> None:
    """Raise unless the argument is an `EmitStrategy`."""
    if not isinstance(strategy, EmitStrategy):
        raise TypeError(
            f"{step}: emit_strategy takes an EmitStrategy, not {strategy!r}. "
            "EmitStrategy.on_window_close(), for example."
        )


def windowed_aggregation(
    windows: Windows | SlidingWindows,
    materialized: Materialized[Any, Any],
    emit: EmitStrategy,
    initializer: Callable[[], Any],
    aggregator: Callable[[Any, Any, Any], Any],
    fallback: Fallback,
) -> tuple[Any, Any, int]:
    """Return the store, the operator and the window size of a windowed aggregation."""
    final = emit is EmitStrategy.ON_WINDOW_CLOSE
    if isinstance(windows, SlidingWindows):
        sliding = SlidingSpec(materialized, windows, emit, fallback)
        return (
            sliding,
            SlidingAggregate(sliding.name, windows, initializer, aggregator, emit_final=final),
            windows.time_difference_ms,
        )
    spec = WindowSpec(materialized, windows, emit, fallback)
    operator = WindowAggregate(spec.name, windows, initializer, aggregator, emit_final=final)
    return spec, operator, windows.size


@lists_options
class SessionWindowedKStream(JavaNames, Generic[K, V]):
    """A grouped stream in sessions: windows that end after a gap without records of the key.

    Aggregations return a `KTable` with `Windowed` keys. When sessions merge, the old ones are
    deleted from the table.
    """

    def __init__(self, grouping: Grouping, windows: SessionWindows) -> None:
        self._grouping = grouping
        self._windows = windows
        self._emit = EmitStrategy.on_window_update()

    def __repr__(self) -> str:
        return self._grouping.ref.describe("SessionWindowedKStream")

    def emit_strategy(self, strategy: EmitStrategy) -> SessionWindowedKStream[K, V]:
        """Choose when results are emitted: with each update, or once when the window closes.

        Args:
            strategy: `EmitStrategy.on_window_update()` or `EmitStrategy.on_window_close()`.

        Returns:
            This stream.

        Example:
            sessions.emit_strategy(EmitStrategy.on_window_close()).count()

        Kafka: `SessionWindowedKStream#emitStrategy`
        """
        check_emit(strategy, step=self._grouping.ref.name)
        self._emit = strategy
        return self

    def count(
        self, *, name: str | None = None, store: StoreOption[K, int] = None
    ) -> KTable[Windowed[K], int]:
        """Count the records of each session.

        Args:
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of counts.

        Example:
            sessions.count(store="counts")

        Kafka: `SessionWindowedKStream#count`
        """
        ref = self._grouping.ref
        requested = as_materialized(store, step=name or "count")
        if requested is not None and requested.store_name is None:
            ref.builder.names.next_store_name(STREAM_AGGREGATE)
        return self._aggregate(
            STREAM_AGGREGATE, name, requested, (zero, count_up, add_counts), Serdes.long(),
            ref.values,
        )

    def reduce(
        self, reducer: Callable[[V, V], V], *, name: str | None = None,
        store: StoreOption[K, V] = None,
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each session.

        Args:
            reducer: A function of (aggregate, value) that returns the next aggregate. The first
                value is the first aggregate.
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of aggregates.

        Example:
            sessions.reduce(lambda first, later: later)

        Kafka: `SessionWindowedKStream#reduce`
        """
        step = name or "reduce"
        check_function(reducer, 2, step=step, what="the reducer")
        aggregator = aggregator_of_reducer(reducer)
        functions = (no_initial_value, aggregator, merger_of_aggregator(aggregator))
        requested = as_materialized(store, step=step)
        ref = self._grouping.ref
        return self._aggregate(STREAM_REDUCE, name, requested, functions, ref.value, ref.values)

    def aggregate(
        self,
        initializer: Callable[[], VA],
        aggregator: Callable[[K, V, VA], VA],
        # Not VA: mypy cannot infer the aggregate's type from a merger like a + b.
        merger: Callable[[K, VA, VA], object],
        *,
        name: str | None = None,
        store: StoreOption[K, VA] = None,
    ) -> KTable[Windowed[K], VA]:
        """Aggregate the records of each session.

        Args:
            initializer: A function without arguments that returns the first aggregate; a class
                works.
            aggregator: A function of (key, value, aggregate) that returns the next aggregate; None
                deletes it.
            merger: A function of (key, aggregate, aggregate) that returns that of two merged
                sessions.
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table of aggregates.

        Example:
            sessions.aggregate(
                float, lambda key, order, total: total + order.amount, lambda key, a, b: a + b
            )

        Kafka: `SessionWindowedKStream#aggregate`
        """
        step = name or "aggregate"
        check_function(initializer, 0, step=step, what="the initializer")
        check_function(aggregator, 3, step=step, what="the aggregator")
        check_function(merger, 3, step=step, what="the merger")
        requested = as_materialized(store, step=step)
        ref = self._grouping.ref
        values = aggregate_flow(initializer, (aggregator,), ref.keys, (ref.values,), step)
        return self._aggregate(
            STREAM_AGGREGATE, name, requested, (initializer, aggregator, merger), None, values
        )

    def _aggregate(
        self,
        prefix: str,
        name: str | None,
        requested: Materialized[Any, Any] | None,
        functions: tuple[Any, Any, Any],
        value: Any,
        values: Flow,
    ) -> KTable[Any, Any]:
        grouping = self._grouping
        ref = grouping.ref
        materialized, named = ref.builder.name_store(requested or Materialized(), prefix)
        materialized = materialized.with_serdes(ref.key, value)
        step = ref.builder.names.given_or_next(name, prefix)
        fallback = grouping.fallback(values, requested)
        spec = SessionSpec(materialized, self._windows, self._emit, fallback)
        operator = SessionAggregate(
            spec.name, self._windows, *functions,
            emit_final=self._emit is EmitStrategy.ON_WINDOW_CLOSE,
        )
        return add_aggregation(
            grouping, step, operator, spec, named,
            grouping.aggregated(spec, values, WindowedSerdes.session_windowed),
            grace_ms=self._windows.grace_ms + self._windows.gap_ms,
        )
