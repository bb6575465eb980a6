"""Rewrite rules: functions from plan to plan, applied in the order of `rules_for`.

Two rules always run: one merges sources of the same topics, one makes repartitions filter null
keys unless a left or outer join downstream needs them. The three rules of `topology.optimization`
run if they are enabled (F8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.errors import StreamsException, TopologyException
from penstock.topology.default_serdes import InferredSerde
from penstock.topology.locations import add_location
from penstock.topology.naming import NameCounter
from penstock.topology.plan import Plan
from penstock.topology.plan_nodes import (
    AnySerde,
    PlanNode,
    RepartitionNode,
    StreamSourceNode,
    StreamStreamJoinNode,
    TableSourceNode,
    repartition_node,
)

Rule = Callable[[Plan], Plan]


def merge_equal_sources(plan: Plan) -> Plan:
    """Merge the source nodes of streams that read the same topics (F10)."""
    plan = plan.copy()
    by_topic: dict[str, StreamSourceNode] = {}
    by_pattern: dict[tuple[str, int], StreamSourceNode] = {}
    for node in plan.children(None):
        if not isinstance(node, StreamSourceNode):
            continue
        if node.pattern is not None:
            first = by_pattern.setdefault((node.pattern.pattern, node.pattern.flags), node)
            if first is not node:
                _merge_source(plan, first, node)
            continue
        for topic in node.ordered_topics:
            first = by_topic.setdefault(topic, node)
            if first is node:
                continue
            if first.topics != node.topics:
                raise _located(plan, node, TopologyException(
                    "Two source nodes are subscribed to overlapping but not equal input topics: "
                    f"{first.name} reads {sorted(first.topics)}, {node.name} reads "
                    f"{sorted(node.topics)}. Read each topic with one stream() call only."
                ))
            _merge_source(plan, first, node)
    return plan


def _located(plan: Plan, node: PlanNode, error: TopologyException) -> TopologyException:
    add_location(error, node.name, plan.lines.get(node.name))
    return error


def _merge_source(plan: Plan, first: StreamSourceNode, other: StreamSourceNode) -> None:
    if first.offset_reset != other.offset_reset:
        raise _located(plan, other, TopologyException(
            "Can't configure different offset reset policies on the same input topic(s): "
            f"{first.name} and {other.name}. Give both the same offset_reset=."
        ))
    for child in plan.children(other):
        plan.unlink(other, child)
        plan.link(first, child)
    plan.unlink(None, other)


def reuse_source_topics(plan: Plan) -> Plan:
    """Use the source topic of a table as the changelog of its store."""
    plan = plan.copy()
    for node in list(plan):
        if isinstance(node, TableSourceNode) and not node.is_global:
            plan.replace(node, replace(node, reuse_topic=True))
    return plan


def merge_repartitions(names: NameCounter) -> Rule:
    """Return the rule that keeps one repartition after a key change instead of several."""

    def rule(plan: Plan) -> Plan:
        plan = plan.copy()
        for changer, repartitions in _repartitions_by_key_change(plan).items():
            if repartitions:
                _merge_into_one(plan, names, changer, repartitions)
        return plan

    return rule


def _repartitions_by_key_change(plan: Plan) -> dict[PlanNode, list[RepartitionNode]]:
    """For each node that changes keys, the downstream repartitions that could move up to it."""
    groups: dict[PlanNode, list[RepartitionNode]] = {}
    merges: list[PlanNode] = []
    for node in plan:
        if node.changes_key:
            groups[node] = []
        elif isinstance(node, RepartitionNode) and node.implied:
            changer = _key_change_above(plan, node)
            if changer is not None:
                groups[changer].append(node)
        elif node.is_merge:
            merges.append(node)
    _group_at_merges(plan, groups, merges)
    return groups


def _group_at_merges(
    plan: Plan, groups: dict[PlanNode, list[RepartitionNode]], merges: list[PlanNode]
) -> None:
    """Put the repartition of several merged, re-keyed streams below the merge."""
    changers_of = {
        merge: [
            changer for changer, repartitions in groups.items()
            if all(_is_ancestor(plan, merge, each) for each in repartitions)
            and _is_ancestor(plan, changer, merge)
        ]
        for merge in merges
    }
    moved: set[PlanNode] = set()
    for merge, changers in changers_of.items():
        groups[merge] = list(dict.fromkeys(
            repartition for changer in changers for repartition in groups[changer]
        ))
        moved.update(changers)
    for changer in moved:
        groups.pop(changer, None)


def _is_ancestor(plan: Plan, upper: PlanNode, lower: PlanNode) -> bool:
    """Return whether a path leads from one node down to the other."""
    return _find(plan, lower, lambda node: upper in plan.parents(node)) is not None


def _key_change_above(plan: Plan, repartition: RepartitionNode) -> PlanNode | None:
    """Return the key change above a repartition if no node between them changes values."""
    any_change = _find(plan, repartition, lambda n: n.changes_key or n.changes_value)
    key_change = _find(plan, repartition, lambda n: n.changes_key)
    return key_change if any_change is key_change else None


def _find(
    plan: Plan, node: PlanNode, accepts: Callable[[PlanNode], bool]
) -> PlanNode | None:
    """Return the first accepted node among a node and its ancestors, depth first."""
    if accepts(node):
        return node
    for parent in plan.parents(node):
        found = _find(plan, parent, accepts)
        if found is not None:
            return found
    return None


def _merge_into_one(
    plan: Plan, names: NameCounter, changer: PlanNode, repartitions: list[RepartitionNode]
) -> None:
    key = _first_given([each.key for each in repartitions])
    value = _first_given([each.value for each in repartitions])
    single = repartition_node(names, repartitions[0].topic, key, value)
    plan.insert(single, plan.priority(changer))
    for repartition in repartitions:
        below = _find(plan, repartition, lambda node: changer in plan.parents(node))
        if below is None:
            raise StreamsException(f"No path leads from {changer.name} to {repartition.name}.")
        plan.link(single, below)
        plan.unlink(changer, below)
        parents, children = plan.parents(repartition), plan.children(repartition)
        for child in children:
            for parent in parents:
                plan.link(parent, child)
        for parent in parents:
            plan.unlink(parent, repartition)
        for child in children:
            plan.unlink(repartition, child)
        plan.copartitioned = [
            group - {repartition.name} | {single.name} if repartition.name in group else group
            for group in plan.copartitioned
        ]
    plan.link(changer, single)


def _first_given(serdes: list[AnySerde]) -> AnySerde:
    """Return the first serde that does not depend on the configuration, otherwise the first."""
    given = (each for each in serdes if each is not None and not isinstance(each, InferredSerde))
    return next(given, serdes[0])


def join_self_with_one_store(plan: Plan) -> Plan:
    """Keep one window store instead of two for a stream joined with itself (J5)."""
    plan = plan.copy()
    for node in list(plan):
        if not isinstance(node, StreamStreamJoinNode) or len(plan.parents(node)) != 1:
            continue
        (parent,) = plan.parents(node)
        for child in plan.children(parent):
            if child.name == node.other_window:
                plan.unlink(parent, child)
        plan.replace(node, replace(node, self_join=True))
    return plan


def filter_null_keys(plan: Plan) -> Plan:
    """Drop records with null keys before a repartition, unless a join needs them (N11)."""
    plan = plan.copy()
    visited: set[PlanNode] = set()
    relaxed: set[PlanNode | None] = set()

    def visit(node: PlanNode | None) -> None:
        if node in visited:
            return
        for child in plan.children(node):
            visit(child)
            if child.keeps_null_keys or child in relaxed:
                relaxed.add(node)
        if node is not None:
            visited.add(node)

    visit(None)
    for node in list(visited):
        if isinstance(node, RepartitionNode) and node not in relaxed:
            plan.replace(node, replace(node, drops_null_keys=True))
    return plan


def rules_for(optimizations: frozenset[str], names: NameCounter) -> tuple[Rule, ...]:
    """Return the rules to apply, in order."""
    rules: list[Rule] = [merge_equal_sources]
    if "reuse.ktable.source.topics" in optimizations:
        rules.append(reuse_source_topics)
    if "merge.repartition.topics" in optimizations:
        rules.append(merge_repartitions(names))
    if "single.store.self.join" in optimizations:
        rules.append(join_self_with_one_store)
    rules.append(filter_null_keys)
    return tuple(rules)
