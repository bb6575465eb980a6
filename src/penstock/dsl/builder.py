"""`StreamsBuilder`: the entry point of the DSL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypedDict, TypeVar, Unpack, overload

from penstock.config import StreamsConfig
from penstock.dsl.checks import as_serdes, check_source_options, check_store_builder
from penstock.dsl.known_options import lists_options
from penstock.dsl.options import Materialized, StoreOption, as_materialized
from penstock.dsl.plan_builder import PlanBuilder
from penstock.dsl.source_serdes import SourceSerdes
from penstock.dsl.stream import KStream
from penstock.dsl.table import GlobalKTable, KTable
from penstock.errors import TopologyException
from penstock.java_names import JavaNames
from penstock.processors.user import UserProcessor
from penstock.serdes.base import SerdeOrType
from penstock.topology.build_settings import check_explicit_names
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
from penstock.topology.serde_check import check_serdes
from penstock.topology.store_specs import KeyValueSpec
from penstock.topology.topology import Topology
from penstock.topology_config import TopologyConfig, resolve_topology_config

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


@lists_options
class StreamsBuilder(JavaNames):
    """Builds a topology from streams and tables.

    Create sources with `stream`, `table` and `global_table`, apply operators to them, then call
    `build`. `key=` and `value=` are serdes; they default to `default_key_serde` and
    `default_value_serde` of the configuration. `name=` names the step; Kafka's `Named`, `Consumed`
    and `Produced` objects are keyword arguments here.
    """

    def __init__(self, config: StreamsConfig | TopologyConfig | None = None) -> None:
        self._config = config
        self._plan_builder = PlanBuilder(resolve_topology_config(config))

    @overload
    def stream(
        self, topics: Topics, *, key: SerdeOrType[K], value: SerdeOrType[V],
        **options: Unpack[_SourceOptions],
    ) -> KStream[K, V]: ...
    @overload
    def stream(
        self, topics: Topics, *, key: SerdeOrType[K], value: None = None,
        **options: Unpack[_SourceOptions],
    ) -> KStream[K, Any]: ...
    @overload
    def stream(
        self, topics: Topics, *, key: None = None, value: SerdeOrType[V],
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
        key: SerdeOrType[Any] | None = None,
        value: SerdeOrType[Any] | None = None,
        timestamp: TimestampExtractor | None = None,
        offset_reset: AutoOffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """Return a stream of the records of one or more topics.

        Args:
            topics: A name, an iterable of names, or a compiled pattern that topic names must match.
            key: The serde of the keys, or a type that has one; by default that of the
                configuration.
            value: The serde of the values, or a type that has one; by default that of the
                configuration.
            timestamp: A function of (record, partition_time) that returns the timestamp of a record
                in milliseconds; by default the configuration's extractor applies.
            offset_reset: Where to start without a committed offset: `AutoOffsetReset.earliest()`,
                for example. By default the configuration decides.
            name: The name of the step; generated if it is None.

        Returns:
            The stream.

        Example:
            builder.stream("payments", key=str, value=float)
            builder.stream("visits", key=str, value=str, timestamp=lambda record, time: time)

        Kafka: `StreamsBuilder#stream`
        """
        plan_builder = self._plan_builder
        pattern = topics if isinstance(topics, re.Pattern) else None
        names: tuple[str, ...] = ()
        if pattern is None:
            names = _topic_names(topics)
        step = plan_builder.names.given_or_next(name, "KSTREAM-SOURCE-")
        key_serde, value_serde = as_serdes(step, key=key, value=value)
        check_source_options(step, timestamp, offset_reset)
        shown = ", ".join(repr(each) for each in names) or repr(pattern)
        serdes = SourceSerdes(f"stream({shown}", key_serde, value_serde)
        node = StreamSourceNode(
            name=step, topics=frozenset(names), ordered_topics=names, pattern=pattern,
            key=serdes.key_of_node, value=serdes.value_of_node, timestamp=timestamp,
            offset_reset=offset_reset,
        )
        plan_builder.plan.add(node)
        return KStream(serdes.ref(plan_builder, node, frozenset((step,))))

    @overload
    def table(
        self, topic: str, *, key: SerdeOrType[K], value: SerdeOrType[V],
        **options: Unpack[_TableOptions],
    ) -> KTable[K, V]: ...
    @overload
    def table(
        self, topic: str, *, key: SerdeOrType[K], value: None = None,
        **options: Unpack[_TableOptions],
    ) -> KTable[K, Any]: ...
    @overload
    def table(
        self, topic: str, *, key: None = None, value: SerdeOrType[V],
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
        key: SerdeOrType[Any] | None = None,
        value: SerdeOrType[Any] | None = None,
        timestamp: TimestampExtractor | None = None,
        offset_reset: AutoOffsetReset | None = None,
        name: str | None = None,
        store: StoreOption[Any, Any] = None,
    ) -> KTable[Any, Any]:
        """Return a table of the latest value of each key in a topic; a null value deletes a row.

        Args:
            topic: The name of the topic.
            key: The serde of the keys, or a type that has one; by default that of the
                configuration.
            value: The serde of the values, or a type that has one; by default that of the
                configuration.
            timestamp: A function of (record, partition_time) that returns the timestamp of a record
                in milliseconds; by default the configuration's extractor applies.
            offset_reset: Where to start without a committed offset: `AutoOffsetReset.earliest()`,
                for example. By default the configuration decides.
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The table.

        Example:
            builder.table("prices", key=str, value=float, store="prices")

        Kafka: `StreamsBuilder#table`
        """
        node, spec, named = self._table_source(
            topic, key, value, timestamp, offset_reset, name, store, is_global=False
        )
        plan_builder = self._plan_builder
        plan_builder.plan.tables[node.name] = SourceTable(node.name, spec.name, named)
        serdes = SourceSerdes(f"table({topic!r}", spec.key, spec.value)
        ref = serdes.ref(plan_builder, node, frozenset((node.source,)))
        return KTable(ref, node.name, spec.name if named else None)

    @overload
    def global_table(
        self, topic: str, *, key: SerdeOrType[K], value: SerdeOrType[V],
        **options: Unpack[_GlobalTableOptions],
    ) -> GlobalKTable[K, V]: ...
    @overload
    def global_table(
        self, topic: str, *, key: SerdeOrType[K], value: None = None,
        **options: Unpack[_GlobalTableOptions],
    ) -> GlobalKTable[K, Any]: ...
    @overload
    def global_table(
        self, topic: str, *, key: None = None, value: SerdeOrType[V],
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
        key: SerdeOrType[Any] | None = None,
        value: SerdeOrType[Any] | None = None,
        timestamp: TimestampExtractor | None = None,
        name: str | None = None,
        store: StoreOption[Any, Any] = None,
    ) -> GlobalKTable[Any, Any]:
        """Return a table whose rows are all available to every task.

        Streams can join it by any key, without co-partitioning. It is read from the beginning.

        Args:
            topic: The name of the topic.
            key: The serde of the keys, or a type that has one; by default that of the
                configuration.
            value: The serde of the values, or a type that has one; by default that of the
                configuration.
            timestamp: A function of (record, partition_time) that returns the timestamp of a record
                in milliseconds; by default the configuration's extractor applies.
            name: The name of the step; generated if it is None.
            store: A store name, a supplier of `Stores`, or a `Materialized`. A named store can be
                queried.

        Returns:
            The global table.

        Example:
            builder.global_table("countries", key=str, value=str)

        Kafka: `StreamsBuilder#globalTable`
        """
        _, spec, named = self._table_source(
            topic, key, value, timestamp, None, name, store, is_global=True
        )
        return GlobalKTable(
            self._plan_builder, spec.name, named,
            SourceSerdes(f"global_table({topic!r}", spec.key, spec.value).values,
        )

    def add_state_store(self, builder: Any) -> StreamsBuilder:
        """Add a store that processors connect to by name.

        Args:
            builder: A store builder of `Stores`.

        Returns:
            This builder.

        Example:
            builder.add_state_store(
                Stores.key_value_store_builder(Stores.in_memory_key_value_store("seen"), str, int)
            )

        Kafka: `StreamsBuilder#addStateStore`
        """
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
        key: SerdeOrType[Any] | None = None,
        value: SerdeOrType[Any] | None = None,
        timestamp: TimestampExtractor | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Add a store that every task can read.

        Args:
            builder: A store builder of `Stores`.
            topic: The topic that the store is made from.
            supplier: Returns the processor that receives the records of the topic and updates the
                store.
            key: The serde of the keys, or a type that has one; by default that of the
                configuration.
            value: The serde of the values, or a type that has one; by default that of the
                configuration.
            timestamp: A function of (record, partition_time) that returns the timestamp of a record
                in milliseconds; by default the configuration's extractor applies.
            name: The name of the step; generated if it is None.

        Returns:
            This builder.

        Example:
            supplier = Stores.in_memory_key_value_store("rates")
            rates = Stores.key_value_store_builder(supplier, str, float)
            builder.add_global_store(rates, "rates", Forward, key=str, value=float)

        Kafka: `StreamsBuilder#addGlobalStore`
        """
        plan_builder = self._plan_builder
        source = plan_builder.names.suffixed_or_next(name, "-source", "KSTREAM-SOURCE-")
        step = plan_builder.names.given_or_next(name, "KTABLE-SOURCE-")
        UserProcessor.checked(supplier, step=step)
        check_store_builder(builder, step=step)
        key_serde, value_serde = as_serdes(step, key=key, value=value)
        check_source_options(step, timestamp, None)
        if not isinstance(topic, str) or not topic:
            raise TopologyException(f"{step}: the topic must be a name, not {topic!r}.")
        method = f"add_global_store(..., {topic!r}"
        serdes = SourceSerdes(method, key_serde, value_serde)
        node = GlobalStoreNode(
            name=step, source=source, topic=topic,
            store=UserStoreSpec(builder.with_logging_disabled()), supplier=supplier,
            key=serdes.key_of_node, value=serdes.value_of_node, timestamp=timestamp,
        )
        plan_builder.plan.add(node)
        return self

    def build(self, config: StreamsConfig | TopologyConfig | None = None) -> Topology:
        """Return the topology of all steps so far.

        With a `StreamsConfig`, missing serdes are reported here; otherwise when `Streams` or the
        test driver is created. More steps can be added afterwards, and the topology built again.

        Args:
            config: Decides about the settings that shape a topology (`topology_optimization`,
                `processor_wrapper`, `ensure_explicit_internal_resource_naming`); by default the
                builder's configuration.

        Returns:
            The topology.

        Example:
            topology = builder.build()

        Kafka: `StreamsBuilder#build`
        """
        plan_builder = self._plan_builder
        own_config = plan_builder.config
        given = config if config is not None else self._config
        config = resolve_topology_config(config, own_config)
        plan = plan_builder.plan
        for each in (own_config, config):
            if each is not None:
                check_explicit_names(plan.generated_names, each)
        optimizations = frozenset() if config is None else config.topology_optimization
        for rule in rules_for(optimizations, plan_builder.names):
            plan = rule(plan)
        topology = lower(plan, plan_builder.internal_topics, config)
        topology.generated_names = tuple(plan_builder.plan.generated_names)
        topology.optimizations = optimizations
        if isinstance(given, StreamsConfig):
            check_serdes(topology, given)
        return topology

    def _table_source(
        self,
        topic: str,
        key: SerdeOrType[Any] | None,
        value: SerdeOrType[Any] | None,
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
        key, value = as_serdes(name or f"table of {topic}", key=key, value=value)
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
        method = f"{'global_table' if is_global else 'table'}({topic!r}"
        serdes = SourceSerdes(method, key, value)
        # The store keeps the records of the topic, so it uses the same serdes.
        spec = KeyValueSpec(replace(materialized, key=key, value=value), serdes.fallback)
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
            name=step, table=step, source=source, topic=topic, store=spec,
            key=serdes.key_of_node, value=serdes.value_of_node, timestamp=timestamp,
            offset_reset=offset_reset, is_global=is_global, is_versioned=spec.is_versioned,
        )
        plan_builder.plan.add(node)
        return node, spec, named


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
