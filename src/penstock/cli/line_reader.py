"""Reads the input of `produce`: chunks of lines, each a record as text or JSON."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import msgspec

from penstock.cli.codecs import CODECS, Codec, decode_text, take_json
from penstock.cli.errors import CommandError
from penstock.errors import SerializationException

#: A chunk ends at this size, or earlier if no more input is available.
CHUNK_BYTES = 1 << 20
#: Far beyond the default size limit of a record.
MAX_LINE_BYTES = 64 << 20

HeaderPair = tuple[str, bytes | None]


class ParsedRecord(NamedTuple):
    """A record before it has a partition and a timestamp. None leaves the choice to `produce`."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    partition: int | None = None
    headers: tuple[HeaderPair, ...] = ()


@dataclass(frozen=True, slots=True)
class TextLineParser:
    """Parses a value, or a key, a separator and a value."""

    key: Codec
    value: Codec
    separator: bytes | None
    #: The text of null; None if no text stands for null.
    null: bytes | None

    def parse(self, line: bytes) -> ParsedRecord:
        """Parse one line."""
        if self.separator is None:
            return ParsedRecord(None, self._field(line, self.value))
        key, found, value = line.partition(self.separator)
        if not found:
            raise SerializationException(
                f"The line has no separator '{decode_text(self.separator)}'."
            )
        return ParsedRecord(self._field(key, self.key), self._field(value, self.value))

    def _field(self, data: bytes, codec: Codec) -> bytes | None:
        if data == self.null:
            return None
        # Strings need no conversion.
        return data if codec.name == "string" else codec.from_text(decode_text(data))


class _HeaderObject(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    value: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    value_base64: str | None = None


class _RecordObject(msgspec.Struct, forbid_unknown_fields=True):
    """A record in the format of `consume --json`. The topic and the offset are ignored."""

    key: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    key_base64: str | None = None
    value: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    value_base64: str | None = None
    timestamp: int | None = None
    partition: int | None = None
    headers: list[_HeaderObject] | dict[str, str | None] | None = None
    topic: str | None = None
    offset: int | None = None


_decode_object = msgspec.json.Decoder(_RecordObject).decode


@dataclass(frozen=True, slots=True)
class JsonLineParser:
    """Parses a JSON object."""

    key: Codec
    value: Codec

    def parse(self, line: bytes) -> ParsedRecord:
        """Parse one line."""
        try:
            parsed = _decode_object(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise SerializationException(f"The line is not a JSON record: {error}.") from error
        return ParsedRecord(
            take_json(parsed.key, parsed.key_base64, "key", self.key),
            take_json(parsed.value, parsed.value_base64, "value", self.value),
            parsed.timestamp,
            parsed.partition,
            tuple(_header_pairs(parsed.headers)),
        )


def _header_pairs(
    headers: list[_HeaderObject] | dict[str, str | None] | None,
) -> Iterator[HeaderPair]:
    if isinstance(headers, dict):
        for name, text in headers.items():
            yield name, None if text is None else text.encode()
        return
    for header in headers or ():
        yield header.name, take_json(header.value, header.value_base64, "value", CODECS["string"])


def parse_lines(
    lines: list[bytes], first: int, parse: Callable[[bytes], ParsedRecord]
) -> list[ParsedRecord]:
    """Parse lines. Errors name the number of the line; `first` is that of the first line."""
    records = []
    number = first
    try:
        for line in lines:
            records.append(parse(line))
            number += 1
    except SerializationException as error:
        raise CommandError(f"Line {number}: {error}") from error
    return records


def read_chunks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield the lines of a stream as they arrive, without waiting for a full chunk.

    Lines end with `\\n` or `\\r\\n`; the last line may have no end.
    """
    rest = b""
    for data in _read_available(stream):
        complete, newline, after = data.rpartition(b"\n")
        if not newline:
            rest += data
            if len(rest) > MAX_LINE_BYTES:
                raise CommandError(f"A line is longer than {MAX_LINE_BYTES} bytes.")
            continue
        yield [line.removesuffix(b"\r") for line in (rest + complete).split(b"\n")]
        rest = after
    if rest:
        yield [rest.removesuffix(b"\r")]


def _read_available(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the data that is available, up to the size of a chunk; blocks only if there is none."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # A stream in memory.
        while data := stream.read(CHUNK_BYTES):
            yield data
        return
    while data := os.read(descriptor, CHUNK_BYTES):
        parts = [data]
        size = len(data)
        while size < CHUNK_BYTES and _is_readable(descriptor):
            data = os.read(descriptor, CHUNK_BYTES - size)
            if not data:
                break
            parts.append(data)
            size += len(data)
        yield b"".join(parts)


def _is_readable(descriptor: int) -> bool:
    try:
        return bool(select.select([descriptor], [], [], 0)[0])
    except (OSError, ValueError):  # Some systems do not support every kind of stream.
        return False
