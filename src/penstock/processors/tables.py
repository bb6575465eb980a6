"""Operators from table to table: filter, map_values, transform_values.

Each operator may materialize its result (`store_name`) or be a view: readers then read its parent
and apply the function (the getters here). The old value that is sent downstream comes from the
store if there is one, otherwise it is computed from the parent's old value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.processors.base import Forward, NodeContext, ValueGetter, ValueGetterSupplier
from penstock.processors.forwarding import change_of, row_writer
from penstock.processors.table_store import Row, StoreGetter, TableStore
from penstock.record import NO_HEADERS, Headers, RecordContext

#: Computes the new value of a row from key and value, or None.
Compute = Callable[[Any, Any], Any]

#: Creates a user's transformer for one node of one task and returns its `transform`.
TransformerFactory = Callable[[NodeContext], Compute]


@dataclass(frozen=True, slots=True)
class TableFilter:
    """Keeps the rows that the predicate accepts (or with `negate` rejects) and deletes the others.

    The predicate is not called for null. A row that neither passed before nor passes now is not
    sent, if old values are known (`send_old`) and the table is not versioned.
    """

    predicate: Callable[[Any, Any], bool]
    parent: ValueGetterSupplier
    negate: bool = False
    store_name: str | None = None
    send_old: bool = False
    use_versioned_semantics: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        compute = _filter_function(self.predicate, self.negate)
        send_old = self.send_old
        skip_nothing_new = send_old and not self.use_versioned_semantics
        if self.store_name is None:

            def view(key: Any, change: Any, timestamp: int, headers: Headers) -> None:
                new = compute(key, change[0])
                old = compute(key, change[1]) if send_old else None
                if skip_nothing_new and old is None and new is None:
                    return
                forward(key, change_of((new, old, change[2])), timestamp, headers)

            return view

        store = node.store(self.store_name)
        load = TableStore(store).get
        write = row_writer(store, forward, send_old)

        def keep(key: Any, change: Any, timestamp: int, headers: Headers) -> None:
            new = compute(key, change[0])
            row = load(key) if send_old else None
            if skip_nothing_new and row is None and new is None:
                return
            write(key, new, None if row is None else row[0], timestamp, headers)

        return keep

    def getter_supplier(self) -> ValueGetterSupplier:
        """How other nodes read this table."""
        if self.store_name is not None:
            return StoreGetter(self.store_name)
        return FilterGetter(self.parent, self.predicate, self.negate)


@dataclass(frozen=True, slots=True)
class TableMapValues:
    """Maps the value of each row. The function is not called for deletions."""

    mapper: Callable[..., Any]
    parent: ValueGetterSupplier
    with_key: bool = False
    store_name: str | None = None
    send_old: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        mapper = _with_key(self.mapper, self.with_key)

        def compute(key: Any, value: Any) -> Any:
            return None if value is None else mapper(key, value)

        return _attach_function(node, forward, compute, self.store_name, self.send_old)

    def getter_supplier(self) -> ValueGetterSupplier:
        """How other nodes read this table."""
        if self.store_name is not None:
            return StoreGetter(self.store_name)
        return MapValuesGetter(self.parent, self.mapper, self.with_key)


@dataclass(frozen=True, slots=True)
class TableTransformValues:
    """Transforms the value of each row with the user's transformer, deletions included.

    The factory creates one transformer for this node and one for each node that reads the table
    as a view.
    """

    transformer_factory: TransformerFactory
    parent: ValueGetterSupplier
    store_name: str | None = None
    send_old: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        transform = self.transformer_factory(node)
        return _attach_function(node, forward, transform, self.store_name, self.send_old)

    def getter_supplier(self) -> ValueGetterSupplier:
        """How other nodes read this table."""
        if self.store_name is not None:
            return StoreGetter(self.store_name)
        return TransformValuesGetter(self.parent, self.transformer_factory)


@dataclass(frozen=True, slots=True)
class TablePassThrough:
    """The result of a cogroup: its aggregations share one store."""

    forwards_input = True

    store_name: str

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        return forward

    def getter_supplier(self) -> StoreGetter:
        """How other nodes read this table."""
        return StoreGetter(self.store_name)


def _attach_function(
    node: NodeContext, forward: Forward, compute: Compute, store_name: str | None, send_old: bool
) -> Forward:
    if store_name is None:

        def view(key: Any, change: Any, timestamp: int, headers: Headers) -> None:
            new = compute(key, change[0])
            old = compute(key, change[1]) if send_old else None
            forward(key, change_of((new, old, change[2])), timestamp, headers)

        return view

    store = node.store(store_name)
    load = TableStore(store).get
    write = row_writer(store, forward, send_old)

    def keep(key: Any, change: Any, timestamp: int, headers: Headers) -> None:
        new = compute(key, change[0])
        row = load(key) if send_old else None
        write(key, new, None if row is None else row[0], timestamp, headers)

    return keep


@dataclass(frozen=True, slots=True)
class FilterGetter:
    """Reads a filtered table that has no store."""

    parent: ValueGetterSupplier
    predicate: Callable[[Any, Any], bool]
    negate: bool = False

    @property
    def store_names(self) -> tuple[str, ...]:
        return self.parent.store_names

    def attach_getter(self, node: NodeContext) -> ValueGetter:
        compute = _filter_function(self.predicate, self.negate)

        def passed(key: Any, row: Row | None) -> Row | None:
            return None if row is None or compute(key, row[0]) is None else row

        return View(self.parent.attach_getter(node), passed)


@dataclass(frozen=True, slots=True)
class MapValuesGetter:
    """Reads a mapped table that has no store."""

    parent: ValueGetterSupplier
    mapper: Callable[..., Any]
    with_key: bool = False

    @property
    def store_names(self) -> tuple[str, ...]:
        return self.parent.store_names

    def attach_getter(self, node: NodeContext) -> ValueGetter:
        mapper = _with_key(self.mapper, self.with_key)

        def mapped(key: Any, row: Row | None) -> Row | None:
            if row is None:
                return None
            value = mapper(key, row[0])
            return None if value is None else (value, row[1])

        return View(self.parent.attach_getter(node), mapped)


@dataclass(frozen=True, slots=True)
class TransformValuesGetter:
    """Reads a transformed table that has no store, with a transformer of the reading node.

    During the transformation only the timestamp of the current record is known: the topic is None,
    partition and offset are -1. A missing row is transformed as null with timestamp -1.
    """

    parent: ValueGetterSupplier
    transformer_factory: TransformerFactory

    @property
    def store_names(self) -> tuple[str, ...]:
        return self.parent.store_names

    def attach_getter(self, node: NodeContext) -> ValueGetter:
        # The transformers of the parent must be initialized first.
        parent = self.parent.attach_getter(node)
        transform = self.transformer_factory(node)
        current = node.current

        def transformed(key: Any, row: Row | None) -> Row | None:
            value, timestamp = (None, -1) if row is None else row
            before = current.save()
            current.set_context(RecordContext(None, -1, -1, timestamp, NO_HEADERS))
            try:
                new_value = transform(key, value)
            finally:
                current.restore(before)
            return None if new_value is None else (new_value, timestamp)

        return View(parent, transformed)


class View:
    """A getter that computes a row from the row of another getter."""

    __slots__ = ("_apply", "_parent", "is_versioned")

    def __init__(
        self, parent: ValueGetter, apply: Callable[[Any, Row | None], Row | None]
    ) -> None:
        self._parent = parent
        self._apply = apply
        self.is_versioned = parent.is_versioned

    def get(self, key: Any) -> Row | None:
        return self._apply(key, self._parent.get(key))

    def get_as_of(self, key: Any, timestamp: int) -> Row | None:
        return self._apply(key, self._parent.get_as_of(key, timestamp))


def _filter_function(predicate: Callable[[Any, Any], bool], negate: bool) -> Compute:
    def compute(key: Any, value: Any) -> Any:
        if value is None or bool(predicate(key, value)) is negate:
            return None
        return value

    return compute


def _with_key(mapper: Callable[..., Any], with_key: bool) -> Compute:
    if with_key:
        return mapper

    def ignore_key(key: Any, value: Any) -> Any:
        return mapper(value)

    return ignore_key
