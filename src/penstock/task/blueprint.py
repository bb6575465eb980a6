"""The part of a topology that a task runs, with the configuration applied.

A blueprint is frozen, created once per sub-topology and shared by its tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.config import StreamsConfig
from penstock.processors.base import Operator
from penstock.serdes.builtin import Serde
from penstock.topology.default_serdes import DefaultSerdes, resolve
from penstock.topology.java_order import hash_order
from penstock.topology.nodes import (
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
    StoreFeed,
    StoreSpec,
)
from penstock.topology.topology import Topology


@dataclass(frozen=True)
class StorePlan:
    """A store of the task with its builder and topics."""

    name: str
    spec: StoreSpec
    #: The changelog topic; None if logging is disabled.
    changelog: str | None
    #: The topic that it is restored from: the changelog, or the source topic of a table.
    restored_from: str | None
    #: The nodes that fill a read-only store, also when it is restored; None for other stores.
    feed: StoreFeed | None = None


@dataclass(frozen=True)
class Blueprint:
    """Nodes in topology order, their children and their stores."""

    config: StreamsConfig
    nodes: tuple[Node, ...]
    children: dict[str, tuple[str, ...]]
    #: Stores in the order of their first use by the nodes, which is the order of cache flushes.
    stores: tuple[StorePlan, ...]
    connected: dict[str, tuple[str, ...]]
    global_stores: frozenset[str]
    internal_topics: frozenset[str]

    @classmethod
    def of(
        cls, topology: Topology, config: StreamsConfig, groups: Iterable[int] | None = None
    ) -> Blueprint:
        """The nodes of these groups; by default of all groups that have tasks."""
        wanted = None if groups is None else set(groups)
        names = {
            name for group in topology.groups()
            if (not group.is_global if wanted is None else group.id in wanted)
            for name in group.nodes
        }
        nodes = tuple(node for node in topology.nodes if node.name in names)
        children: dict[str, list[str]] = {node.name: [] for node in nodes}
        for node in nodes:
            for parent in node.parents:
                if node.name not in children[parent]:
                    children[parent].append(node.name)
        connected = {node.name: topology.stores_of(node.name) for node in nodes}
        return cls(
            config, nodes, {name: tuple(below) for name, below in children.items()},
            _stores(topology, config, nodes), connected, frozenset(topology.global_stores),
            frozenset(topology.internal_topics),
        )

    def topic(self, name: str) -> str:
        """The name of a topic in the log: internal topics have the application id as prefix."""
        return f"{self.config.application_id}-{name}" if name in self.internal_topics else name

    def source_changelogs(self) -> dict[str, str]:
        """Store -> the source topic that it is restored from instead of a changelog."""
        return {
            store.name: self.topic(store.restored_from) for store in self.stores
            if store.changelog is None and store.restored_from is not None
        }

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """The nodes that read topics."""
        return tuple(node for node in self.nodes if isinstance(node, SourceNode))

    def operator(self, node: ProcessorNode) -> Operator:
        """The operator of a node, with the default serdes applied."""
        operator: Operator = resolve(node.operator, DefaultSerdes(self.config))
        return operator

    def serdes(self, node: SourceNode | SinkNode) -> tuple[Serde[Any], Serde[Any]]:
        """Key and value serde of a source or sink, with the defaults applied."""
        defaults = DefaultSerdes(self.config)
        return (
            defaults.key(resolve(node.key, defaults)),
            defaults.value(resolve(node.value, defaults)),
        )


def _stores(
    topology: Topology, config: StreamsConfig, nodes: tuple[Node, ...]
) -> tuple[StorePlan, ...]:
    plans: dict[str, StorePlan] = {}
    for node in nodes:
        for name in hash_order(topology.stores_of(node.name)):
            spec = topology.stores.get(name)
            if spec is None or name in plans:
                continue
            changelog = None
            if spec.logging_enabled and name not in topology.source_changelogs:
                changelog = f"{config.application_id}-{name}-changelog"
            restored_from = topology.source_changelogs.get(name, changelog)
            plans[name] = StorePlan(
                name, spec, changelog, restored_from, topology.store_feeds.get(name)
            )
    return tuple(plans.values())
