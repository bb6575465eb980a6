"""The nodes of a plan, one class for each thing a user can say. Frozen; equal only to themselves.

What follows from the whole plan is not in them: whether a table sends old values, whether a join
must mind versions, how a view reads its parent. Their operators are prototypes in which
`lowering` fills that in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from penstock.processors.base import Operator
from penstock.serdes.builtin import Serde
from penstock.topology.default_serdes import Deferred
from penstock.topology.naming import NameCounter
from penstock.topology.nodes import Partitioner, StoreSpec, TopicNameExtractor
from penstock.topology.offset_reset import AutoOffsetReset
from penstock.windows import JoinWindows

#: Which rows or records without a partner come through.
JoinKind = Literal["inner", "left", "outer"]
#: A serde, None for the configuration's default, or one that is made from the default.
AnySerde = Serde[Any] | Deferred | None


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanNode:
    """A named node. The flags say what rules need to know of it."""

    name: str

    @property
    def changes_key(self) -> bool:
        """Records leave with another key: what groups or joins them must repartition."""
        return False

    @property
    def changes_value(self) -> bool:
        """Records leave with another value: a repartition cannot be moved ahead of it."""
        return False

    @property
    def is_merge(self) -> bool:
        """Records of several parents become one stream."""
        return False

    @property
    def keeps_null_keys(self) -> bool:
        """A left or outer join: null keys must not be filtered out before it."""
        return False

    @property
    def grace_ms(self) -> int | None:
        """How long after its end a window of this node takes records; None if not windowed."""
        return None

    @property
    def versioned(self) -> bool | None:
        """Whether the table is versioned; None if that depends on its parents."""
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
    """A table, or a global table, read from a topic."""

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
    """A global store fed by a processor of the user."""

    source: str
    topic: str
    store: StoreSpec
    supplier: Callable[[], Any]
    key: AnySerde = None
    value: AnySerde = None
    timestamp: Callable[[Any, int], int] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class StateStoreNode(PlanNode):
    """A store added to the builder, to be connected by name."""

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
    """A processor of the user (`process`, `process_values`) and its stores.

    Nothing is known of what it does to keys and values, so rules neither move a repartition up to
    it nor keep one below it.
    """

    supplier: Callable[[], Any]
    fixed_key: bool
    stores: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class RepartitionNode(PlanNode):
    """A hop through a topic that brings equal keys together; named after its source node."""

    sink: str
    null_key_filter: str
    topic: str
    key: AnySerde
    value: AnySerde
    partitioner: Partitioner | None = None
    partitions: int | None = None
    #: Implied by an operator, not asked for by the user: may be merged with others.
    implied: bool = True
    drops_null_keys: bool = False


_SUFFIX = "-repartition"
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


def repartition_node(
    names: NameCounter, name: str, key: AnySerde, value: AnySerde
) -> RepartitionNode:
    """A repartition whose nodes are numbered, or named after the name that was given."""
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
    """The hop of a regrouped table: both halves of a change travel."""

    sink: str
    topic: str
    key: Serde[Any] | None
    value: Serde[Any] | None


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamSinkNode(PlanNode):
    """A stream written to a topic."""

    topic: str | TopicNameExtractor
    key: AnySerde
    value: AnySerde
    partitioner: Partitioner | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class AggregateNode(PlanNode):
    """Any aggregation of a grouped stream or table."""

    table: str
    operator: Any
    store: StoreSpec
    window_grace_ms: int | None = None
    is_versioned: bool = False

    @property
    def grace_ms(self) -> int | None:
        return self.window_grace_ms

    @property
    def versioned(self) -> bool | None:
        return self.is_versioned


@dataclass(frozen=True, eq=False, kw_only=True)
class CogroupMergeNode(PlanNode):
    """The table that several aggregations into one store make together."""

    operator: Operator


@dataclass(frozen=True, eq=False, kw_only=True)
class ToTableNode(PlanNode):
    """A stream read as the changes of a table."""

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
    """Changes of a table held back until their window closes, a time passed, or no room is left."""

    table: str
    parent: str
    operator: Any
    store: StoreSpec

    @property
    def versioned(self) -> bool | None:
        return False


@dataclass(frozen=True, eq=False, kw_only=True)
class TableGroupByNode(PlanNode):
    """A table's rows mapped to other keys, to be aggregated there (`group_by`)."""

    parent: str
    operator: Any


@dataclass(frozen=True, eq=False, kw_only=True)
class TableTableJoinNode(PlanNode):
    """A join of two tables on their keys: a node for each side and one that merges them."""

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
    """Keeps a side of a stream-stream join in its window store."""

    store: StoreSpec


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamStreamJoinNode(PlanNode):
    """A join of two streams: a node for each side and one that merges them."""

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
    value_serdes: tuple[Serde[Any] | None, Serde[Any] | None, Serde[Any] | None]
    self_join: bool = False

    @property
    def keeps_null_keys(self) -> bool:
        return self.kind != "inner"


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamTableJoinNode(PlanNode):
    """A stream enriched from a table with the same key."""

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
    """A stream enriched from a global table by a key of its own choice."""

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

    `reads` is the table it looks rows up in, `store` the store it brings along, `version_aware`
    whether it must ignore out-of-order updates of its parent.
    """

    operator: Any
    reads: str | None = None
    store: StoreSpec | None = None
    version_aware: bool = False
