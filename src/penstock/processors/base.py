"""The operator interface, and what a task provides to an operator.

An operator is a frozen dataclass that describes what one node of the topology does. When a task
is assembled, from the leaves up, each operator is *attached* once: it receives its `NodeContext`
and a function that forwards to all its children, and returns the function that processes a
record. The running topology is a chain of closures, without lookups per record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from penstock.record import CurrentRecord, Headers

#: Processes or forwards one record: key, value, timestamp, headers. The value of a table's record
#: is a `Change`.
Forward = Callable[[Any, Any, int, Headers], None]


#: Handles the error of a node: error, key, value, timestamp, headers. Raises, or returns if the
#: record is to be skipped.
OnError = Callable[[Exception, Any, Any, int, Headers], None]


def raise_error(error: Exception, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    """An error handler that only raises."""
    raise error


class Clock:
    """A time that an operator has observed, or -1. The task keeps it between batches."""

    __slots__ = ("time",)

    def __init__(self, time: int = -1) -> None:
        self.time = time


class NodeCounter:
    """A counter for events on the hot path: the operator adds to `amount` directly."""

    __slots__ = ("amount",)

    def __init__(self) -> None:
        self.amount = 0


class CallCounter:
    """Counts the calls of a function in Python, which adds to `calls` directly."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


class NodeContext(Protocol):
    """One node of a running task, as its operator sees it."""

    #: The node's name in the topology.
    name: str
    #: The record that the task is processing: topic, partition, offset, timestamp, headers.
    current: CurrentRecord
    #: Counts the records of the node. A `PlainOperator` adds to it, see there.
    calls: CallCounter

    @property
    def stream_time(self) -> int:
        """The largest timestamp that the task has processed, -1 before the first record."""
        ...

    @property
    def system_time(self) -> int:
        """The wall clock of the batch."""
        ...

    @property
    def drops(self) -> int:
        """The number of records dropped by all nodes and stores of the task."""
        ...

    def store(self, name: str) -> Any:
        """The store of that name; it must be connected to this node."""
        ...

    def drop(self, reason: str, level: int = logging.WARNING) -> None:
        """Count the record as dropped (dropped-records-total) and log it at a limited rate."""
        ...

    def notice(self, event: str) -> None:
        """Log what happened to the record, at a limited rate, without counting it as dropped."""
        ...

    def count(self, counter: str, amount: int = 1) -> None:
        """Add to a counter of the node (joins: matched, unmatched, late, ...)."""
        ...

    def counter(self, name: str) -> NodeCounter:
        """A counter of the node that the operator increments without a call."""
        ...

    def recorder(self, sensor: str) -> Callable[[float], None] | None:
        """Records values of a sensor of the node; None if the recording level excludes it."""
        ...

    def print_line(self, line: str, file: str | None = None) -> None:
        """Print a line to standard output or to a file, once, after the commit."""
        ...

    def forward_to(self, child: str) -> Forward:
        """The function that forwards to the named child only."""
        ...

    def at_start(self, action: Callable[[], object]) -> None:
        """Register a call for the time when all nodes are attached, in topology order."""
        ...

    def at_close(self, action: Callable[[], object]) -> None:
        """Register a call for the end of the task."""
        ...

    def user_context(self, forward: Forward, fixed_key: bool = False) -> Any:
        """A `ProcessorContext` for the user's processor in this node."""
        ...

    def transformer_context(self, forward: Forward) -> Any:
        """A `TransformerContext` for the user's transformer in this node."""
        ...

    def clock(self, name: str) -> Clock:
        """A clock that is kept between batches. Nodes that use the same name share it."""
        ...


class Operator(Protocol):
    """The behaviour of one node; frozen, picklable, shared by all tasks.

    After an output of a record was written, its source record is not available to a dead letter
    queue. That holds for the nodes that have the same record: those behind an operator with
    `forwards_input = True`, and its siblings. All other operators create new records, also those
    that forward key and value unchanged, such as a filter.
    """

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes a record in this task."""
        ...


class PlainOperator:
    """An operator that calls the user's function once and forwards at most one record.

    It keeps timestamp and headers, and calls `failed` itself when the function raises. The task
    does not have to guard it, which saves a call per record. For the same reason its function
    counts the records: a native one itself, one in Python in `node.calls`. If it returns `forward`,
    the task counts them.
    """

    __slots__ = ()

    def attach(
        self, node: NodeContext, forward: Forward, failed: OnError = raise_error
    ) -> Forward:
        """The function that processes a record in this task."""
        raise TypeError(f"{type(self).__name__} does not override attach().")


class ValueGetter(Protocol):
    """Reads a table's row for a join or a view: from the store, or computed from it."""

    #: Whether `get_as_of` is supported.
    is_versioned: bool

    def get(self, key: Any) -> tuple[Any, int] | None:
        """The (value, timestamp) of the row, or None."""
        ...

    def get_as_of(self, key: Any, timestamp: int) -> tuple[Any, int] | None:
        """The row as of a timestamp; versioned tables only."""
        ...


class ValueGetterSupplier(Protocol):
    """How a downstream node reads a table, and the stores that it must be connected to."""

    @property
    def store_names(self) -> tuple[str, ...]:
        """The stores that the reading node must be connected to."""
        ...

    def attach_getter(self, node: NodeContext) -> ValueGetter:
        """The getter for the reading node."""
        ...
