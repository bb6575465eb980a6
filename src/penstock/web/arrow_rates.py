"""`arrow_rates`: records/s of the arrows between nodes, where they follow from those of the nodes.

Nodes count the records that they process, not where they come from. The arrows into a node add up
to its rate, and a node sends its results to all its children, unless it chooses among them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

from penstock.processors.stateless import Branch, Map, MapValues, PassThrough, Peek, SelectKey
from penstock.processors.user import UserProcessor
from penstock.topology.nodes import ProcessorNode, SourceNode
from penstock.web.graph import NodeGraph

Arrow = tuple[str, str]

#: Operators that may send a record to some of their children.
_CHOOSING = (Branch, UserProcessor)
#: Operators that send one result for each record.
_ONE_TO_ONE = (Map, MapValues, PassThrough, Peek, SelectKey)


def arrow_rates(graph: NodeGraph, rates: Mapping[str, float]) -> dict[Arrow, float]:
    """Return the rates that are certain; other arrows are missing.

    Args:
        graph: The nodes.
        rates: Node -> records/s that it processes.
    """
    inputs: dict[str, list[Hashable]] = {}
    flow_of: dict[Arrow, Hashable] = {}
    for arrow in graph.arrows:
        # All arrows that leave a node are one flow, unless it chooses.
        flow = flow_of[arrow] = arrow if _chooses(graph, arrow[0]) else arrow[0]
        inputs.setdefault(arrow[1], []).append(flow)
    known: dict[Hashable, float] = {}
    changed = True
    while changed:
        changed = False
        for node, flows in inputs.items():
            unknown = [flow for flow in flows if flow not in known]
            if not unknown or node not in rates:
                continue
            rest = rates[node] - sum(known[flow] for flow in flows if flow in known)
            if len(unknown) == 1 or rest <= 0:
                found = dict.fromkeys(unknown, max(0.0, rest))
            else:
                found = _counted(graph, unknown, rates)
                if not math.isclose(sum(found.values()), rest, rel_tol=1e-6):
                    continue
            known |= found
            changed = True
    return {arrow: known[flow] for arrow, flow in flow_of.items() if flow in known}


def _chooses(graph: NodeGraph, name: str) -> bool:
    node = graph.nodes.get(name)
    return isinstance(node, ProcessorNode) and isinstance(node.operator, _CHOOSING)


def _counted(
    graph: NodeGraph, flows: list[Hashable], rates: Mapping[str, float]
) -> dict[Hashable, float]:
    """The flows from sources and from nodes that send one result for each record."""
    found: dict[Hashable, float] = {}
    for flow in flows:
        node = graph.nodes.get(flow) if isinstance(flow, str) else None
        is_counted = isinstance(node, SourceNode) or (
            isinstance(node, ProcessorNode) and isinstance(node.operator, _ONE_TO_ONE)
        )
        if node is None or not is_counted or node.name not in rates:
            return {}
        found[flow] = rates[node.name]
    return found
