"""Keys and values between bytes, text and JSON.

`string` is the form of all that is text: bytes that are no UTF-8 pass through it unchanged
(Python's surrogateescape). The others are the serdes of the same name.
"""

from __future__ import annotations

import base64
import binascii
import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.errors import SerializationException
from penstock.serdes.builtin import Serdes

_JSON_NUMBER_OR_TEXT = (int, float, str)


@dataclass(frozen=True, slots=True)
class Codec:
    """How bytes are read and written by people and scripts."""

    name: str
    to_text: Callable[[bytes], str]
    from_text: Callable[[str], bytes]
    #: What is put into a JSON object; None if only base64 will do.
    to_json: Callable[[bytes], Any]
    #: From the JSON that stood in an object, but for null.
    from_json: Callable[[msgspec.Raw], bytes]
    #: The part of a key that its partition goes by.
    partitioned_by: Callable[[bytes], bytes] = lambda data: data


def text_of(data: bytes) -> str:
    """Text that becomes the same bytes again."""
    return data.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    """The bytes of a text, also of one that stands for bytes that are no UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _string_to_json(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _string_from_json(raw: msgspec.Raw) -> bytes:
    # A text is its characters; anything else is itself, written as JSON.
    written = bytes(raw)
    if written.startswith(b'"'):
        return msgspec.json.decode(written, type=str).encode()
    return compact(written)


def compact(data: bytes) -> bytes:
    """JSON without spaces and line ends; numbers stay as they were written."""
    try:
        return msgspec.json.format(data, indent=-1)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SerializationException(f"The bytes are not JSON: {error}.") from error


def _json_from_text(text: str) -> bytes:
    data = bytes_of(text)
    compact(data)
    return data


def _bytes_from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SerializationException(f"'{text}' is not base64: {error}.") from error


def _bytes_from_json(raw: msgspec.Raw) -> bytes:
    return _bytes_from_base64(str(_scalar(raw)))


def _scalar(raw: msgspec.Raw) -> int | float | str | bool:
    value: Any = msgspec.json.decode(bytes(raw))
    if not isinstance(value, _JSON_NUMBER_OR_TEXT):
        raise SerializationException(f"A number or a text is needed, not {bytes(raw).decode()}.")
    return value


def _of_serde(name: str, parse: Callable[[str], Any]) -> Codec:
    serde: Any = getattr(Serdes, name)()

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except (ValueError, KeyError):
            raise SerializationException(f"'{text}' is not of type {name}.") from None

    def from_text(text: str) -> bytes:
        data: bytes = serde.serialize(parsed(text))
        return data

    def from_json(raw: msgspec.Raw) -> bytes:
        value = _scalar(raw)
        return from_text(str(value).lower() if isinstance(value, bool) else str(value))

    def to_json(data: bytes) -> Any:
        value = serde.deserialize(data)
        if isinstance(value, uuid.UUID):
            return str(value)
        # JSON has no words for these, but `from_json` reads the texts.
        return value if not isinstance(value, float) or math.isfinite(value) else str(value)

    def to_text(data: bytes) -> str:
        value = serde.deserialize(data)
        return str(value).lower() if isinstance(value, bool) else str(value)

    return Codec(name, to_text, from_text, to_json, from_json)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text]


FORMS: Mapping[str, Codec] = {
    form.name: form
    for form in (
        Codec("string", text_of, bytes_of, _string_to_json, _string_from_json),
        Codec(
            "json", lambda data: compact(data).decode(), _json_from_text,
            lambda data: msgspec.Raw(compact(data)), lambda raw: compact(bytes(raw)),
        ),
        Codec(
            "bytes", lambda data: base64.b64encode(data).decode(), _bytes_from_base64,
            lambda data: None, _bytes_from_json,
        ),
        _of_serde("long", int),
        _of_serde("integer", int),
        _of_serde("short", int),
        _of_serde("double", float),
        _of_serde("float", float),
        _of_serde("boolean", _boolean),
        _of_serde("uuid", uuid.UUID),
    )
}


def put_json(row: dict[str, Any], name: str, data: bytes | None, form: Codec) -> None:
    """Add bytes to a JSON object: under their name, or as base64 under `<name>_base64`."""
    if data is None:
        row[name] = None
        return
    value = form.to_json(data)
    if value is None:
        row[f"{name}_base64"] = base64.b64encode(data).decode()
    else:
        row[name] = value


def take_json(
    plain: msgspec.Raw, encoded: str | None, name: str, form: Codec
) -> bytes | None:
    """Bytes out of a JSON object that `put_json` could have written; empty: not given."""
    written = bytes(plain)
    if encoded is not None:
        if written:
            raise SerializationException(f"Both {name} and {name}_base64 are given.")
        return _bytes_from_base64(encoded)
    if written in {b"", b"null"}:
        return None
    return form.from_json(plain)
