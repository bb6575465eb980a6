"""JSON as columns. These tests need PySpark, but no JVM."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, BooleanType, DataType, IntegerType, LongType, StringType

from penstock.engine.spark.sources.json_values import infer_type, json_converter
from penstock.errors import SerializationException


def ddl(*samples: str) -> str:
    return infer_type(each.encode() for each in samples).simpleString()


@pytest.mark.parametrize(("samples", "expected"), [
    (["1", "2"], "bigint"),
    (["1", "2.5"], "double"),
    ([str(2**70)], "double"),
    (["true", "null"], "boolean"),
    (["null"], "string"),
    ([], "string"),
    (["1", '"a"'], "string"),
    (['{"a": 1}', '{"b": [1, 2.5]}'], "struct<a:bigint,b:array<double>>"),
    (['{"a": {"b": null}}', '{"a": {"b": 1}}'], "struct<a:struct<b:bigint>>"),
    (['{"a": {}}'], "struct<a:string>"),
    (["[]", '["x"]'], "array<string>"),
])
def test_types_of_samples(samples: list[str], expected: str) -> None:
    assert ddl(*samples) == expected


def test_sample_that_is_not_json_is_an_error() -> None:
    with pytest.raises(SerializationException, match="a sampled value is not JSON"):
        infer_type([b"{"])


def test_sample_that_is_not_json_is_left_out_in_permissive_mode() -> None:
    samples = [b"not json", b'{"a": 1}', b"{"]
    assert infer_type(samples, permissive=True).simpleString() == "struct<a:bigint>"


def test_text_of_other_values_is_kept() -> None:
    convert = json_converter(StringType(), "value")
    assert [convert(each) for each in ("a", 1, [1, None], None)] == ["a", "1", "[1,null]", None]


@pytest.mark.parametrize(("kind", "value", "message"), [
    (LongType(), True, "'value' is not bigint: the JSON holds a value of the Python type bool"),
    (LongType(), 1.0, "'value' is not bigint: the JSON holds a value of the Python type float"),
    (IntegerType(), 2**31, "'value' is not int: the number is too large"),
    (BooleanType(), 1, "'value' is not boolean"),
    (ArrayType(LongType()), [1, "2"], r"'value\[\]' is not bigint"),
])
def test_other_types_are_errors(kind: DataType, value: object, message: str) -> None:
    with pytest.raises(SerializationException, match=message):
        json_converter(kind, "value")(value)
