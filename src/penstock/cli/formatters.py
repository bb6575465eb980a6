"""Formats the records that `consume` prints: text from a template, or JSON objects."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from penstock.cli.codecs import CODECS, Codec, decode_text, put_json
from penstock.cli.errors import CommandError, UsageError
from penstock.cli.record_sources import ReadRecord
from penstock.cli.terminal import escape_control_characters
from penstock.errors import SerializationException

#: The fields of a template.
FIELDS = (
    "key", "value", "headers", "timestamp", "time", "topic", "partition", "offset",
)
NAMED_TEMPLATES = {
    "value": "{value}",
    "key-value": "{key}{separator}{value}",
    "full": "{time}{separator}{partition}{separator}{offset}{separator}{key}{separator}{value}",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

RecordFormatter = Callable[[ReadRecord], bytes]


@dataclass(frozen=True, slots=True)
class TextFormatter:
    """Formats a record as a line of text."""

    template: str
    key: Codec
    value: Codec
    null: str
    #: Escape control characters, so that a record cannot control the terminal.
    for_terminal: bool

    def __call__(self, record: ReadRecord) -> bytes:
        fields = {
            "topic": record.at.topic,
            "partition": record.at.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "time": _iso_time(record.timestamp),
            "key": self._text(record, "key", record.key, self.key),
            "value": self._text(record, "value", record.value, self.value),
            "headers": ",".join(
                f"{name}={self.null if data is None else decode_text(data)}"
                for name, data in record.headers
            ),
        }
        text = self.template.format_map(fields)
        if self.for_terminal:
            text = escape_control_characters(text)
        return text.encode("utf-8", "surrogateescape") + b"\n"

    def _text(self, record: ReadRecord, field: str, data: bytes | None, codec: Codec) -> str:
        if data is None:
            return self.null
        try:
            return codec.to_text(data)
        except SerializationException as error:
            raise _type_error(record, field, codec, error) from error


@dataclass(frozen=True, slots=True)
class JsonFormatter:
    """Formats a record as a JSON object that `produce --json` accepts."""

    key: Codec
    value: Codec

    def __call__(self, record: ReadRecord) -> bytes:
        row: dict[str, Any] = {
            "topic": record.at.topic,
            "partition": record.at.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
        }
        self._put(record, row, "key", record.key, self.key)
        self._put(record, row, "value", record.value, self.value)
        if record.headers:
            row["headers"] = [_header(name, data) for name, data in record.headers]
        return msgspec.json.encode(row) + b"\n"

    def _put(
        self, record: ReadRecord, row: dict[str, Any], field: str, data: bytes | None,
        codec: Codec,
    ) -> None:
        try:
            put_json(row, field, data, codec)
        except SerializationException as error:
            raise _type_error(record, field, codec, error) from error


def format_raw_value(record: ReadRecord) -> bytes:
    """Return the value unchanged: the fast path for text that goes to a file or a program."""
    return b"null\n" if record.value is None else record.value + b"\n"


def parse_template(name_or_template: str, separator: str) -> str:
    """Return the template of a name, or check a template."""
    template = NAMED_TEMPLATES.get(name_or_template)
    if template is not None:
        doubled = separator.replace("{", "{{").replace("}", "}}")
        return template.replace("{separator}", doubled)
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(name_or_template)
                  if field is not None]
        "".join(name_or_template.format_map(dict.fromkeys(fields, "")))
    except (ValueError, LookupError, AttributeError) as error:
        raise UsageError(
            f"--format '{name_or_template}' is not a valid template: {error}."
        ) from error
    unknown = [field for field in fields if field not in FIELDS]
    if unknown or not fields:
        reason = f"has an unknown field '{unknown[0]}'" if unknown else "has no field"
        listed = ", ".join(f"{{{field}}}" for field in FIELDS)
        raise UsageError(
            f"--format '{name_or_template}' {reason}. Fields: {listed}. "
            f"Names: {', '.join(NAMED_TEMPLATES)}."
        )
    return name_or_template


def _header(name: str, data: bytes | None) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name}
    put_json(row, "value", data, CODECS["string"])
    return row


def _iso_time(timestamp: int) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:  # After the year 9999.
        return str(timestamp)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _type_error(
    record: ReadRecord, field: str, codec: Codec, error: SerializationException
) -> CommandError:
    return CommandError(
        f"The {field} at offset {record.offset} of '{record.at.topic}' [{record.at.partition}] "
        f"is not of type {codec.name}: {error}"
    )
