"""The serdes of a schema registry with a real registry: Apicurio."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafka import apicurio
from kafka.cluster import clear
from penstock import (
    Materialized,
    SchemaRegistryException,
    Serdes,
    SerializationException,
    Streams,
    StreamsBuilder,
    StreamsConfig,
)
from penstock.broker.cluster import ClusterStatus
from penstock.clients import AdminClient, Consumer, NewTopic, Producer
from penstock.serdes.registry import SchemaRegistry

pytest.importorskip("fastavro", reason="needs penstock[registry]")
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(
        not apicurio.is_fetched(), reason="needs Apicurio: `python tests/kafka/apicurio.py`"
    ),
]

STRING = Serdes.string()
FIELDS = [{"name": "id", "type": "string"}, {"name": "amount", "type": "long"}]
ORDER = {"type": "record", "name": "Order", "fields": FIELDS}
ORDER_2 = {**ORDER, "fields": [
    *FIELDS, {"name": "currency", "type": "string", "default": "EUR"},
]}


@dataclass
class Order:
    id: str
    amount: int


@dataclass
class NewOrder:
    id: str
    amount: int
    currency: str


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apicurio.running(tmp_path_factory.mktemp("apicurio") / "log.txt") as address:
        yield address


@pytest.fixture
def registry(url: str) -> SchemaRegistry:
    return SchemaRegistry(url)


def topics(log: str, *names: str) -> None:
    with AdminClient(log=log) as admin:
        for future in admin.create_topics([NewTopic(name, 1) for name in names]).values():
            future.result()


def consume(log: str, topic: str, value: Any, count: int) -> list[Any]:
    settings = {"log": log, "group.id": "test", "auto.offset.reset": "earliest",
                "value.deserializer": value}
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        return [message.value() for message in consumer.consume(count, timeout=30)]


def test_formats_are_registered_and_read_back(registry: SchemaRegistry) -> None:
    avro = registry.avro(ORDER, of=Order).for_topic("avro-orders", False)
    assert avro.deserialize(avro.serialize(Order("a", 1))) == Order("a", 1)
    checked = registry.json_schema(of=Order).for_topic("json-orders", False)
    assert checked.deserialize(checked.serialize(Order("b", 2))) == Order("b", 2)
    subjects = set(registry.client().get_subjects())
    assert {"avro-orders-value", "json-orders-value"} <= subjects
    stored = registry.client().get_latest_version("avro-orders-value").schema.schema_str
    assert json.loads(stored)["name"] == "Order"


def test_protobuf_messages_are_registered_and_read_back(registry: SchemaRegistry) -> None:
    from protobuf_messages import order_message

    message = order_message()
    serde = registry.protobuf(message).for_topic("messages", False)
    order = message(id="a", amount=3)
    assert serde.deserialize(serde.serialize(order)) == order
    assert registry.client().get_latest_version("messages-value").schema.schema_type == "PROTOBUF"


def test_unknown_ids_and_missing_schemas(registry: SchemaRegistry) -> None:
    serde = registry.avro(ORDER, auto_register=False).for_topic("unknown", False)
    with pytest.raises(SchemaRegistryException, match="for topic unknown"):
        serde.serialize({"id": "a", "amount": 1})
    with pytest.raises(SerializationException, match="cannot be deserialized"):
        serde.deserialize(b"\x00\x00\x0f\xff\xff\x02a\x02")


def test_incompatible_schema_is_refused(registry: SchemaRegistry) -> None:
    from confluent_kafka.schema_registry import ConfigCompatibilityLevel, ServerConfig

    registry.avro(ORDER).for_topic("strict", False).serialize({"id": "a", "amount": 1})
    level = ServerConfig(compatibility=ConfigCompatibilityLevel.BACKWARD)
    registry.client().set_config("strict-value", level)
    other = {**ORDER, "fields": [{"name": "id", "type": "int"}]}
    with pytest.raises(SchemaRegistryException, match="for topic strict"):
        registry.avro(other).for_topic("strict", False).serialize({"id": 1})


def totals(registry: SchemaRegistry, schema: dict[str, Any], of: Any) -> StreamsBuilder:
    def add(one: Any, two: Any) -> Any:
        two.amount += one.amount
        return two

    orders = registry.avro(schema, of=of)
    builder = StreamsBuilder()
    builder.stream("orders", key=STRING, value=orders).group_by_key().reduce(
        add, store=Materialized("totals", key=STRING, value=orders)
    ).to_stream().to("totals", key=STRING, value=orders)
    return builder


def test_stored_values_survive_a_new_schema(registry: SchemaRegistry, tmp_path: Path) -> None:
    log = str(tmp_path / "log.db")
    topics(log, "orders", "totals")
    config = StreamsConfig(application_id="app", log=log, state_dir=str(tmp_path / "state"))
    run_two_versions(registry, config, "inline")


@pytest.mark.spark
def test_workers_on_spark_read_a_broker_with_their_own_client(
    registry: SchemaRegistry, tmp_path: Path, penstock_broker: ClusterStatus
) -> None:
    log = clear(penstock_broker.address)
    topics(log, "orders", "totals")
    config = StreamsConfig(
        application_id="spark-app", log=log, state_dir=str(tmp_path / "state"),
        extra={"auto.offset.reset": "earliest"},
    )
    run_two_versions(registry, config, "local[2]")


def run_two_versions(registry: SchemaRegistry, config: StreamsConfig, master: str) -> None:
    """The first version writes a row with a schema, the second reads it with another one."""
    log = str(config.log)
    values: list[tuple[dict[str, Any], Any, Any]] = [
        (ORDER, Order, Order("a", 1)), (ORDER_2, NewOrder, NewOrder("a", 5, "USD")),
    ]
    for schema, of, value in values:
        settings = {"log": log, "key.serializer": "string",
                    "value.serializer": registry.avro(schema, of=of)}
        with Producer(settings) as producer:
            producer.produce("orders", value, "k")
        topology = totals(registry, schema, of).build()
        with Streams(topology, config, master=master) as streams:
            streams.run_until_caught_up()
    found = consume(log, "totals", registry.avro(ORDER_2, of=NewOrder), 2)
    assert found == [NewOrder("a", 1, "EUR"), NewOrder("a", 6, "USD")]
    subject = f"{config.application_id}-totals-changelog-value"
    assert registry.client().get_versions(subject) == [1, 2]
