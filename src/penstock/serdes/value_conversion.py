"""Converts objects to dicts and back, for formats that have their own schemas."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from penstock.serdes.types import is_model

#: The types that Avro's logical types hold, and bytes.
_LOGICAL = (
    bytes, datetime.datetime, datetime.date, datetime.time, decimal.Decimal, uuid.UUID,
)

Converter = Callable[[Any], Any] | None


def value_converters(
    of: Any, to_dict: Converter, from_dict: Converter, *, keep_logical_types: bool
) -> tuple[Converter, Converter]:
    """Return the functions that convert objects of a class to dicts and back; None for dicts.

    `keep_logical_types`: dates, decimals, UUIDs and bytes are not converted to strings.
    """
    if of is None:
        return to_dict, from_dict
    if is_model(of):
        mode = "python" if keep_logical_types else "json"
        return to_dict or partial(_dump_model, mode), from_dict or of.model_validate
    kept = _LOGICAL if keep_logical_types else ()
    return (
        to_dict or partial(msgspec.to_builtins, builtin_types=kept),
        from_dict or partial(msgspec.convert, type=of, builtin_types=kept),
    )


def _dump_model(mode: str, value: Any) -> Any:
    return value.model_dump(mode=mode, by_alias=True)
