"""Windowed keys between bytes, text and JSON.

Their types are written `time-windowed:SIZE[:TYPE]` and `session-windowed[:TYPE]`, where TYPE is the
form of the key itself. As text they are `key@start/end`, as JSON an object of the three. Times are
epoch milliseconds.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

import msgspec

from penstock.cli.codecs import FORMS, Codec, put_json, take_json
from penstock.cli.parsing import duration
from penstock.errors import SerializationException
from penstock.serdes.base import Serde
from penstock.serdes.builtin import Serdes
from penstock.serdes.windowed import WindowedSerdes
from penstock.windows import Window, Windowed

TIME = "time-windowed"
SESSION = "session-windowed"
#: The types of a key, for people.
KEY_TYPES = (*FORMS, f"{TIME}:SIZE[:TYPE]", f"{SESSION}[:TYPE]")
_TEXT = re.compile(r"(.*)@(\d+)/(\d+)", re.DOTALL)


class _Object(msgspec.Struct, forbid_unknown_fields=True):
    """A windowed key in JSON."""

    start: int
    end: int
    key: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    key_base64: str | None = None


def key_form(text: str) -> Codec:
    """The form that `--key-type` names."""
    if text in FORMS:
        return FORMS[text]
    kind, *more = text.split(":")
    serde: Serde[Windowed[bytes]] | None = None
    if kind == TIME and more:
        serde = WindowedSerdes.time_windowed(Serdes.bytes(), _size_ms(more.pop(0)))
    elif kind == SESSION:
        serde = WindowedSerdes.session_windowed(Serdes.bytes())
    inner = FORMS.get(more[0]) if more else FORMS["string"]
    if serde is None or inner is None or len(more) > 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no type. Types: {', '.join(KEY_TYPES)}")
    return _form(text, serde, inner)


def _size_ms(text: str) -> int:
    size_ms = duration(text)
    if not size_ms:
        raise argparse.ArgumentTypeError("the size of a window must be more than 0")
    return size_ms


def _form(name: str, serde: Serde[Windowed[bytes]], inner: Codec) -> Codec:
    def read(data: bytes) -> Windowed[bytes]:
        if not data:  # The serde takes it for null.
            raise SerializationException("No bytes are no windowed key.")
        return serde.deserialize(data)

    def written(key: bytes, start: int, end: int) -> bytes:
        data = serde.serialize(Windowed(key, Window(start, end)))
        window = read(data).window
        if window != (start, end):
            raise SerializationException(
                f"A window that begins at {start} ends at {window.end}, not at {end}."
            )
        return data

    def to_text(data: bytes) -> str:
        key, (start, end) = read(data)
        return f"{inner.to_text(key)}@{start}/{end}"

    def from_text(text: str) -> bytes:
        parts = _TEXT.fullmatch(text)
        if parts is None:
            raise SerializationException(f"'{text}' is not of the form KEY@START/END.")
        return written(inner.from_text(parts[1]), _time(parts[2]), _time(parts[3]))

    def to_json(data: bytes) -> dict[str, Any]:
        key, (start, end) = read(data)
        row: dict[str, Any] = {}
        put_json(row, "key", key, inner)
        return {**row, "start": start, "end": end}

    def from_json(raw: msgspec.Raw) -> bytes:
        try:
            found = msgspec.json.decode(bytes(raw), type=_Object)
        except (msgspec.DecodeError, RecursionError) as error:
            raise SerializationException(f"Not a windowed key in JSON: {error}.") from error
        key = take_json(found.key, found.key_base64, "key", inner)
        if key is None:
            raise SerializationException("A windowed key needs a key.")
        return written(key, _time(found.start), _time(found.end))

    # Kafka puts a windowed key where the key alone would go.
    return Codec(name, to_text, from_text, to_json, from_json, lambda data: read(data).key)


def _time(value: str | int) -> int:
    time_ms = int(value)
    if not 0 <= time_ms < 2**63:
        raise SerializationException(f"{time_ms} is no time in epoch milliseconds.")
    return time_ms
