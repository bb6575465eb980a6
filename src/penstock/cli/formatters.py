"""What `consume` writes for a record: text after a template, or a JSON object."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from penstock.cli.codecs import FORMS, Codec, put_json, text_of
from penstock.cli.errors import CommandFailed, UsageError
from penstock.cli.record_sources import Consumed
from penstock.cli.terminal import shown
from penstock.errors import SerializationException

#: The fields of a template.
FIELDS = (
    "key", "value", "headers", "timestamp", "time", "topic", "partition", "offset",
)
NAMED = {
    "value": "{value}",
    "key-value": "{key}{separator}{value}",
    "full": "{time}{separator}{partition}{separator}{offset}{separator}{key}{separator}{value}",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

ExecutionGraph = Callable[[Consumed], bytes]


@dataclass(frozen=True, slots=True)
class TextFormatter:
    """A line after a template."""

    template: str
    key: Codec
    value: Codec
    null: str
    #: Write out what a terminal would obey.
    for_terminal: bool

    def __call__(self, record: Consumed) -> bytes:
        fields = {
            "topic": record.at.topic,
            "partition": record.at.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "time": _iso(record.timestamp),
            "key": self._text(record, "key", record.key, self.key),
            "value": self._text(record, "value", record.value, self.value),
            "headers": ",".join(
                f"{name}={self.null if data is None else text_of(data)}"
                for name, data in record.headers
            ),
        }
        text = self.template.format_map(fields)
        if self.for_terminal:
            text = shown(text)
        return text.encode("utf-8", "surrogateescape") + b"\n"

    def _text(self, record: Consumed, what: str, data: bytes | None, form: Codec) -> str:
        if data is None:
            return self.null
        try:
            return form.to_text(data)
        except SerializationException as error:
            raise _unreadable(record, what, form, error) from error


@dataclass(frozen=True, slots=True)
class JsonFormatter:
    """One JSON object a line, as `produce --json` reads it."""

    key: Codec
    value: Codec

    def __call__(self, record: Consumed) -> bytes:
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
        self, record: Consumed, row: dict[str, Any], what: str, data: bytes | None, form: Codec
    ) -> None:
        try:
            put_json(row, what, data, form)
        except SerializationException as error:
            raise _unreadable(record, what, form, error) from error


def plain_value(record: Consumed) -> bytes:
    """The value as it is: the quick way for text that goes to a file or another program."""
    return b"null\n" if record.value is None else record.value + b"\n"


def checked_template(name_or_template: str, separator: str) -> str:
    """The template of a name, or one that was given and has known fields only."""
    template = NAMED.get(name_or_template)
    if template is not None:
        doubled = separator.replace("{", "{{").replace("}", "}}")
        return template.replace("{separator}", doubled)
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(name_or_template)
                  if field is not None]
        "".join(name_or_template.format_map(dict.fromkeys(fields, "")))
    except (ValueError, LookupError, AttributeError) as error:
        raise UsageError(f"--format '{name_or_template}' is no template: {error}.") from error
    unknown = [field for field in fields if field not in FIELDS]
    if unknown or not fields:
        what = f"Fields of --format are not '{unknown[0]}'" if unknown else (
            f"--format '{name_or_template}' names no field"
        )
        listed = ", ".join(f"{{{field}}}" for field in FIELDS)
        raise UsageError(f"{what}. Fields: {listed}. Names: {', '.join(NAMED)}.")
    return name_or_template


def _header(name: str, data: bytes | None) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name}
    put_json(row, "value", data, FORMS["string"])
    return row


def _iso(timestamp: int) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:  # After the year 9999.
        return str(timestamp)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _unreadable(
    record: Consumed, what: str, form: Codec, error: SerializationException
) -> CommandFailed:
    return CommandFailed(
        f"The {what} at offset {record.offset} of '{record.at.topic}' [{record.at.partition}] "
        f"is not of type {form.name}: {error}"
    )
