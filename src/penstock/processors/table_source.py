"""Conversions between streams and tables.

`TableSource` turns a topic or stream into a table, `ToStream` a table into a stream, and
`TableRepartitionMap` is the first half of `KTable.group_by`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.errors import StreamsException
from penstock.native import core
from penstock.processors.base import Forward, NodeContext, OnError, PlainOperator, raise_error
from penstock.processors.forwarding import change_of, row_writer
from penstock.processors.table_store import StoreGetter, TableStore
from penstock.record import Headers


@dataclass(frozen=True, slots=True)
class TableSource:
    """Each record replaces the row of its key; null deletes the row.

    Without a store (`store_name` is None) changes are forwarded without an old value. A record
    that arrives later replaces the row even if its timestamp is earlier; only a versioned store
    orders by timestamp.
    """

    store_name: str | None
    send_old: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        if self.store_name is None:
            return self._attach_unmaterialized(node, forward)
        drop = node.drop
        count, notice = node.count, node.notice
        store = node.store(self.store_name)
        load = TableStore(store).get
        write = row_writer(store, forward, self.send_old)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null key")
                return
            row = load(key)
            if row is None:
                write(key, value, None, timestamp, headers)
                return
            old, old_timestamp = row
            if timestamp < old_timestamp:
                count("out-of-order")
                notice("received an out-of-order update, which replaces a newer row")
            write(key, value, old, timestamp, headers)

        return process

    def _attach_unmaterialized(self, node: NodeContext, forward: Forward) -> Forward:
        drop = node.drop

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null key")
                return
            forward(key, change_of((value, None, True)), timestamp, headers)

        return process

    def getter_supplier(self) -> StoreGetter:
        """How other nodes read this table; only a table with a store can be read."""
        if self.store_name is None:
            raise StreamsException(
                "A table without a store cannot be read. Materialize the source table."
            )
        return StoreGetter(self.store_name)


@dataclass(frozen=True, slots=True)
class ToStream(PlainOperator):
    """The new values of a table as a stream, including out-of-order updates and deletions."""

    def attach(
        self, node: NodeContext, forward: Forward, failed: OnError = raise_error
    ) -> Forward:
        if core is not None:
            native: Forward = core.new_value(forward)
            return native
        counter = node.calls

        def process(key: Any, change: Any, timestamp: int, headers: Headers) -> None:
            counter.calls += 1
            forward(key, change[0], timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class TableRepartitionMap:
    """Sends the old and new value of a row to its groups, for a table aggregation.

    A row that stays in its group is one change with both values. A row that moves is two changes,
    that of the old group first. A null row, group or mapped value is omitted on its side. The
    parent table must send old values.
    """

    mapper: Callable[[Any, Any], Any]
    use_versioned_semantics: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        mapper = self.mapper
        latest_only = self.use_versioned_semantics

        def process(key: Any, change: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                raise StreamsException("Record key for the grouping KTable should not be null.")
            new, old, is_latest = change
            if latest_only and not is_latest:
                return
            # The new value is mapped first, as in Kafka Streams.
            new_group, new_value = _mapped(node, mapper, key, new)
            old_group, old_value = _mapped(node, mapper, key, old)
            has_old = old_group is not None and old_value is not None
            has_new = new_group is not None and new_value is not None
            if has_old and has_new and old_group == new_group:
                both = change_of((new_value, old_value, is_latest))
                forward(old_group, both, timestamp, headers)
                return
            if has_old:
                removed = change_of((None, old_value, is_latest))
                forward(old_group, removed, timestamp, headers)
            if has_new:
                added = change_of((new_value, None, is_latest))
                forward(new_group, added, timestamp, headers)

        return process


def _mapped(
    node: NodeContext, mapper: Callable[[Any, Any], Any], key: Any, value: Any
) -> tuple[Any, Any]:
    pair = None if value is None else mapper(key, value)
    if pair is None:
        return None, None
    try:
        group, mapped = pair
    except (TypeError, ValueError):
        raise TypeError(
            f"The function of '{node.name}' must return a pair of a group and a value, "
            f"but returned {type(pair).__name__}: {pair!r}."
        ) from None
    return group, mapped
