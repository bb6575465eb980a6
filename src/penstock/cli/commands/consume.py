"""`penstock consume`: records of a topic to standard output."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from penstock.cli.codecs import FORMS, Codec
from penstock.cli.errors import UsageError
from penstock.cli.formatters import (
    ExecutionGraph,
    JsonFormatter,
    TextFormatter,
    checked_template,
    plain_value,
)
from penstock.cli.log_option import opened
from penstock.cli.parsing import (
    Commands,
    add_command,
    instant,
    positive,
    refuse_together,
    separator,
    whole,
)
from penstock.cli.record_sources import AssignedSource, GroupSource, Source
from penstock.cli.terminal import Terminal
from penstock.cli.windowed_codecs import KEY_TYPES, key_form
from penstock.log import Log, TopicPartition
from penstock.log.errors import OffsetOutOfRange

Start = Callable[[Log, TopicPartition], int]


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "consume", consume, about="print the records of a topic",
        more="""
Without --follow it prints what is there, from the beginning, and ends. With --follow it waits for
more, and begins at the end unless told otherwise. With --group it goes on where the group has
committed, shares the partitions with other members of the group, and commits what was printed.

Records of several partitions are printed by time, as far as each partition's own order allows.""",
        examples="""
  penstock consume orders
  penstock consume orders --offset -5 --format full
  penstock consume orders --format '{time} {key}: {value}'
  penstock consume orders --partition 0 --offset 1200 --max 10
  penstock consume orders --from-time 15m --json | jq .value
  penstock consume word-counts --format key-value --value-type long --follow --from-beginning
  penstock consume counts-by-minute --format key-value --key-type time-windowed:1m --value-type long
  penstock consume orders --group audit --follow
""",
    )
    parser.add_argument("topic", metavar="TOPIC")
    _add_where(parser)
    _add_shape(parser)


def _add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from-beginning", action="store_true", help="begin with the oldest record"
    )
    parser.add_argument(
        "--offset", metavar="N", type=_place,
        help="begin at this offset; -N: with the last N of each partition; beginning; end",
    )
    parser.add_argument(
        "--from-time", type=instant, metavar="TIME",
        help="begin with the first record not older: ISO 8601, epoch milliseconds, or 15m (ago)",
    )
    parser.add_argument(
        "--partition", action="append", type=whole, metavar="N", help="only this (may be repeated)"
    )
    parser.add_argument("--group", metavar="NAME", help="go on where this group is, and commit")
    parser.add_argument("--max", type=positive, metavar="N", help="end after so many records")
    parser.add_argument("--follow", action="store_true", help="wait for more records")


def _add_shape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object a record")
    parser.add_argument(
        "--format", metavar="FORMAT",
        help="value (default), key-value, full, or a template such as '{key}: {value}' with "
        "key, value, headers, timestamp, time, topic, partition, offset",
    )
    parser.add_argument(
        "--key-separator", type=separator, default="\t", metavar="TEXT",
        help="what key-value and full put between fields (default: a tab)",
    )
    parser.add_argument(
        "--null", metavar="TEXT", default="null", help="what stands for null (default: null)"
    )
    parser.add_argument(
        "--key-type", type=key_form, default="string", metavar="TYPE",
        help=f"what the bytes of a key are: {', '.join(KEY_TYPES)} (default: string); the SIZE of "
        "windows is in milliseconds, or 1m, 1h",
    )
    parser.add_argument(
        "--value-type", choices=FORMS, default="string", metavar="TYPE",
        help=f"what the bytes of a value are: {', '.join(FORMS)} (default: string)",
    )


def consume(args: argparse.Namespace, terminal: Terminal) -> None:
    """Print records until the end, the maximum, or for ever."""
    shape = _shape(args, terminal)
    refuse_together(
        from_beginning=args.from_beginning, offset=args.offset is not None,
        from_time=args.from_time is not None,
    )
    if args.group is not None:
        for option in ("offset", "from_time", "partition"):
            refuse_together(group=True, **{option: getattr(args, option) is not None})
    with opened(args) as log:
        source = _source(args, log, terminal)
        try:
            _print_all(args, source, shape, terminal)
        except BrokenPipeError:
            raise  # Nobody knows what of it was read: commit nothing.
        except BaseException:
            terminal.flush()
            source.settle()
            raise
        finally:
            source.close()


def _print_all(
    args: argparse.Namespace, source: Source, shape: ExecutionGraph, terminal: Terminal
) -> None:
    left: int | None = args.max
    out = terminal.out
    total = 0 if args.follow else _total(source, left)
    shows_progress = bool(total) and not terminal.out_is_terminal
    with terminal.progress("consuming", total, enabled=shows_progress) as bar:
        while True:
            is_idle = True
            for record in source.round(left):
                out.write(shape(record))
                source.took(record)
                bar.advance(1)
                is_idle = False
                if left is not None:
                    left -= 1
                    if not left:
                        break
            terminal.flush()
            source.settle()
            if left == 0 or (not args.follow and source.is_done()):
                return
            if is_idle:
                source.wait()


def _total(source: Source, limit: int | None) -> int:
    if not isinstance(source, AssignedSource):
        return 0
    there = sum(max(0, end - source.positions[at]) for at, end in source.targets.items())
    return there if limit is None else min(there, limit)


def _shape(args: argparse.Namespace, terminal: Terminal) -> ExecutionGraph:
    refuse_together(json=args.json, format=args.format is not None)
    key: Codec = args.key_type
    value = FORMS[args.value_type]
    if args.json:
        return JsonFormatter(key, value)
    template = checked_template(args.format or "value", args.key_separator)
    for_terminal = terminal.out_is_terminal
    if (template, args.value_type, args.null, for_terminal) == ("{value}", "string", "null", False):
        return plain_value
    return TextFormatter(template, key, value, args.null, for_terminal)


def _source(args: argparse.Namespace, log: Log, terminal: Terminal) -> Source:
    if args.group is not None:
        start = _end if args.follow and not args.from_beginning else _beginning
        return GroupSource(log, args.topic, terminal.note, start, args.group)
    partitions = None if args.partition is None else list(dict.fromkeys(args.partition))
    many = len(partitions) if partitions else log.topic(args.topic).partitions
    if isinstance(args.offset, int) and args.offset >= 0 and many > 1:
        raise UsageError(f"--offset {args.offset} needs --partition: the topic has {many}.")
    return AssignedSource(log, args.topic, terminal.note, _start(args), partitions)


def _start(args: argparse.Namespace) -> Start:
    """Where each partition begins."""
    if args.from_time is not None:
        return lambda log, at: _at_time(log, at, args.from_time)
    if isinstance(args.offset, int):
        return lambda log, at: _at_offset(log, at, args.offset)
    if args.offset == "end" or (
        args.offset is None and args.follow and not args.from_beginning
    ):
        return _end
    return _beginning


def _place(text: str) -> int | str:
    if text in {"beginning", "end"}:
        return text
    if not re.fullmatch(r"-?\d+", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no offset, nor beginning or end")
    return int(text)


def _beginning(log: Log, at: TopicPartition) -> int:
    return log.offsets([at])[at].start


def _end(log: Log, at: TopicPartition) -> int:
    return log.offsets([at])[at].end


def _at_time(log: Log, at: TopicPartition, timestamp: int) -> int:
    found = log.offset_for_time(*at, timestamp)
    return _end(log, at) if found is None else found.offset


def _at_offset(log: Log, at: TopicPartition, offset: int) -> int:
    bounds = log.offsets([at])[at]
    if offset < 0:
        return max(bounds.start, bounds.end + offset)
    if not bounds.start <= offset <= bounds.end:
        raise OffsetOutOfRange(*at, offset, (bounds.start, bounds.end))
    return offset
