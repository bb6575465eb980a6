"""`TopicSerdes`: reads keys and values of topics with the serdes that the topology has for them.

So the page shows what the application sees, whatever the format: Avro, Protobuf, a type of its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from penstock.config import StreamsConfig
from penstock.handlers import ERROR_HEADER_PREFIX
from penstock.record import Headers
from penstock.serdes.base import Serde
from penstock.serdes.headers import RecordHeaders
from penstock.serdes.registry import RegistrySerde
from penstock.task.blueprint import Blueprint
from penstock.topology.nodes import SinkNode
from penstock.topology.topology import Topology
from penstock.web.app_topics import AppTopics

#: A value with the id of its schema starts with a zero byte and four bytes of the id.
_ID_END = 5
#: How long a schema that the registry did not return is not requested again.
_RETRY_S = 60.0


class TopicSerdes:
    """The serdes of the sources and sinks of a topology. Any thread may call it.

    Other topics are read with the schema registry of the topology, if it uses one.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, topics: AppTopics) -> None:
        blueprint = Blueprint.of(topology, config)
        self._topics = topics
        #: (topic, whether it is for keys) -> the serde, of a source if the topic has one.
        self._serdes: dict[tuple[str, bool], Serde[Any]] = {}
        self._patterns: list[tuple[re.Pattern[str], tuple[Serde[Any], Serde[Any]]]] = []
        for source in blueprint.sources:
            if source.pattern is not None:
                self._patterns.append((source.pattern, blueprint.serdes(source)))
            for topic in source.topics:
                self._add(blueprint.topic(topic), blueprint.serdes(source))
        for node in blueprint.nodes:
            if isinstance(node, SinkNode) and isinstance(node.topic, str):
                self._add(blueprint.topic(node.topic), blueprint.serdes(node))
        self._any_avro = self._registry_serde()
        #: The start of a value -> when its schema may be requested again.
        self._missing: dict[bytes, float] = {}

    def _add(self, topic: str, serdes: tuple[Serde[Any], Serde[Any]]) -> None:
        for serde, is_key in zip(serdes, (True, False), strict=True):
            self._serdes.setdefault((topic, is_key), serde.for_topic(topic, is_key))

    def _registry_serde(self) -> Serde[Any] | None:
        known = [*self._serdes.values(), *(each for _, pair in self._patterns for each in pair)]
        return next((each.of_any_avro() for each in known if isinstance(each, RegistrySerde)), None)

    def reader(
        self, topic: str, is_key: bool, headers: Headers
    ) -> Callable[[bytes], Any] | None:
        """Return the function that reads the key or value of a record; None if there is none.

        A dead letter is read as a record of the topic that it came from.
        """
        serde = self._find(topic, is_key)
        if serde is None and (source := dict(headers).get(f"{ERROR_HEADER_PREFIX}topic")):
            serde = self._find(source.decode(errors="replace"), is_key)
        record = RecordHeaders(headers)
        if serde is not None:
            return serde.with_headers_of(record).deserialize
        if self._any_avro is not None:
            return self._reader_of_avro(
                self._any_avro.for_topic(topic, is_key).with_headers_of(record).deserialize
            )
        return None

    def _find(self, topic: str, is_key: bool) -> Serde[Any] | None:
        found = self._serdes.get((topic, is_key))
        if found is None:
            for pattern, serdes in self._patterns:
                if self._topics.matches(pattern, topic):
                    self._add(topic, serdes)
                    return self._serdes[topic, is_key]
        return found

    def _reader_of_avro(self, read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """A page has many records of a schema: one that is missing is requested once."""
        def read_known(data: bytes) -> Any:
            schema = data[:_ID_END]
            if time.monotonic() < self._missing.get(schema, 0.0):
                raise ValueError("The registry did not return the schema.")
            try:
                return read(data)
            except Exception:
                if schema[:1] == b"\0":
                    self._missing[schema] = time.monotonic() + _RETRY_S
                raise

        return read_known
