from __future__ import annotations

from penstock.processors.stateless import PassThrough
from penstock.topology.plan import Plan
from penstock.topology.plan_nodes import OperatorNode, PlanNode, StreamSourceNode


def step(name: str) -> OperatorNode:
    return OperatorNode(name=name, operator=PassThrough())


def chain(*names: str) -> tuple[Plan, list[PlanNode]]:
    """Return a plan of a source followed by a chain of steps."""
    plan = Plan()
    nodes: list[PlanNode] = [StreamSourceNode(name="source")]
    plan.add(nodes[0])
    for name in names:
        nodes.append(step(name))
        plan.add(nodes[-1], nodes[-2])
    return plan, nodes


def test_nodes_compare_by_identity() -> None:
    assert step("a") != step("a")


def test_edges_are_stored_in_both_directions() -> None:
    plan, (source, a, b) = chain("a", "b")
    assert plan.children(None) == (source,)
    assert plan.children(source) == (a,)
    assert plan.parents(b) == (a,)
    assert list(plan) == [source, a, b]


def test_second_parent_increases_the_priority() -> None:
    plan, (source, a, b) = chain("a", "b")
    before = plan.priority(a)
    plan.add(a, b)
    assert plan.priority(a) > plan.priority(b) > before
    assert plan.parents(a) == (source, b)


def test_duplicate_edge_is_ignored() -> None:
    plan, (source, a) = chain("a")
    plan.link(source, a)
    assert plan.children(source) == (a,)
    plan.unlink(source, a)
    assert (plan.children(source), plan.parents(a)) == ((), ())


def test_replacement_keeps_edges_and_priority() -> None:
    plan, (source, a, b) = chain("a", "b")
    new = step("new")
    priority = plan.priority(a)
    plan.replace(a, new)
    assert (plan.children(source), plan.parents(b), plan.priority(new)) == (
        (new,), (new,), priority,
    )


def test_copy_is_independent() -> None:
    plan, (source, a) = chain("a")
    copy = plan.copy()
    copy.unlink(source, a)
    copy.generated_names.append("store x")
    assert plan.children(source) == (a,)
    assert plan.generated_names == []
