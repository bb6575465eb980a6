"""`spark.read.format("penstock")` over topics."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from engine.spark.source_data import KEEP, append, read, rows
from penstock import Serdes
from penstock.log import Log, RecordColumns

pytestmark = pytest.mark.spark


@pytest.fixture
def log(source_log: Log) -> Log:
    source_log.create_topic("orders", 2, KEEP)
    append(source_log, "orders", 0, ("a", '{"id": 1, "price": 1.5}', 1_000),
           ("b", '{"id": 2, "items": ["x"]}', 2_000))
    append(source_log, "orders", 1, ("c", None, 3_000))
    return source_log


@pytest.mark.smoke
def test_topic_has_the_columns_of_a_record(spark: SparkSession, log: Log) -> None:
    log.append("orders", 1, RecordColumns([None], [b"v"], [4_000], [(("h", b"1"), ("n", None))]))
    frame = read(spark, log, topic="orders")
    assert frame.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "headers",
    ]
    assert rows(frame, "key", "topic", "partition", "offset") == [
        (None, "orders", 1, 1), (b"a", "orders", 0, 0), (b"b", "orders", 0, 1),
        (b"c", "orders", 1, 0),
    ]
    last = frame.where("value = 'v'").collect()[0]
    assert last.timestamp == datetime.fromtimestamp(4)
    assert [(each.key, each.value and bytes(each.value)) for each in last.headers] == [
        ("h", b"1"), ("n", None),
    ]


def test_json_schema_is_inferred_from_samples(spark: SparkSession, log: Log) -> None:
    frame = read(spark, log, topic="orders", key_format="string", value_format="json")
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,price:double,items:array<string>>"
    )
    assert rows(frame, "key", "value.id", "value.price", "value.items") == [
        ("a", 1, 1.5, None), ("b", 2, None, ["x"]), ("c", None, None, None),
    ]


def test_given_schema_selects_columns_and_types(spark: SparkSession, log: Log) -> None:
    frame = read(
        spark, log, "offset bigint, value struct<id: int>", topic="orders", value_format="json",
    )
    assert frame.schema.simpleString() == "struct<offset:bigint,value:struct<id:int>>"
    assert rows(frame, "offset", "value.id") == [(0, 1), (0, None), (1, 2)]


def test_value_of_another_type_names_the_record(spark: SparkSession, log: Log) -> None:
    options: dict[str, Any] = {"topic": "orders", "value_format": "json"}
    schema = "value struct<id: string, price: boolean>"
    with pytest.raises(PySparkException) as raised:
        read(spark, log, schema, **options).collect()
    assert (
        "The value of the record at offset 0 of topic 'orders', partition 0, cannot be read in "
        "the format 'json': 'value.price' is not boolean"
    ) in str(raised.value)
    frame = read(spark, log, schema, mode="permissive", **options)
    assert rows(frame, "value.id") == [("2",), (None,), (None,)]


def test_permissive_mode_infers_the_schema_beside_values_that_are_not_json(
    spark: SparkSession, log: Log
) -> None:
    append(log, "orders", 1, ("d", "not json"), ("e", '{"id": 5}'))
    options: dict[str, Any] = {"topic": "orders", "value_format": "json"}
    with pytest.raises(PySparkException, match="a sampled value is not JSON"):
        read(spark, log, **options)
    frame = read(spark, log, mode="permissive", **options)
    assert rows(frame, "value.id", "value.price") == [
        (1, 1.5), (2, None), (5, None), (None, None), (None, None),
    ]


@pytest.mark.parametrize(("name", "value"), [
    ("long", 2**40), ("int", 7), ("short", -3), ("double", 0.5), ("boolean", True),
])
def test_formats_of_serdes(spark: SparkSession, log: Log, name: str, value: Any) -> None:
    serde: Any = getattr(Serdes, {"int": "integer"}.get(name, name))()
    log.create_topic("numbers", 1, KEEP)
    append(log, "numbers", 0, ("k", serde.serialize(value)), ("n", None))
    frame = read(spark, log, topic="numbers", value_format=name)
    assert rows(frame, "value") == sorted([(value,), (None,)], key=repr)


def test_offsets_and_times_limit_the_range(spark: SparkSession, log: Log) -> None:
    def keys(**options: Any) -> list[Any]:
        frame = read(spark, log, topic="orders", key_format="string", **options)
        return [key for key, in rows(frame, "key")]

    assert keys(startingOffsets='{"0": 1, "1": -2}') == ["b", "c"]
    assert keys(startingOffsets='{"orders": {"0": 1, "1": -1}}') == ["b"]
    assert keys(endingOffsets='{"0": 1, "1": -2}') == ["a"]
    assert keys(startingTimestamp="2000") == ["b", "c"]
    assert keys(endingTimestamp="1970-01-01T00:00:02Z") == ["a"]
    assert keys(startingOffsets="latest") == []


@pytest.mark.parametrize(("options", "message"), [
    ({}, "Set one of the options 'topic', 'store' and 'changelog'. Given: none."),
    ({"topic": "order"}, "Topic 'order' does not exist"),
    ({"topic": "orders", "value_format": "jason"}, "Did you mean 'json'?"),
    ({"topic": "orders", "startingOffset": "1"}, "Did you mean 'startingOffsets'?"),
    ({"topic": "orders", "startingOffsets": '{"0": 1}'}, "needs an offset for each partition"),
    ({"topic": "orders", "endingOffsets": '{"0": 9, "1": 0}'}, "which has the offsets 0 to 2"),
])
def test_wrong_options_are_explained(
    spark: SparkSession, log: Log, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        read(spark, log, **options).collect()
    assert message in str(raised.value)


def test_missing_log_is_not_created(spark: SparkSession, log: Log) -> None:
    with pytest.raises(PySparkException, match="does not exist"):
        spark.read.format("penstock").option("log", f"{log.address}x").option("topic", "t").load()
