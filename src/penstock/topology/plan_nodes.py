"""The nodes of a plan, one class per kind of DSL step. Frozen; compared by identity.

They contain nothing that depends on the whole plan: whether a table sends old values, whether a
join is version-aware, how a view reads its parent. `lowering` fills this into their operators.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from penstock.processors.base import Operator
from penstock.serdes.builtin import Serde
from penstock.topology.default_serdes import Deferred, InferredSerde
from penstock.topology.naming import NameCounter
from penstock.topology.nodes import Partitioner, StoreSpec, TopicNameExtractor
from penstock.topology.offset_reset import AutoOffsetReset
from penstock.windows import JoinWindows

#: Which records or rows without a match are emitted.
JoinKind = Literal["inner", "left", "outer"]
#: A serde, None for the default of the configuration, or a serde made from the default.
AnySerde = Serde[Any] | Deferred | InferredSerde | None

JoinSerde = Serde[Any] | InferredSerde | None


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanNode:
    """A named node. The properties are what the rewrite rules need to know."""

    name: str

    @property
    def changes_key(self) -> bool:
        """The node changes keys: groupings and joins below it repartition."""
        return False

    @property
    def changes_value(self) -> bool:
        """The node changes values: a repartition cannot move above it."""
        return False

    @property
    def is_merge(self) -> bool:
        """The node merges the streams of its parents."""
        return False

    @property
    def keeps_null_keys(self) -> bool:
        """A left or outer join: null keys must not be dropped before it."""
        return False

    @property
    def grace_ms(self) -> int | None:
        """The grace period of the windows of this node; None if it is not windowed."""
        return None

    @property
    def versioned(self) -> bool | None:
        """Whether the table is versioned; None if its parents decide."""
        return None


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamSourceNode(PlanNode):
    """A stream read from topics."""

    topics: frozenset[str] = frozenset()
    ordered_topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    key: AnySerde = None
    value: AnySerde = None
    timestamp: Callable[[Any, int], int] | None = None
    offset_reset: AutoOffsetReset | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class TableSourceNode(PlanNode):
    """A table or a global table read from a topic."""

    table: str
    source: str
    topic: str
    store: StoreSpec
    key: AnySerde = None
    value: AnySerde = None
    timestamp: Callable[[Any, int], int] | None = None
    offset_reset: AutoOffsetReset | None = None
    is_global: bool = False
    #: The topic serves as the store's changelog.
    reuse_topic: bool = False
    is_versioned: bool = False

    @property
    def versioned(self) -> bool | None:
        return self.is_versioned


@dataclass(frozen=True, eq=False, kw_only=True)
class GlobalStoreNode(PlanNode):
    """A global store updated by a user processor."""

    source: str
    topic: str
    store: StoreSpec
    supplier: Callable[[], Any]
    key: AnySerde = None
    value: AnySerde = None
    timestamp: Callable[[Any, int], int] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class StateStoreNode(PlanNode):
    """A store added to the builder; processors connect to it by name."""

    store: StoreSpec


@dataclass(frozen=True, eq=False, kw_only=True)
class OperatorNode(PlanNode):
    """A stateless operator on a stream."""

    operator: Operator
    key_changed: bool = False
    value_changed: bool = False
    merges: bool = False

    @property
    def changes_key(self) -> bool:
        return self.key_changed

    @property
    def changes_value(self) -> bool:
        return self.value_changed

    @property
    def is_merge(self) -> bool:
        return self.merges


@dataclass(frozen=True, eq=False, kw_only=True)
class UserProcessorNode(PlanNode):
    """A user processor (`process`, `process_values`) and its stores.

    Its effect on keys and values is unknown, and both flags are False. So rules neither move a
    repartition up to it nor keep one below it.
    """

    supplier: Callable[[], Any]
    fixed_key: bool
    stores: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class RepartitionNode(PlanNode):
    """A repartition through an internal topic; has the name of its source node."""

    sink: str
    null_key_filter: str
    topic: str
    key: AnySerde
    value: AnySerde
    partitioner: Partitioner | None = None
    partitions: int | None = None
    #: Added by an operator, not by `repartition()`: may be merged with others.
    implied: bool = True
    drops_null_keys: bool = False


_SUFFIX = "-repartition"
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


def repartition_node(
    names: NameCounter, name: str, key: AnySerde, value: AnySerde
) -> RepartitionNode:
    """Create a repartition; its nodes are numbered, or named after a name of the user."""
    topic = name if name.endswith(_SUFFIX) else name + _SUFFIX
    sink = names.next_processor_name("KSTREAM-SINK-")
    null_key_filter = names.next_processor_name("KSTREAM-FILTER-")
    source = names.next_processor_name("KSTREAM-SOURCE-")
    if not _GENERATED.fullmatch(name):
        sink, null_key_filter, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
    return RepartitionNode(
        name=source, sink=sink, null_key_filter=null_key_filter, topic=topic, key=key, value=value
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class TableRepartitionNode(PlanNode):
    """The repartition of a grouped table; records contain old and new values."""

    sink: str
    topic: str
    key: Serde[Any] | InferredSerde | None
    value: Serde[Any] | InferredSerde | None


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamSinkNode(PlanNode):
    """A stream written to a topic."""

    topic: str | TopicNameExtractor
    key: AnySerde
    value: AnySerde
    partitioner: Partitioner | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class AggregateNode(PlanNode):
    """An aggregation of a grouped stream or table."""

    table: str
    operator: Any
    store: StoreSpec
    window_grace_ms: int | None = None
    is_versioned: bool | None = False

    @property
    def grace_ms(self) -> int | None:
        return self.window_grace_ms

    @property
    def versioned(self) -> bool | None:
        return self.is_versioned


@dataclass(frozen=True, eq=False, kw_only=True)
class CogroupMergeNode(PlanNode):
    """Merges the results of several aggregations into one store."""

    operator: Operator


@dataclass(frozen=True, eq=False, kw_only=True)
class ToTableNode(PlanNode):
    """A stream read as a table."""

    table: str
    store: StoreSpec
    is_versioned: bool = False

    @property
    def versioned(self) -> bool | None:
        return self.is_versioned


@dataclass(frozen=True, eq=False, kw_only=True)
class TableViewNode(PlanNode):
    """A filter, map_values or transform_values of a table, with or without a store."""

    table: str
    parent: str
    operator: Any
    store: StoreSpec | None = None
    is_versioned: bool | None = None
    connected_stores: tuple[str, ...] = ()
    version_aware: bool = False

    @property
    def versioned(self) -> bool | None:
        return self.is_versioned


@dataclass(frozen=True, eq=False, kw_only=True)
class SuppressNode(PlanNode):
    """Buffers the changes of a table until a window closes, a time limit, or a full buffer."""

    table: str
    parent: str
    operator: Any
    store: StoreSpec

    @property
    def versioned(self) -> bool | None:
        return False


@dataclass(frozen=True, eq=False, kw_only=True)
class TableGroupByNode(PlanNode):
    """`KTable.group_by`: maps rows to new keys, for an aggregation."""

    parent: str
    operator: Any


@dataclass(frozen=True, eq=False, kw_only=True)
class TableTableJoinNode(PlanNode):
    """A join of two tables on their keys: one processor per side and one that merges them."""

    table: str
    this_name: str
    other_name: str
    this_table: str
    other_table: str
    kind: JoinKind
    joiner: Callable[..., Any]
    store: StoreSpec | None = None
    is_versioned: bool = False

    @property
    def versioned(self) -> bool | None:
        return self.is_versioned


@dataclass(frozen=True, eq=False, kw_only=True)
class JoinWindowNode(PlanNode):
    """Writes one side of a stream-stream join to its window store."""

    store: StoreSpec


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamStreamJoinNode(PlanNode):
    """A join of two streams: one processor per side and one that merges them."""

    this_name: str
    other_name: str
    this_window: str
    other_window: str
    kind: JoinKind
    joiner: Callable[..., Any]
    with_key: bool
    windows: JoinWindows
    this_store: StoreSpec
    other_store: StoreSpec
    shared_store: StoreSpec | None
    value_serdes: tuple[JoinSerde, JoinSerde, JoinSerde]
    self_join: bool = False

    @property
    def keeps_null_keys(self) -> bool:
        return self.kind != "inner"


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamTableJoinNode(PlanNode):
    """A join of a stream with a table that has the same key."""

    table: str
    left: bool
    joiner: Callable[..., Any]
    with_key: bool
    join_grace_ms: int | None = None
    buffer: StoreSpec | None = None

    @property
    def keeps_null_keys(self) -> bool:
        return self.left


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamGlobalTableJoinNode(PlanNode):
    """A join of a stream with a global table, by a selected key."""

    store_name: str
    left: bool
    key_selector: Callable[[Any, Any], Any]
    joiner: Callable[..., Any]
    with_key: bool

    @property
    def keeps_null_keys(self) -> bool:
        return self.left


@dataclass(frozen=True, eq=False, kw_only=True)
class ForeignKeyJoinNode(PlanNode):
    """One processor of a foreign-key join.

    `reads` is the table that it looks up rows in, `store` the store to add. A `version_aware`
    processor ignores out-of-order updates if its parent is versioned.
    """

    operator: Any
    reads: str | None = None
    store: StoreSpec | None = None
    version_aware: bool = False
