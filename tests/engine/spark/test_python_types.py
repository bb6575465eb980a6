"""Python types as types of Spark. These tests need PySpark, but no JVM."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple, Optional, TypedDict

import msgspec
import pydantic
import pytest

from penstock.engine.spark.sources.python_types import spark_type, spark_value


@dataclass
class Point:
    x: int
    y: float | None


class Shape(msgspec.Struct):
    points: list[Point]
    tags: dict[str, int]


class Model(pydantic.BaseModel):
    name: str
    at: datetime


class Row(TypedDict):
    amount: Decimal


class Pair(NamedTuple):
    left: bytes
    right: bool


@dataclass
class Tree:
    children: list[Tree]


@pytest.mark.parametrize(("of", "expected"), [
    (str, "string"), (int, "bigint"), (float, "double"), (bool, "boolean"), (bytes, "binary"),
    (Optional[int], "bigint"),  # noqa: UP045
    (list[int], "array<bigint>"), (tuple[str, ...], "array<string>"), (set[str], "array<string>"),
    (dict[str, float], "map<string,double>"), (dict[int, float], "string"),
    (Point, "struct<x:bigint,y:double>"),
    (Shape, "struct<points:array<struct<x:bigint,y:double>>,tags:map<string,bigint>>"),
    (Model, "struct<name:string,at:timestamp>"),
    (Row, "struct<amount:decimal(38,18)>"),
    (Pair, "struct<left:binary,right:boolean>"),
    (Tree, "struct<children:array<string>>"),
    (uuid.UUID, "string"), (Any, "string"), (None, "string"), (int | str, "string"),
])
def test_types(of: Any, expected: str) -> None:
    assert spark_type(of).simpleString() == expected


@pytest.mark.parametrize(("of", "value", "expected"), [
    (Shape, Shape([Point(1, None)], {"a": 2}),
     {"points": [{"x": 1, "y": None}], "tags": [("a", 2)]}),
    (Model, Model(name="n", at=datetime(2026, 1, 1, tzinfo=UTC)),
     {"name": "n", "at": datetime(2026, 1, 1, tzinfo=UTC)}),
    (Row, {"amount": Decimal("1.5")}, {"amount": Decimal("1.5")}),
    (Tree, Tree([Tree([])]), {"children": ['{"children":[]}']}),
    (None, {"a": [1, None]}, '{"a":[1,null]}'),
    (None, "text", "text"),
    (uuid.UUID, uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (None, None, None),
])
def test_values(of: Any, value: Any, expected: Any) -> None:
    assert spark_value(spark_type(of))(value) == expected
