"""Avro of the schema registry of a topology, with the mock registry of confluent-kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock import StreamsBuilder, StreamsConfig
from penstock.record import NO_HEADERS
from penstock.serdes.registry import SchemaRegistry
from penstock.web import topic_serdes
from penstock.web.app_topics import AppTopics
from penstock.web.records import decode
from penstock.web.topic_serdes import TopicSerdes

pytest.importorskip("fastavro", reason="needs penstock[registry]")

CONFIG = StreamsConfig(application_id="app")
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "string"}, {"name": "amount", "type": "long"},
]})
PLACE = json.dumps({"type": "record", "name": "Place", "fields": [
    {"name": "city", "type": "string"},
]})


@pytest.fixture
def registry(request: pytest.FixtureRequest) -> SchemaRegistry:
    return SchemaRegistry(f"mock://{request.node.name}")


def serdes_of(registry: SchemaRegistry) -> TopicSerdes:
    builder = StreamsBuilder()
    builder.stream("orders", key=str, value=registry.avro(ORDER)).to("copies")
    topology = builder.build()
    return TopicSerdes(topology, CONFIG, AppTopics(topology, CONFIG))


def shown(serdes: TopicSerdes, topic: str, data: bytes) -> tuple[Any, str]:
    found = decode(data, "auto", serdes.reader(topic, False, NO_HEADERS))
    assert found is not None
    return found["text"], found["as"]


def test_avro_of_other_topics_is_read_with_the_registry(registry: SchemaRegistry) -> None:
    serdes = serdes_of(registry)
    order = registry.avro(ORDER).for_topic("orders", False).serialize({"id": "a", "amount": 7})
    # Another application has registered another schema for its topic.
    place = registry.avro(PLACE).for_topic("places", False).serialize({"city": "Cagliari"})
    for topic, data, value in (
        ("orders", order, {"id": "a", "amount": 7}), ("places", place, {"city": "Cagliari"}),
        ("elsewhere", order, {"id": "a", "amount": 7}),
    ):
        text, kind = shown(serdes, topic, data)
        assert (json.loads(text), kind) == (value, "serde")
    assert shown(serdes, "elsewhere", b"plain")[0] == "plain"
    assert shown(serdes, "elsewhere", b"\x01\x02") == ("01 02", "hex")


def test_schema_that_is_missing_is_requested_once(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    serdes, now = serdes_of(registry), [100.0]
    monkeypatch.setattr(topic_serdes.time, "monotonic", lambda: now[0])
    requests = count_requests(registry, monkeypatch)
    for number in range(50):
        assert shown(serdes, "elsewhere", b"\0\0\0\x30\x39" + bytes([number]))[1] == "hex"
    assert requests() == 1
    now[0] += 61
    shown(serdes, "elsewhere", b"\0\0\0\x30\x39\x01")
    assert requests() == 2


def count_requests(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], int]:
    """Count the requests for the schema 12,345."""
    client, found = registry.client(), []
    get_schema = client.get_schema

    def counted(schema_id: int, *args: Any, **options: Any) -> Any:
        found.append(schema_id)
        return get_schema(schema_id, *args, **options)

    monkeypatch.setattr(client, "get_schema", counted)
    return lambda: found.count(12_345)
