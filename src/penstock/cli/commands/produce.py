"""`penstock produce`: records from standard input or a file to a topic."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO

from penstock.cli.codecs import FORMS, Codec, bytes_of
from penstock.cli.errors import UsageError
from penstock.cli.line_reader import JsonLines, Line, TextLines, chunks, numbered
from penstock.cli.log_option import opened
from penstock.cli.parsing import (
    Commands,
    add_command,
    instant,
    refuse_together,
    separator,
    setting,
    whole,
)
from penstock.cli.terminal import Terminal
from penstock.cli.windowed_codecs import KEY_TYPES, key_form
from penstock.clock import wall_clock_ms
from penstock.log import Log, RecordColumns, TopicPartition
from penstock.log.errors import TopicExists, UnknownPartition
from penstock.log.types import Append
from penstock.partitioning import partition_of


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "produce", produce, about="append records to a topic",
        more="""
Every line is a record: its value, or with --key-separator a key and a value, or with --json an
object with key, value, timestamp, headers and partition. Keyed records go to the partition that
Kafka would choose, the others to each partition in turn.

Records are appended as they come. If a line is wrong, those of earlier lines may be there already;
with --atomic all of them appear together at the end, or none does.""",
        examples="""
  echo hello | penstock produce lines
  penstock produce prices --key-separator : < prices.txt
  penstock produce prices --file prices.txt --key-separator '\\t' --null NULL --atomic
  echo '{"key": "a", "value": {"n": 1}, "headers": {"trace": "7"}}' | penstock produce t --json
  echo 42 | penstock produce answers --value-type long --timestamp 2026-01-31T12:00:00Z
  penstock consume orders --json | penstock produce orders --json --log copy.db
""",
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--file", metavar="FILE", help="read from a file, not standard input")
    _add_form(parser)
    parser.add_argument(
        "--timestamp", type=instant, metavar="TIME",
        help="the time of all records that bring none: ISO 8601, epoch milliseconds, or 15m (ago)",
    )
    parser.add_argument(
        "--header", action="append", default=[], type=setting, metavar="NAME=VALUE",
        help="a header for all records (may be repeated)",
    )
    parser.add_argument(
        "--partition", type=whole, metavar="N", help="where all records go that name no partition"
    )
    parser.add_argument("--create", action="store_true", help="make the topic if there is none")
    parser.add_argument(
        "--atomic", action="store_true", help="all records appear together, or none does"
    )
    parser.add_argument("--quiet", action="store_true", help="do not tell how many were appended")


def _add_form(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="every line is a JSON object")
    parser.add_argument(
        "--key-separator", type=separator, metavar="TEXT", help="what stands between key and value"
    )
    parser.add_argument("--null", metavar="TEXT", help="a key or value of this text is null")
    parser.add_argument(
        "--key-type", type=key_form, default="string", metavar="TYPE",
        help=f"how a key becomes bytes: {', '.join(KEY_TYPES)} (default: string)",
    )
    parser.add_argument(
        "--value-type", choices=FORMS, default="string", metavar="TYPE",
        help=f"how a value becomes bytes: {', '.join(FORMS)} (default: string)",
    )


def produce(args: argparse.Namespace, terminal: Terminal) -> None:
    """Append what is read until its end, or until something is wrong."""
    refuse_together(json=args.json, key_separator=args.key_separator is not None)
    refuse_together(json=args.json, null=args.null is not None)
    if args.key_type.name != "string" and args.key_separator is None and not args.json:
        raise UsageError("--key-type needs keys: give --key-separator or --json.")
    read = _reader(args)
    with (
        _input(args, terminal) as (stream, size),
        opened(args, create=args.create) as log,
        terminal.progress("producing", size or 0, enabled=size is not None) as bar,
    ):
        if args.create:
            _create(log, args.topic)
        sending = Sending(log, args, bar.advance)
        if stream is terminal.stdin and terminal.stdin_is_terminal and not args.quiet:
            terminal.note("Every line is a record; ctrl-D ends.")
        try:
            sending.send_all(chunks(stream), read)
        finally:
            bar.clear()
            if sending.sent and not args.quiet:
                what = "1 record" if sending.sent == 1 else f"{sending.sent:,} records"
                terminal.note(f"Appended {what} to '{args.topic}'.")


def _reader(args: argparse.Namespace) -> Callable[[bytes], Line]:
    key: Codec = args.key_type
    value = FORMS[args.value_type]
    if args.json:
        return JsonLines(key, value).read
    between = None if args.key_separator is None else bytes_of(args.key_separator)
    return TextLines(key, value, between, None if args.null is None else bytes_of(args.null)).read


@contextmanager
def _input(args: argparse.Namespace, terminal: Terminal) -> Iterator[tuple[BinaryIO, int | None]]:
    """Where lines come from, and how many bytes they are, if that is known."""
    if args.file is None or args.file == "-":
        yield terminal.stdin, None
        return
    with open(args.file, "rb", buffering=0) as file:
        yield file, os.fstat(file.fileno()).st_size or None


def _create(log: Log, topic: str) -> None:
    with suppress(TopicExists):
        log.create_topic(topic)


class Sending:
    """Divides records among the partitions of one topic and appends them.

    `sent` counts what is visible to others; it is right also after an error.
    """

    def __init__(
        self, log: Log, args: argparse.Namespace, advance: Callable[[int], None]
    ) -> None:
        self.sent = 0
        self._log = log
        self._topic: str = args.topic
        self._atomic: bool = args.atomic
        self._fixed: int | None = args.partition
        self._partitioned_by: Callable[[bytes], bytes] = args.key_type.partitioned_by
        self._timestamp: int | None = args.timestamp
        self._headers = tuple((name, bytes_of(text)) for name, text in args.header)
        self._advance = advance
        self._partitions = log.topic(self._topic).partitions
        # Turns go on where they ended the last time, so that one record a call is spread, too.
        ends = log.offsets(
            [TopicPartition(self._topic, number) for number in range(self._partitions)]
        )
        self._turn = sum(at.end for at in ends.values())
        if self._fixed is not None:
            self._checked(self._fixed)

    def send_all(self, chunked: Iterable[list[bytes]], read: Callable[[bytes], Line]) -> None:
        """Append everything; in one transaction if that was asked for."""
        count = 0
        with ExitStack() as stack:
            transaction = (
                stack.enter_context(self._log.transaction()) if self._atomic else None
            )
            for lines in chunked:
                appends = self._appends(numbered(lines, count + 1, read))
                count += len(lines)
                if transaction is None:
                    self._log.append_many(appends)
                    self.sent = count
                else:
                    for one in appends:
                        transaction.append(*one)
                self._advance(sum(map(len, lines)) + len(lines))
        self.sent = count

    def _appends(self, records: list[Line]) -> list[Append]:
        """The records by partition; those of one partition keep their order."""
        parts: dict[int, list[Line]] = {}
        for record in records:
            parts.setdefault(self._partition(record), []).append(record)
        return [
            Append(self._topic, number, self._columns(part)) for number, part in parts.items()
        ]

    def _partition(self, record: Line) -> int:
        if record.partition is not None:
            return self._checked(record.partition)
        if self._fixed is not None:
            return self._fixed
        if self._partitions == 1:
            return 0
        if record.key is not None:
            return partition_of(self._partitioned_by(record.key), self._partitions)
        self._turn += 1
        return (self._turn - 1) % self._partitions

    def _checked(self, partition: int) -> int:
        if not 0 <= partition < self._partitions:
            raise UnknownPartition(self._topic, partition, self._partitions)
        return partition

    def _columns(self, records: list[Line]) -> RecordColumns:
        timestamps = None
        if self._timestamp is not None or any(one.timestamp is not None for one in records):
            # Records without a time get one here, because a column has it for all or for none.
            default = wall_clock_ms() if self._timestamp is None else self._timestamp
            timestamps = [default if one.timestamp is None else one.timestamp for one in records]
        headers = None
        if self._headers or any(one.headers for one in records):
            headers = [(*one.headers, *self._headers) for one in records]
        return RecordColumns(
            [one.key for one in records], [one.value for one in records], timestamps, headers
        )
