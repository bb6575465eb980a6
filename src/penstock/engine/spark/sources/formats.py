"""The formats of keys and values: bytes of the log as columns of Spark, and back.

A format is the name of a built-in serde, as on the command line, or `json`. A column of JSON has
the type of the schema; see `json_values`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)

from penstock.engine.spark.sources.json_values import json_converter, to_json_value
from penstock.errors import ConfigException, SerializationException
from penstock.serdes.builtin import Serdes
from penstock.suggestions import did_you_mean

JSON = "json"
#: Format -> type of the column.
_TYPES: dict[str, DataType] = {
    "bytes": BinaryType(), "string": StringType(), "long": LongType(), "integer": IntegerType(),
    "short": ShortType(), "double": DoubleType(), "float": FloatType(), "boolean": BooleanType(),
    "uuid": StringType(),
}
_ALIASES = {"int": "integer", "binary": "bytes", "bool": "boolean"}
FORMATS = (*_TYPES, JSON)

Decode = Callable[[bytes], Any]
Encode = Callable[[Any], bytes]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of keys or values: its name, the format of the bytes, and its type in Spark."""

    name: str
    format: str
    type: DataType

    def decoder(self) -> Decode | None:
        """Return the function that converts bytes; None if the column holds the bytes."""
        if self.format == "bytes":
            return None
        if self.format == JSON:
            convert = json_converter(self.type, self.name)
            decode = msgspec.json.Decoder().decode
            return lambda data: convert(decode(data))
        serde = getattr(Serdes, self.format)()
        if self.format == "uuid":
            return lambda data: str(serde.deserialize(data))
        deserialize: Decode = serde.deserialize
        return deserialize


def is_format(name: str) -> bool:
    """Return whether a format has this name."""
    return name in FORMATS


def format_name(given: str, option: str) -> str:
    """Return the name of a format, which may be given by an alias."""
    name = _ALIASES.get(given.lower(), given.lower())
    if name not in FORMATS:
        raise ConfigException(
            f"The option '{option}' has the unknown format '{given}'."
            f"{did_you_mean(given, FORMATS)} Formats: {', '.join(FORMATS)}."
        )
    return name


def column_of(name: str, given: str, schema_type: DataType | None) -> Column:
    """Return the column of a format. `schema_type` is its type in the user's schema, if given.

    A column of JSON without a type is a string.
    """
    if given == JSON:
        return Column(name, given, schema_type or StringType())
    expected = _TYPES[given]
    if schema_type is not None and schema_type != expected:
        raise ConfigException(
            f"The schema has the type {schema_type.simpleString()} for the column '{name}', but "
            f"the format '{given}' has the type {expected.simpleString()}. Set "
            f"'{name}.format' to the format of the bytes; JSON can have any type."
        )
    return Column(name, given, expected)


def format_of_type(kind: DataType) -> str:
    """Return the format in which a column of Spark is written by default."""
    for name, each in _TYPES.items():
        if each == kind:
            return name
    return JSON


def encoder(name: str, given: str | None, kind: DataType) -> Encode:
    """Return the function that converts values of a column to bytes."""
    chosen = given or format_of_type(kind)
    if chosen == JSON:
        encode = msgspec.json.Encoder().encode
        convert = to_json_value(kind)
        return lambda value: encode(convert(value))
    serde = getattr(Serdes, chosen)()
    serialize: Encode = serde.serialize
    parse = uuid.UUID if chosen == "uuid" else None

    def write(value: Any) -> bytes:
        try:
            return serialize(value if parse is None else parse(value))
        except (TypeError, ValueError, AttributeError) as error:
            raise SerializationException(
                f"The column '{name}' of type {kind.simpleString()} cannot be written in the "
                f"format '{chosen}': {error}"
            ) from error

    return write
