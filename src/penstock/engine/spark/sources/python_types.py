"""Python types as types of Spark, and their values as values of Spark.

| Python | Spark |
|---|---|
| `str`, `int`, `float`, `bool`, `bytes` | `string`, `bigint`, `double`, `boolean`, `binary` |
| `datetime`, `date`, `Decimal` | `timestamp`, `date`, `decimal(38,18)` |
| dataclass, `msgspec.Struct`, pydantic model, `TypedDict`, `NamedTuple` | `struct` |
| `list[X]`, `set[X]`, `tuple[X, ...]` | `array` |
| `dict[str, X]` | `map` |
| any other type | `string`, with the JSON of the value |
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import uuid
from collections.abc import Callable
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.serdes.types import is_model, plain_type

Convert = Callable[[Any], Any]

_PLAIN: dict[Any, DataType] = {
    str: StringType(), int: LongType(), float: DoubleType(), bool: BooleanType(),
    bytes: BinaryType(), datetime.datetime: TimestampType(), datetime.date: DateType(),
    decimal.Decimal: DecimalType(38, 18),
}


def spark_type(of: Any) -> DataType:
    """Return the type of Spark for a Python type. A type that contains itself is a string."""
    return _spark_type(of, ())


def _spark_type(of: Any, outer: tuple[Any, ...]) -> DataType:
    of = plain_type(of)
    if isinstance(of, type) and of in _PLAIN:
        return _PLAIN[of]
    origin, arguments = get_origin(of) or of, get_args(of)
    if origin in {list, set, frozenset} and len(arguments) == 1:
        return ArrayType(_spark_type(arguments[0], outer))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return ArrayType(_spark_type(arguments[0], outer))
    if origin is dict and len(arguments) == 2 and plain_type(arguments[0]) is str:
        return MapType(StringType(), _spark_type(arguments[1], outer))
    fields = _fields(of) if of not in outer else {}
    if not fields:
        return StringType()
    return StructType([
        StructField(name, _spark_type(kind, (*outer, of))) for name, kind in fields.items()
    ])


def _fields(of: Any) -> dict[str, Any]:
    """Return the fields of a class with their types; empty for other types."""
    if not isinstance(of, type) or isinstance(of, types.GenericAlias):
        return {}
    if is_model(of):
        return {name: each.annotation for name, each in of.model_fields.items()}  # type: ignore[attr-defined]
    is_record = (
        dataclasses.is_dataclass(of) or issubclass(of, msgspec.Struct) or is_typeddict(of)
        or (issubclass(of, tuple) and hasattr(of, "_fields"))
    )
    if not is_record:
        return {}
    try:
        hints = get_type_hints(of)
    except NameError:
        # For example a class that is local to a function.
        return {}
    if dataclasses.is_dataclass(of):
        return {each.name: hints[each.name] for each in dataclasses.fields(of)}
    return hints


def spark_value(kind: DataType) -> Convert:
    """Return the function that converts a Python value for a column of this type."""
    convert = _converter(kind)
    return lambda value: None if value is None else convert(value)


def _converter(kind: DataType) -> Convert:
    if isinstance(kind, StringType):
        return _to_text
    if isinstance(kind, StructType):
        fields = [(each.name, spark_value(each.dataType)) for each in kind]

        def to_struct(value: Any) -> dict[str, Any]:
            if isinstance(value, dict):
                return {name: convert(value.get(name)) for name, convert in fields}
            return {name: convert(getattr(value, name)) for name, convert in fields}

        return to_struct
    if isinstance(kind, ArrayType):
        element = spark_value(kind.elementType)
        return lambda value: [element(each) for each in value]
    if isinstance(kind, MapType):
        content = spark_value(kind.valueType)
        return lambda value: [(name, content(each)) for name, each in value.items()]
    return lambda value: value


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, uuid.UUID):
        return str(value)
    if hasattr(value, "model_dump_json"):
        text: str = value.model_dump_json(by_alias=True)
        return text
    try:
        return msgspec.json.encode(value).decode()
    except TypeError:
        return str(value)
