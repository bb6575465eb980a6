"""Checks that every source, sink, operator and store of a topology has its serdes."""

from __future__ import annotations

from typing import Any

from penstock.config import StreamsConfig
from penstock.errors import ConfigException, StreamsException
from penstock.topology.default_serdes import DefaultSerdes, resolve
from penstock.topology.nodes import Node, ProcessorNode, SourceNode, StoreSpec
from penstock.topology.topology import Topology


def check_serdes(topology: Topology, config: StreamsConfig) -> None:
    """Raise `StreamsException` for the first missing serde.

    A missing serde is found before the application starts, not with its first record.
    """
    defaults = DefaultSerdes(config)
    for node in topology.nodes:
        try:
            _resolve_node(node, defaults)
        except ConfigException as error:
            kind = {SourceNode: "source node ", ProcessorNode: ""}.get(type(node), "sink node ")
            raise StreamsException(
                f"Failed to initialize serdes for {kind}{node.name}: {error}"
            ) from error
    stores = topology.stores
    names = [name for node in topology.nodes for name in topology.stores_of(node.name)]
    used = [stores[name] for name in dict.fromkeys(names) if name in stores]
    for store in (*used, *(each.store for each in topology.global_stores.values())):
        try:
            _resolve_store(store, defaults)
        except ConfigException as error:
            raise StreamsException(
                f"Failed to initialize serdes for store {store.name}: {error}"
            ) from error


def _resolve_node(node: Node, defaults: DefaultSerdes) -> None:
    if isinstance(node, ProcessorNode):
        resolve(node.operator, defaults)
    else:
        defaults.key(resolve(node.key, defaults))
        defaults.value(resolve(node.value, defaults))


def _resolve_store(store: StoreSpec, defaults: DefaultSerdes) -> None:
    builder: Any = store.resolve(defaults.config)
    if getattr(builder, "kind", None) != "custom" and hasattr(builder, "key_serde"):
        defaults.key(builder.key_serde)
        defaults.value(builder.value_serde)
