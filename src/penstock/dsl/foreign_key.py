"""Adds the nodes of a foreign-key join, with Kafka's names and numbers.

The left side sends a subscription for each row to the partition of its foreign key. The right side
stores it and sends responses to the partition of the left row, where the rows are joined. Both
directions use internal topics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.dsl.inference import joiner_flow
from penstock.dsl.options import Materialized, as_materialized, store_call
from penstock.dsl.plan_builder import NodeRef, NodeSerde, PlanBuilder
from penstock.processors.foreign_key_join import (
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
    response_partition,
)
from penstock.processors.foreign_key_wire import (
    CombinedKeyCodec,
    PseudoTopics,
    Subscription,
    response_serde,
    subscription_serde,
)
from penstock.serdes.base import Serde
from penstock.topology.default_serdes import DefaultSerdes, Deferred, Fallback, InferredSerde
from penstock.topology.nodes import InternalTopic, Partitioner
from penstock.topology.plan import SourceTable
from penstock.topology.plan_nodes import (
    ForeignKeyJoinNode,
    PlanNode,
    StreamSinkNode,
    StreamSourceNode,
    ToTableNode,
)
from penstock.topology.store_specs import KeyValueSpec, SubscriptionSpec

if TYPE_CHECKING:
    from penstock.dsl.table import KTable

_PREFIX = "KTABLE-FK-JOIN-"
_REGISTRATION = _PREFIX + "SUBSCRIPTION-REGISTRATION-"
_SUBSCRIPTION = _PREFIX + "SUBSCRIPTION-PROCESSOR-"
_RESPONSE = _PREFIX + "SUBSCRIPTION-RESPONSE-"
_RESOLVER = _PREFIX + "SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"
_OUTPUT = _PREFIX + "OUTPUT-"
_STORE = _PREFIX + "SUBSCRIPTION-STATE-STORE-"
#: Where the serdes of the two tables can be given.
_CALL = "table(..."


class _ForeignKeyJoin:
    """The two tables and the names of one join."""

    def __init__(
        self, left: KTable[Any, Any], right: KTable[Any, Any], name: str | None,
        subscription_store: str | None,
    ) -> None:
        self.left = left
        self.right = right
        self.name = name
        self.subscription_store = subscription_store
        self.builder: PlanBuilder = left._ref.builder
        #: Set when its name is taken, in the order of Kafka's names.
        self.registration_topic = ""

    def pseudo_topics(self, defaults: DefaultSerdes) -> PseudoTopics:
        return PseudoTopics(defaults.internal_topic(self.registration_topic))

    def subscription_serde(self, defaults: DefaultSerdes) -> Serde[Subscription]:
        primary_key = defaults.key(self.key(self.left))
        return subscription_serde(self.pseudo_topics(defaults).primary_key(primary_key))

    def key(self, table: KTable[Any, Any]) -> NodeSerde:
        """Return the serde of the keys of a table."""
        return table._ref.key_serde(_CALL)

    def value(self, table: KTable[Any, Any]) -> NodeSerde:
        """Return the serde of the values of a table."""
        return table._ref.value_serde(_CALL)

    def next(self, suffix: str, prefix: str) -> str:
        return self.builder.names.suffixed_or_next(self.name, suffix, prefix)

    def add(self, node: PlanNode, *parents: PlanNode) -> None:
        self.builder.plan.add(node, *parents)


def add_foreign_key_join(
    left: KTable[Any, Any],
    right: KTable[Any, Any],
    foreign_key: Callable[[Any, Any], Any],
    joiner: Callable[[Any, Any], Any],
    *,
    left_join: bool,
    name: str | None = None,
    store: Any = None,
    partitioner: Partitioner | None = None,
    other_partitioner: Partitioner | None = None,
    subscription_store: str | None = None,
) -> KTable[Any, Any]:
    """Add a foreign-key join and return its table."""
    join = _ForeignKeyJoin(left, right, name, subscription_store)
    join.builder.require_old_values(right._id)
    join.builder.require_old_values(left._id)
    source = _add_registration(join, foreign_key, left_join, other_partitioner)
    subscription_join, foreign_join = _add_right_side(join, source)
    return _add_response(
        join, subscription_join, foreign_join, joiner, left_join, partitioner, store
    )


def _add_registration(
    join: _ForeignKeyJoin,
    foreign_key: Callable[[Any, Any], Any],
    left_join: bool,
    partitioner: Partitioner | None,
) -> StreamSourceNode:
    left, right = join.left._ref, join.right._ref
    left_value, right_key = join.value(join.left), join.key(join.right)
    topic = join.next("-subscription-registration", _REGISTRATION) + "-topic"
    join.registration_topic = topic
    join.builder.internal_topics.append(InternalTopic(topic))

    def send(defaults: DefaultSerdes) -> SubscriptionSend:
        pseudo = join.pseudo_topics(defaults)
        return SubscriptionSend(
            foreign_key, pseudo.foreign_key(defaults.key(right_key)),
            pseudo.hashed_value(defaults.value(left_value)), left_join,
        )

    sender = ForeignKeyJoinNode(
        name=join.next("-subscription-registration-processor", _REGISTRATION),
        operator=Deferred(send), version_aware=True,
    )
    join.add(sender, left.node)
    wrapper = Deferred(join.subscription_serde)
    sink = StreamSinkNode(
        name=join.next("-subscription-registration-sink", "KTABLE-SINK-"), topic=topic,
        key=right_key, value=wrapper, partitioner=_single(partitioner),
    )
    join.add(sink, sender)
    source = StreamSourceNode(
        name=join.next("-subscription-registration-source", "KTABLE-SOURCE-"),
        topics=frozenset((topic,)), ordered_topics=(topic,), key=right_key, value=wrapper,
    )
    join.add(source, sink)
    join.builder.copartition(right.sources, frozenset((source.name,)))
    return source


def _add_right_side(
    join: _ForeignKeyJoin, source: StreamSourceNode
) -> tuple[ForeignKeyJoinNode, ForeignKeyJoinNode]:
    right = join.right._ref
    left_key, right_key = join.key(join.left), join.key(join.right)
    store_name = join.builder.name_hidden_store(
        join.next("-subscription-store", _STORE), join.subscription_store,
        given=join.name is not None,
    )
    store = SubscriptionSpec(store_name, Deferred(join.subscription_serde))

    def keys(defaults: DefaultSerdes) -> CombinedKeyCodec:
        pseudo = join.pseudo_topics(defaults)
        return CombinedKeyCodec(
            pseudo.foreign_key(defaults.key(right_key)), pseudo.primary_key(defaults.key(left_key))
        )

    receive = ForeignKeyJoinNode(
        name=join.next("-subscription-receive", _SUBSCRIPTION), store=store,
        operator=Deferred(lambda defaults: SubscriptionReceive(store.name, keys(defaults))),
    )
    join.add(receive, source)
    join.builder.add_table_read(join.right._id)
    subscription_join = ForeignKeyJoinNode(
        name=join.next("-subscription-join-foreign", _SUBSCRIPTION),
        operator=SubscriptionJoin, reads=join.right._id,
    )
    join.add(subscription_join, receive)
    foreign_join = ForeignKeyJoinNode(
        name=join.next("-foreign-join-subscription", _SUBSCRIPTION), store=store,
        operator=Deferred(lambda defaults: ForeignTableJoin(store.name, keys(defaults))),
        version_aware=True,
    )
    join.add(foreign_join, right.node)
    return subscription_join, foreign_join


def _add_response(
    join: _ForeignKeyJoin,
    subscription_join: ForeignKeyJoinNode,
    foreign_join: ForeignKeyJoinNode,
    joiner: Callable[[Any, Any], Any],
    left_join: bool,
    partitioner: Partitioner | None,
    store: Any,
) -> KTable[Any, Any]:
    from penstock.dsl.table import KTable

    builder = join.builder
    left, right = join.left._ref, join.right._ref
    left_key, left_value = join.key(join.left), join.value(join.left)
    right_value = join.value(join.right)
    topic = join.next("-subscription-response", _RESPONSE) + "-topic"
    builder.internal_topics.append(InternalTopic(topic))
    wrapper = Deferred(lambda defaults: response_serde(defaults.value(right_value)))
    sink = StreamSinkNode(
        name=join.next("-subscription-response-sink", "KTABLE-SINK-"), topic=topic,
        key=left_key, value=wrapper,
        partitioner=response_partition if partitioner is None else _single(partitioner),
    )
    join.add(sink, subscription_join)
    join.add(sink, foreign_join)
    source = StreamSourceNode(
        name=join.next("-subscription-response-source", "KTABLE-SOURCE-"),
        topics=frozenset((topic,)), ordered_topics=(topic,), key=left_key, value=wrapper,
    )
    join.add(source, sink)
    sources = builder.copartition(left.sources, frozenset((source.name,)))
    builder.add_table_read(join.left._id)

    def resolve(getter: Any) -> Deferred:
        return Deferred(
            lambda defaults: ResponseJoin(
                getter, join.pseudo_topics(defaults).hashed_value(defaults.value(left_value)),
                joiner, left_join,
            )
        )

    resolver = ForeignKeyJoinNode(
        name=join.next("-subscription-response-resolver", _RESOLVER), operator=resolve,
        reads=join.left._id,
    )
    join.add(resolver, source)
    step = join.next("-result", _OUTPUT)
    requested = as_materialized(store, step=step) or Materialized()
    materialized, named = builder.name_store(requested, _OUTPUT)
    values = joiner_flow(joiner, step, left.keys, left.values, right.values)
    call = store_call("left_join(..., " if left_join else "join(..., ", store)
    spec = KeyValueSpec(
        materialized.with_serdes(left.key, None),
        Fallback(left.inferred_key(call), InferredSerde("value", values, call)),
    )
    result = ToTableNode(name=step, table=step, store=spec, is_versioned=spec.is_versioned)
    join.add(result, resolver)
    builder.plan.tables[step] = SourceTable(step, spec.name, named)
    ref = NodeRef(
        builder, result, step, left.key, spec.value, sources, keys=left.keys, values=values
    )
    return KTable(ref, step, spec.name)


def _single(partitioner: Partitioner | None) -> Partitioner | None:
    """Return a partitioner that sees only the key and must return one partition."""
    if partitioner is None:
        return None

    def partition(topic: str, key: Any, value: Any, partitions: int) -> Any:
        chosen = partitioner(topic, key, None, partitions)
        if chosen is None or isinstance(chosen, int):
            return chosen
        several = list(chosen)
        if len(several) != 1:
            raise ValueError(
                "The partitioner of a foreign-key join must return exactly one partition, "
                f"not {several}."
            )
        return several[0]

    return partition
