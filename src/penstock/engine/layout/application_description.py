"""Describes a topology on a log: what the next start compares, see `topology/compatibility.py`."""

from __future__ import annotations

from typing import Any

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.stores.api.builder import StoreBuilder
from penstock.stores.buffers.join_grace import JoinGraceBufferBuilder
from penstock.stores.buffers.suppress import SuppressBufferBuilder
from penstock.task.blueprint import Blueprint, StorePlan
from penstock.topology.application_info import ApplicationInfo, GroupInfo, StoreInfo
from penstock.topology.lineage import step_lineages
from penstock.topology.nodes import GlobalStore, ProcessorNode, SinkNode, SourceNode
from penstock.topology.topology import Topology

_BUFFER_KINDS = {SuppressBufferBuilder: "suppress_buffer", JoinGraceBufferBuilder: "join_buffer"}


def describe_application(
    topology: Topology, config: StreamsConfig, graph: ExecutionGraph
) -> ApplicationInfo:
    """Describe a topology on a log."""
    lineages = step_lineages(topology.nodes, topology.internal_topics)
    groups = {}
    stores = {}
    for number, each in graph.subtopologies.items():
        blueprint = Blueprint.of(topology, config, [number])
        groups[number] = GroupInfo(
            each.tasks, tuple(sorted(topic for _, topic in each.reads)),
            tuple(sorted({
                blueprint.topic(node.topic) for node in blueprint.nodes
                if isinstance(node, SinkNode) and isinstance(node.topic, str)
            })),
            tuple(sorted(store.name for store in blueprint.stores)),
        )
        for store in blueprint.stores:
            stores[store.name] = _describe_store(
                topology, blueprint, store, each.tasks, each.restore_topics.get(store.name),
                lineages,
            )
    topics = Blueprint.of(topology, config).topic
    return ApplicationInfo(
        groups, stores, tuple(sorted(graph.repartition_topics)),
        {
            topics(topic): lineages[node.name] for node in topology.nodes
            if isinstance(node, SourceNode)
            for topic in node.topics if topics(topic) in graph.repartition_topics
        },
        {
            name: _describe_global_store(name, store, config, graph.partitions[store.topic])
            for name, store in topology.global_stores.items()
        },
    )


def _describe_global_store(
    name: str, store: GlobalStore, config: StreamsConfig, partitions: int
) -> StoreInfo:
    """`partitions`: those of its topic."""
    builder = store.store.resolve(config)
    return StoreInfo(
        getattr(builder, "kind", "custom"), partitions, store.topic, step=store.processor.name,
        role=store.store.role, serdes=_serde_names(builder, config),
        window_size_ms=getattr(getattr(builder, "supplier", None), "window_size_ms", None),
    )


def _describe_store(
    topology: Topology, blueprint: Blueprint, store: StorePlan, tasks: int,
    restored_from: str | None, lineages: dict[str, str],
) -> StoreInfo:
    builder = store.spec.resolve(blueprint.config)
    supplier = getattr(builder, "supplier", None)
    duplicates = getattr(supplier, "retain_duplicates", False)
    steps = tuple(node for node, used in blueprint.connected.items() if store.name in used)
    # The stores of a stream-stream join belong to the step that joins the two sides.
    owner = topology.node(getattr(store.spec, "step", "") or steps[0])
    return StoreInfo(
        getattr(builder, "kind", _BUFFER_KINDS.get(type(builder), "custom")), tasks, restored_from,
        # Rows of single records do not depend on the window size.
        None if duplicates else getattr(supplier, "window_size_ms", None), duplicates,
        owner.name, store.spec.role, owner.kind if isinstance(owner, ProcessorNode) else "",
        lineages[owner.name], steps, store.name in topology.generated_stores,
        _serde_names(builder, blueprint.config),
    )


def _serde_names(builder: Any, config: StreamsConfig) -> tuple[str, ...]:
    """Return the names of the serdes of keys and values; empty for stores without serdes."""
    if not isinstance(builder, StoreBuilder) or builder.supplier is None:
        return ()
    serdes = (
        builder.key_serde or config.default_key_serde,
        builder.value_serde or config.default_value_serde,
    )
    return tuple(getattr(serde, "name", "custom") for serde in serdes)
