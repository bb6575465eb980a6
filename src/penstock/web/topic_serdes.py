"""`TopicSerdes`: reads keys and values of topics with the serdes that the topology has for them.

So the page shows what the application sees, whatever the format: Avro, Protobuf, a type of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.config import StreamsConfig
from penstock.record import Headers
from penstock.serdes.base import Serde
from penstock.serdes.headers import RecordHeaders
from penstock.task.blueprint import Blueprint
from penstock.topology.nodes import SinkNode
from penstock.topology.topology import Topology


class TopicSerdes:
    """The serdes of the sources and sinks of a topology. Any thread may call it."""

    def __init__(self, topology: Topology, config: StreamsConfig) -> None:
        blueprint = Blueprint.of(topology, config)
        #: (topic, whether it is for keys) -> the serde, of a source if the topic has one.
        self._serdes: dict[tuple[str, bool], Serde[Any]] = {}
        for source in blueprint.sources:
            for topic in source.topics:
                self._add(blueprint.topic(topic), blueprint.serdes(source))
        for node in blueprint.nodes:
            if isinstance(node, SinkNode) and isinstance(node.topic, str):
                self._add(blueprint.topic(node.topic), blueprint.serdes(node))

    def _add(self, topic: str, serdes: tuple[Serde[Any], Serde[Any]]) -> None:
        for serde, is_key in zip(serdes, (True, False), strict=True):
            self._serdes.setdefault((topic, is_key), serde.for_topic(topic, is_key))

    def reader(
        self, topic: str, is_key: bool, headers: Headers
    ) -> Callable[[bytes], Any] | None:
        """Return the function that reads the key or value of a record; None for other topics."""
        serde = self._serdes.get((topic, is_key))
        if serde is None:
            return None
        return serde.with_headers_of(RecordHeaders(headers)).deserialize
