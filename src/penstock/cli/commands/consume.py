"""`penstock consume`: prints the records of a topic."""

from __future__ import annotations

import argparse
import re

from penstock.cli.codecs import CODECS, KEY_TYPES, Codec, key_codec
from penstock.cli.errors import UsageError
from penstock.cli.formatters import (
    JsonFormatter,
    RecordFormatter,
    TextFormatter,
    format_raw_value,
    parse_template,
)
from penstock.cli.log_option import open_log_option
from penstock.cli.parsing import (
    Subparsers,
    add_command,
    non_negative_int,
    positive_int,
    reject_combination,
    separator,
    timestamp_ms,
)
from penstock.cli.record_sources import AssignedSource, GroupSource, RecordSource, StartOffset
from penstock.cli.terminal import Terminal
from penstock.log import Log, TopicPartition
from penstock.log.errors import OffsetOutOfRange

#: Records between two updates of the progress bar.
_PROGRESS_RECORDS = 1_000


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "consume", consume, summary="print the records of a topic",
        details="""
Without --follow, the command prints all existing records and ends. With --follow, it waits for new
records and starts at the end, unless another start is given. With --group, it resumes at the
committed offsets of the group, shares the partitions with the other members, and commits the
records that it has printed.

Records of several partitions are merged by timestamp. Each partition keeps its order.""",
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
    _add_position_options(parser)
    _add_format_options(parser)


def _add_position_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from-beginning", action="store_true", help="start at the oldest record"
    )
    parser.add_argument(
        "--offset", metavar="N", type=_start_offset,
        help="start at this offset; -N: N offsets before the end of each partition; beginning; end",
    )
    parser.add_argument(
        "--from-time", type=timestamp_ms, metavar="TIME",
        help="start at the first record that is not older: ISO 8601, epoch milliseconds, or 15m "
        "(ago)",
    )
    parser.add_argument(
        "--partition", action="append", type=non_negative_int, metavar="N",
        help="read only this partition (may be repeated)",
    )
    parser.add_argument(
        "--group", metavar="NAME", help="resume at the offsets of this group, and commit"
    )
    parser.add_argument(
        "--max", type=positive_int, metavar="N", help="end after this number of records"
    )
    parser.add_argument("--follow", action="store_true", help="wait for new records")


def _add_format_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object per record")
    parser.add_argument(
        "--format", metavar="FORMAT",
        help="value (default), key-value, full, or a template such as '{key}: {value}' with the "
        "fields key, value, headers, timestamp, time, topic, partition, offset",
    )
    parser.add_argument(
        "--key-separator", type=separator, default="\t", metavar="TEXT",
        help="separator of the fields of key-value and full (default: a tab)",
    )
    parser.add_argument(
        "--null", metavar="TEXT", default="null", help="the text for null (default: null)"
    )
    parser.add_argument(
        "--key-type", type=key_codec, default="string", metavar="TYPE",
        help=f"type of the keys: {', '.join(KEY_TYPES)} (default: string); SIZE is the window size "
        "in milliseconds, or 1m, 1h",
    )
    parser.add_argument(
        "--value-type", choices=CODECS, default="string", metavar="TYPE",
        help=f"type of the values: {', '.join(CODECS)} (default: string)",
    )


def consume(args: argparse.Namespace, terminal: Terminal) -> None:
    """Print records up to the end or the maximum, or until interrupted."""
    formatter = _formatter(args, terminal)
    reject_combination(
        from_beginning=args.from_beginning, offset=args.offset is not None,
        from_time=args.from_time is not None,
    )
    if args.group is not None:
        for option in ("offset", "from_time", "partition"):
            reject_combination(group=True, **{option: getattr(args, option) is not None})
    with open_log_option(args) as log:
        source = _source(args, log, terminal)
        try:
            _print_records(args, source, formatter, terminal)
        except BrokenPipeError:
            raise  # It is unknown which records the receiver has read, so commit nothing.
        except BaseException:
            terminal.flush()
            source.commit()
            raise
        finally:
            source.close()


def _print_records(
    args: argparse.Namespace, source: RecordSource, formatter: RecordFormatter, terminal: Terminal
) -> None:
    left: int | None = args.max
    out = terminal.out
    total = 0 if args.follow else _expected_records(source, left)
    shows_progress = bool(total) and not terminal.out_is_terminal
    with terminal.progress("consuming", total, enabled=shows_progress) as advance:
        while True:
            count = 0
            for record in source.read_round(left):
                out.write(formatter(record))
                source.mark_written(record)
                count += 1
                if not count % _PROGRESS_RECORDS:
                    advance(_PROGRESS_RECORDS)
                if left is not None:
                    left -= 1
                    if not left:
                        break
            terminal.flush()
            source.commit()
            if left == 0 or (not args.follow and source.is_done()):
                return
            if not count:
                source.wait()


def _expected_records(source: RecordSource, limit: int | None) -> int:
    if not isinstance(source, AssignedSource):
        return 0
    count = sum(max(0, end - source.positions[at]) for at, end in source.targets.items())
    return count if limit is None else min(count, limit)


def _formatter(args: argparse.Namespace, terminal: Terminal) -> RecordFormatter:
    reject_combination(json=args.json, format=args.format is not None)
    key: Codec = args.key_type
    value = CODECS[args.value_type]
    if args.json:
        return JsonFormatter(key, value)
    template = parse_template(args.format or "value", args.key_separator)
    for_terminal = terminal.out_is_terminal
    if (template, args.value_type, args.null, for_terminal) == ("{value}", "string", "null", False):
        return format_raw_value
    return TextFormatter(template, key, value, args.null, for_terminal)


def _source(args: argparse.Namespace, log: Log, terminal: Terminal) -> RecordSource:
    if args.group is not None:
        start = _end if args.follow and not args.from_beginning else _beginning
        return GroupSource(log, args.topic, terminal.note, start, args.group)
    partitions = None if args.partition is None else list(dict.fromkeys(args.partition))
    count = len(partitions) if partitions else log.topic(args.topic).partitions
    if isinstance(args.offset, int) and args.offset >= 0 and count > 1:
        raise UsageError(
            f"--offset {args.offset} needs --partition, because the topic has {count} partitions."
        )
    return AssignedSource(log, args.topic, terminal.note, _start(args), partitions)


def _start(args: argparse.Namespace) -> StartOffset:
    if args.from_time is not None:
        return lambda log, at: _at_time(log, at, args.from_time)
    if isinstance(args.offset, int):
        return lambda log, at: _at_offset(log, at, args.offset)
    if args.offset == "end" or (
        args.offset is None and args.follow and not args.from_beginning
    ):
        return _end
    return _beginning


def _start_offset(text: str) -> int | str:
    if text in {"beginning", "end"}:
        return text
    if not re.fullmatch(r"-?\d+", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not an offset, beginning or end")
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
