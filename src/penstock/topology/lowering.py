"""From a plan to a `Topology`: every plan node becomes processors, stores, sources and sinks.

Nodes are lowered by priority, each once all its parents are there, exactly in the order in which
Kafka Streams writes its graph; so children run in the same order and names are the same.
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
from penstock.serdes.change import changed
from penstock.timestamps import FailOnInvalidTimestamp
from penstock.topology.default_serdes import Deferred
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
    """The topology of a plan to which the rules have been applied."""
    topology = Topology(config)
    for topic in internal_topics:
        topology.add_internal_topic(topic)
    for group in plan.copartitioned:
        topology.copartition(group)
    _check_suppressions(plan)
    lowering = _Lowering(plan, topology)
    written: set[PlanNode] = set()
    waiting = [(plan.priority(node), number, node) for number, node in
               enumerate(plan.children(None))]
    heapq.heapify(waiting)
    pushed = len(waiting)
    while waiting:
        _, _, node = heapq.heappop(waiting)
        if node not in written and all(parent in written for parent in plan.parents(node)):
            lowering.write(node)
            written.add(node)
        for child in plan.children(node):
            heapq.heappush(waiting, (plan.priority(child), pushed, child))
            pushed += 1
    return topology


def _check_suppressions(plan: Plan) -> None:
    for node in plan:
        if isinstance(node, SuppressNode) and reads_versioned(plan, node):
            raise TopologyException(
                f"{node.name}: suppress() is only supported for non-versioned KTables "
                "(a table inherits its versions from the table it was made of)."
            )


class _Lowering:
    """Writes the nodes of one plan into one topology."""

    def __init__(self, plan: Plan, topology: Topology) -> None:
        self._plan = plan
        self._topology = topology
        self._old = OldValues.of(plan)
        #: Operators of tables, for their getters.
        self._operators: dict[str, Any] = {}

    # ---- what nodes have in common -----------------------------------------------------------

    def _processor(
        self, name: str, operator: Any, parents: tuple[str, ...], *stores: StoreSpec | None
    ) -> None:
        self._topology.add_wrapped(ProcessorNode(name, operator, parents))
        for store in stores:
            if store is not None:
                self._topology.add_state_store(store, name)

    def _connect(self, name: str, stores: tuple[str, ...]) -> None:
        if stores:
            self._topology.connect_processor_and_state_stores(name, *stores)

    def _parents(self, node: PlanNode) -> tuple[str, ...]:
        return tuple(parent.name for parent in self._plan.parents(node))

    def _getter(self, table: str) -> ValueGetterSupplier:
        """How to read a table: its store, or a function of its parents."""
        fact = self._plan.tables[table]
        if isinstance(fact, SourceTable):
            return StoreGetter(fact.store)
        if isinstance(fact, AggregateTable):
            getter: ValueGetterSupplier = self._operators[fact.nodes[0]].getter_supplier()
            return getter
        if isinstance(fact, SuppressedTable):
            return SuppressedRows(
                self._operators[fact.node].buffer, self._getter(fact.parent)
            )
        if fact.store is not None:
            return StoreGetter(fact.store)
        if isinstance(fact, JoinedTable):
            left, right = (self._operators[side].getter_supplier() for side in fact.sides)
            return MergedRows(left, right)
        viewed: ValueGetterSupplier = self._operators[fact.node].getter_supplier()
        return viewed

    # ---- one method for each kind of node ----------------------------------------------------

    @singledispatchmethod
    def write(self, node: PlanNode) -> None:
        """Add what a plan node stands for."""
        raise TypeError(f"No lowering for {type(node).__name__}.")

    @write.register
    def _(self, node: StreamSourceNode) -> None:
        self._topology.add_node(
            SourceNode(
                node.name, node.ordered_topics, node.pattern, node.key, node.value,
                node.timestamp, node.offset_reset,
            )
        )

    @write.register
    def _(self, node: TableSourceNode) -> None:
        materialized = node.is_global or node.table in self._old.materialized
        operator = TableSource(
            node.store.name if materialized else None, node.name in self._old.sending
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
        self._processor(node.name, operator, (node.source,), store)
        if store is not None and node.reuse_topic:
            self._topology.use_source_as_changelog(store.name, node.topic)

    @write.register
    def _(self, node: GlobalStoreNode) -> None:
        source = SourceNode(node.source, (node.topic,), None, node.key, node.value, node.timestamp)
        operator = UserProcessor(node.supplier)
        self._topology.add_global_nodes(
            source, ProcessorNode(node.name, operator, (node.source,)), node.store
        )

    @write.register
    def _(self, node: StateStoreNode) -> None:
        self._topology.add_state_store(node.store)

    @write.register
    def _(self, node: OperatorNode) -> None:
        self._processor(node.name, node.operator, self._parents(node))

    @write.register
    def _(self, node: UserProcessorNode) -> None:
        operator = UserProcessor(node.supplier, node.fixed_key)
        self._processor(node.name, operator, self._parents(node))
        self._connect(node.name, node.stores)

    @write.register
    def _(self, node: RepartitionNode) -> None:
        self._topology.add_internal_topic(InternalTopic(node.topic, node.partitions))
        null_keys = NullKeyFilter(node.drops_null_keys)
        self._processor(node.null_key_filter, null_keys, self._parents(node))
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

    @write.register
    def _(self, node: TableRepartitionNode) -> None:
        self._topology.add_internal_topic(InternalTopic(node.topic))
        value = Deferred(lambda defaults: changed(defaults.value(node.value)))
        self._topology.add_node(
            SinkNode(node.sink, node.topic, self._parents(node), node.key, value)
        )
        self._topology.add_node(
            SourceNode(node.name, (node.topic,), None, node.key, value, FailOnInvalidTimestamp())
        )

    @write.register
    def _(self, node: StreamSinkNode) -> None:
        self._topology.add_node(
            SinkNode(
                node.name, node.topic, self._parents(node), node.key, node.value, node.partitioner
            )
        )

    @write.register
    def _(self, node: AggregateNode) -> None:
        operator = replace(node.operator, send_old=node.name in self._old.sending)
        self._operators[node.name] = operator
        self._processor(node.name, operator, self._parents(node), node.store)

    @write.register
    def _(self, node: CogroupMergeNode) -> None:
        self._processor(node.name, node.operator, self._parents(node))

    @write.register
    def _(self, node: ToTableNode) -> None:
        materialized = node.table in self._old.materialized
        operator = TableSource(
            node.store.name if materialized else None, node.name in self._old.sending
        )
        self._processor(
            node.name, operator, self._parents(node), node.store if materialized else None
        )

    @write.register
    def _(self, node: TableViewNode) -> None:
        options: dict[str, Any] = {
            "send_old": node.name in self._old.sending, "parent": self._getter(node.parent),
        }
        if node.version_aware:
            options["use_versioned_semantics"] = reads_versioned(self._plan, node)
        operator = replace(node.operator, **options)
        self._operators[node.name] = operator
        self._processor(node.name, operator, self._parents(node), node.store)
        self._connect(node.name, node.connected_stores)

    @write.register
    def _(self, node: SuppressNode) -> None:
        self._operators[node.name] = node.operator
        self._processor(node.name, node.operator, self._parents(node), node.store)

    @write.register
    def _(self, node: TableGroupByNode) -> None:
        operator = replace(
            node.operator, use_versioned_semantics=reads_versioned(self._plan, node)
        )
        self._processor(node.name, operator, self._parents(node))

    @write.register
    def _(self, node: TableTableJoinNode) -> None:
        left, right = self._getter(node.this_table), self._getter(node.other_table)
        versioned = {
            parent.name: is_versioned(self._plan, parent) for parent in self._plan.parents(node)
        }
        send_old = node.name in self._old.sending
        this = TableTableJoin(
            node.kind, left, right, node.joiner, send_old=send_old,
            versioned=versioned.get(node.this_table, False),
        )
        other = TableTableJoin(
            "right" if node.kind == "left" else node.kind, right, left, node.joiner,
            reverse=True, send_old=send_old, versioned=versioned.get(node.other_table, False),
        )
        self._operators[node.this_name], self._operators[node.other_name] = this, other
        self._processor(node.this_name, this, (node.this_table,))
        self._processor(node.other_name, other, (node.other_table,))
        merger = TableJoinMerger(None if node.store is None else node.store.name, send_old)
        self._processor(node.name, merger, (node.this_name, node.other_name), node.store)
        self._connect(node.this_name, right.store_names)
        self._connect(node.other_name, left.store_names)

    @write.register
    def _(self, node: JoinWindowNode) -> None:
        self._processor(
            node.name, StreamJoinWindow(node.store.name), self._parents(node), node.store
        )

    @write.register
    def _(self, node: StreamStreamJoinNode) -> None:
        windows = node.windows
        if node.self_join:
            operator = StreamSelfJoin(
                node.this_store.name, node.joiner, windows.before_ms, windows.after_ms,
                windows.size + windows.grace_ms, node.with_key,
            )
            self._processor(node.name, operator, (node.this_window,), node.this_store)
            return

        def side(which: Any, store: StoreSpec, outer: bool) -> Deferred:
            return Deferred(
                lambda defaults: StreamStreamJoin(
                    which, store.name, node.joiner, windows.before_ms, windows.after_ms,
                    windows.grace_ms, outer, _shared(node, defaults), node.with_key,
                )
            )

        left = side("left", node.other_store, node.kind != "inner")
        right = side("right", node.this_store, node.kind == "outer")
        shared = node.shared_store
        self._processor(node.this_name, left, (node.this_window,), node.other_store, shared)
        self._processor(node.other_name, right, (node.other_window,), node.this_store, shared)
        self._processor(node.name, PassThrough(), (node.this_name, node.other_name))

    @write.register
    def _(self, node: StreamTableJoinNode) -> None:
        getter = self._getter(node.table)
        operator = StreamTableJoin(
            getter, node.joiner, node.left, node.with_key, node.join_grace_ms,
            None if node.buffer is None else node.buffer.name,
        )
        self._processor(node.name, operator, self._parents(node), node.buffer)
        self._connect(node.name, getter.store_names)
        if node.join_grace_ms is not None:
            self._check_history(node, getter.store_names)

    def _check_history(self, node: StreamTableJoinNode, stores: tuple[str, ...]) -> None:
        for store in stores:
            history_ms = self._topology.stores[store].history_retention_ms
            if history_ms is None:
                raise ValueError(
                    f"{node.name}: KTable must be versioned to use a grace period in a stream "
                    "table join. Keep it in Stores.persistent_versioned_key_value_store."
                )
            assert node.join_grace_ms is not None
            if node.join_grace_ms > history_ms:
                raise ValueError(
                    f"{node.name}: History retention must be at least grace period; store {store} "
                    f"keeps {history_ms} ms, the grace is {node.join_grace_ms} ms."
                )

    @write.register
    def _(self, node: StreamGlobalTableJoinNode) -> None:
        operator = StreamGlobalTableJoin(
            StoreGetter(node.store_name), node.key_selector, node.joiner, node.left, node.with_key
        )
        self._processor(node.name, operator, self._parents(node))

    @write.register
    def _(self, node: ForeignKeyJoinNode) -> None:
        operator = node.operator
        stores: tuple[str, ...] = ()
        if node.reads is not None:
            getter = self._getter(node.reads)
            operator, stores = operator(getter), getter.store_names
        if node.version_aware and reads_versioned(self._plan, node):
            make = operator.make
            operator = Deferred(lambda defaults: replace(make(defaults), versioned=True))
        self._processor(node.name, operator, self._parents(node), node.store)
        self._connect(node.name, stores)


def _shared(node: StreamStreamJoinNode, defaults: Any) -> OuterJoinShared | None:
    if node.shared_store is None:
        return None
    key, left, right = node.value_serdes
    return OuterJoinShared(
        node.shared_store.name, defaults.key(key), defaults.value(left), defaults.value(right)
    )

