"""`StreamsBuilder`: the entry point of the DSL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypedDict, TypeVar, Unpack, overload

from penstock.config import StreamsConfig, TopologyConfig, resolve_topology_config
from penstock.dsl.checks import check_serdes, check_source_options, check_store_builder
from penstock.dsl.options import Materialized, StoreOption, as_materialized
from penstock.dsl.plan_builder import AnySerde, NodeRef, PlanBuilder
from penstock.dsl.stream import KStream
from penstock.dsl.table import GlobalKTable, KTable
from penstock.errors import TopologyException
from penstock.java_names import JavaNames
from penstock.processors.user import UserProcessor
from penstock.serdes.builtin import Serde
from penstock.topology.lowering import lower
from penstock.topology.nodes import UserStoreSpec
from penstock.topology.offset_reset import AutoOffsetReset
from penstock.topology.plan import SourceTable
from penstock.topology.plan_nodes import (
    GlobalStoreNode,
    StateStoreNode,
    StreamSourceNode,
    TableSourceNode,
)
from penstock.topology.rules import rules_for
from penstock.topology.store_specs import KeyValueSpec
from penstock.topology.topology import Topology

K = TypeVar("K")
V = TypeVar("V")

TimestampExtractor = Callable[[Any, int], int]
Topics = str | Iterable[str] | re.Pattern[str]


class _SourceOptions(TypedDict, total=False):
    """Options of `stream` besides the serdes."""

    timestamp: TimestampExtractor | None
    offset_reset: AutoOffsetReset | None
    name: str | None


class _GlobalSourceOptions(TypedDict, total=False):
    """The same for a global table, which has no offset reset: it is read from the beginning."""

    timestamp: TimestampExtractor | None
    name: str | None


class _TableOptions(_SourceOptions, total=False):
    """Options of `table` besides the serdes."""

    store: StoreOption[Any, Any]


class _GlobalTableOptions(_GlobalSourceOptions, total=False):
    """Options of `global_table` besides the serdes."""

    store: StoreOption[Any, Any]


class StreamsBuilder(JavaNames):
    """Builds a topology from streams and tables.

    Create sources with `stream`, `table` and `global_table`, apply operators to them, then call
    `build`. `key=` and `value=` are serdes; they default to `default_key_serde` and
    `default_value_serde` of the configuration. `name=` names the step; Kafka's `Named`, `Consumed`
    and `Produced` objects are keyword arguments here.
    """

    def __init__(self, config: StreamsConfig | TopologyConfig | None = None) -> None:
        self._plan_builder = PlanBuilder(resolve_topology_config(config))

    @overload
    def stream(
        self, topics: Topics, *, key: Serde[K], value: Serde[V],
        **options: Unpack[_SourceOptions],
    ) -> KStream[K, V]: ...
    @overload
    def stream(
        self, topics: Topics, *, key: Serde[K], value: None = None,
        **options: Unpack[_SourceOptions],
    ) -> KStream[K, Any]: ...
    @overload
    def stream(
        self, topics: Topics, *, key: None = None, value: Serde[V],
        **options: Unpack[_SourceOptions],
    ) -> KStream[Any, V]: ...
    @overload
    def stream(
        self, topics: Topics, *, key: None = None, value: None = None,
        **options: Unpack[_SourceOptions],
    ) -> KStream[Any, Any]: ...
    def stream(
        self,
        topics: Topics,
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        timestamp: TimestampExtractor | None = None,
        offset_reset: AutoOffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """Return a stream of the records of one or more topics.

        `topics` is a name, an iterable of names, or a compiled pattern that topic names must
        match. `timestamp` extracts a record's timestamp: a function of (record, partition_time).
        `offset_reset` applies if the application has no committed offset.
        """
        plan_builder = self._plan_builder
        pattern = topics if isinstance(topics, re.Pattern) else None
        names: tuple[str, ...] = ()
        if pattern is None:
            names = _topic_names(topics)
        step = plan_builder.names.given_or_next(name, "KSTREAM-SOURCE-")
        check_serdes(step, key=key, value=value)
        check_source_options(step, timestamp, offset_reset)
        node = StreamSourceNode(
            name=step, topics=frozenset(names), ordered_topics=names, pattern=pattern, key=key,
            value=value, timestamp=timestamp, offset_reset=offset_reset,
        )
        plan_builder.plan.add(node)
        return KStream(NodeRef(plan_builder, node, step, key, value, frozenset((step,))))

    @overload
    def table(
        self, topic: str, *, key: Serde[K], value: Serde[V],
        **options: Unpack[_TableOptions],
    ) -> KTable[K, V]: ...
    @overload
    def table(
        self, topic: str, *, key: Serde[K], value: None = None,
        **options: Unpack[_TableOptions],
    ) -> KTable[K, Any]: ...
    @overload
    def table(
        self, topic: str, *, key: None = None, value: Serde[V],
        **options: Unpack[_TableOptions],
    ) -> KTable[Any, V]: ...
    @overload
    def table(
        self, topic: str, *, key: None = None, value: None = None,
        store: Materialized[K, V], **options: Unpack[_SourceOptions],
    ) -> KTable[K, V]: ...
    @overload
    def table(
        self, topic: str, *, key: None = None, value: None = None,
        **options: Unpack[_TableOptions],
    ) -> KTable[Any, Any]: ...
    def table(
        self,
        topic: str,
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        timestamp: TimestampExtractor | None = None,
        offset_reset: AutoOffsetReset | None = None,
        name: str | None = None,
        store: StoreOption[Any, Any] = None,
    ) -> KTable[Any, Any]:
        """Return a table of the latest value of each key in a topic; a null value deletes a row.

        `store` names the store that keeps the rows, or configures it with a `Materialized`.
        """
        node, spec, named = self._table_source(
            topic, key, value, timestamp, offset_reset, name, store, is_global=False
        )
        plan_builder = self._plan_builder
        plan_builder.plan.tables[node.name] = SourceTable(node.name, spec.name, named)
        ref = NodeRef(
            plan_builder, node, node.name, spec.key, spec.value, frozenset((node.source,))
        )
        return KTable(ref, node.name, spec.name if named else None)

    @overload
    def global_table(
        self, topic: str, *, key: Serde[K], value: Serde[V],
        **options: Unpack[_GlobalTableOptions],
    ) -> GlobalKTable[K, V]: ...
    @overload
    def global_table(
        self, topic: str, *, key: Serde[K], value: None = None,
        **options: Unpack[_GlobalTableOptions],
    ) -> GlobalKTable[K, Any]: ...
    @overload
    def global_table(
        self, topic: str, *, key: None = None, value: Serde[V],
        **options: Unpack[_GlobalTableOptions],
    ) -> GlobalKTable[Any, V]: ...
    @overload
    def global_table(
        self, topic: str, *, key: None = None, value: None = None,
        store: Materialized[K, V], **options: Unpack[_GlobalSourceOptions],
    ) -> GlobalKTable[K, V]: ...
    @overload
    def global_table(
        self, topic: str, *, key: None = None, value: None = None,
        **options: Unpack[_GlobalTableOptions],
    ) -> GlobalKTable[Any, Any]: ...
    def global_table(
        self,
        topic: str,
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        timestamp: TimestampExtractor | None = None,
        name: str | None = None,
        store: StoreOption[Any, Any] = None,
    ) -> GlobalKTable[Any, Any]:
        """Return a table whose rows are all available to every task. Kafka: `globalTable`.

        Streams can join it by any key, without co-partitioning.
        """
        _, spec, named = self._table_source(
            topic, key, value, timestamp, None, name, store, is_global=True
        )
        return GlobalKTable(self._plan_builder, spec.name, named)

    def add_state_store(self, builder: Any) -> StreamsBuilder:
        """Add a store that processors connect to by name. `builder` comes from `Stores`."""
        check_store_builder(builder, step="add_state_store")
        store = UserStoreSpec(builder)
        self._plan_builder.plan.add(StateStoreNode(name=f"store {builder.name}", store=store))
        return self

    def add_global_store(
        self,
        builder: Any,
        topic: str,
        supplier: Callable[[], Any],
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        timestamp: TimestampExtractor | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Add a store that every task can read.

        The processor of `supplier` receives the records of `topic` and updates the store.
        """
        plan_builder = self._plan_builder
        source = plan_builder.names.suffixed_or_next(name, "-source", "KSTREAM-SOURCE-")
        step = plan_builder.names.given_or_next(name, "KTABLE-SOURCE-")
        UserProcessor.checked(supplier, step=step)
        check_store_builder(builder, step=step)
        check_serdes(step, key=key, value=value)
        check_source_options(step, timestamp, None)
        if not isinstance(topic, str) or not topic:
            raise TopologyException(f"{step}: the topic must be a name, not {topic!r}.")
        node = GlobalStoreNode(
            name=step, source=source, topic=topic,
            store=UserStoreSpec(builder.with_logging_disabled()), supplier=supplier, key=key,
            value=value, timestamp=timestamp,
        )
        plan_builder.plan.add(node)
        return self

    def build(self, config: StreamsConfig | TopologyConfig | None = None) -> Topology:
        """Return the topology of all steps so far.

        `config` decides about `topology_optimization`; it defaults to the builder's configuration.
        More steps can be added afterwards, and the topology built again.
        """
        plan_builder = self._plan_builder
        own_config = plan_builder.config
        config = resolve_topology_config(config) or own_config
        if own_config is not None and own_config.ensure_explicit_internal_resource_naming:
            self._check_explicit_names()
        optimizations = frozenset() if config is None else config.topology_optimization
        plan = plan_builder.plan
        for rule in rules_for(optimizations, plan_builder.names):
            plan = rule(plan)
        return lower(plan, plan_builder.internal_topics, config)

    def _table_source(
        self,
        topic: str,
        key: AnySerde,
        value: AnySerde,
        timestamp: TimestampExtractor | None,
        offset_reset: AutoOffsetReset | None,
        name: str | None,
        store: Any,
        *,
        is_global: bool,
    ) -> tuple[TableSourceNode, KeyValueSpec, bool]:
        plan_builder = self._plan_builder
        if not isinstance(topic, str) or not topic:
            raise TopologyException(f"A table reads one topic, given by its name, not {topic!r}.")
        check_serdes(name or f"table of {topic}", key=key, value=value)
        option = as_materialized(store, step=name or f"table of {topic}")
        if is_global and option is not None and option.store_name is None:
            raise ValueError(
                f"The store of the global table of topic {topic} has no name. "
                "Name it in the Materialized, or leave out store=."
            )
        requested = option or Materialized()
        key = key if key is not None else requested.key
        value = value if value is not None else requested.value
        materialized, named = plan_builder.name_store(requested, f"{topic}-")
        # The store keeps the records of the topic, so it uses the same serdes.
        spec = KeyValueSpec(replace(materialized, key=key, value=value))
        if is_global and spec.is_versioned:
            raise TopologyException(
                f"GlobalTables cannot be versioned, but store {spec.name} of topic {topic} is. "
                "Use a key-value store that is not versioned."
            )
        if is_global:
            spec = spec.without_logging()
        source = plan_builder.names.suffixed_or_next(name, "-source", "KSTREAM-SOURCE-")
        step = plan_builder.names.given_or_next(name, "KTABLE-SOURCE-")
        check_source_options(step, timestamp, offset_reset)
        node = TableSourceNode(
            name=step, table=step, source=source, topic=topic, store=spec, key=key, value=value,
            timestamp=timestamp, offset_reset=offset_reset, is_global=is_global,
            is_versioned=spec.is_versioned,
        )
        plan_builder.plan.add(node)
        return node, spec, named

    def _check_explicit_names(self) -> None:
        generated = self._plan_builder.plan.generated_names
        if generated:
            raise TopologyException(
                "ensure_explicit_internal_resource_naming is set, but these names were generated: "
                f"{', '.join(generated)}. Name the steps and stores that they belong to."
            )


def _topic_names(topics: Any) -> tuple[str, ...]:
    names = (topics,) if isinstance(topics, str) else topics
    if isinstance(names, Iterable):
        names = tuple(names)
        if names and all(isinstance(topic, str) and topic for topic in names):
            return names
    raise TopologyException(
        f"A stream reads one or more topics, not {topics!r}. "
        "Give a topic name, a list of names, or a compiled pattern."
    )
