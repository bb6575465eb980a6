"""Lowers a plan to a `Topology`: each plan node becomes processors, stores, sources and sinks.

Nodes are lowered by priority, after all their parents. This is the order in which Kafka Streams
writes its graph, so children run in the same order and names are equal.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from functools import singledispatchmethod
from typing import Any

from penstock.config import StreamsConfig
from penstock.errors import TopologyException
from penstock.processors.base import ValueGetterSupplier
from penstock.processors.outer_join_store import OuterJoinShared
from penstock.processors.stateless import NullKeyFilter, PassThrough
from penstock.processors.stream_joins import StreamJoinWindow, StreamSelfJoin, StreamStreamJoin
from penstock.processors.stream_table_join import StreamGlobalTableJoin, StreamTableJoin
from penstock.processors.suppress import SuppressedRows
from penstock.processors.table_joins import MergedRows, TableJoinMerger, TableTableJoin
from penstock.processors.table_source import TableSource
from penstock.processors.table_store import StoreGetter
from penstock.processors.user import UserProcessor
from penstock.serdes.change import change_serde
from penstock.timestamps import FailOnInvalidTimestamp
from penstock.topology.default_serdes import Deferred
from penstock.topology.locations import add_location, file_of_line
from penstock.topology.nodes import InternalTopic, ProcessorNode, SinkNode, SourceNode, StoreSpec
from penstock.topology.old_values import OldValues, is_versioned, reads_versioned
from penstock.topology.plan import (
    AggregateTable,
    JoinedTable,
    Plan,
    SourceTable,
    SuppressedTable,
)
from penstock.topology.plan_nodes import (
    AggregateNode,
    CogroupMergeNode,
    ForeignKeyJoinNode,
    GlobalStoreNode,
    JoinWindowNode,
    OperatorNode,
    PlanNode,
    RepartitionNode,
    StateStoreNode,
    StreamGlobalTableJoinNode,
    StreamSinkNode,
    StreamSourceNode,
    StreamStreamJoinNode,
    StreamTableJoinNode,
    SuppressNode,
    TableGroupByNode,
    TableRepartitionNode,
    TableSourceNode,
    TableTableJoinNode,
    TableViewNode,
    ToTableNode,
    UserProcessorNode,
)
from penstock.topology.topology import Topology


def lower(
    plan: Plan, internal_topics: list[InternalTopic], config: StreamsConfig | None
) -> Topology:
    """Return the topology of a plan to which the rules have been applied."""
    topology = Topology(config)
    topology.generated_stores = frozenset(plan.generated_stores)
    topology.source_files = {file_of_line(line) for line in plan.lines.values()}
    for topic in internal_topics:
        topology.add_internal_topic(topic)
    for group in plan.copartitioned:
        topology.copartition(group)
    _check_suppressions(plan)
    lowering = _Lowering(plan, topology)
    lowered: set[PlanNode] = set()
    queue = [
        (plan.priority(node), number, node) for number, node in enumerate(plan.children(None))
    ]
    heapq.heapify(queue)
    pushed = len(queue)
    while queue:
        _, _, node = heapq.heappop(queue)
        if node not in lowered and all(parent in lowered for parent in plan.parents(node)):
            try:
                lowering.add(node)
            except TopologyException as error:
                add_location(error, node.name, plan.lines.get(node.name))
                raise
            lowered.add(node)
        for child in plan.children(node):
            heapq.heappush(queue, (plan.priority(child), pushed, child))
            pushed += 1
    return topology


def _check_suppressions(plan: Plan) -> None:
    for node in plan:
        if isinstance(node, SuppressNode) and reads_versioned(plan, node):
            error = TopologyException(
                f"{node.name}: suppress() is only supported for non-versioned KTables. "
                "A table without a store of its own is versioned if its parent is."
            )
            add_location(error, node.name, plan.lines.get(node.name))
            raise error


class _Lowering:
    """Adds the nodes of one plan to one topology."""

    def __init__(self, plan: Plan, topology: Topology) -> None:
        self._plan = plan
        self._topology = topology
        self._old_values = OldValues.of(plan)
        #: The operators of tables by node name; other tables read rows through them.
        self._operators: dict[str, Any] = {}
        #: The kind of the plan node that is being added.
        self._kind = ""

    def add(self, node: PlanNode) -> None:
        """Add a plan node to the topology."""
        self._kind = type(node).__name__
        self.lower(node)

    # ---- helpers -----------------------------------------------------------------------------

    def _add_processor(
        self, name: str, operator: Any, parents: tuple[str, ...], *stores: StoreSpec | None
    ) -> None:
        kind = f"{self._kind}.{type(operator).__name__}"
        self._topology.add_processor_node(ProcessorNode(name, operator, parents, kind))
        for store in stores:
            if store is not None:
                self._topology.add_state_store(store, name)

    def _connect(self, name: str, stores: tuple[str, ...]) -> None:
        if stores:
            self._topology.connect_processor_and_state_stores(name, *stores)

    def _parents(self, node: PlanNode) -> tuple[str, ...]:
        return tuple(parent.name for parent in self._plan.parents(node))

    def _getter(self, name: str) -> ValueGetterSupplier:
        """Return how to read the rows of a table: from its store, or computed from its parents."""
        table = self._plan.tables[name]
        if isinstance(table, SourceTable):
            return StoreGetter(table.store)
        if isinstance(table, AggregateTable):
            getter: ValueGetterSupplier = self._operators[table.nodes[0]].getter_supplier()
            return getter
        if isinstance(table, SuppressedTable):
            return SuppressedRows(
                self._operators[table.node].buffer, self._getter(table.parent)
            )
        if table.store is not None:
            return StoreGetter(table.store)
        if isinstance(table, JoinedTable):
            left, right = (self._operators[side].getter_supplier() for side in table.sides)
            return MergedRows(left, right)
        view_getter: ValueGetterSupplier = self._operators[table.node].getter_supplier()
        return view_getter

    # ---- one method for each kind of node ----------------------------------------------------

    @singledispatchmethod
    def lower(self, node: PlanNode) -> None:
        """Add the processors, stores, sources and sinks of a plan node."""
        raise TypeError(f"No lowering for {type(node).__name__}.")

    @lower.register
    def _(self, node: StreamSourceNode) -> None:
        self._topology.add_node(
            SourceNode(
                node.name, node.ordered_topics, node.pattern, node.key, node.value,
                node.timestamp, node.offset_reset,
            )
        )

    @lower.register
    def _(self, node: TableSourceNode) -> None:
        materialized = node.is_global or node.table in self._old_values.materialized
        operator = TableSource(
            node.store.name if materialized else None, node.name in self._old_values.sending
        )
        source = SourceNode(
            node.source, (node.topic,), None, node.key, node.value, node.timestamp,
            node.offset_reset,
        )
        if node.is_global:
            processor = ProcessorNode(node.name, operator, (node.source,))
            self._topology.add_global_nodes(source, processor, node.store)
            return
        self._topology.add_node(source)
        store = node.store if materialized else None
        if store is not None and node.reuse_topic:
            store = store.without_logging()
        self._add_processor(node.name, operator, (node.source,), store)
        if store is not None and node.reuse_topic:
            self._topology.use_source_as_changelog(store.name, node.topic)

    @lower.register
    def _(self, node: GlobalStoreNode) -> None:
        source = SourceNode(node.source, (node.topic,), None, node.key, node.value, node.timestamp)
        operator = UserProcessor(node.supplier)
        self._topology.add_global_nodes(
            source, ProcessorNode(node.name, operator, (node.source,)), node.store
        )

    @lower.register
    def _(self, node: StateStoreNode) -> None:
        self._topology.add_state_store(node.store)

    @lower.register
    def _(self, node: OperatorNode) -> None:
        self._add_processor(node.name, node.operator, self._parents(node))

    @lower.register
    def _(self, node: UserProcessorNode) -> None:
        operator = UserProcessor(node.supplier, node.fixed_key)
        self._add_processor(node.name, operator, self._parents(node))
        self._connect(node.name, node.stores)

    @lower.register
    def _(self, node: RepartitionNode) -> None:
        self._topology.add_internal_topic(InternalTopic(node.topic, node.partitions))
        null_keys = NullKeyFilter(node.drops_null_keys)
        self._add_processor(node.null_key_filter, null_keys, self._parents(node))
        self._topology.add_node(
            SinkNode(
                node.sink, node.topic, (node.null_key_filter,), node.key, node.value,
                node.partitioner,
            )
        )
        self._topology.add_node(
            SourceNode(
                node.name, (node.topic,), None, node.key, node.value, FailOnInvalidTimestamp()
            )
        )

    @lower.register
    def _(self, node: TableRepartitionNode) -> None:
        self._topology.add_internal_topic(InternalTopic(node.topic))
        value = Deferred(lambda defaults: change_serde(defaults.value(node.value)))
        self._topology.add_node(
            SinkNode(node.sink, node.topic, self._parents(node), node.key, value)
        )
        self._topology.add_node(
            SourceNode(node.name, (node.topic,), None, node.key, value, FailOnInvalidTimestamp())
        )

    @lower.register
    def _(self, node: StreamSinkNode) -> None:
        self._topology.add_node(
            SinkNode(
                node.name, node.topic, self._parents(node), node.key, node.value, node.partitioner
            )
        )

    @lower.register
    def _(self, node: AggregateNode) -> None:
        operator = replace(node.operator, send_old=node.name in self._old_values.sending)
        self._operators[node.name] = operator
        self._add_processor(node.name, operator, self._parents(node), node.store)

    @lower.register
    def _(self, node: CogroupMergeNode) -> None:
        self._add_processor(node.name, node.operator, self._parents(node))

    @lower.register
    def _(self, node: ToTableNode) -> None:
        materialized = node.table in self._old_values.materialized
        operator = TableSource(
            node.store.name if materialized else None, node.name in self._old_values.sending
        )
        self._add_processor(
            node.name, operator, self._parents(node), node.store if materialized else None
        )

    @lower.register
    def _(self, node: TableViewNode) -> None:
        options: dict[str, Any] = {
            "send_old": node.name in self._old_values.sending, "parent": self._getter(node.parent),
        }
        if node.version_aware:
            options["use_versioned_semantics"] = reads_versioned(self._plan, node)
        operator = replace(node.operator, **options)
        self._operators[node.name] = operator
        self._add_processor(node.name, operator, self._parents(node), node.store)
        self._connect(node.name, node.connected_stores)

    @lower.register
    def _(self, node: SuppressNode) -> None:
        self._operators[node.name] = node.operator
        self._add_processor(node.name, node.operator, self._parents(node), node.store)

    @lower.register
    def _(self, node: TableGroupByNode) -> None:
        operator = replace(
            node.operator, use_versioned_semantics=reads_versioned(self._plan, node)
        )
        self._add_processor(node.name, operator, self._parents(node))

    @lower.register
    def _(self, node: TableTableJoinNode) -> None:
        left, right = self._getter(node.this_table), self._getter(node.other_table)
        versioned = {
            parent.name: is_versioned(self._plan, parent) for parent in self._plan.parents(node)
        }
        send_old = node.name in self._old_values.sending
        this = TableTableJoin(
            node.kind, left, right, node.joiner, send_old=send_old,
            versioned=versioned.get(node.this_table, False),
        )
        other = TableTableJoin(
            "right" if node.kind == "left" else node.kind, right, left, node.joiner,
            reverse=True, send_old=send_old, versioned=versioned.get(node.other_table, False),
        )
        self._operators[node.this_name], self._operators[node.other_name] = this, other
        self._add_processor(node.this_name, this, (node.this_table,))
        self._add_processor(node.other_name, other, (node.other_table,))
        merger = TableJoinMerger(None if node.store is None else node.store.name, send_old)
        self._add_processor(node.name, merger, (node.this_name, node.other_name), node.store)
        self._connect(node.this_name, right.store_names)
        self._connect(node.other_name, left.store_names)

    @lower.register
    def _(self, node: JoinWindowNode) -> None:
        self._add_processor(
            node.name, StreamJoinWindow(node.store.name), self._parents(node), node.store
        )

    @lower.register
    def _(self, node: StreamStreamJoinNode) -> None:
        windows = node.windows
        if node.self_join:
            operator = StreamSelfJoin(
                node.this_store.name, node.joiner, windows.before_ms, windows.after_ms,
                windows.size + windows.grace_ms, node.with_key,
            )
            self._add_processor(node.name, operator, (node.this_window,), node.this_store)
            return

        def side(which: Any, store: StoreSpec, outer: bool) -> Deferred:
            return Deferred(
                lambda defaults: StreamStreamJoin(
                    which, store.name, node.joiner, windows.before_ms, windows.after_ms,
                    windows.grace_ms, outer, _outer_join_store(node, defaults), node.with_key,
                )
            )

        left = side("left", node.other_store, node.kind != "inner")
        right = side("right", node.this_store, node.kind == "outer")
        shared = node.shared_store
        self._add_processor(node.this_name, left, (node.this_window,), node.other_store, shared)
        self._add_processor(node.other_name, right, (node.other_window,), node.this_store, shared)
        self._add_processor(node.name, PassThrough(), (node.this_name, node.other_name))

    @lower.register
    def _(self, node: StreamTableJoinNode) -> None:
        getter = self._getter(node.table)
        operator = StreamTableJoin(
            getter, node.joiner, node.left, node.with_key, node.join_grace_ms,
            None if node.buffer is None else node.buffer.name,
        )
        self._add_processor(node.name, operator, self._parents(node), node.buffer)
        self._connect(node.name, getter.store_names)
        if node.join_grace_ms is not None:
            self._check_history(node, getter.store_names)

    def _check_history(self, node: StreamTableJoinNode, stores: tuple[str, ...]) -> None:
        for store in stores:
            history_ms = self._topology.stores[store].history_retention_ms
            if history_ms is None:
                raise ValueError(
                    f"{node.name}: KTable must be versioned to use a grace period in a stream "
                    "table join. Give it a store of Stores.persistent_versioned_key_value_store."
                )
            assert node.join_grace_ms is not None
            if node.join_grace_ms > history_ms:
                raise ValueError(
                    f"{node.name}: History retention must be at least grace period. Store {store} "
                    f"keeps {history_ms} ms, the grace period is {node.join_grace_ms} ms."
                )

    @lower.register
    def _(self, node: StreamGlobalTableJoinNode) -> None:
        operator = StreamGlobalTableJoin(
            StoreGetter(node.store_name), node.key_selector, node.joiner, node.left, node.with_key
        )
        self._add_processor(node.name, operator, self._parents(node))

    @lower.register
    def _(self, node: ForeignKeyJoinNode) -> None:
        operator = node.operator
        stores: tuple[str, ...] = ()
        if node.reads is not None:
            getter = self._getter(node.reads)
            operator, stores = operator(getter), getter.store_names
        if node.version_aware and reads_versioned(self._plan, node):
            make = operator.make
            operator = Deferred(lambda defaults: replace(make(defaults), versioned=True))
        self._add_processor(node.name, operator, self._parents(node), node.store)
        self._connect(node.name, stores)


def _outer_join_store(node: StreamStreamJoinNode, defaults: Any) -> OuterJoinShared | None:
    if node.shared_store is None:
        return None
    key, left, right = node.value_serdes
    name = node.shared_store.name
    topic = defaults.internal_topic(f"{name}-changelog")
    return OuterJoinShared(
        name, defaults.key(key).for_store(topic, True),
        defaults.value(left).for_store(topic, False),
        defaults.value(right).for_store(topic, False),
    )

