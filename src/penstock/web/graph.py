"""`NodeGraph`: how the nodes of a topology feed each other, and what follows for their latency.

Sources and sinks measure the age of records: the time from the timestamp to now. A record passes
the other nodes of its sub-topology in the same call, so their latency is that of the sources that
feed them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode

#: The kinds of joins that have a node for each side, and one that merges the results of both.
TWO_SIDED_JOINS = ("StreamStreamJoinNode", "TableTableJoinNode")


class NodeGraph:
    """The nodes of a topology, without its stores. Immutable."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.nodes: dict[str, Node] = {node.name: node for node in nodes}
        #: The arrows between nodes.
        self.arrows = [
            (parent, node.name) for node in self.nodes.values() for parent in node.parents
        ]
        #: Node -> the sources of its sub-topology that feed it.
        self._sources = {name: self._feeding(name) for name in self.nodes}
        self._merging = dict(self._merging_nodes())
        self._inputs = {name: self._application_inputs(name) for name in self.nodes}

    def latencies(self, measured: Mapping[str, float]) -> dict[str, float]:
        """Return the latency of all nodes for which it is known, in milliseconds.

        Args:
            measured: The latency of sources and sinks.
        """
        found = dict(measured)
        for name, sources in self._sources.items():
            ages = [measured[each] for each in sources if each in measured]
            if name not in found and ages:
                found[name] = max(ages)
        return found

    def input_ages(self, latencies: Mapping[str, float]) -> dict[str, float]:
        """Return the age of records at the inputs of the application, for the nodes that they feed.

        Of several inputs, the oldest counts.

        Args:
            latencies: The latency of all nodes.
        """
        found = {}
        for name, inputs in self._inputs.items():
            ages = [latencies[each] for each in inputs if each in latencies]
            if ages:
                found[name] = max(ages)
        return found

    def topics_of_inputs(self) -> dict[str, tuple[str, ...]]:
        """Return the sources that read topics of other applications, with these topics."""
        return {
            name: node.topics for name, node in self.nodes.items()
            if isinstance(node, SourceNode) and self._inputs[name] == {name}
        }

    def join_rows(
        self, counters: Mapping[str, Mapping[str, float]]
    ) -> dict[str, dict[str, float]]:
        """Add up the counters of both sides of each join, under the name of the node that merges.

        Args:
            counters: Node -> counter -> value. Joins with a single node stay as they are.
        """
        found: dict[str, dict[str, float]] = {}
        for node, counts in counters.items():
            row = found.setdefault(self._merging.get(node, node), {})
            for name, value in counts.items():
                row[name] = row.get(name, 0) + value
        return found

    def _merging_nodes(self) -> Iterator[tuple[str, str]]:
        """Each side of a two-sided join, with the node that merges both."""
        for parent, child in self.arrows:
            kinds = {_join_kind(self.nodes.get(each)) for each in (parent, child)}
            if len(kinds) == 1 and kinds <= set(TWO_SIDED_JOINS):
                yield parent, child

    def _feeding(self, name: str) -> frozenset[str]:
        found, waiting, seen = set(), [name], {name}
        while waiting:
            node = self.nodes[waiting.pop()]
            if isinstance(node, SourceNode):
                found.add(node.name)
            fresh = [each for each in node.parents if each in self.nodes and each not in seen]
            seen.update(fresh)
            waiting += fresh
        return frozenset(found)

    def _application_inputs(self, name: str) -> frozenset[str]:
        """Follow the topics between sub-topologies up to those that no sink writes."""
        found, waiting = set(), [*self._sources[name]]
        seen = set(waiting)
        while waiting:
            source = self.nodes[waiting.pop()]
            topics = source.topics if isinstance(source, SourceNode) else ()
            writers = [
                sink.name for sink in self.nodes.values()
                if isinstance(sink, SinkNode) and sink.topic in topics
            ]
            if not writers:
                found.add(source.name)
            fresh = {each for sink in writers for each in self._sources[sink]} - seen
            seen |= fresh
            waiting += fresh
        return frozenset(found)


def _join_kind(node: Node | None) -> str | None:
    """The kind of the join that a node is a part of."""
    return node.kind.partition(".")[0] if isinstance(node, ProcessorNode) else None
