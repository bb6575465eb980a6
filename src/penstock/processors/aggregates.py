"""Aggregations without windows: of a grouped stream, and of a grouped table.

The timestamp of a result is the largest timestamp of its records. An aggregator that returns None
deletes the row, and the next record starts from the initial value. The functions at the end
express count and reduce as an initializer and an aggregator, for the windowed operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.errors import StoreSerdeException, StreamsException
from penstock.native import core
from penstock.processors.base import Forward, NodeContext
from penstock.processors.forwarding import row_writer
from penstock.processors.table_store import StoreGetter, TableStore
from penstock.record import Headers

#: Returns the initial value of an aggregation.
Initializer = Callable[[], Any]
#: Returns the new aggregate from key, value and current aggregate.
Aggregator = Callable[[Any, Any, Any], Any]
#: Combines two values.
Reducer = Callable[[Any, Any], Any]
#: Merges the aggregates of two sessions of a key.
Merger = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, slots=True)
class StreamAggregate:
    """An aggregate for each key. Null keys and null values are dropped.

    The old value of the first update of a key is the initial value, not null.
    """

    store_name: str
    initializer: Initializer
    aggregator: Aggregator
    send_old: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        initializer, aggregator = self.initializer, self.aggregator
        drop = node.drop
        store = node.store(self.store_name)
        load = TableStore(store).get
        write = row_writer(store, forward, self.send_old)
        if store.is_caching:
            return self._attach_caching(store, drop)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop("null key or value")
                return
            row = load(key)
            if row is None:
                old = initializer()
            else:
                old, old_timestamp = row
                timestamp = old_timestamp if old_timestamp > timestamp else timestamp
            write(key, aggregator(key, value, old), old, timestamp, headers)

        return process

    def _attach_caching(self, store: Any, drop: Callable[[str], None]) -> Forward:
        """The variant for a cached store, which only updates the row."""
        write_key, row_of = store.write_key, store.row_of
        fold_row = store.fold_row(*native_forms(self.initializer, self.aggregator))
        if core is not None:
            native: Forward = core.keyed_fold(drop, write_key, row_of, fold_row)
            return native

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop("null key or value")
                return
            try:
                row = write_key(key)
            except StoreSerdeException:
                raise
            except Exception:
                row = row_of(key)
            fold_row(row, key, value, timestamp)

        return process

    def getter_supplier(self) -> StoreGetter:
        """How other nodes read this table."""
        return StoreGetter(self.store_name)


@dataclass(frozen=True, slots=True)
class StreamReduce:
    """Reduces the values of each key to one, starting with the first value.

    Null keys and null values are dropped.
    """

    store_name: str
    reducer: Reducer
    send_old: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        reducer = self.reducer
        drop = node.drop
        store = node.store(self.store_name)
        load = TableStore(store).get
        write = row_writer(store, forward, self.send_old)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop("null key or value")
                return
            row = load(key)
            if row is None:
                write(key, value, None, timestamp, headers)
                return
            old, old_timestamp = row
            timestamp = old_timestamp if old_timestamp > timestamp else timestamp
            write(key, reducer(old, value), old, timestamp, headers)

        return process

    def getter_supplier(self) -> StoreGetter:
        """How other nodes read this table."""
        return StoreGetter(self.store_name)


@dataclass(frozen=True, slots=True)
class TableAggregate:
    """An aggregate per group of a table's rows: subtracts the old value, adds the new one.

    Nothing is subtracted from a group that does not exist; a change without a new value then
    forwards a deletion of the group.
    """

    store_name: str
    initializer: Initializer
    adder: Aggregator
    subtractor: Aggregator
    send_old: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        initializer, adder, subtractor = self.initializer, self.adder, self.subtractor
        store_name = self.store_name
        store = node.store(store_name)
        load = TableStore(store).get
        write = row_writer(store, forward, self.send_old)

        def process(key: Any, change: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                raise StreamsException(
                    "Record key for KTable aggregate operator with state "
                    f"{store_name} should not be null."
                )
            new_value, old_value, _ = change
            row = load(key)
            old, old_timestamp = (None, timestamp) if row is None else row
            aggregate = old
            result_timestamp = timestamp
            if old_value is not None and old is not None:
                aggregate = subtractor(key, old_value, old)
                result_timestamp = max(timestamp, old_timestamp)
            if new_value is not None:
                if aggregate is None:
                    aggregate = initializer()
                aggregate = adder(key, new_value, aggregate)
                result_timestamp = max(timestamp, old_timestamp)
            write(key, aggregate, old, result_timestamp, headers)

        return process

    def getter_supplier(self) -> StoreGetter:
        """How other nodes read this table."""
        return StoreGetter(self.store_name)


@dataclass(frozen=True, slots=True)
class TableReduce:
    """Reduces the rows of each group of a table to one value, starting with the first."""

    store_name: str
    adder: Reducer
    subtractor: Reducer
    send_old: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        adder, subtractor = self.adder, self.subtractor
        store_name = self.store_name
        store = node.store(store_name)
        load = TableStore(store).get
        write = row_writer(store, forward, self.send_old)

        def process(key: Any, change: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                raise StreamsException(
                    "Record key for KTable reduce operator with state "
                    f"{store_name} should not be null."
                )
            new_value, old_value, _ = change
            row = load(key)
            old, old_timestamp = (None, timestamp) if row is None else row
            aggregate = old
            result_timestamp = timestamp
            if old_value is not None and old is not None:
                aggregate = subtractor(old, old_value)
                result_timestamp = max(timestamp, old_timestamp)
            if new_value is not None:
                if aggregate is None:
                    aggregate = new_value
                else:
                    aggregate = adder(aggregate, new_value)
                    result_timestamp = max(timestamp, old_timestamp)
            write(key, aggregate, old, result_timestamp, headers)

        return process

    def getter_supplier(self) -> StoreGetter:
        """How other nodes read this table."""
        return StoreGetter(self.store_name)


def zero() -> int:
    """The initializer of a count."""
    return 0


def count_up(key: Any, value: Any, count: int) -> int:
    """The aggregator of a count; in a table, its adder."""
    return count + 1


def count_down(key: Any, value: Any, count: int) -> int:
    """The subtractor of a table's count."""
    return count - 1


def add_counts(key: Any, one: int, other: int) -> int:
    """The merger of a count over sessions."""
    return one + other


#: Python function -> its native twin. Operators are pickled, so they never hold the native ones.
_NATIVE: dict[Callable[..., Any], Callable[..., Any]] = (
    {} if core is None else {zero: core.zero, count_up: core.count_up}
)


def native_forms(
    initializer: Initializer, aggregator: Aggregator
) -> tuple[Initializer, Aggregator]:
    """Replace the built-in functions by their native twins."""
    return _NATIVE.get(initializer, initializer), _NATIVE.get(aggregator, aggregator)


def no_initial_value() -> None:
    """The initializer of a windowed reduce."""


def aggregator_of_reducer(reducer: Reducer) -> Aggregator:
    """Turn a reducer into an aggregator whose initial value is None."""

    def aggregate(key: Any, value: Any, reduced: Any) -> Any:
        return value if reduced is None else reducer(reduced, value)

    return aggregate


def merger_of_aggregator(aggregator: Aggregator) -> Merger:
    """Turn an aggregator of `aggregator_of_reducer` into a session merger."""

    def merge(key: Any, one: Any, other: Any) -> Any:
        return aggregator(key, other, one)

    return merge
