"""The nodes of a foreign-key join, numbered and named as Kafka does.

A row of the left table is registered under its foreign key at the right table's partition; the
right side answers, and the answer is joined where the left row lives. Both ways go through topics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.dsl.options import Materialized, as_materialized
from penstock.dsl.plan_builder import NodeRef, PlanBuilder
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
    response_serde,
    subscription_serde,
)
from penstock.topology.deferred import Defaults, Deferred
from penstock.topology.nodes import InternalTopic, Partitioner
from penstock.topology.plan import SourceTable
from penstock.topology.plan_nodes import (
    ForeignKeyStep,
    PlanNode,
    StreamSink,
    StreamSource,
    ToTable,
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


class _Parts:
    """What the nodes of one join share."""

    def __init__(self, left: KTable[Any, Any], right: KTable[Any, Any], name: str | None) -> None:
        self.left = left
        self.right = right
        self.name = name
        self.said: PlanBuilder = left._place.said

    def next(self, suffix: str, prefix: str) -> str:
        return self.said.names.suffixed_or_next(self.name, suffix, prefix)

    def add(self, node: PlanNode, *parents: PlanNode) -> None:
        self.said.plan.add(node, *parents)


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
) -> KTable[Any, Any]:
    """Add the whole join and answer its table."""
    parts = _Parts(left, right, name)
    parts.said.wants_old_values(right._id)
    parts.said.wants_old_values(left._id)
    source = _add_registration(parts, foreign_key, left_join, other_partitioner)
    answer, foreign = _add_right_side(parts, source)
    return _add_response(parts, answer, foreign, joiner, left_join, partitioner, store)


def _add_registration(
    parts: _Parts,
    foreign_key: Callable[[Any, Any], Any],
    left_join: bool,
    partitioner: Partitioner | None,
) -> StreamSource:
    left, right = parts.left._place, parts.right._place
    topic = parts.next("-subscription-registration", _REGISTRATION) + "-topic"
    parts.said.internal_topics.append(InternalTopic(topic))

    def send(defaults: Defaults) -> SubscriptionSend:
        return SubscriptionSend(
            foreign_key, defaults.key(right.key), defaults.value(left.value), left_join
        )

    sender = ForeignKeyStep(
        name=parts.next("-subscription-registration-processor", _REGISTRATION),
        operator=Deferred(send), minds_versions=True,
    )
    parts.add(sender, left.node)
    wrapper = Deferred(lambda defaults: subscription_serde(defaults.key(left.key)))
    sink = StreamSink(
        name=parts.next("-subscription-registration-sink", "KTABLE-SINK-"), topic=topic,
        key=right.key, value=wrapper, partitioner=_single(partitioner),
    )
    parts.add(sink, sender)
    source = StreamSource(
        name=parts.next("-subscription-registration-source", "KTABLE-SOURCE-"),
        topics=frozenset((topic,)), ordered_topics=(topic,), key=right.key, value=wrapper,
    )
    parts.add(source, sink)
    parts.said.copartition(right.sources, frozenset((source.name,)))
    return source


def _add_right_side(
    parts: _Parts, source: StreamSource
) -> tuple[ForeignKeyStep, ForeignKeyStep]:
    left, right = parts.left._place, parts.right._place
    store = SubscriptionSpec(parts.next("-subscription-store", _STORE), left.key)

    def keys(defaults: Defaults) -> CombinedKeyCodec:
        return CombinedKeyCodec(defaults.key(right.key), defaults.key(left.key))

    receive = ForeignKeyStep(
        name=parts.next("-subscription-receive", _SUBSCRIPTION), store=store,
        operator=Deferred(lambda defaults: SubscriptionReceive(store.name, keys(defaults))),
    )
    parts.add(receive, source)
    parts.said.reads(parts.right._id)
    answer = ForeignKeyStep(
        name=parts.next("-subscription-join-foreign", _SUBSCRIPTION),
        operator=SubscriptionJoin, reads=parts.right._id,
    )
    parts.add(answer, receive)
    foreign = ForeignKeyStep(
        name=parts.next("-foreign-join-subscription", _SUBSCRIPTION), store=store,
        operator=Deferred(lambda defaults: ForeignTableJoin(store.name, keys(defaults))),
        minds_versions=True,
    )
    parts.add(foreign, right.node)
    return answer, foreign


def _add_response(
    parts: _Parts,
    answer: ForeignKeyStep,
    foreign: ForeignKeyStep,
    joiner: Callable[[Any, Any], Any],
    left_join: bool,
    partitioner: Partitioner | None,
    store: Any,
) -> KTable[Any, Any]:
    from penstock.dsl.table import KTable

    said = parts.said
    left, right = parts.left._place, parts.right._place
    topic = parts.next("-subscription-response", _RESPONSE) + "-topic"
    said.internal_topics.append(InternalTopic(topic))
    wrapper = Deferred(lambda defaults: response_serde(defaults.value(right.value)))
    sink = StreamSink(
        name=parts.next("-subscription-response-sink", "KTABLE-SINK-"), topic=topic,
        key=left.key, value=wrapper,
        partitioner=response_partition if partitioner is None else _single(partitioner),
    )
    parts.add(sink, answer)
    parts.add(sink, foreign)
    source = StreamSource(
        name=parts.next("-subscription-response-source", "KTABLE-SOURCE-"),
        topics=frozenset((topic,)), ordered_topics=(topic,), key=left.key, value=wrapper,
    )
    parts.add(source, sink)
    sources = said.copartition(left.sources, frozenset((source.name,)))
    said.reads(parts.left._id)

    def resolve(getter: Any) -> Deferred:
        return Deferred(
            lambda defaults: ResponseJoin(getter, defaults.value(left.value), joiner, left_join)
        )

    resolver = ForeignKeyStep(
        name=parts.next("-subscription-response-resolver", _RESOLVER), operator=resolve,
        reads=parts.left._id,
    )
    parts.add(resolver, source)
    step = parts.next("-result", _OUTPUT)
    wanted = as_materialized(store, step=step) or Materialized()
    materialized, named = said.named_store(wanted, _OUTPUT)
    spec = KeyValueSpec(materialized.with_serdes(left.key, None))
    result = ToTable(name=step, table=step, store=spec, is_versioned=spec.is_versioned)
    parts.add(result, resolver)
    said.plan.tables[step] = SourceTable(step, spec.name, named)
    place = NodeRef(said, result, step, left.key, spec.value, sources)
    return KTable(place, step, spec.name)


def _single(partitioner: Partitioner | None) -> Partitioner | None:
    """A partitioner that sees only the key and must choose one partition."""
    if partitioner is None:
        return None

    def partition(topic: str, key: Any, value: Any, partitions: int) -> Any:
        chosen = partitioner(topic, key, None, partitions)
        if chosen is None or isinstance(chosen, int):
            return chosen
        several = list(chosen)
        if len(several) != 1:
            raise ValueError(
                "The partitioner of a foreign-key join must choose exactly one partition, "
                f"not {several}."
            )
        return several[0]

    return partition
