from __future__ import annotations

from penstock.processors.stateless import PassThrough
from penstock.topology.plan import Plan
from penstock.topology.plan_nodes import OperatorNode, PlanNode, StreamSourceNode


def step(name: str) -> OperatorNode:
    return OperatorNode(name=name, operator=PassThrough())


def planned(*names: str) -> tuple[Plan, list[PlanNode]]:
    """A source and steps below it, one below the other."""
    plan = Plan()
    nodes: list[PlanNode] = [StreamSourceNode(name="source")]
    plan.add(nodes[0])
    for name in names:
        nodes.append(step(name))
        plan.add(nodes[-1], nodes[-2])
    return plan, nodes


def test_nodes_are_equal_only_to_themselves() -> None:
    assert step("a") != step("a")


def test_edges_go_both_ways() -> None:
    plan, (source, a, b) = planned("a", "b")
    assert plan.children(None) == (source,)
    assert plan.children(source) == (a,)
    assert plan.parents(b) == (a,)
    assert list(plan) == [source, a, b]


def test_a_node_that_is_attached_again_moves_back_in_the_order() -> None:
    plan, (source, a, b) = planned("a", "b")
    before = plan.priority(a)
    plan.add(a, b)
    assert plan.priority(a) > plan.priority(b) > before
    assert plan.parents(a) == (source, b)


def test_an_edge_is_kept_once() -> None:
    plan, (source, a) = planned("a")
    plan.link(source, a)
    assert plan.children(source) == (a,)
    plan.unlink(source, a)
    assert (plan.children(source), plan.parents(a)) == ((), ())


def test_a_replaced_node_leaves_its_edges_and_its_place() -> None:
    plan, (source, a, b) = planned("a", "b")
    new = step("new")
    priority = plan.priority(a)
    plan.replace(a, new)
    assert (plan.children(source), plan.parents(b), plan.priority(new)) == (
        (new,), (new,), priority,
    )


def test_a_copy_is_a_plan_of_its_own() -> None:
    plan, (source, a) = planned("a")
    copy = plan.copy()
    copy.unlink(source, a)
    copy.generated_names.append("store x")
    assert plan.children(source) == (a,)
    assert plan.generated_names == []
