"""Stream-table and stream-global-table joins: only the stream side triggers a result.

A versioned table is read as of the record's timestamp, any other table at its latest row. With a
grace period the stream's records wait in a buffer until stream time has advanced by that much, so
that late updates of the versioned table are included. A late stream record joins at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.native import core
from penstock.processors.base import Forward, NodeContext, ValueGetter, ValueGetterSupplier
from penstock.processors.joiner import Joiner, orient_joiner
from penstock.record import Headers, RecordContext
from penstock.stores.buffers.join_grace import JoinGraceBuffer

_NULL = "null join key or value in a stream-table join"

#: (the stream's key, the table's key, the stream's value, timestamp, headers)
_Join = Callable[[Any, Any, Any, int, Headers], None]


@dataclass(frozen=True, slots=True)
class StreamTableJoin:
    """Joins the records of a stream with the rows of the same key.

    `grace_ms` and `buffer` (the name of a `JoinGraceBuffer`) must be set together.
    """

    table: ValueGetterSupplier
    joiner: Joiner
    left: bool = False
    with_key: bool = False
    grace_ms: int | None = None
    buffer: str | None = None

    def __post_init__(self) -> None:
        if (self.grace_ms is None) != (self.buffer is None):
            raise ValueError("A grace period and its buffer must be set together.")

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes a record in this task."""
        getter = self.table.attach_getter(node)
        combine = orient_joiner(self.joiner, with_key=self.with_key)
        join = _join_function(node, forward, getter, combine, left=self.left)
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
        """The most common case in one function."""
        left, drop, get, joiner = self.left, node.drop, getter.get, self.joiner
        matched, unmatched = node.counter("matched"), node.counter("unmatched-left")
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
            before = current.save()
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
    """Joins the records of a stream with the rows of a global table by `key_selector`."""

    table: ValueGetterSupplier
    key_selector: Callable[[Any, Any], Any]
    joiner: Joiner
    left: bool = False
    with_key: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes a record in this task."""
        combine = orient_joiner(self.joiner, with_key=self.with_key)
        getter = self.table.attach_getter(node)
        join = _join_function(node, forward, getter, combine, left=self.left)
        left, drop, select = self.left, node.drop, self.key_selector

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            # The selector is called before null values are dropped, as in Kafka Streams.
            row_key = select(key, value)
            if value is None or (row_key is None and not left):
                drop(_NULL)
                return
            join(key, row_key, value, timestamp, headers)

        return process


def _join_function(
    node: NodeContext, forward: Forward, getter: ValueGetter,
    combine: Callable[[Any, Any, Any], Any], *, left: bool,
) -> _Join:
    """The function that looks up the row and forwards the result, if any."""
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
