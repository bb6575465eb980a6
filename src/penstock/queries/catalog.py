"""The stores of a topology, as queries see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.config import StreamsConfig
from penstock.errors import StreamsException, UnknownStateStoreException
from penstock.queries.source import StoreInfo
from penstock.serdes.windowed import WindowedSerde
from penstock.suggestions import did_you_mean
from penstock.task.blueprint import Blueprint
from penstock.task.query_stores import query_kind
from penstock.topology.nodes import SinkNode, SourceNode
from penstock.topology.topology import Topology


def store_groups(topology: Topology) -> dict[str, int]:
    """Return store -> the sub-topology that it belongs to. Global stores are not included."""
    return {
        store: group.id for group in topology.groups() if not group.is_global
        for node in group.nodes for store in topology.stores_of(node) if store in topology.stores
    }


def describe_stores(
    topology: Topology, config: StreamsConfig, tasks: Mapping[int, int]
) -> dict[str, StoreInfo]:
    """Return all stores. `tasks`: sub-topology -> the number of its tasks."""
    routed = {
        group.id for group in topology.groups()
        if _is_default_partitioned(topology, config, group.nodes)
    }
    found = {
        name: StoreInfo(
            name, query_kind(config, topology.stores[name]), tasks.get(group, 1),
            is_default_partitioned=group in routed,
        )
        for name, group in store_groups(topology).items()
    }
    for name, store in topology.global_stores.items():
        found[name] = StoreInfo(name, query_kind(config, store.store), 1, is_global=True)
    return found


def unknown_store(name: str, stores: Iterable[str]) -> UnknownStateStoreException:
    """Return the exception for a store that the topology does not have."""
    return UnknownStateStoreException(
        f"Cannot get state store {name} because no such store is registered in the topology."
        f"{did_you_mean(name, stores)} {list_stores(stores)}"
    )


def list_stores(stores: Iterable[str]) -> str:
    """Return a sentence with all stores, for messages."""
    return f"Stores: {', '.join(map(repr, sorted(stores))) or 'none'}."


def _is_default_partitioned(
    topology: Topology, config: StreamsConfig, nodes: tuple[str, ...]
) -> bool:
    """Whether all records of a sub-topology come through repartition topics of the default kind."""
    reads = [node for name in nodes if isinstance(node := topology.node(name), SourceNode)]
    topics = {topic for node in reads for topic in node.topics}
    if any(node.pattern is not None for node in reads) or topics - set(topology.internal_topics):
        return False
    sinks = [
        node for node in topology.nodes if isinstance(node, SinkNode)
        and (not isinstance(node.topic, str) or node.topic in topics)
    ]
    return all(
        sink.partitioner is None and _partitions_by_bytes(sink, topology, config)
        for sink in sinks
    )


def _partitions_by_bytes(sink: SinkNode, topology: Topology, config: StreamsConfig) -> bool:
    """Whether the partition is that of the serialized key. A windowed key has that of its key."""
    try:
        key, _ = Blueprint.of(topology, config).serdes(sink)
    except StreamsException:
        return False
    return not isinstance(key, WindowedSerde)
