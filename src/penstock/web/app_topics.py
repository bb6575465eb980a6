"""`AppTopics`: the topics that an application reads and writes, by their names in the log."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.config import StreamsConfig
from penstock.engine.layout.internal_topics import is_internal
from penstock.topology.nodes import SinkNode, SourceNode
from penstock.topology.topology import Topology


class AppTopics:
    """The topics of a topology. Internal ones have their full names. Immutable."""

    def __init__(self, topology: Topology, config: StreamsConfig) -> None:
        self._application_id = config.application_id
        self._internal = topology.internal_topics
        self._patterns: list[re.Pattern[str]] = []
        #: Topic -> whether sources read it. Those that a pattern matches are left out.
        self.named: dict[str, bool] = {}
        for node in topology.nodes:
            if isinstance(node, SourceNode) and node.pattern is not None:
                self._patterns.append(node.pattern)
            elif isinstance(node, SourceNode):
                self.named |= {self.full(topic): True for topic in node.topics}
            elif isinstance(node, SinkNode) and isinstance(node.topic, str):
                self.named.setdefault(self.full(node.topic), False)
        self._global = {store.topic for store in topology.global_stores.values()}
        for topic in (*self._global, *config.dead_letter_topics()):
            self.named.setdefault(topic, False)

    def full(self, topic: str) -> str:
        """Return the name in the log of a topic of the topology."""
        return f"{self._application_id}-{topic}" if topic in self._internal else topic

    def reads(self, topic: str) -> bool:
        """Return whether sources or global stores read a topic of the log."""
        return (
            self.named.get(topic, False) or topic in self._global
            or any(self.matches(pattern, topic) for pattern in self._patterns)
        )

    def matches(self, pattern: re.Pattern[str], topic: str) -> bool:
        """Return whether a source with a pattern reads a topic of the log."""
        return pattern.fullmatch(topic) is not None and not is_internal(topic, self._application_id)

    @property
    def has_patterns(self) -> bool:
        """Whether sources read topics by a pattern."""
        return bool(self._patterns)

    def matched(self, topics: Iterable[str]) -> dict[str, list[str]]:
        """Return the patterns, as the picture names them, and which of these topics they match."""
        names = sorted(topics)
        return {
            f"/{pattern.pattern}/": [name for name in names if self.matches(pattern, name)]
            for pattern in self._patterns
        }
