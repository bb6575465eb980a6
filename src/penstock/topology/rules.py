"""Rewrites of a plan: plain functions from plan to plan, applied in the order of `rules_for`.

Two always run: sources of the same topics become one, and repartitions filter null keys out
unless a left or outer join further down wants them. The three of `topology.optimization` run when
they are asked for (F8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.errors import StreamsException, TopologyException
from penstock.topology.naming import NameCounter
from penstock.topology.plan import Plan
from penstock.topology.plan_nodes import (
    PlanNode,
    Repartition,
    StreamJoin,
    StreamSource,
    TableSource,
    repartition_node,
)

Rule = Callable[[Plan], Plan]


def merge_equal_sources(plan: Plan) -> Plan:
    """Streams read from the same topics share one source node (F10)."""
    plan = plan.copy()
    by_topic: dict[str, StreamSource] = {}
    by_pattern: dict[tuple[str, int], StreamSource] = {}
    for node in plan.children(None):
        if not isinstance(node, StreamSource):
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
                raise TopologyException(
                    "Two source nodes are subscribed to overlapping but not equal input topics: "
                    f"{first.name} reads {sorted(first.topics)}, {node.name} {sorted(node.topics)}."
                )
            _merge_source(plan, first, node)
    return plan


def _merge_source(plan: Plan, first: StreamSource, other: StreamSource) -> None:
    if first.offset_reset != other.offset_reset:
        raise TopologyException(
            "Can't configure different offset reset policies on the same input topic(s): "
            f"{first.name} and {other.name}."
        )
    for child in plan.children(other):
        plan.unlink(other, child)
        plan.link(first, child)
    plan.unlink(None, other)


def reuse_source_topics(plan: Plan) -> Plan:
    """A table read from a topic needs no changelog: the topic is one."""
    plan = plan.copy()
    for node in list(plan):
        if isinstance(node, TableSource) and not node.is_global:
            plan.replace(node, replace(node, reuse_topic=True))
    return plan


def merge_repartitions(names: NameCounter) -> Rule:
    """The rule that keeps one repartition behind a change of key instead of several."""

    def rule(plan: Plan) -> Plan:
        plan = plan.copy()
        for changer, hops in _repartitions_by_key_change(plan).items():
            if hops:
                _merge_hops(plan, names, changer, hops)
        return plan

    return rule


def _repartitions_by_key_change(plan: Plan) -> dict[PlanNode, list[Repartition]]:
    """For each node that changes keys, the repartitions behind it that could move up to it."""
    groups: dict[PlanNode, list[Repartition]] = {}
    merges: list[PlanNode] = []
    for node in plan:
        if node.changes_key:
            groups[node] = []
        elif isinstance(node, Repartition) and node.implied:
            changer = _movable_to(plan, node)
            if changer is not None:
                groups[changer].append(node)
        elif node.is_merge:
            merges.append(node)
    _group_at_merges(plan, groups, merges)
    return groups


def _group_at_merges(
    plan: Plan, groups: dict[PlanNode, list[Repartition]], merges: list[PlanNode]
) -> None:
    """Behind a merge of several re-keyed streams the one repartition goes below the merge."""
    changers_of = {
        merge: [
            changer for changer, hops in groups.items()
            if all(_below(plan, merge, hop) for hop in hops) and _below(plan, changer, merge)
        ]
        for merge in merges
    }
    moved: set[PlanNode] = set()
    for merge, changers in changers_of.items():
        hops = dict.fromkeys(hop for changer in changers for hop in groups[changer])
        groups[merge] = list(hops)
        moved.update(changers)
    for changer in moved:
        groups.pop(changer, None)


def _below(plan: Plan, upper: PlanNode, lower: PlanNode) -> bool:
    """Whether a way leads from one node down to the other."""
    return _find(plan, lower, lambda node: upper in plan.parents(node)) is not None


def _movable_to(plan: Plan, hop: Repartition) -> PlanNode | None:
    """The change of key above a repartition if nothing between them changes values."""
    any_change = _find(plan, hop, lambda n: n.changes_key or n.changes_value)
    key_change = _find(plan, hop, lambda n: n.changes_key)
    return key_change if any_change is key_change else None


def _find(
    plan: Plan, node: PlanNode, accepts: Callable[[PlanNode], bool]
) -> PlanNode | None:
    """The first accepted node among a node and its ancestors, depth first."""
    if accepts(node):
        return node
    for parent in plan.parents(node):
        found = _find(plan, parent, accepts)
        if found is not None:
            return found
    return None


def _merge_hops(
    plan: Plan, names: NameCounter, changer: PlanNode, hops: list[Repartition]
) -> None:
    key = next((hop.key for hop in hops if hop.key is not None), None)
    value = next((hop.value for hop in hops if hop.value is not None), None)
    single = repartition_node(names, hops[0].topic, key, value)
    plan.insert(single, plan.priority(changer))
    for hop in hops:
        below = _find(plan, hop, lambda node: changer in plan.parents(node))
        if below is None:
            raise StreamsException(f"No way leads from {changer.name} to {hop.name}.")
        plan.link(single, below)
        plan.unlink(changer, below)
        parents, children = plan.parents(hop), plan.children(hop)
        for child in children:
            for parent in parents:
                plan.link(parent, child)
        for parent in parents:
            plan.unlink(parent, hop)
        for child in children:
            plan.unlink(hop, child)
        plan.copartitioned = [
            group - {hop.name} | {single.name} if hop.name in group else group
            for group in plan.copartitioned
        ]
    plan.link(changer, single)


def join_self_with_one_store(plan: Plan) -> Plan:
    """A stream joined with itself keeps one window store instead of two (J5)."""
    plan = plan.copy()
    for node in list(plan):
        if not isinstance(node, StreamJoin) or len(plan.parents(node)) != 1:
            continue
        (parent,) = plan.parents(node)
        for child in plan.children(parent):
            if child.name == node.other_window:
                plan.unlink(parent, child)
        plan.replace(node, replace(node, self_join=True))
    return plan


def filter_null_keys(plan: Plan) -> Plan:
    """Records without a key are dropped before a repartition, unless a join wants them (N11)."""
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
        if isinstance(node, Repartition) and node not in relaxed:
            plan.replace(node, replace(node, drops_null_keys=True))
    return plan


def rules_for(optimizations: frozenset[str], names: NameCounter) -> tuple[Rule, ...]:
    """The rules to apply, in order."""
    rules: list[Rule] = [merge_equal_sources]
    if "reuse.ktable.source.topics" in optimizations:
        rules.append(reuse_source_topics)
    if "merge.repartition.topics" in optimizations:
        rules.append(merge_repartitions(names))
    if "single.store.self.join" in optimizations:
        rules.append(join_self_with_one_store)
    rules.append(filter_null_keys)
    return tuple(rules)
