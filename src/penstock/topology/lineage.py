"""The lineage of steps: a fingerprint of a step and of everything upstream of it.

It depends on source topics, on the kinds of steps and on their order, but not on names, numbers or
functions. So it identifies a step when other steps are added or removed elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from penstock.topology.nodes import Node, SinkNode, SourceNode


def step_lineages(nodes: Iterable[Node], internal_topics: Iterable[str]) -> dict[str, str]:
    """Return node -> its lineage. Fingerprints are stored in the log: they must not change."""
    by_name = {node.name: node for node in nodes}
    writers: dict[str, list[str]] = {topic: [] for topic in internal_topics}
    for node in by_name.values():
        if isinstance(node, SinkNode) and isinstance(node.topic, str) and node.topic in writers:
            writers[node.topic].append(node.name)
    finder = _LineageFinder(by_name, writers)
    return {name: finder.find(name) for name in by_name}


class _LineageFinder:
    """Finds lineages depth first. A repartition is transparent: its topic stands for its writers.

    An application may feed records back through an internal topic. The edge that closes such a
    cycle counts as a source of its own.
    """

    def __init__(self, nodes: Mapping[str, Node], writers: Mapping[str, list[str]]) -> None:
        self._nodes = nodes
        self._writers = writers
        self._known: dict[str, str] = {}
        self._path: list[str] = []
        #: The position in the path of the highest node that a cycle has led back to.
        self._reached = 0

    def find(self, name: str) -> str:
        if name in self._known:
            return self._known[name]
        if name in self._path:
            self._reached = min(self._reached, self._path.index(name))
            return "cycle"
        position = len(self._path)
        outer, self._reached = self._reached, position
        self._path.append(name)
        label = self._label(self._nodes[name])
        self._path.pop()
        found = hashlib.sha256(label.encode()).hexdigest()[:16]
        if self._reached >= position:
            # Nothing above depends on where the search began.
            self._known[name] = found
        self._reached = min(outer, self._reached)
        return found

    def _label(self, node: Node) -> str:
        if not isinstance(node, SourceNode):
            kind = "sink" if isinstance(node, SinkNode) else node.kind
            return f"{kind}({','.join(map(self.find, node.parents))})"
        if node.pattern is not None:
            return f"pattern {node.pattern.pattern}"
        return "topics " + ",".join(sorted(
            f"[{','.join(map(self.find, self._writers[topic]))}]" if topic in self._writers
            else topic
            for topic in node.topics
        ))
