"""Stream-table and stream-global-table joins: only the stream side triggers a result.

A versioned table is asked as of the record's time, any other for its latest row. With a grace
period the stream's records wait in a buffer until the stream has gone on by that much, so that
late updates of the (versioned) table are seen; a record that is late itself joins at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.native import core
from penstock.processors.base import Forward, NodeContext, ValueGetter, ValueGetterSupplier
from penstock.processors.joiner import Joiner, oriented
from penstock.record import Headers, RecordContext
from penstock.stores.buffers.join_grace import JoinGraceBuffer

_NULL = "null join key or value in a stream-table join"

#: (the stream's key, the table's key, the stream's value, timestamp, headers)
_Join = Callable[[Any, Any, Any, int, Headers], None]


@dataclass(frozen=True, slots=True)
class StreamTableJoin:
    """Joins a stream's records with the rows of the same key.

    `grace_ms` and `buffer` (the name of a `JoinGraceBuffer`) are given together or not at all.
    """

    table: ValueGetterSupplier
    joiner: Joiner
    left: bool = False
    with_key: bool = False
    grace_ms: int | None = None
    buffer: str | None = None

    def __post_init__(self) -> None:
        if (self.grace_ms is None) != (self.buffer is None):
            raise ValueError("A grace period and its buffer are given together or not at all.")

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes a record in this task."""
        getter = self.table.attach_getter(node)
        combine = oriented(self.joiner, with_key=self.with_key)
        join = _joining(node, forward, getter, combine, left=self.left)
        if self.buffer is not None:
            if not getter.is_versioned:
                raise ValueError(
                    "KTable must be versioned to use a grace period in a stream table join."
                )
            return self._attach_buffered(node, join, self.buffer)
        if not getter.is_versioned and not self.with_key:
            return self._attach_plain(node, forward, getter)
        left, drop = self.left, node.drop

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if value is None or (key is None and not left):
                drop(_NULL)
                return
            join(key, key, value, timestamp, headers)

        return process

    def _attach_plain(self, node: NodeContext, forward: Forward, getter: ValueGetter) -> Forward:
        """The most common join, in one function."""
        left, drop, get, joiner = self.left, node.drop, getter.get, self.joiner
        matched, unmatched = node.tally("matched"), node.tally("unmatched-left")
        if core is not None:
            native: Forward = core.table_join(
                get, joiner, forward, (drop, _NULL), (matched, unmatched), left
            )
            return native

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if value is None or (key is None and not left):
                drop(_NULL)
                return
            row = None if key is None else get(key)
            if row is not None and row[0] is not None:
                matched.amount += 1
                forward(key, joiner(value, row[0]), timestamp, headers)
                return
            unmatched.amount += 1
            if left:
                forward(key, joiner(value, None), timestamp, headers)

        return process

    def _attach_buffered(self, node: NodeContext, join: _Join, name: str) -> Forward:
        buffer: JoinGraceBuffer = node.store(name)
        put, evict = buffer.put, buffer.evict
        current, drop, count, left = node.current, node.drop, node.count, self.left

        def emit(key: Any, value: Any, context: RecordContext) -> None:
            before = current.saved()
            current.set_context(context)
            try:
                join(key, key, value, context.timestamp, context.headers)
            finally:
                current.restore(before)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if value is None or (key is None and not left):
                drop(_NULL)
                return
            context = RecordContext(
                current.topic, current.partition, current.offset, timestamp, headers
            )
            if put(key, value, context):
                evict(emit)
            else:
                count("late")
                join(key, key, value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class StreamGlobalTableJoin:
    """Joins a stream's records with the rows of a global table, by a key selector(key, value)."""

    table: ValueGetterSupplier
    key_selector: Callable[[Any, Any], Any]
    joiner: Joiner
    left: bool = False
    with_key: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes a record in this task."""
        combine = oriented(self.joiner, with_key=self.with_key)
        getter = self.table.attach_getter(node)
        join = _joining(node, forward, getter, combine, left=self.left)
        left, drop, select = self.left, node.drop, self.key_selector

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            # The selector sees null values too: it is asked before anything is dropped.
            row_key = select(key, value)
            if value is None or (row_key is None and not left):
                drop(_NULL)
                return
            join(key, row_key, value, timestamp, headers)

        return process


def _joining(
    node: NodeContext, forward: Forward, getter: ValueGetter,
    combine: Callable[[Any, Any, Any], Any], *, left: bool,
) -> _Join:
    """Looks the row up and forwards the result, if there is one."""
    get, get_as_of, versioned, count = getter.get, getter.get_as_of, getter.is_versioned, node.count

    def join(key: Any, row_key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if row_key is None:
            row = None
        else:
            row = get_as_of(row_key, timestamp) if versioned else get(row_key)
        if row is not None and row[0] is not None:
            count("matched")
            forward(key, combine(key, value, row[0]), timestamp, headers)
        else:
            count("unmatched-left")
            if left:
                forward(key, combine(key, value, None), timestamp, headers)

    return join
