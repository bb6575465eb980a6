"""Avro, Protobuf and JSON Schema, with the in-process mock registry of confluent-kafka.

`tests/kafka/test_schema_registry.py` runs them with a real registry.
"""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
import subprocess
import sys
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import (
    Materialized,
    SchemaRegistryException,
    Serdes,
    SerializationException,
    StreamsBuilder,
    StreamsConfig,
)
from penstock.record import NO_HEADERS, Headers
from penstock.serdes.headers import RecordHeaders
from penstock.serdes.registry import SchemaRegistry
from penstock.testing import TopologyTestDriver

pytest.importorskip("fastavro", reason="needs penstock[registry]")
pytest.importorskip("jsonschema", reason="needs penstock[registry]")

STRING = Serdes.string()
CONFIG = StreamsConfig(application_id="app", default_key_serde=STRING)
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "string"}, {"name": "amount", "type": "long"},
]})
ORDER_2 = json.dumps({"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "string"}, {"name": "amount", "type": "long"},
    {"name": "currency", "type": "string", "default": "EUR"},
]})


@dataclass
class Order:
    id: str
    amount: int


@dataclass
class NewOrder:
    id: str
    amount: int
    currency: str = "EUR"


@pytest.fixture
def registry(request: pytest.FixtureRequest) -> SchemaRegistry:
    return SchemaRegistry("mock://" + request.node.name.partition("[")[0] + uuid.uuid4().hex)


def test_records_have_the_magic_byte_and_the_schema_id(registry: SchemaRegistry) -> None:
    serde = registry.avro(ORDER, of=Order).for_topic("orders", False)
    data = serde.serialize(Order("a", 7))
    assert data == b"\x00\x00\x00\x00\x01\x02a\x0e"
    assert serde.deserialize(data) == Order("a", 7)
    assert registry.client().get_subjects() == ["orders-value"]


@pytest.mark.parametrize(("subject", "expected"), [
    ("topic", "orders-key"), ("record", "Order"), ("topic_record", "orders-Order"),
])
def test_subject_strategies(registry: SchemaRegistry, subject: Any, expected: str) -> None:
    serde = registry.avro(ORDER, subject=subject).for_topic("orders", True)
    assert serde.deserialize(serde.serialize({"id": "a", "amount": 1})) == {"id": "a", "amount": 1}
    assert registry.client().get_subjects() == [expected]


def test_schema_id_in_a_header_replaces_an_inherited_one(registry: SchemaRegistry) -> None:
    record = RecordHeaders(Headers([("__value_schema_id", b"stale"), ("x", b"1")]))
    serde = registry.avro('"string"', schema_id="header").for_topic("t", False)
    bound = serde.with_headers_of(record)
    data = bound.serialize("a")
    assert data == b"\x02a"
    assert [name for name, _ in record.headers] == ["x", "__value_schema_id"]
    assert bound.deserialize(data) == "a"
    # Both forms are read, whatever is written.
    reader = registry.avro('"string"').for_topic("t", False).with_headers_of(record)
    assert reader.deserialize(data) == "a"
    prefixed = reader.serialize("b")
    assert record.headers == (("x", b"1"),)
    assert bound.deserialize(prefixed) == "b"


def test_rows_of_an_older_schema_are_read_with_the_new_one(registry: SchemaRegistry) -> None:
    old = registry.avro(ORDER, of=Order).for_store("app-store-changelog", False)
    new = registry.avro(ORDER_2, of=NewOrder).for_store("app-store-changelog", False)
    assert new.deserialize(old.serialize(Order("a", 7))) == NewOrder("a", 7, "EUR")


def test_topology_keeps_schema_ids_of_stores_in_the_value(registry: SchemaRegistry) -> None:
    serde = registry.avro(ORDER, of=Order, schema_id="header")
    builder = StreamsBuilder()
    table = builder.stream("in", value=serde).to_table(
        store=Materialized("store", key=STRING, value=serde)
    )
    table.to_stream().to("out", value=serde)
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        driver.create_input_topic("in", key=STRING, value=serde).pipe_input("k", Order("a", 1))
        (change,) = driver.read_raw("app-store-changelog")
        assert change.value[:1] == b"\x00"
        record = driver.create_output_topic("out", key=STRING, value=serde).read_record()
        assert record.value == Order("a", 1)
        assert [name for name, _ in record.headers] == ["__value_schema_id"]
    assert sorted(registry.client().get_subjects()) == [
        "app-store-changelog-value", "in-value", "out-value"
    ]


def test_avro_logical_types_of_dataclasses(registry: SchemaRegistry) -> None:
    schema = json.dumps({"type": "record", "name": "Typed", "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {
            "type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "data", "type": "bytes"},
    ]})
    value = Typed(
        datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC), datetime.date(2026, 1, 2),
        decimal.Decimal("12.30"), b"\x00",
    )
    serde = registry.avro(schema, of=Typed).for_topic("t", False)
    assert serde.deserialize(serde.serialize(value)) == value


@dataclass
class Typed:
    at: datetime.datetime
    day: datetime.date
    price: decimal.Decimal
    data: bytes


def test_json_schema_of_a_class_validates_values(registry: SchemaRegistry) -> None:
    serde = registry.json_schema(of=Order).for_topic("t", False)
    data = serde.serialize(Order("a", 1))
    assert data[:5] == b"\x00\x00\x00\x00\x01"
    assert json.loads(data[5:]) == {"id": "a", "amount": 1}
    assert serde.deserialize(data) == Order("a", 1)
    with pytest.raises(SerializationException, match="cannot be serialized as json"):
        serde.serialize(Order("a", "one"))  # type: ignore[arg-type]


def test_protobuf_messages(registry: SchemaRegistry) -> None:
    pytest.importorskip("google.protobuf", reason="needs penstock[registry]")
    from protobuf_messages import order_message

    message = order_message()
    serde = registry.protobuf(message).for_topic("t", False)
    value = message(id="a", amount=7)
    data = serde.serialize(value)
    # The index of the message in its file follows the schema id.
    assert data == b"\x00\x00\x00\x00\x01\x00" + value.SerializeToString()
    assert serde.deserialize(data) == value
    with pytest.raises(TypeError, match="message class"):
        registry.protobuf(Order)


def test_own_converters(registry: SchemaRegistry) -> None:
    serde = registry.avro(
        '"string"', to_dict=lambda value: f"#{value}", from_dict=lambda text: int(text[1:])
    ).for_topic("t", False)
    assert serde.deserialize(serde.serialize(5)) == 5


def test_pickled_serde_has_settings_and_no_client(registry: SchemaRegistry) -> None:
    serde = registry.avro(ORDER, of=Order)
    data = serde.for_topic("t", False).serialize(Order("a", 1))
    copy = pickle.loads(pickle.dumps(serde))
    assert copy.for_topic("t", False).deserialize(data) == Order("a", 1)


def test_credentials_are_not_shown() -> None:
    registry = SchemaRegistry("http://127.0.0.1:1", auth=("user", "secret"),
                              config={"max.retries": 0})
    serde = registry.avro(ORDER).for_topic("t", False)
    with pytest.raises(SchemaRegistryException) as raised:
        serde.serialize({"id": "a", "amount": 1})
    assert "http://127.0.0.1:1" in str(raised.value)
    assert "secret" not in f"{raised.value!r} {registry!r} {serde!r} {vars(serde)}"
    with pytest.raises(ValueError, match="must not contain a password"):
        SchemaRegistry("http://user:secret@localhost")


def test_unreachable_registry_does_not_call_the_handlers() -> None:
    registry = SchemaRegistry("http://127.0.0.1:1", config={"max.retries": 0})
    builder = StreamsBuilder()
    builder.stream("in", value=registry.avro(ORDER)).to("out", value=STRING)
    config = CONFIG.with_(deserialization_exception_handler="continue")
    topology = builder.build()
    with TopologyTestDriver(topology, config) as driver:
        topic = driver.create_input_topic("in", key=STRING, value=Serdes.bytes())
        with pytest.raises(Exception, match=r"schema registry http://127\.0\.0\.1:1 could not"):
            topic.pipe_input("k", b"\x00\x00\x00\x00\x01\x02a\x0e")


def test_bytes_without_a_schema_id_are_a_deserialization_error(registry: SchemaRegistry) -> None:
    serde = registry.avro(ORDER).for_topic("t", False)
    for data in (b"", b"plain text", b"\x00\x00\x00\x00\x63\x02a\x0e"):
        with pytest.raises(SerializationException, match="cannot be deserialized as avro"):
            serde.deserialize(data)


def test_missing_schema_is_refused_without_auto_register(registry: SchemaRegistry) -> None:
    serde = registry.avro(ORDER, auto_register=False).for_topic("t", False)
    with pytest.raises(SchemaRegistryException, match="could not be used for topic t"):
        serde.serialize({"id": "a", "amount": 1})


def test_latest_schema_is_used_on_request(registry: SchemaRegistry) -> None:
    registry.avro(ORDER_2).for_topic("t", False).serialize(
        {"id": "a", "amount": 1, "currency": "USD"}
    )
    serde = registry.avro(use_latest=True).for_topic("t", False)
    written = serde.serialize({"id": "a", "amount": 1, "currency": "CHF"})
    assert serde.deserialize(written)["currency"] == "CHF"


def test_wrong_options_are_refused(registry: SchemaRegistry) -> None:
    with pytest.raises(ValueError, match="subject must be one of 'topic', 'record'"):
        registry.avro(ORDER, subject="other")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Unknown option 'subjct'"):
        SchemaRegistry("mock://x", subjct="topic")  # type: ignore[call-arg]
    with pytest.raises(SerializationException, match="has no topic"):
        registry.avro(ORDER).serialize({})
    assert NO_HEADERS == ()


def test_missing_package_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['fastavro'] = None\n"
        "from penstock.serdes.registry import SchemaRegistry\n"
        "assert 'confluent_kafka' not in sys.modules\n"
        "serde = SchemaRegistry('mock://x').avro('\"string\"').for_topic('t', False)\n"
        "serde.serialize('a')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert "pip install 'penstock[registry]'" in ran.stderr
