"""Columns that a serde of the user decodes."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from penstock.engine.packaging.pickling import dumps
from penstock.engine.spark.sources.formats import JSON, Column, Decode, column_of, is_format
from penstock.engine.spark.sources.python_types import spark_type, spark_value
from penstock.errors import SerializationException
from penstock.serdes.base import Serde
from penstock.serdes.builtin import Serdes


@dataclass(frozen=True, slots=True)
class SerdeColumn(Column):
    """A column with the type that the serde has in Python."""

    #: The serde, pickled by the driver.
    serde: bytes = b""

    def decoder(self) -> Decode | None:
        """Return the function that converts bytes."""
        deserialize = pickle.loads(self.serde).deserialize
        convert = spark_value(self.type)

        def decode(data: bytes) -> Any:
            try:
                return convert(deserialize(data))
            except Exception as error:
                raise SerializationException(f"{type(error).__name__}: {error}") from error

        return decode


def serde_column(name: str, serde: Serde[Any]) -> Column:
    """Return the column of a serde. The built-in ones have the formats of the same name."""
    if is_format(serde.name) and serde.name != JSON and getattr(Serdes, serde.name)() is serde:
        return column_of(name, serde.name, None)
    return SerdeColumn(name, repr(serde), spark_type(serde.python_type), dumps(serde))
