"""`penstock reset`: let an application begin anew."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.errors import CommandFailed
from penstock.cli.log_option import opened
from penstock.cli.parsing import Commands, add_command, add_json, instant, signed, whole
from penstock.cli.terminal import Terminal
from penstock.clock import wall_clock_ms
from penstock.log import Log, TopicPartition
from penstock.log.errors import GroupNotEmpty

if TYPE_CHECKING:
    from penstock.engine.reset import ResetPlan, ResetTarget


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands, "reset", reset, about="let an application begin anew",
        more="""
Sets the offsets of its input topics (to their beginning, unless something else is said) and
deletes what it has made for itself: changelogs, repartition topics and the records of its tasks.
Topics that it has written for others are left as they are, so its results appear there once more.

The application must not be running. A reset that was interrupted is finished by another one; the
application does not start before that. Nothing needs to be removed from other hosts.""",
        examples="""
  penstock reset orders --dry-run
  penstock reset orders
  penstock reset orders --to-datetime 2026-01-31T12:00:00Z --state-dir penstock-state
  penstock reset orders --input-topics payments,refunds --shift-by -1000 --yes
""",
    )
    parser.add_argument("application", metavar="APP", help="the application's id")
    parser.add_argument(
        "--input-topics", action="append", type=_topics, default=[], metavar="TOPIC[,TOPIC]",
        help="set the offsets of these only (default: of all that it has read; may be repeated)",
    )
    _add_targets(parser)
    parser.add_argument(
        "--state-dir", metavar="PATH", help="remove the application's local state there, too"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be done")
    parser.add_argument(
        "--force", action="store_true", help="throw out an instance that is running"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_json(parser)


def _add_targets(parser: argparse.ArgumentParser) -> None:
    to = parser.add_mutually_exclusive_group()
    to.add_argument(
        "--to-earliest", action="store_true", help="to the oldest record (the default)"
    )
    to.add_argument("--to-latest", action="store_true", help="behind the newest record")
    to.add_argument("--to-offset", type=whole, metavar="N", help="to this offset")
    to.add_argument(
        "--to-datetime", type=instant, metavar="TIME",
        help="to the first record not older: ISO 8601, or epoch milliseconds",
    )
    to.add_argument(
        "--by-duration", type=_ago, metavar="DURATION",
        help="to the first record not older than that: 15m, 2h, or ISO 8601 as PT2H",
    )
    to.add_argument(
        "--shift-by", type=signed, metavar="N", help="by so many, backwards if it is negative"
    )
    to.add_argument(
        "--from-file", metavar="FILE", help="to those in a file of lines TOPIC,PARTITION,OFFSET"
    )


def reset(args: argparse.Namespace, terminal: Terminal) -> None:
    """Show what is to be done, ask, and do it."""
    from penstock.engine.reset import plan_reset  # noqa: PLC0415  (loads the engine)

    topics = [topic for given in args.input_topics for topic in given]
    with opened(args) as log:
        plan = plan_reset(
            log, args.application, _target(args), input_topics=topics,
            state_dir=None if args.state_dir is None else Path(args.state_dir),
        )
        if not args.json:
            _show(plan, terminal)
        if not args.dry_run:
            question = f"Reset application '{args.application}'?"
            if not args.yes and not terminal.confirmed(question):
                raise CommandFailed("Nothing was changed.")
            _carry_out(log, plan, force=args.force)
    if args.json:
        _show_json(plan, terminal, executed=not args.dry_run)
    else:
        terminal.note("Nothing was changed: this was a dry run." if args.dry_run else "Done.")


def _carry_out(log: Log, plan: ResetPlan, *, force: bool) -> None:
    from penstock.engine.reset import apply_reset  # noqa: PLC0415

    try:
        apply_reset(log, plan, force=force)
    except GroupNotEmpty as error:
        raise CommandFailed(
            f"Application '{plan.application_id}' is running. {error} Or give --force to throw "
            "them out."
        ) from error


def _show(plan: ResetPlan, terminal: Terminal) -> None:
    if plan.offsets:
        terminal.table(
            ("TOPIC", "PARTITION", "BEFORE", "AFTER"),
            [(*at, before, after) for at, (before, after) in plan.offsets.items()],
        )
    for topic in plan.deleted_topics:
        terminal.line(f"delete topic '{topic}'")
    if plan.state is not None:
        terminal.line(f"delete directory '{plan.state}'")


def _show_json(plan: ResetPlan, terminal: Terminal, *, executed: bool) -> None:
    for at, (before, after) in plan.offsets.items():
        terminal.json({
            "kind": "offset", **at._asdict(), "before": before, "after": after,
            "executed": executed,
        })
    for topic in plan.deleted_topics:
        terminal.json({"kind": "topic", "deleted": topic, "executed": executed})
    if plan.state is not None:
        terminal.json({"kind": "directory", "deleted": str(plan.state), "executed": executed})


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
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        parts = re.fullmatch(r"\s*([^,\s]+)\s*,\s*(\d+)\s*,\s*(\d+)\s*", line)
        if parts is None:
            raise CommandFailed(
                f"Line {number} of '{path}' is not of the form TOPIC,PARTITION,OFFSET: '{line}'."
            )
        found[TopicPartition(parts[1], int(parts[2]))] = int(parts[3])
    if not found:
        raise CommandFailed(f"No offsets in '{path}'. Lines have the form TOPIC,PARTITION,OFFSET.")
    return found


def _topics(text: str) -> list[str]:
    return [topic for part in text.split(",") if (topic := part.strip())]


def _ago(text: str) -> int:
    """A duration as the point in time that long ago."""
    from penstock.engine.plan.start_offsets import iso_duration_ms  # noqa: PLC0415

    milliseconds = iso_duration_ms(text)
    if milliseconds is not None:
        return max(0, wall_clock_ms() - milliseconds)
    if not re.fullmatch(r"\d+(ms|s|m|h|d)", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no duration; write 15m, 2h or PT2H")
    return instant(text)
