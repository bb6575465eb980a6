"""What `produce` reads: chunks of lines, each a record as text or as JSON."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import msgspec

from penstock.cli.codecs import FORMS, Codec, take_json, text_of
from penstock.cli.errors import CommandFailed
from penstock.errors import SerializationException

#: A chunk is handed on when it is this large, or when there is nothing more to read right now.
CHUNK_BYTES = 1 << 20
#: Beyond the largest record that any topic could take with its default settings, many times.
MAX_LINE_BYTES = 64 << 20

HeaderPair = tuple[str, bytes | None]


class Line(NamedTuple):
    """One record as it was read. A partition or time that is None is to be chosen."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    partition: int | None = None
    headers: tuple[HeaderPair, ...] = ()


@dataclass(frozen=True, slots=True)
class TextLines:
    """A line is a value, or a key, a separator and a value."""

    key: Codec
    value: Codec
    separator: bytes | None
    #: The text that stands for null, if there is one.
    null: bytes | None

    def read(self, line: bytes) -> Line:
        """The record of one line."""
        if self.separator is None:
            return Line(None, self._field(line, self.value))
        key, found, value = line.partition(self.separator)
        if not found:
            raise SerializationException(f"No '{text_of(self.separator)}' after the key.")
        return Line(self._field(key, self.key), self._field(value, self.value))

    def _field(self, data: bytes, form: Codec) -> bytes | None:
        if data == self.null:
            return None
        # The bytes of text are taken as they are.
        return data if form.name == "string" else form.from_text(text_of(data))


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    value: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    value_base64: str | None = None


class _Object(msgspec.Struct, forbid_unknown_fields=True):
    """A record as `consume --json` writes it. The topic and the offset are passed over."""

    key: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    key_base64: str | None = None
    value: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    value_base64: str | None = None
    timestamp: int | None = None
    partition: int | None = None
    headers: list[_Header] | dict[str, str | None] | None = None
    topic: str | None = None
    offset: int | None = None


_decode_object = msgspec.json.Decoder(_Object).decode


@dataclass(frozen=True, slots=True)
class JsonLines:
    """A line is a JSON object."""

    key: Codec
    value: Codec

    def read(self, line: bytes) -> Line:
        """The record of one line."""
        try:
            found = _decode_object(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise SerializationException(f"Not a record in JSON: {error}.") from error
        return Line(
            take_json(found.key, found.key_base64, "key", self.key),
            take_json(found.value, found.value_base64, "value", self.value),
            found.timestamp,
            found.partition,
            tuple(_header_pairs(found.headers)),
        )


def _header_pairs(
    headers: list[_Header] | dict[str, str | None] | None,
) -> Iterator[HeaderPair]:
    if isinstance(headers, dict):
        for name, text in headers.items():
            yield name, None if text is None else text.encode()
        return
    for header in headers or ():
        yield header.name, take_json(header.value, header.value_base64, "value", FORMS["string"])


def numbered(lines: list[bytes], first: int, read: Callable[[bytes], Line]) -> list[Line]:
    """The records of lines; what is wrong with one names its number."""
    records = []
    number = first
    try:
        for line in lines:
            records.append(read(line))
            number += 1
    except SerializationException as error:
        raise CommandFailed(f"Line {number}: {error}") from error
    return records


def chunks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of a stream, without their ends, as they come: nobody waits for a full chunk.

    A last line without an end counts; `\\r\\n` ends a line, too.
    """
    rest = b""
    for data in _available(stream):
        whole, newline, after = data.rpartition(b"\n")
        if not newline:
            rest += data
            if len(rest) > MAX_LINE_BYTES:
                raise CommandFailed(f"A line is longer than {MAX_LINE_BYTES} bytes.")
            continue
        yield [line.removesuffix(b"\r") for line in (rest + whole).split(b"\n")]
        rest = after
    if rest:
        yield [rest.removesuffix(b"\r")]


def _available(stream: BinaryIO) -> Iterator[bytes]:
    """What can be read without waiting, up to the size of a chunk; waits only for the first."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # A stream in memory.
        while data := stream.read(CHUNK_BYTES):
            yield data
        return
    while data := os.read(descriptor, CHUNK_BYTES):
        parts = [data]
        size = len(data)
        while size < CHUNK_BYTES and _is_ready(descriptor):
            data = os.read(descriptor, CHUNK_BYTES - size)
            if not data:
                break
            parts.append(data)
            size += len(data)
        yield b"".join(parts)


def _is_ready(descriptor: int) -> bool:
    try:
        return bool(select.select([descriptor], [], [], 0)[0])
    except (OSError, ValueError):  # Not every system can tell of every kind of stream.
        return False
