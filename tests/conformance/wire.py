"""Serdes by name (README.md, section 2), and the bytes of events and outputs.

Topologies use the serdes of penstock where it has them. Events and outputs are encoded and decoded
here, without penstock, so that a serde with symmetrical errors is detected.
"""

from __future__ import annotations

import struct
from typing import Any

from conformance.cases import InvalidCase
from conformance.values import JsonScalar, canonical, from_json_text, json_of
from penstock import Serde, Serdes, WindowedSerdes, errors

_LONG = struct.Struct(">q")
_LARGEST = 2**63 - 1


def serde(spec: Any) -> Serde[Any]:
    """The serde that a spec names, for use in a topology."""
    if isinstance(spec, dict):
        inner = serde(spec.get("inner"))
        if spec.get("windowed") == "time":
            return WindowedSerdes.time_windowed(inner, int(spec.get("size", 0)))
        if spec.get("windowed") == "session":
            return WindowedSerdes.session_windowed(inner)
        raise InvalidCase(f"Unknown serde {spec!r}.")
    if spec == "string":
        return Serdes.string()
    if spec == "long":
        return Serdes.long()
    if spec == "bytes":
        return Serdes.bytes()
    if spec == "json":
        return Serde.of(_write_json, _read_json)
    if spec == "picky_string":
        return Serde.of(_write_picky, _read_string)
    raise InvalidCase(f"Unknown serde {spec!r}.")


def encode(spec: Any, value: Any) -> bytes | None:
    """The bytes of an event's key or value."""
    if value is None:
        return None
    if spec == "json":
        return canonical(value).encode()
    if spec == "long" and type(value) is int:
        return _LONG.pack(value)
    if spec in ("string", "picky_string") and isinstance(value, str):
        return value.encode()
    raise InvalidCase(f"{value!r} does not fit the serde {spec!r} of its topic.")


def decode(spec: Any, data: bytes | None) -> Any:
    """A key or value of an output as JSON. Invalid bytes are shown in hexadecimal."""
    if data is None:
        return None
    data = bytes(data)
    try:
        return _decode(spec, data)
    except ValueError:
        return {"hex": data.hex()}


def _decode(spec: Any, data: bytes) -> Any:
    if isinstance(spec, dict):
        return _decode_windowed(spec, data)
    if spec in ("string", "picky_string"):
        return data.decode(errors="replace")
    if spec == "long":
        if len(data) != 8:
            raise ValueError
        return _LONG.unpack(data)[0]
    if spec == "json":
        return json_of(from_json_text(data))
    if spec == "bytes":
        return {"hex": data.hex()}
    raise InvalidCase(f"Unknown serde {spec!r}.")


def _decode_windowed(spec: dict[str, Any], data: bytes) -> Any:
    session = spec["windowed"] == "session"
    tail = 16 if session else 8
    if len(data) < tail:
        raise ValueError
    key = _decode(spec["inner"], data[:-tail])
    start = _LONG.unpack(data[-8:])[0]
    if session:
        return {"key": key, "start": start, "end": _LONG.unpack(data[-16:-8])[0]}
    end = start + int(spec.get("size", 0))
    return {"key": key, "start": start, "end": min(end, _LARGEST)}


def _write_json(value: Any) -> Any:
    if isinstance(value, (dict, list, bool, float, JsonScalar)):
        return canonical(value).encode()
    raise TypeError(f"The json serde got {type(value).__name__}.")


def _read_json(data: bytes) -> Any:
    try:
        return from_json_text(bytes(data))
    except ValueError as error:
        raise errors.SerializationException("Not JSON.") from error


def _write_picky(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"The picky serde got {type(value).__name__}.")
    if "!!" in value:
        raise errors.SerializationException("picky")
    return value.encode()


def _read_string(data: bytes) -> str:
    return bytes(data).decode(errors="replace")
