"""JSON as columns: infers a schema from samples, and converts values strictly.

| JSON | inferred type |
|---|---|
| integers | `bigint`; `double` if some are fractions or exceed 64 bits |
| strings, booleans | `string`, `boolean` |
| objects, arrays | `struct` of all fields that occur, `array` |
| null only | `string` |
| values of several of these kinds | `string`, which holds the JSON text |

A value that does not have the type of its column is an error. A missing field is null, and a field
that the schema does not have is ignored. A `string` takes any JSON: the content of a JSON string,
and the text of any other value.
"""

from __future__ import annotations

import base64
import datetime
import decimal
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import ConfigException, SerializationException

Convert = Callable[[Any], Any]

_INTEGER_BITS: dict[type[DataType], int] = {
    ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64,
}
_NULL = NullType()


# ---- inference -------------------------------------------------------------------------------


def infer_type(samples: Iterable[bytes], *, permissive: bool = False) -> DataType:
    """Return the type of JSON samples. Samples that are not JSON raise `SerializationException`, or
    are left out."""
    decode = msgspec.json.Decoder().decode
    merged: DataType = _NULL
    for sample in samples:
        try:
            merged = _merge(merged, _type_of(decode(sample)))
        except msgspec.DecodeError as error:
            if permissive:
                continue
            raise SerializationException(
                f"The schema cannot be inferred: a sampled value is not JSON: {error}. Set "
                "another format, or mode=PERMISSIVE, in which such a value is null."
            ) from error
    return _without_nulls(merged)


def _type_of(value: Any) -> DataType:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return BooleanType()
    if isinstance(value, int):
        return LongType() if -(2**63) <= value < 2**63 else DoubleType()
    if isinstance(value, float):
        return DoubleType()
    if isinstance(value, str):
        return StringType()
    if isinstance(value, list):
        element: DataType = _NULL
        for each in value:
            element = _merge(element, _type_of(each))
        return ArrayType(element)
    return StructType([StructField(name, _type_of(each)) for name, each in value.items()])


def _merge(one: DataType, other: DataType) -> DataType:
    if other in (one, _NULL):
        return one
    if one == _NULL:
        return other
    if {type(one), type(other)} == {LongType, DoubleType}:
        return DoubleType()
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_merge(one.elementType, other.elementType))
    if isinstance(one, StructType) and isinstance(other, StructType):
        fields = {each.name: each.dataType for each in one}
        for each in other:
            fields[each.name] = _merge(fields.get(each.name, _NULL), each.dataType)
        return StructType([StructField(name, kind) for name, kind in fields.items()])
    return StringType()


def _without_nulls(kind: DataType) -> DataType:
    if isinstance(kind, ArrayType):
        return ArrayType(_without_nulls(kind.elementType))
    if isinstance(kind, StructType):
        # Spark has no use for a struct without fields.
        fields = [StructField(each.name, _without_nulls(each.dataType)) for each in kind]
        return StructType(fields) if fields else StringType()
    return StringType() if kind == _NULL else kind


# ---- reading ---------------------------------------------------------------------------------


def json_converter(kind: DataType, path: str) -> Convert:
    """Return the function that converts a decoded JSON value. `path` names it in errors."""
    convert = _converter(kind, path)
    return lambda value: None if value is None else convert(value)


def _mismatch(path: str, kind: DataType, value: Any) -> SerializationException:
    return SerializationException(
        f"'{path}' is not {kind.simpleString()}: the JSON holds a value of the Python type "
        f"{type(value).__name__}."
    )


def _converter(kind: DataType, path: str) -> Convert:
    if isinstance(kind, StringType):
        return _to_text
    if isinstance(kind, StructType):
        return _struct_converter(kind, path)
    if isinstance(kind, ArrayType):
        element = json_converter(kind.elementType, f"{path}[]")
        return _checked(list, kind, path, lambda value: [element(each) for each in value])
    if isinstance(kind, MapType):
        if not isinstance(kind.keyType, StringType):
            raise ConfigException(f"The keys of the map '{path}' must be strings.")
        content = json_converter(kind.valueType, f"{path}[]")
        return _checked(
            dict, kind, path, lambda value: [(name, content(each)) for name, each in value.items()]
        )
    if isinstance(kind, BooleanType):
        return _checked(bool, kind, path, lambda value: value)
    if type(kind) in _INTEGER_BITS:
        return _integer_converter(kind, path)
    if isinstance(kind, FloatType | DoubleType):
        def to_float(value: Any) -> float:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _mismatch(path, kind, value)
            return float(value)

        return to_float
    if isinstance(kind, DecimalType):
        return _parsed((str, int, float), kind, path, lambda value: decimal.Decimal(str(value)))
    if isinstance(kind, BinaryType):
        return _parsed((str,), kind, path, lambda text: base64.b64decode(text, validate=True))
    if isinstance(kind, DateType):
        return _parsed((str,), kind, path, datetime.date.fromisoformat)
    if isinstance(kind, TimestampType | TimestampNTZType):
        return _parsed((str,), kind, path, datetime.datetime.fromisoformat)
    raise ConfigException(f"'{path}' has the type {kind.simpleString()}, which JSON cannot have.")


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _checked(wanted: type, kind: DataType, path: str, convert: Convert) -> Convert:
    def checked(value: Any) -> Any:
        if not isinstance(value, wanted):
            raise _mismatch(path, kind, value)
        return convert(value)

    return checked


def _parsed(wanted: tuple[type, ...], kind: DataType, path: str, parse: Convert) -> Convert:
    def parsed(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, wanted):
            raise _mismatch(path, kind, value)
        try:
            return parse(value)
        except (ValueError, ArithmeticError) as error:
            raise SerializationException(
                f"'{path}' is not {kind.simpleString()}: {error}."
            ) from error

    return parsed


def _integer_converter(kind: DataType, path: str) -> Convert:
    limit = 2 ** (_INTEGER_BITS[type(kind)] - 1)

    def to_integer(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _mismatch(path, kind, value)
        if not -limit <= value < limit:
            raise SerializationException(
                f"'{path}' is not {kind.simpleString()}: the number is too large."
            )
        return value

    return to_integer


def _struct_converter(kind: StructType, path: str) -> Convert:
    fields = [
        (each.name, json_converter(each.dataType, f"{path}.{each.name}")) for each in kind
    ]

    def to_struct(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _mismatch(path, kind, value)
        get = value.get
        return {name: convert(get(name)) for name, convert in fields}

    return to_struct


# ---- writing ---------------------------------------------------------------------------------


def to_json_value(kind: DataType) -> Convert:
    """Return the function that converts a value of a column, as Arrow returns it, for JSON.

    Null fields of a struct are left out, as Spark's `to_json` does.
    """
    if isinstance(kind, StructType):
        fields = [(each.name, to_json_value(each.dataType)) for each in kind]

        def from_struct(value: Any) -> Any:
            return {
                name: convert(value[name]) for name, convert in fields if value[name] is not None
            }

        return from_struct
    if isinstance(kind, ArrayType):
        element = to_json_value(kind.elementType)
        return lambda value: [None if each is None else element(each) for each in value]
    if isinstance(kind, MapType):
        content = to_json_value(kind.valueType)
        return lambda value: {
            str(name): None if each is None else content(each) for name, each in value
        }
    return lambda value: value
