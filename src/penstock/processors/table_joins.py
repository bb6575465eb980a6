"""Table-table joins: each side looks up the row of the other, and a merger combines both.

The kind of a node follows Kafka's names: an inner join has two "inner" nodes, an outer join two
"outer" nodes, and a left join a "left" node on the left and a "right" node on the right, which
sends nothing unless the left side has a row.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Literal

from penstock.processors.base import Forward, NodeContext, ValueGetter, ValueGetterSupplier
from penstock.processors.forwarding import change_of, row_writer
from penstock.processors.joiner import Combine, Joiner, orient_joiner
from penstock.record import Change, Headers

Kind = Literal["inner", "left", "outer", "right"]

_NULL_KEY = "null key in a table-table join"
_OUT_OF_ORDER = "out-of-order update of a versioned table in a table-table join"


@dataclass(frozen=True, slots=True)
class TableTableJoin:
    """One side of a table-table join.

    `this` is the table that sends updates to this node, `other` the table that it reads. `reverse`
    marks the right side of the user's join. `versioned` is Kafka's useVersionedSemantics: the
    parent is versioned, and its out-of-order updates are dropped.
    """

    kind: Kind
    this: ValueGetterSupplier
    other: ValueGetterSupplier
    joiner: Joiner
    reverse: bool = False
    with_key: bool = False
    send_old: bool = False
    versioned: bool = False

    def getter_supplier(self) -> JoinedRows:
        """The result of the join for a reader, computed on each read."""
        return JoinedRows(
            self.kind, self.this, self.other, self.joiner, self.reverse, self.with_key
        )

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes an update in this task."""
        combine = orient_joiner(self.joiner, with_key=self.with_key, reverse=self.reverse)
        changed = {
            "inner": _inner, "left": _left, "outer": _outer, "right": _right
        }[self.kind](combine, self.send_old)
        get = self.other.attach_getter(node).get
        drop, count, versioned = node.drop, node.count, self.versioned
        needs_other = self.kind in ("inner", "right")
        unmatched = "unmatched-right" if self.reverse else "unmatched-left"

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop(_NULL_KEY)
                return
            new, old, is_latest = change
            if versioned and not is_latest:
                drop(_OUT_OF_ORDER, logging.INFO)
                return
            row = get(key)
            other = None if row is None else row[0]
            if row is None or other is None:
                count(unmatched)
                if needs_other or (new is None and old is None):
                    return
            else:
                count("matched")
                timestamp = max(timestamp, row[1])
            result, former = changed(key, new, old, other)
            forward(key, change_of((result, former, is_latest)), timestamp, headers)

        return process


def _inner(combine: Combine, send_old: bool) -> Any:
    def changed(key: Any, new: Any, old: Any, other: Any) -> tuple[Any, Any]:
        return (
            None if new is None else combine(key, new, other),
            combine(key, old, other) if send_old and old is not None else None,
        )

    return changed


#: A left node differs from an inner node only in that it also forwards without the other row.
_left = _inner


def _outer(combine: Combine, send_old: bool) -> Any:
    def changed(key: Any, new: Any, old: Any, other: Any) -> tuple[Any, Any]:
        has_other = other is not None
        return (
            combine(key, new, other) if has_other or new is not None else None,
            combine(key, old, other) if send_old and (has_other or old is not None) else None,
        )

    return changed


def _right(combine: Combine, send_old: bool) -> Any:
    def changed(key: Any, new: Any, old: Any, other: Any) -> tuple[Any, Any]:
        return combine(key, new, other), combine(key, old, other) if send_old else None

    return changed


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """The result of a join, computed for each read. It is never versioned."""

    kind: Kind
    this: ValueGetterSupplier
    other: ValueGetterSupplier
    joiner: Joiner
    reverse: bool = False
    with_key: bool = False

    @property
    def store_names(self) -> tuple[str, ...]:
        """The stores that the reading node must be connected to."""
        return tuple(dict.fromkeys((*self.this.store_names, *self.other.store_names)))

    def attach_getter(self, node: NodeContext) -> ValueGetter:
        """The getter for the reading node."""
        return _JoinedGetter(
            self.kind, self.this.attach_getter(node), self.other.attach_getter(node),
            orient_joiner(self.joiner, with_key=self.with_key, reverse=self.reverse),
        )


class _JoinedGetter:
    """Reads both rows and joins them."""

    __slots__ = ("_combine", "_needs_other", "_needs_this", "_other", "_this", "is_versioned")

    def __init__(
        self, kind: Kind, this: ValueGetter, other: ValueGetter, combine: Combine
    ) -> None:
        self.is_versioned = False
        self._this = this.get
        self._other = other.get
        self._combine = combine
        self._needs_this = kind in ("inner", "left")
        self._needs_other = kind in ("inner", "right")

    def get(self, key: Any) -> tuple[Any, int] | None:
        """The result with the larger of both timestamps, or None."""
        mine = self._this(key)
        if self._needs_this and (mine is None or mine[0] is None):
            return None
        other = self._other(key)
        if self._needs_other and (other is None or other[0] is None):
            return None
        value, time = (None, -1) if mine is None else mine
        other_value, other_time = (None, -1) if other is None else other
        if value is None and other_value is None:
            return None
        result = self._combine(key, value, other_value)
        return None if result is None else (result, max(time, other_time))

    def get_as_of(self, key: Any, timestamp: int) -> tuple[Any, int] | None:
        """Not supported: the result of a join is not versioned."""
        raise TypeError("The result of a table-table join has no versions.")


@dataclass(frozen=True, slots=True)
class TableJoinMerger:
    """Merges both sides of a table-table join and stores the result if it is materialized."""

    store_name: str | None = None
    send_old: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes a result in this task."""
        if self.store_name is None:
            return _pass_on(forward, send_old=self.send_old)
        write = row_writer(node.store(self.store_name), forward, self.send_old)

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            write(key, change[0], change[1], timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class MergedRows:
    """The result of a join without a store, for readers behind the merger.

    It reads the view of the left node; the stores of both sides are connected.
    """

    left: ValueGetterSupplier
    right: ValueGetterSupplier

    @property
    def store_names(self) -> tuple[str, ...]:
        """The stores that the reading node must be connected to."""
        return tuple(dict.fromkeys((*self.left.store_names, *self.right.store_names)))

    def attach_getter(self, node: NodeContext) -> ValueGetter:
        """The getter for the reading node."""
        return self.left.attach_getter(node)


def _pass_on(forward: Forward, *, send_old: bool) -> Forward:
    if send_old:
        return forward

    def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
        forward(key, change_of((change[0], None, change[2])), timestamp, headers)

    return process
