"""Keys and values as JSON.

Values that JSON knows stay what they are; integers are written with all their digits. Dataclasses,
`msgspec.Struct`, pydantic models and the types of the standard library take the form that
penstock's JSON serdes give them. Bytes are an object `{"base64": "..."}`. NaN and the infinities,
which JSON lacks, are strings. Any other object is shown as an object `{"repr": "..."}`.
"""

from __future__ import annotations

import base64
import binascii
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from penstock.errors import SerializationException
from penstock.queries.http.problems import Problem
from penstock.record import ValueAndTimestamp
from penstock.serdes.base import Serde
from penstock.serdes.types import is_model
from penstock.stores.api.results import (
    AggregationWithHeaders,
    ValueTimestampHeaders,
    VersionedRecord,
)
from penstock.windows import Window, Windowed

#: The types that JSON represents without loss.
_PLAIN = frozenset((str, int, bool, type(None)))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

encode = msgspec.json.encode


def render(value: Any) -> Any:
    """Return the value in a form that `encode` accepts."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return value if math.isfinite(value) else _NOT_FINITE[str(value)]
    if kind is dict:
        return {_member(name): render(each) for name, each in value.items()}
    if kind is list or kind is tuple:
        return [render(each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Windowed):
        return {"key": render(value.key), **window_fields(value.window)}
    if isinstance(value, ValueAndTimestamp | ValueTimestampHeaders):
        return value_fields(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: render(each) for name, each in value._asdict().items()}
    return _render_object(value)


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _member(name: Any) -> str:
    if isinstance(name, str):
        return name
    rendered = render(name)
    return rendered if isinstance(rendered, str) else encode(rendered).decode()


def _render_object(value: Any) -> Any:
    if is_model(type(value)):
        return render(value.model_dump(mode="python"))
    try:
        # Bytes and floats keep their types, because `render` has its own form for them.
        plain = msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview))
    except (TypeError, ValueError):
        return {"repr": repr(value)}
    return {"repr": repr(value)} if type(plain) is type(value) else render(plain)


def iso(timestamp_ms: int) -> str | None:
    """Return a time in ISO 8601 with milliseconds; None outside of the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def time_fields(name: str, timestamp_ms: int) -> dict[str, Any]:
    """Return a time twice: in ISO 8601, and in epoch milliseconds."""
    return {name: iso(timestamp_ms), f"{name}_ms": timestamp_ms}


def window_fields(window: Window) -> dict[str, Any]:
    """Return the bounds of a window."""
    return {**time_fields("start", window.start), **time_fields("end", window.end)}


def value_fields(value: Any) -> dict[str, Any]:
    """Return the value of a store, with its timestamp and headers if it has them."""
    if isinstance(value, AggregationWithHeaders):
        return {"value": render(value.aggregation), "headers": _headers(value.headers)}
    if isinstance(value, ValueAndTimestamp | ValueTimestampHeaders | VersionedRecord):
        fields = {"value": render(value.value), **time_fields("timestamp", value.timestamp)}
        if isinstance(value, ValueTimestampHeaders):
            fields["headers"] = _headers(value.headers)
        return fields
    return {"value": render(value)}


def _headers(headers: Any) -> list[list[Any]]:
    return [[name, render(content)] for name, content in headers]


# ---- keys that a client sends ---------------------------------------------------------------


def parse_key(text: str, encoding: str, serde: Serde[Any] | None) -> Any:
    """Return the key that a path or query parameter stands for.

    `text`: the text of a string or bytes key, the digits of a number, JSON for other types.
    `json`: the form in which responses show the key. `base64`: the serialized key.
    """
    try:
        if encoding == "base64":
            return _from_bytes(_decode_base64(text), serde)
        if encoding == "json":
            return key_from_json(msgspec.json.decode(text), serde)
        return _from_text(text, serde)
    except (ValueError, TypeError, RecursionError, SerializationException) as error:
        raise _unreadable(serde, error) from error


def decoded_base64(text: str, name: str) -> bytes:
    """Return the bytes of a parameter in base64."""
    try:
        return _decode_base64(text)
    except ValueError as error:
        raise Problem(400, f"{name} is {error}.") from error


def key_from_json(value: Any, serde: Serde[Any] | None) -> Any:
    """Return the key that a JSON value in a body stands for: the reverse of `render`."""
    kind = None if serde is None else serde.python_type
    try:
        if isinstance(value, dict) and value.keys() == {"base64"}:
            data = _decode_base64(str(value["base64"]))
            return data if kind is bytes else _from_bytes(data, serde)
        if kind is bytes and isinstance(value, str):
            return value.encode()
        if kind is None:
            return value
        if is_model(kind):
            return kind.model_validate(value)
        # A number in a string is not a number, but an integer is a valid float.
        return msgspec.convert(value, kind)
    except (ValueError, TypeError, RecursionError, SerializationException) as error:
        raise _unreadable(serde, error) from error


def _from_text(text: str, serde: Serde[Any] | None) -> Any:
    kind = None if serde is None else serde.python_type
    if kind is str:
        return text
    if kind is bytes:
        return text.encode()
    if kind is None:
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
    try:
        return msgspec.convert(text, kind, strict=False)
    except (msgspec.ValidationError, TypeError):
        return key_from_json(msgspec.json.decode(text), serde)


def _from_bytes(data: bytes, serde: Serde[Any] | None) -> Any:
    return data if serde is None else serde.deserialize(data)


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error


def _unreadable(serde: Serde[Any] | None, error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    name = "unknown" if serde is None else serde.name
    return Problem(400, f"The key cannot be read as a key of type {name}: {error}.")
