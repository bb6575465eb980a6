"""Converts bytes of records to columns of Arrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from penstock.engine.spark.sources.formats import Column
from penstock.errors import SerializationException

#: Describes the record with an index, for errors.
Describe = Callable[[int], str]


class ColumnDecoder:
    """Decodes one column. Created where it is used, because its functions cannot be pickled."""

    def __init__(self, column: Column, arrow_type: pa.DataType, *, permissive: bool) -> None:
        self._column = column
        self._type = arrow_type
        self._permissive = permissive
        self._decode = column.decoder()

    def decode(self, data: pa.Array, describe: Describe) -> pa.Array:
        """Decode binary data. A value that cannot be decoded is an error, or null."""
        if self._decode is None:
            return data.cast(self._type)
        if self._column.format == "string":
            try:
                return data.cast(self._type)
            except pa.ArrowInvalid:
                # Not UTF-8: the serde replaces the invalid characters.
                pass
        decode = self._decode
        values: list[Any] = []
        for index, each in enumerate(data.to_pylist()):
            try:
                values.append(None if each is None else decode(each))
            except (SerializationException, msgspec.DecodeError, RecursionError) as error:
                if not self._permissive:
                    raise self._error(describe(index), error) from error
                values.append(None)
        return pa.array(values, self._type)

    def _error(self, record: str, error: Exception) -> SerializationException:
        name, used = self._column.name, self._column.format
        return SerializationException(
            f"The {name} of {record} cannot be read in the format '{used}': "
            f"{str(error).rstrip('.')}. Set '{name}.format' to the format of the bytes or pass a "
            "schema with their types. mode=PERMISSIVE reads such values as null."
        )
