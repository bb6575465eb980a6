"""`penstock reset`: resets an application so that it reprocesses its input."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.errors import CommandError
from penstock.cli.log_option import open_log_option
from penstock.cli.parsing import (
    Subparsers,
    add_command,
    add_json_option,
    non_negative_int,
    signed_int,
    timestamp_ms,
)
from penstock.cli.terminal import Terminal
from penstock.clock import wall_clock_ms
from penstock.log import Log, TopicPartition
from penstock.log.errors import GroupNotEmpty

if TYPE_CHECKING:
    from penstock.engine.reset import ResetPlan, ResetTarget
    from penstock.log.base import Lease


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers, "reset", reset, summary="reset an application so that it reprocesses its input",
        details="""
Sets the offsets of the input topics (by default to their beginning) and deletes the application's
internal topics: changelogs, repartition topics and task records. Output topics are not changed, so
the results appear there again.

The application must not be running. If a reset is interrupted, run it again; the application does
not start before the reset is complete. Local state on other hosts need not be deleted.""",
        examples="""
  penstock reset orders --dry-run
  penstock reset orders
  penstock reset orders --to-datetime 2026-01-31T12:00:00Z --state-dir penstock-state
  penstock reset orders --input-topics payments,refunds --shift-by -1000 --yes
""",
    )
    parser.add_argument("application", metavar="APP", help="the application id")
    parser.add_argument(
        "--input-topics", action="append", type=_topic_list, default=[], metavar="TOPIC[,TOPIC]",
        help="set only the offsets of these topics (default: all input topics; may be repeated)",
    )
    _add_target_options(parser)
    parser.add_argument(
        "--state-dir", metavar="PATH", help="also delete the application's local state in PATH"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show the changes without applying them"
    )
    parser.add_argument("--force", action="store_true", help="fence a running instance")
    parser.add_argument(
        "--yes", action="store_true",
        help="do not ask for confirmation; required without a terminal",
    )
    add_json_option(parser)


def _add_target_options(parser: argparse.ArgumentParser) -> None:
    target = parser.add_mutually_exclusive_group()
    target.add_argument(
        "--to-earliest", action="store_true", help="move to the oldest record (default)"
    )
    target.add_argument("--to-latest", action="store_true", help="move after the newest record")
    target.add_argument(
        "--to-offset", type=non_negative_int, metavar="N", help="move to this offset"
    )
    target.add_argument(
        "--to-datetime", type=timestamp_ms, metavar="TIME",
        help="move to the first record that is not older: ISO 8601, or epoch milliseconds",
    )
    target.add_argument(
        "--by-duration", type=_duration_ago, metavar="DURATION",
        help="move to the first record that is not older than this: 15m, 2h, or ISO 8601 as in "
        "PT2H",
    )
    target.add_argument(
        "--shift-by", type=signed_int, metavar="N",
        help="move N offsets forward, or backward if negative",
    )
    target.add_argument(
        "--from-file", metavar="FILE",
        help="move to the offsets in a file with lines TOPIC,PARTITION,OFFSET",
    )


def reset(args: argparse.Namespace, terminal: Terminal) -> None:
    """Check that the application is stopped, show the changes, ask, and apply them."""
    from penstock.engine.reset import (  # noqa: PLC0415  (loads the engine)
        apply_reset,
        fenced_application,
        plan_reset,
    )

    topics = [topic for given in args.input_topics for topic in given]
    with open_log_option(args) as log:
        plan = plan_reset(
            log, args.application, _target(args), input_topics=topics,
            state_dir=None if args.state_dir is None else Path(args.state_dir),
        )
        if args.dry_run or args.force:
            _confirm(plan, args, terminal)
            if not args.dry_run:
                with fenced_application(log, args.application) as lease:
                    apply_reset(log, plan, lease)
        else:
            # The application cannot start while the user decides.
            with _stopped(log, args.application) as lease:
                _confirm(plan, args, terminal)
                apply_reset(log, plan, lease)
    if args.json:
        _write_plan_as_json(plan, terminal, executed=not args.dry_run)
    else:
        terminal.note("Dry run: nothing was changed." if args.dry_run else "Done.")


@contextmanager
def _stopped(log: Log, application: str) -> Iterator[Lease]:
    """Hold the lease of the application. Raise if it is running."""
    from penstock.engine.reset import stopped_application  # noqa: PLC0415

    try:
        with stopped_application(log, application) as lease:
            yield lease
    except GroupNotEmpty as error:
        raise CommandError(
            f"Application '{application}' is running. {error} Or use --force to fence "
            "the running instances."
        ) from error


def _confirm(plan: ResetPlan, args: argparse.Namespace, terminal: Terminal) -> None:
    """Show the changes. Raise if the user does not agree."""
    if not args.json:
        _write_plan(plan, terminal)
    question = f"Reset application '{args.application}'?"
    if not (args.dry_run or args.yes or terminal.confirm(question)):
        raise CommandError("Nothing was changed.")


def _write_plan(plan: ResetPlan, terminal: Terminal) -> None:
    if plan.offsets:
        terminal.write_table(
            ("TOPIC", "PARTITION", "BEFORE", "AFTER"),
            [(*at, before, after) for at, (before, after) in plan.offsets.items()],
        )
    for topic in plan.deleted_topics:
        terminal.write_line(f"delete topic '{topic}'")
    if plan.state is not None:
        terminal.write_line(f"delete directory '{plan.state}'")


def _write_plan_as_json(plan: ResetPlan, terminal: Terminal, *, executed: bool) -> None:
    for at, (before, after) in plan.offsets.items():
        terminal.write_json({
            "kind": "offset", **at._asdict(), "before": before, "after": after,
            "executed": executed,
        })
    for topic in plan.deleted_topics:
        terminal.write_json({"kind": "topic", "deleted": topic, "executed": executed})
    if plan.state is not None:
        terminal.write_json({"kind": "directory", "deleted": str(plan.state), "executed": executed})


def _target(args: argparse.Namespace) -> ResetTarget:
    from penstock.engine.reset import ResetTarget  # noqa: PLC0415

    if args.to_latest:
        return ResetTarget("latest")
    if args.to_offset is not None:
        return ResetTarget("offset", args.to_offset)
    if args.to_datetime is not None:
        return ResetTarget("time", args.to_datetime)
    if args.by_duration is not None:
        return ResetTarget("time", args.by_duration)
    if args.shift_by is not None:
        return ResetTarget("shift", args.shift_by)
    if args.from_file is not None:
        return ResetTarget("file", offsets=_read_offsets(Path(args.from_file)))
    return ResetTarget()


def _read_offsets(path: Path) -> dict[TopicPartition, int]:
    offsets = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        match = re.fullmatch(r"\s*([^,\s]+)\s*,\s*(\d+)\s*,\s*(\d+)\s*", line)
        if match is None:
            raise CommandError(
                f"Line {number} of '{path}' does not have the form TOPIC,PARTITION,OFFSET: "
                f"'{line}'."
            )
        offsets[TopicPartition(match[1], int(match[2]))] = int(match[3])
    if not offsets:
        raise CommandError(
            f"'{path}' has no offsets. Its lines must have the form TOPIC,PARTITION,OFFSET."
        )
    return offsets


def _topic_list(text: str) -> list[str]:
    return [topic for part in text.split(",") if (topic := part.strip())]


def _duration_ago(text: str) -> int:
    """Parse a duration into the time that long ago, in epoch milliseconds."""
    from penstock.engine.plan.start_offsets import iso_duration_ms  # noqa: PLC0415

    milliseconds = iso_duration_ms(text)
    if milliseconds is not None:
        return max(0, wall_clock_ms() - milliseconds)
    if not re.fullmatch(r"\d+(ms|s|m|h|d)", text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a duration; use 15m, 2h or PT2H")
    return timestamp_ms(text)
