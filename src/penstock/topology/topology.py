"""`Topology`: nodes and stores, checked as they are added.

It is the entry point of the Processor API (P1-P6) and the result of lowering a DSL plan.
Sub-topologies and the description are computed from its nodes on demand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.config import StreamsConfig
from penstock.errors import TopologyException
from penstock.java_names import JavaNames
from penstock.processors.user import UserProcessor, supplied_stores
from penstock.serdes.base import Serde, as_serde
from penstock.stores.api.builder import StoreBuilder
from penstock.topology.describe import TopologyDescription, describe
from penstock.topology.locations import file_of_line, user_line
from penstock.topology.nodes import (
    GlobalStore,
    InternalTopic,
    Node,
    Partitioner,
    ProcessorNode,
    SinkNode,
    SourceNode,
    StoreFeed,
    StoreSpec,
    TopicNameExtractor,
    UserStoreSpec,
    check_reprocessable,
)
from penstock.topology.offset_reset import AutoOffsetReset
from penstock.topology.processor_wrapper import wrap_node
from penstock.topology_config import TopologyConfig, resolve_topology_config

#: A serde, or a function: a deserializer for a source, a serializer for a sink.
SerdeLike = Serde[Any] | Callable[[Any], Any] | None


@dataclass(frozen=True)
class NodeGroup:
    """A connected part of the topology: a sub-topology, or the two nodes of a global store."""

    id: int
    nodes: tuple[str, ...]
    is_global: bool


class Topology(JavaNames):
    """The nodes and stores of an application, in the order of addition.

    Add sources, processors, stores and sinks by name; each method returns the topology. Invariants:
    the parents of a node are added before it; names are unique; one source reads a topic; a store
    name belongs to one store, local or global.

    Args:
        config: The settings that shape a topology, such as a processor wrapper.

    Example:
        >>> from penstock import Processor, Serdes, Topology
        >>> text = Serdes.string()
        >>> topology = Topology()
        >>> topology = topology.add_source(
        ...     "in", "words", key_deserializer=text, value_deserializer=text
        ... ).add_processor("work", Processor, "in")
        >>> print(topology.describe())
        Topologies:
           Sub-topology: 0
            Source: in (topics: [words])
              --> work
            Processor: work (stores: [])
              --> none
              <-- in
        <BLANKLINE>
        <BLANKLINE>

    Kafka: Topology
    """

    def __init__(self, config: StreamsConfig | TopologyConfig | None = None) -> None:
        self.config = resolve_topology_config(config)
        #: Names of stores and internal topics that the DSL has generated.
        self.generated_names: tuple[str, ...] = ()
        #: The optimizations that the DSL has applied; None without the DSL.
        self.optimizations: frozenset[str] | None = None
        #: The user's files that have added the steps.
        self.source_files: set[str] = set()
        self._nodes: dict[str, Node] = {}
        self._stores: dict[str, StoreSpec] = {}
        self._store_users: dict[str, list[str]] = {}
        self._connected: dict[str, list[str]] = {}
        self._global_stores: dict[str, GlobalStore] = {}
        self._internal_topics: dict[str, InternalTopic] = {}
        self._copartitioned: list[frozenset[str]] = []
        self._source_changelogs: dict[str, str] = {}
        self._store_feeds: dict[str, StoreFeed] = {}
        #: Stores whose names contain a generated number.
        self.generated_stores: frozenset[str] = frozenset()
        self._components = _UnionFind()
        self._wrapper = None if self.config is None else self.config.make_processor_wrapper()

    # ---- the Processor API -------------------------------------------------------------------

    def add_source(
        self,
        name: str,
        *topics: str,
        pattern: str | re.Pattern[str] | None = None,
        offset_reset: AutoOffsetReset | None = None,
        timestamp_extractor: Callable[[Any, int], int] | None = None,
        key_deserializer: SerdeLike = None,
        value_deserializer: SerdeLike = None,
    ) -> Topology:
        """Add a source that reads topics, or all topics whose names match `pattern`.

        A deserializer is a serde or a function of bytes; the default is that of the configuration.

        Args:
            name: The name of the node.
            topics: The names of the topics.
            pattern: A regular expression for the names of the topics.
            offset_reset: Where to start in a partition without a committed offset.
            timestamp_extractor: Returns the timestamp of a record; None for the default.
            key_deserializer: A serde or a function that reads keys; None for the default.
            value_deserializer: A serde or a function that reads values; None for the default.

        Returns:
            This topology, so that calls can be chained.

        Kafka: Topology#addSource
        """
        self.add_node(
            SourceNode(
                name, tuple(topics), re.compile(pattern) if pattern is not None else None,
                as_serde(key_deserializer, reads=True, step=name),
                as_serde(value_deserializer, reads=True, step=name),
                timestamp_extractor, offset_reset,
            )
        )
        return self

    def add_processor(self, name: str, supplier: Callable[[], Any], *parents: str) -> Topology:
        """Add a processor that receives the records of its parents.

        `supplier` returns a new processor at each call; a class works. Its attribute `stores` may
        list store builders to add and connect.

        Args:
            name: The name of the node.
            supplier: Creates the processor, without arguments.
            parents: The names of the nodes whose output it reads.

        Returns:
            This topology, so that calls can be chained.

        Kafka: Topology#addProcessor
        """
        self.source_files.add(file_of_line(user_line()))
        operator = UserProcessor.checked(supplier, step=name)
        self.add_processor_node(ProcessorNode(name, operator, parents))
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicNameExtractor,
        *parents: str,
        key_serializer: SerdeLike = None,
        value_serializer: SerdeLike = None,
        partitioner: Partitioner | None = None,
    ) -> Topology:
        """Add a sink that writes the records of its parents to a topic.

        `topic` is a name, or a function of (key, value, context) that returns one.

        Args:
            name: The name of the node.
            topic: The name of the topic, or a function (key, value, context) that returns it.
            parents: The names of the nodes whose output it reads.
            key_serializer: A serde or a function that writes keys; None for the default.
            value_serializer: A serde or a function that writes values; None for the default.
            partitioner: Selects the partition: a function (topic, key, value, partitions).

        Returns:
            This topology, so that calls can be chained.

        Kafka: Topology#addSink
        """
        if not isinstance(topic, str) and not callable(topic):
            raise TypeError(
                f"{name}: the topic of a sink must be a name or a function of "
                f"(key, value, context), not {topic!r}."
            )
        self.add_node(
            SinkNode(
                name, topic, parents, as_serde(key_serializer, reads=False, step=name),
                as_serde(value_serializer, reads=False, step=name), partitioner,
            )
        )
        return self

    def add_state_store(self, store: StoreBuilder | StoreSpec, *processors: str) -> Topology:
        """Add a store and connect it to processors that were added before.

        Args:
            store: The builder of the store.
            processors: The names of the processors that use the store.

        Returns:
            This topology, so that calls can be chained.

        Kafka: Topology#addStateStore
        """
        if not hasattr(store, "name") or not (hasattr(store, "build") or hasattr(store, "resolve")):
            raise TypeError(
                f"A store is added as a StoreBuilder, not {store!r}. "
                "Create one with Stores.key_value_store_builder(supplier, key, value)."
            )
        spec = _as_spec(store)
        known = self._stores.get(spec.name)
        if known is not None and not _same_store(known, spec):
            raise TopologyException(
                f"A different StateStore has already been added with the name {spec.name}. "
                "Rename one of them, or use the same builder for both."
            )
        if spec.name in self._global_stores:
            raise TopologyException(
                f"A different GlobalStateStore has already been added with the name {spec.name}. "
                "Rename one of them."
            )
        self._stores[spec.name] = spec
        for processor in processors:
            self._connect(processor, spec.name)
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Topology:
        """Connect a processor to stores, which it can then use.

        Args:
            processor: The name of the processor.
            stores: The names of the stores.

        Returns:
            This topology, so that calls can be chained.

        Kafka: Topology#connectProcessorAndStateStores
        """
        if not stores:
            raise TopologyException(
                f"No stores were given for processor {processor}. Name at least one."
            )
        if isinstance(self._nodes.get(processor), SourceNode | SinkNode):
            raise TopologyException(
                f"State stores cannot be connected to sources or sinks, and {processor} is one."
            )
        for store in stores:
            self._connect(processor, store)
        return self

    def add_read_only_state_store(
        self,
        store: StoreBuilder,
        source: str,
        topic: str,
        processor: str,
        supplier: Callable[[], Any],
        *,
        timestamp_extractor: Callable[[Any, int], int] | None = None,
        key_deserializer: SerdeLike = None,
        value_deserializer: SerdeLike = None,
    ) -> Topology:
        """Add a store that the processor of `supplier` updates from a topic (KIP-813).

        The topic serves as the changelog of the store: a restore processes its records again. So
        the processor may use no other store, and no other processor may write to this one.

        Args:
            store: The builder of the store.
            source: The name of the source node.
            topic: The name of the topic, or a function (key, value, context) that returns it.
            processor: The name of the processor.
            supplier: Creates the processor, without arguments.
            timestamp_extractor: Returns the timestamp of a record; None for the default.
            key_deserializer: A serde or a function that reads keys; None for the default.
            value_deserializer: A serde or a function that reads values; None for the default.

        Returns:
            This topology, so that calls can be chained.

        Kafka: Topology#addReadOnlyStateStore
        """
        check_reprocessable(store)
        self.add_source(
            source, topic, offset_reset=AutoOffsetReset.earliest(),
            timestamp_extractor=timestamp_extractor, key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
        )
        operator = UserProcessor.checked(supplier, step=processor)
        self.add_node(ProcessorNode(processor, operator, (source,)))
        self._store_feeds[store.name] = StoreFeed(source, processor)
        for builder in (*supplied_stores(supplier), store.with_logging_disabled()):
            self.add_state_store(builder, processor)
        self.use_source_as_changelog(store.name, topic)
        return self

    def add_global_store(
        self,
        store: StoreBuilder,
        source: str,
        topic: str,
        processor: str,
        supplier: Callable[[], Any],
        *,
        timestamp_extractor: Callable[[Any, int], int] | None = None,
        key_deserializer: SerdeLike = None,
        value_deserializer: SerdeLike = None,
    ) -> Topology:
        """Add a store that every task can read.

        The processor of `supplier` updates it from all partitions of a topic.

        Args:
            store: The builder of the store.
            source: The name of the source node.
            topic: The name of the topic, or a function (key, value, context) that returns it.
            processor: The name of the processor.
            supplier: Creates the processor, without arguments.
            timestamp_extractor: Returns the timestamp of a record; None for the default.
            key_deserializer: A serde or a function that reads keys; None for the default.
            value_deserializer: A serde or a function that reads values; None for the default.

        Returns:
            This topology, so that calls can be chained.

        Kafka: Topology#addGlobalStore
        """
        source_node = SourceNode(
            source, (topic,), None, as_serde(key_deserializer, reads=True, step=source),
            as_serde(value_deserializer, reads=True, step=source), timestamp_extractor,
        )
        self.source_files.add(file_of_line(user_line()))
        operator = UserProcessor.checked(supplier, step=processor)
        self.add_global_nodes(
            source_node, ProcessorNode(processor, operator, (source,)), UserStoreSpec(store)
        )
        return self

    def describe(self) -> TopologyDescription:
        """Return the description of the topology; `str()` of it is Kafka's text.

        Kafka: Topology#describe
        """
        return describe(self)

    def _repr_svg_(self) -> str:
        """The picture that Jupyter shows."""
        return self.describe().to_svg()

    # ---- used by lowering --------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        """Check and add a node.

        Args:
            node: The node.
        """
        self._check_new_name(node.name)
        if isinstance(node, SourceNode):
            self._check_source(node)
        else:
            self._check_parents(node)
        self._nodes[node.name] = node
        self._components.add(node.name)
        for parent in node.parents:
            self._components.unite(node.name, parent)

    def add_processor_node(self, node: ProcessorNode) -> None:
        """Add a processor, wrapped if the configuration has a wrapper, and the stores it lists.

        Args:
            node: The node.
        """
        stores: Iterable[Any] = ()
        if self._wrapper is not None:
            node, stores = wrap_node(self._wrapper, node)
        elif isinstance(node.operator, UserProcessor):
            stores = supplied_stores(node.operator.supplier)
        self.add_node(node)
        for builder in stores:
            self.add_state_store(builder, node.name)

    def add_global_nodes(
        self, source: SourceNode, processor: ProcessorNode, store: StoreSpec
    ) -> None:
        """Add a global store with its source and its processor.

        Args:
            source: The name of the source node.
            processor: The name of the processor.
            store: The builder of the store.
        """
        if source.name == processor.name:
            raise TopologyException(
                f"The source and the processor of global store {store.name} have the same name, "
                f"{source.name}. Rename one of them."
            )
        self._check_new_name(processor.name)
        for kind, known in (
            ("StateStore", store.name in self._stores),
            ("GlobalStateStore", store.name in self._global_stores),
        ):
            if known:
                raise TopologyException(
                    f"A different {kind} has already been added with the name {store.name}. "
                    "Rename one of them."
                )
        self.add_node(source)
        self.add_node(processor)
        self._connected[processor.name] = [store.name]
        self._global_stores[store.name] = GlobalStore(store, source, processor, source.topics[0])
        self.use_source_as_changelog(store.name, source.topics[0])

    def add_internal_topic(self, topic: InternalTopic) -> None:
        """Add an internal topic.

        Args:
            topic: The name of the topic, or a function (key, value, context) that returns it.
        """
        self._internal_topics[topic.name] = topic

    def copartition(self, sources: Iterable[str]) -> None:
        """Require equal partition counts for the topics of these sources.

        Args:
            sources: The source topics that need equal numbers of partitions.
        """
        self._copartitioned.append(frozenset(sources))

    def use_source_as_changelog(self, store: str, topic: str) -> None:
        """Restore a store from its source topic instead of a changelog.

        Args:
            store: The builder of the store.
            topic: The name of the topic, or a function (key, value, context) that returns it.
        """
        if store in self._source_changelogs:
            raise TopologyException(f"Source store {store} is already added.")
        self._source_changelogs[store] = topic

    # ---- properties --------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes in the order of addition."""
        return tuple(self._nodes.values())

    @property
    def stores(self) -> dict[str, StoreSpec]:
        """The local stores by name."""
        return dict(self._stores)

    @property
    def global_stores(self) -> dict[str, GlobalStore]:
        """The global stores by name."""
        return dict(self._global_stores)

    @property
    def internal_topics(self) -> dict[str, InternalTopic]:
        """Repartition and foreign-key topics by their names without the application id."""
        return dict(self._internal_topics)

    @property
    def copartition_groups(self) -> tuple[frozenset[str], ...]:
        """Sets of sources whose topics must have equal partition counts."""
        return tuple(self._copartitioned)

    @property
    def source_changelogs(self) -> dict[str, str]:
        """Stores that are restored from their source topics, with the topics."""
        return dict(self._source_changelogs)

    @property
    def store_feeds(self) -> dict[str, StoreFeed]:
        """Read-only stores, with the nodes that fill them."""
        return dict(self._store_feeds)

    def node(self, name: str) -> Node:
        """Return the node with that name.

        Args:
            name: The name of the node.
        """
        return self._nodes[name]

    def stores_of(self, processor: str) -> tuple[str, ...]:
        """Return the stores of a processor in the order of connection.

        Args:
            processor: The name of the processor.
        """
        return tuple(self._connected.get(processor, ()))

    def groups(self) -> tuple[NodeGroup, ...]:
        """Return the connected components of nodes and stores, numbered by first node (F9)."""
        members: dict[str, list[str]] = {}
        for name in self._nodes:
            members.setdefault(self._components.root(name), []).append(name)
        sources = {store.source.name for store in self._global_stores.values()}
        return tuple(
            NodeGroup(number, tuple(names), not sources.isdisjoint(names))
            for number, names in enumerate(members.values())
        )

    # ---- checks ------------------------------------------------------------------------------

    def _check_new_name(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"The name of a node must be a string, not {name!r}.")
        if name in self._nodes:
            raise TopologyException(
                f"Processor {name} is already added. Use a different name for each step."
            )

    def _check_source(self, node: SourceNode) -> None:
        if bool(node.topics) == (node.pattern is not None):
            raise TopologyException(f"Source {node.name} needs either topics or a pattern.")
        taken = [
            (topic, other) for other in self._nodes.values() if isinstance(other, SourceNode)
            for topic in other.topics
        ]
        for topic in node.topics:
            if not isinstance(topic, str):
                raise TypeError(
                    f"Source {node.name}: the name of a topic must be a string, not {topic!r}."
                )
            for other_topic, other in taken:
                if topic == other_topic:
                    raise TopologyException(
                        f"Topic {topic} has already been registered by another source, "
                        f"{other.name}. {node.name} cannot read it as well."
                    )
            for other_node in self._nodes.values():
                if _matches(other_node, topic):
                    raise TopologyException(
                        f"Topic {topic} of {node.name} matches a pattern already registered by "
                        f"another source, {other_node.name}."
                    )
        if node.pattern is not None:
            for topic, other in taken:
                if node.pattern.fullmatch(topic):
                    raise TopologyException(
                        f"Pattern {node.pattern.pattern} of {node.name} matches topic {topic}, "
                        f"which has already been registered by another source, {other.name}."
                    )

    def _check_parents(self, node: ProcessorNode | SinkNode) -> None:
        if not node.parents:
            raise TopologyException(f"{node.name} has no parents. Name at least one.")
        for parent in node.parents:
            known = self._nodes.get(parent)
            if known is None:
                hint = " (a node cannot be its own parent)" if parent == node.name else ""
                raise TopologyException(
                    f"Parent node {parent} of {node.name} is unknown{hint}. "
                    f"Nodes: {', '.join(self._nodes) or 'none'}."
                )
            if isinstance(known, SinkNode):
                raise TopologyException(
                    f"Sink {parent} cannot be used as a parent of {node.name}. "
                    "Sinks do not forward records."
                )

    def _connect(self, processor: str, store: str) -> None:
        if store in self._global_stores:
            raise TopologyException(
                f"Global StateStore {store} can be used by a processor without being connected. "
                f"Do not connect it to {processor}."
            )
        if store not in self._stores:
            raise TopologyException(
                f"StateStore {store} of {processor} is not added yet. "
                f"Stores: {', '.join(self._stores) or 'none'}."
            )
        for fed, feed in self._store_feeds.items():
            if feed.processor == processor and fed != store:
                raise TopologyException(
                    f"Processor {processor} fills the read-only store {fed}, so it cannot use "
                    f"store {store}: a restore processes the records of the topic again, without "
                    "other stores. Connect it to a child of the processor."
                )
        if processor not in self._nodes:
            raise TopologyException(
                f"Processor {processor} is not added yet. "
                f"Add it before you connect store {store}."
            )
        if not isinstance(self._nodes[processor], ProcessorNode):
            raise TopologyException(
                f"StateStore {store} cannot be connected to {processor}, "
                "which is a source or a sink."
            )
        users = self._store_users.setdefault(store, [])
        if users:
            self._components.unite(users[0], processor)
        users.append(processor)
        connected = self._connected.setdefault(processor, [])
        if store not in connected:
            connected.append(store)


def _matches(node: Node, topic: str) -> bool:
    return (
        isinstance(node, SourceNode)
        and node.pattern is not None
        and node.pattern.fullmatch(topic) is not None
    )


def _as_spec(store: StoreBuilder | StoreSpec) -> StoreSpec:
    untyped: Any = store
    spec: StoreSpec = untyped if hasattr(store, "resolve") else UserStoreSpec(untyped)
    return spec


def _same_store(left: StoreSpec, right: StoreSpec) -> bool:
    if left is right:
        return True
    return (
        isinstance(left, UserStoreSpec) and isinstance(right, UserStoreSpec)
        and left.builder is right.builder
    )


class _UnionFind:
    """The connected components of nodes; each has a root node that represents it."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def add(self, name: str) -> None:
        self._parent.setdefault(name, name)

    def root(self, name: str) -> str:
        while self._parent[name] != name:
            self._parent[name] = self._parent[self._parent[name]]
            name = self._parent[name]
        return name

    def unite(self, left: str, right: str) -> None:
        self._parent[self.root(right)] = self.root(left)
