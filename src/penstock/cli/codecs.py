"""Converts keys and values between bytes, text and JSON.

The codec `string` passes bytes that are not UTF-8 through unchanged (Python's surrogateescape). The
other plain codecs use the serdes of the same name.

Windowed keys have the types `time-windowed:SIZE[:TYPE]` and `session-windowed[:TYPE]`, where TYPE
is the codec of the key itself. Their text is `key@start/end`, their JSON an object with these three
fields. Times are epoch milliseconds.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import math
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.cli.parsing import duration_ms
from penstock.errors import SerializationException
from penstock.serdes.base import Serde
from penstock.serdes.builtin import Serdes
from penstock.serdes.windowed import WindowedSerdes
from penstock.windows import Window, Windowed

TIME_WINDOWED = "time-windowed"
SESSION_WINDOWED = "session-windowed"
_WINDOWED_TEXT = re.compile(r"(.*)@(\d+)/(\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Codec:
    """The text and JSON representations of one type of bytes."""

    name: str
    to_text: Callable[[bytes], str]
    from_text: Callable[[str], bytes]
    #: Returns None if the bytes have no JSON representation except base64.
    to_json: Callable[[bytes], Any]
    #: Not called for null.
    from_json: Callable[[msgspec.Raw], bytes]
    #: Returns the part of a key that determines its partition.
    partition_key: Callable[[bytes], bytes] = lambda data: data


def decode_text(data: bytes) -> str:
    """Decode bytes so that `encode_text` restores them, even if they are not UTF-8."""
    return data.decode("utf-8", "surrogateescape")


def encode_text(text: str) -> bytes:
    """Reverse `decode_text`."""
    return text.encode("utf-8", "surrogateescape")


def compact_json(data: bytes) -> bytes:
    """Remove whitespace from JSON. Numbers keep their notation."""
    try:
        return msgspec.json.format(data, indent=-1)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SerializationException(f"The bytes are not JSON: {error}.") from error


def _string_to_json(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _string_from_json(raw: msgspec.Raw) -> bytes:
    # A JSON string stands for its characters. Any other JSON stays JSON.
    data = bytes(raw)
    if data.startswith(b'"'):
        return msgspec.json.decode(data, type=str).encode()
    return compact_json(data)


def _json_from_text(text: str) -> bytes:
    data = encode_text(text)
    compact_json(data)
    return data


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SerializationException(f"'{text}' is not base64: {error}.") from error


def _scalar(raw: msgspec.Raw) -> int | float | str | bool:
    value: Any = msgspec.json.decode(bytes(raw))
    if not isinstance(value, int | float | str):
        raise SerializationException(f"Expected a number or a string, got {bytes(raw).decode()}.")
    return value


def _scalar_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _serde_codec(name: str, parse: Callable[[str], Any]) -> Codec:
    serde: Any = getattr(Serdes, name)()

    def to_text(data: bytes) -> str:
        return _scalar_text(serde.deserialize(data))

    def from_text(text: str) -> bytes:
        try:
            value = parse(text)
        except (ValueError, KeyError):
            raise SerializationException(f"'{text}' is not of type {name}.") from None
        data: bytes = serde.serialize(value)
        return data

    def to_json(data: bytes) -> Any:
        value = serde.deserialize(data)
        if isinstance(value, uuid.UUID):
            return str(value)
        # JSON has no NaN and no infinity. `from_json` accepts them as strings.
        return value if not isinstance(value, float) or math.isfinite(value) else str(value)

    def from_json(raw: msgspec.Raw) -> bytes:
        return from_text(_scalar_text(_scalar(raw)))

    return Codec(name, to_text, from_text, to_json, from_json)


def _parse_boolean(text: str) -> bool:
    return {"true": True, "false": False}[text]


CODECS: Mapping[str, Codec] = {
    codec.name: codec
    for codec in (
        Codec("string", decode_text, encode_text, _string_to_json, _string_from_json),
        Codec(
            "json", lambda data: compact_json(data).decode(), _json_from_text,
            lambda data: msgspec.Raw(compact_json(data)), lambda raw: compact_json(bytes(raw)),
        ),
        Codec(
            "bytes", lambda data: base64.b64encode(data).decode(), _decode_base64,
            lambda data: None, lambda raw: _decode_base64(str(_scalar(raw))),
        ),
        _serde_codec("long", int),
        _serde_codec("integer", int),
        _serde_codec("short", int),
        _serde_codec("double", float),
        _serde_codec("float", float),
        _serde_codec("boolean", _parse_boolean),
        _serde_codec("uuid", uuid.UUID),
    )
}
#: The values of `--key-type`, for the help.
KEY_TYPES = (*CODECS, f"{TIME_WINDOWED}:SIZE[:TYPE]", f"{SESSION_WINDOWED}[:TYPE]")


def put_json(row: dict[str, Any], name: str, data: bytes | None, codec: Codec) -> None:
    """Add bytes to a JSON object: as `name`, or base64-encoded as `<name>_base64`."""
    if data is None:
        row[name] = None
        return
    value = codec.to_json(data)
    if value is None:
        row[f"{name}_base64"] = base64.b64encode(data).decode()
    else:
        row[name] = value


def take_json(
    plain: msgspec.Raw, encoded: str | None, name: str, codec: Codec
) -> bytes | None:
    """Reverse `put_json`, given the two fields of the object. A missing field is empty."""
    data = bytes(plain)
    if encoded is not None:
        if data:
            raise SerializationException(f"{name} and {name}_base64 cannot be combined.")
        return _decode_base64(encoded)
    if data in {b"", b"null"}:
        return None
    return codec.from_json(plain)


def key_codec(text: str) -> Codec:
    """Return the codec for a value of `--key-type`."""
    if text in CODECS:
        return CODECS[text]
    kind, *more = text.split(":")
    serde: Serde[Windowed[bytes]] | None = None
    if kind == TIME_WINDOWED and more:
        serde = WindowedSerdes.time_windowed(Serdes.bytes(), _window_size_ms(more.pop(0)))
    elif kind == SESSION_WINDOWED:
        serde = WindowedSerdes.session_windowed(Serdes.bytes())
    inner = CODECS.get(more[0]) if more else CODECS["string"]
    if serde is None or inner is None or len(more) > 1:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a key type. Types: {', '.join(KEY_TYPES)}"
        )
    return _windowed_codec(text, serde, inner)


def _window_size_ms(text: str) -> int:
    size_ms = duration_ms(text)
    if not size_ms:
        raise argparse.ArgumentTypeError("the size of a window must be more than 0")
    return size_ms


class _WindowedObject(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON of a windowed key."""

    start: int
    end: int
    key: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    key_base64: str | None = None


def _windowed_codec(name: str, serde: Serde[Windowed[bytes]], inner: Codec) -> Codec:
    def decode(data: bytes) -> Windowed[bytes]:
        if not data:  # The serde would return null.
            raise SerializationException("A windowed key cannot be empty.")
        return serde.deserialize(data)

    def encode(key: bytes, start: int, end: int) -> bytes:
        data = serde.serialize(Windowed(key, Window(start, end)))
        window = decode(data).window
        if window != (start, end):
            raise SerializationException(
                f"The window that starts at {start} ends at {window.end}, not at {end}."
            )
        return data

    def to_text(data: bytes) -> str:
        key, (start, end) = decode(data)
        return f"{inner.to_text(key)}@{start}/{end}"

    def from_text(text: str) -> bytes:
        match = _WINDOWED_TEXT.fullmatch(text)
        if match is None:
            raise SerializationException(f"'{text}' does not have the form KEY@START/END.")
        return encode(inner.from_text(match[1]), _epoch_ms(match[2]), _epoch_ms(match[3]))

    def to_json(data: bytes) -> dict[str, Any]:
        key, (start, end) = decode(data)
        row: dict[str, Any] = {}
        put_json(row, "key", key, inner)
        return {**row, "start": start, "end": end}

    def from_json(raw: msgspec.Raw) -> bytes:
        try:
            parsed = msgspec.json.decode(bytes(raw), type=_WindowedObject)
        except (msgspec.DecodeError, RecursionError) as error:
            raise SerializationException(f"The JSON is not a windowed key: {error}.") from error
        key = take_json(parsed.key, parsed.key_base64, "key", inner)
        if key is None:
            raise SerializationException("The key of a windowed key cannot be null.")
        return encode(key, _epoch_ms(parsed.start), _epoch_ms(parsed.end))

    # Kafka partitions a windowed key by the key without its window.
    return Codec(name, to_text, from_text, to_json, from_json, lambda data: decode(data).key)


def _epoch_ms(value: str | int) -> int:
    time_ms = int(value)
    if not 0 <= time_ms < 2**63:
        raise SerializationException(f"{time_ms} is not a time in epoch milliseconds.")
    return time_ms
