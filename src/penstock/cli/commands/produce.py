"""`penstock produce`: appends records from standard input or a file to a topic."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO

from penstock.cli.codecs import CODECS, KEY_TYPES, Codec, encode_text, key_codec
from penstock.cli.errors import UsageError
from penstock.cli.interrupts import interrupt_deferred
from penstock.cli.line_reader import (
    JsonLineParser,
    ParsedRecord,
    TextLineParser,
    parse_lines,
    read_chunks,
)
from penstock.cli.log_option import open_log_option
from penstock.cli.parsing import (
    Subparsers,
    add_command,
    name_and_value,
    non_negative_int,
    reject_combination,
    separator,
    timestamp_ms,
)
from penstock.cli.terminal import Advance, Terminal
from penstock.clock import wall_clock_ms
from penstock.log import Log, RecordColumns, TopicPartition
from penstock.log.errors import TopicExists, UnknownPartition
from penstock.log.types import Append
from penstock.partitioning import partition_of


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "produce", produce, summary="append records to a topic",
        details="""
Every line is a record: a value, with --key-separator a key and a value, or with --json an object
with key, value, timestamp, headers and partition. Records with a key go to the partition that Kafka
chooses for the key. Records without a key go to the partitions in turn.

Records are appended as they arrive. If a line is invalid, records of earlier lines may be appended
already. With --atomic all records become visible at the end, or none.""",
        examples="""
  echo hello | penstock produce lines
  penstock produce prices --key-separator : < prices.txt
  penstock produce prices --file prices.txt --key-separator '\\t' --null NULL --atomic
  echo '{"key": "a", "value": {"n": 1}, "headers": {"trace": "7"}}' | penstock produce t --json
  echo 42 | penstock produce numbers --value-type long --timestamp 2026-01-31T12:00:00Z
  penstock consume orders --json | penstock produce orders --json --log copy.db
""",
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--file", metavar="FILE", help="read a file instead of standard input")
    _add_format_options(parser)
    parser.add_argument(
        "--timestamp", type=timestamp_ms, metavar="TIME",
        help="timestamp of records without one: ISO 8601, epoch milliseconds, or 15m (ago) "
        "(default: now)",
    )
    parser.add_argument(
        "--header", action="append", default=[], type=name_and_value, metavar="NAME=VALUE",
        help="a header of all records (may be repeated)",
    )
    parser.add_argument(
        "--partition", type=non_negative_int, metavar="N", help="partition of records without one"
    )
    parser.add_argument(
        "--create", action="store_true", help="create the topic if it does not exist"
    )
    parser.add_argument(
        "--atomic", action="store_true", help="append all records in one transaction"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="do not print the number of appended records"
    )


def _add_format_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="every line is a JSON object")
    parser.add_argument(
        "--key-separator", type=separator, metavar="TEXT", help="separator of key and value"
    )
    parser.add_argument("--null", metavar="TEXT", help="a key or value with this text is null")
    parser.add_argument(
        "--key-type", type=key_codec, default="string", metavar="TYPE",
        help=f"type of the keys: {', '.join(KEY_TYPES)} (default: string)",
    )
    parser.add_argument(
        "--value-type", choices=CODECS, default="string", metavar="TYPE",
        help=f"type of the values: {', '.join(CODECS)} (default: string)",
    )


def produce(args: argparse.Namespace, terminal: Terminal) -> None:
    """Append the records of the input."""
    reject_combination(json=args.json, key_separator=args.key_separator is not None)
    reject_combination(json=args.json, null=args.null is not None)
    if args.key_type.name != "string" and args.key_separator is None and not args.json:
        raise UsageError("--key-type needs keys. Use --key-separator or --json.")
    parse = _line_parser(args)
    with _open_input(args, terminal) as (stream, size), open_log_option(
        args, create=args.create
    ) as log:
        if args.create:
            with suppress(TopicExists):
                log.create_topic(args.topic)
        appender = RecordAppender(log, args)
        if stream is terminal.stdin and terminal.stdin_is_terminal and not args.quiet:
            terminal.note("Every line is a record. Ctrl-D ends the input.")
        try:
            with terminal.progress("producing", size or 0, enabled=size is not None) as advance:
                appender.append_all(read_chunks(stream), parse, advance)
        finally:
            if appender.appended and not args.quiet:
                count = appender.appended
                records = "1 record" if count == 1 else f"{count:,} records"
                terminal.note(f"Appended {records} to '{args.topic}'.")


def _line_parser(args: argparse.Namespace) -> Callable[[bytes], ParsedRecord]:
    key: Codec = args.key_type
    value = CODECS[args.value_type]
    if args.json:
        return JsonLineParser(key, value).parse
    between = None if args.key_separator is None else encode_text(args.key_separator)
    null = None if args.null is None else encode_text(args.null)
    return TextLineParser(key, value, between, null).parse


@contextmanager
def _open_input(
    args: argparse.Namespace, terminal: Terminal
) -> Iterator[tuple[BinaryIO, int | None]]:
    """Yield the input and its size in bytes, if it is known."""
    if args.file is None or args.file == "-":
        yield terminal.stdin, None
        return
    with open(args.file, "rb", buffering=0) as file:
        yield file, os.fstat(file.fileno()).st_size or None


class RecordAppender:
    """Partitions the records of one topic and appends them.

    `appended` counts the records that are visible to readers, also after an error.
    """

    def __init__(self, log: Log, args: argparse.Namespace) -> None:
        self.appended = 0
        self._log = log
        self._topic: str = args.topic
        self._atomic: bool = args.atomic
        self._default_partition: int | None = args.partition
        self._partition_key: Callable[[bytes], bytes] = args.key_type.partition_key
        self._timestamp: int | None = args.timestamp
        self._headers = tuple((name, encode_text(text)) for name, text in args.header)
        self._partitions = log.topic(self._topic).partitions
        # Start where the last call ended, so that calls with one record use all partitions.
        ends = log.offsets(
            [TopicPartition(self._topic, number) for number in range(self._partitions)]
        )
        self._round_robin = sum(at.end for at in ends.values())
        if self._default_partition is not None:
            self._check_partition(self._default_partition)

    def append_all(
        self, chunks: Iterable[list[bytes]], parse: Callable[[bytes], ParsedRecord],
        advance: Advance,
    ) -> None:
        """Append all lines, with --atomic in one transaction. `advance` gets the bytes read."""
        count = 0
        with ExitStack() as stack:
            transaction = (
                stack.enter_context(self._log.transaction()) if self._atomic else None
            )
            for lines in chunks:
                appends = self._appends(parse_lines(lines, count + 1, parse))
                count += len(lines)
                if transaction is None:
                    # Otherwise records could be appended that are not counted.
                    with interrupt_deferred():
                        self._log.append_many(appends)
                        self.appended = count
                else:
                    for append in appends:
                        transaction.append(*append)
                advance(sum(map(len, lines)) + len(lines))
        self.appended = count

    def _appends(self, records: list[ParsedRecord]) -> list[Append]:
        """Group the records by partition, in order."""
        by_partition: dict[int, list[ParsedRecord]] = {}
        for record in records:
            by_partition.setdefault(self._partition(record), []).append(record)
        return [
            Append(self._topic, number, self._columns(part))
            for number, part in by_partition.items()
        ]

    def _partition(self, record: ParsedRecord) -> int:
        if record.partition is not None:
            return self._check_partition(record.partition)
        if self._default_partition is not None:
            return self._default_partition
        if self._partitions == 1:
            return 0
        if record.key is not None:
            return partition_of(self._partition_key(record.key), self._partitions)
        self._round_robin += 1
        return (self._round_robin - 1) % self._partitions

    def _check_partition(self, partition: int) -> int:
        if not 0 <= partition < self._partitions:
            raise UnknownPartition(self._topic, partition, self._partitions)
        return partition

    def _columns(self, records: list[ParsedRecord]) -> RecordColumns:
        timestamps = None
        if self._timestamp is not None or any(one.timestamp is not None for one in records):
            # A column has a timestamp for every record or for none.
            default = wall_clock_ms() if self._timestamp is None else self._timestamp
            timestamps = [default if one.timestamp is None else one.timestamp for one in records]
        headers = None
        if self._headers or any(one.headers for one in records):
            headers = [(*one.headers, *self._headers) for one in records]
        return RecordColumns(
            [one.key for one in records], [one.value for one in records], timestamps, headers
        )
