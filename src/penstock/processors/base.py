"""What an operator is, and what the task gives it.

An operator (a frozen dataclass in a module beside this one) describes what one node of the
topology does. When a task is put together, from the leaves up, each operator is *attached* once:
it gets its `NodeContext` and one function that forwards to all its children, and answers the
function that processes a record. So the running topology is a chain of closures and nothing is
looked up for each record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.record import Current, Headers

#: Processes, or passes on, one record: key, value, timestamp, headers. The value of a table's
#: record is a `Change`.
Forward = Callable[[Any, Any, int, Headers], None]


#: Asks what becomes of a record for which a node failed: error, key, value, timestamp, headers.
#: Raises, or returns if the record is to end in the node.
Failed = Callable[[Exception, Any, Any, int, Headers], None]


def raise_it(error: Exception, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    """For a node whose errors are somebody else's affair."""
    raise error


class Clock:
    """A time that an operator has observed; kept from batch to batch by the task. -1: none yet."""

    __slots__ = ("time",)

    def __init__(self, time: int = -1) -> None:
        self.time = time


class Tally:
    """A counter of a node, for what happens with every record: whoever has it adds to it."""

    __slots__ = ("amount",)

    def __init__(self) -> None:
        self.amount = 0


class NodeContext(Protocol):
    """One node of one running task, as its operator sees it."""

    #: The node's name in the topology.
    name: str
    #: The record the task is working on: topic, partition, offset, timestamp, headers.
    current: Current

    @property
    def stream_time(self) -> int:
        """The largest timestamp the task has taken so far, -1 before the first record."""
        ...

    @property
    def system_time(self) -> int:
        """The wall clock of the batch."""
        ...

    @property
    def drops(self) -> int:
        """How many records the task has dropped so far, in all its nodes and stores."""
        ...

    def store(self, name: str) -> Any:
        """The store of that name; it must be connected to this node."""
        ...

    def drop(self, reason: str) -> None:
        """Count the record as dropped (dropped-records-total) and say why at debug level."""
        ...

    def count(self, counter: str, amount: int = 1) -> None:
        """Add to one of the node's own counters (joins: matched, unmatched, late...)."""
        ...

    def tally(self, counter: str) -> Tally:
        """One of the node's own counters, to be added to without a call."""
        ...

    def print_line(self, line: str, file: str | None = None) -> None:
        """Add a line to what the task prints (or to a file); shown once, after the commit."""
        ...

    def forward_to(self, child: str) -> Forward:
        """The function that forwards to the child of that name only."""
        ...

    def at_start(self, action: Callable[[], object]) -> None:
        """Call this when all nodes are attached, in the order of the topology."""
        ...

    def at_close(self, action: Callable[[], object]) -> None:
        """Call this when the task ends."""
        ...

    def user_context(self, forward: Forward) -> Any:
        """A `ProcessorContext` for a processor of the user in this node."""
        ...

    def clock(self, name: str) -> Clock:
        """A clock that outlives the batch. Nodes that ask for one name share it."""
        ...


class Operator(Protocol):
    """What one node does; frozen, picklable, shared by all tasks.

    One that passes on the very record it was given, if any, may say so by a class attribute
    `forwards_the_same = True`. All others make new records: that something of such a record was
    sent is not said of the record it was made of (which decides what a dead letter queue gets).
    """

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        """The function that processes a record in this task."""
        ...


class PlainOperator:
    """An operator that asks the user's function once and then forwards the record, or not.

    It never changes timestamp or headers, and it tells `failed` by itself when the function
    raises; so the task need not watch over it, which makes it cheaper.
    """

    __slots__ = ()

    def attach(
        self, node: NodeContext, forward: Forward, failed: Failed = raise_it
    ) -> Forward:
        """The function that processes a record in this task."""
        raise TypeError(f"{type(self).__name__} does not say what it does.")


class ValueGetter(Protocol):
    """Reads a table's row on behalf of a join or a view: the store, or a function of it."""

    #: True if `get_as_of` may be asked.
    is_versioned: bool

    def get(self, key: Any) -> tuple[Any, int] | None:
        """(value, timestamp) of the row, None if there is none."""
        ...

    def get_as_of(self, key: Any, timestamp: int) -> tuple[Any, int] | None:
        """The same as of a time; versioned tables only."""
        ...


class ValueGetterSupplier(Protocol):
    """How a downstream node reads a table: which stores it must be connected to, and how."""

    @property
    def store_names(self) -> tuple[str, ...]:
        """The stores that the reading node has to be connected to."""
        ...

    def attach_getter(self, node: NodeContext) -> ValueGetter:
        """The getter, for the node that reads."""
        ...
