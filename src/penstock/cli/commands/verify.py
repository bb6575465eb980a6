"""`penstock topics verify`: finds damaged records, and gives them up on request."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass

from penstock.cli.errors import CommandError, UsageError
from penstock.cli.log_option import open_log_option
from penstock.cli.parsing import Subparsers, add_command, add_json_option
from penstock.cli.terminal import Terminal
from penstock.log import Log, TopicPartition
from penstock.log.errors import LogDamaged
from penstock.log.types import VerifyReport

_ADVICE = (
    "Restore the file from a backup. Or stop all applications and give up the damaged records: "
    "penstock topics verify --drop-damaged."
)


@dataclass(frozen=True, slots=True)
class _Found:
    """The damage of a log."""

    reports: dict[TopicPartition, VerifyReport]
    #: Damage that is not in the records.
    problems: list[str]

    @property
    def ranges(self) -> list[str]:
        """A line for each range of damaged offsets."""
        return [
            f"'{topic}' [{partition}], offsets {damaged.first} to {damaged.last}: {damaged.problem}"
            for (topic, partition), report in self.reports.items()
            for damaged in report.damaged
        ]

    @property
    def topics(self) -> list[str]:
        """The topics with damaged records."""
        return list(dict.fromkeys(
            where.topic for where, report in self.reports.items() if report.damaged
        ))


def add_verify(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands, "verify", verify_topics, summary="check the checksums of all records",
        details="Reads everything, and lists the damaged offsets of each partition. The exit code "
        "is 1 if anything is damaged. UNCHECKED counts batches that an older version has written "
        "without a checksum. On Kafka it reads all records; the client checks their checksums. "
        "--drop-damaged gives up damaged records: their offsets stay, without records. After "
        "that, reset the applications that keep state in the damaged topics (-changelog, -tasks).",
        examples="""
  penstock topics verify
  penstock topics verify orders prices --json
  penstock topics verify orders --drop-damaged
""",
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="topics (default: all)")
    parser.add_argument(
        "--drop-damaged", action="store_true",
        help="give up the damaged records of an embedded log",
    )
    parser.add_argument(
        "--yes", action="store_true",
        help="do not ask for confirmation; required without a terminal",
    )
    add_json_option(parser)


def verify_topics(args: argparse.Namespace, terminal: Terminal) -> None:
    """Check topics, print the results, and fail if something is damaged."""
    if args.yes and not args.drop_damaged:
        raise UsageError("--yes has no effect without --drop-damaged.")
    with open_log_option(args) as log:
        names = [log.topic(name).name for name in dict.fromkeys(args.topics)]
        names = names or [topic.name for topic in log.topics()]
        found = _verify(log, names, terminal)
        _print(found, terminal, as_json=args.json)
        if not found.ranges and not found.problems:
            return
        if not args.drop_damaged:
            raise CommandError(f"The log '{log.address}' is damaged. {_ADVICE}")
        lost = sum(
            damaged.last - damaged.first + 1
            for report in found.reports.values() for damaged in report.damaged
        )
        question = f"Give up {lost} offsets permanently?"
        if not args.yes and not terminal.confirm(question):
            raise CommandError("Nothing was changed.")
        log.drop_damaged(names)
        terminal.note(f"Dropped {lost} offsets.")
        for name in found.topics:
            if name.endswith(("-changelog", "-tasks")):
                terminal.note(
                    f"Topic '{name}' holds the state of an application. Reset the application with "
                    "`penstock reset`."
                )
        left = _verify(log, names, terminal)
        if left.ranges or left.problems:
            raise CommandError(
                "Some damage cannot be dropped:\n"
                + "\n".join([*left.problems, *left.ranges])
                + "\nRestore the file from a backup, or copy its intact topics to a new log."
            )


def _verify(log: Log, names: list[str], terminal: Terminal) -> _Found:
    """Check the given topics. Damage that prevents reading a partition is a problem."""
    partitions = [
        TopicPartition(name, number) for name in names
        for number in range(log.topic(name).partitions)
    ]
    reports: dict[TopicPartition, VerifyReport] = {}
    problems: list[str] = []
    with terminal.progress("verifying", len(partitions) + 1) as advance:
        problems += log.verify_metadata()
        advance(1)
        for where in partitions:
            try:
                reports[where] = log.verify(*where)
            except LogDamaged as error:
                problems.append(str(error).partition("\n")[0])
            advance(1)
    return _Found(reports, problems)


def _print(found: _Found, terminal: Terminal, *, as_json: bool) -> None:
    if as_json:
        for (topic, partition), report in found.reports.items():
            row = asdict(report) | {"damaged": [each._asdict() for each in report.damaged]}
            terminal.write_json({"topic": topic, "partition": partition, **row})
        for problem in found.problems:
            terminal.write_json({"problem": problem})
        return
    terminal.write_table(
        ("TOPIC", "PARTITION", "RECORDS", "UNCHECKED", "DAMAGED"),
        [
            (topic, partition, report.records, report.unchecked_batches, len(report.damaged))
            for (topic, partition), report in found.reports.items()
        ],
    )
    for line in [*found.problems, *found.ranges]:
        terminal.write_line(line)
