"""`penstock groups`: list, describe, reset-offsets, delete."""

from __future__ import annotations

import argparse
import re
from typing import NamedTuple

from penstock.cli.errors import CommandError
from penstock.cli.log_option import open_log_option
from penstock.cli.parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_subcommands,
    non_negative_int,
    signed_int,
    timestamp_ms,
)
from penstock.cli.terminal import Terminal
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.reset import acquire_lease_if_stopped
from penstock.log import Log, PartitionOffsets, TopicPartition
from penstock.log.errors import GroupNotEmpty, UnknownPartition
from penstock.log.types import GroupDescription
from penstock.suggestions import did_you_mean, listed


class GroupPartition(NamedTuple):
    """A partition that a group has committed or reads. None: no offset, or no member."""

    at: TopicPartition
    committed: int | None
    bounds: PartitionOffsets
    member_id: str | None
    metadata: str

    @property
    def lag(self) -> int | None:
        """The number of existing offsets after the committed one."""
        if self.committed is None:
            return None
        return max(0, self.bounds.end - max(self.committed, self.bounds.start))


def add(subparsers: Subparsers) -> None:
    """Add the command and its subcommands."""
    group = add_command(
        subparsers, "groups", None, summary="list, describe, reset and delete consumer groups",
        examples="""
  penstock groups list
  penstock groups describe audit
  penstock groups reset-offsets audit --topic orders --to-beginning --execute
""",
    )
    commands = add_subcommands(group)
    add_json_option(add_command(
        commands, "list", list_groups, summary="list all groups",
        examples="""
  penstock groups list
  penstock groups list --json | jq -r .group
""",
    ))
    parser = add_command(
        commands, "describe", describe_groups, summary="show the offsets and members of groups",
        details="LAG is the number of offsets that are not read yet. MEMBER is the member that "
        "reads the partition.",
        examples="""
  penstock groups describe audit
  penstock groups describe --json
""",
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="groups (default: all)")
    add_json_option(parser)
    _add_reset_offsets(commands)
    parser = add_command(
        commands, "delete", delete_groups, summary="delete groups and their offsets",
        details="A group with members cannot be deleted.",
        examples="""
  penstock groups delete audit
""",
    )
    parser.add_argument("groups", nargs="+", metavar="GROUP")


def _add_reset_offsets(commands: Subparsers) -> None:
    parser = add_command(
        commands, "reset-offsets", reset_offsets, summary="change the committed offsets of a group",
        details="""
Shows the change. --execute applies it. The group must have no members. An offset outside of a
partition is replaced by its start or its end.""",
        examples="""
  penstock groups reset-offsets audit --topic orders --to-beginning
  penstock groups reset-offsets audit --topic orders:0,2 --to-offset 1200 --execute
  penstock groups reset-offsets audit --all-topics --to-time 2026-01-31T12:00:00Z --execute
  penstock groups reset-offsets audit --all-topics --to-time 1h --execute
  penstock groups reset-offsets audit --topic orders --shift-by -100 --execute
""",
    )
    parser.add_argument("group", metavar="GROUP")
    scope = parser.add_mutually_exclusive_group(required=True)
    scope.add_argument(
        "--topic", action="append", type=_topic_and_partitions, metavar="TOPIC[:N,N]",
        help="a topic, or some of its partitions (may be repeated)",
    )
    scope.add_argument(
        "--all-topics", action="store_true", help="all partitions with a committed offset"
    )
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--to-offset", type=non_negative_int, metavar="N", help="move to this offset"
    )
    target.add_argument(
        "--to-time", type=timestamp_ms, metavar="TIME",
        help="move to the first record that is not older: ISO 8601, epoch milliseconds, or 15m "
        "(ago)",
    )
    target.add_argument("--to-beginning", action="store_true", help="move to the oldest record")
    target.add_argument("--to-end", action="store_true", help="move after the newest record")
    target.add_argument(
        "--shift-by", type=signed_int, metavar="N",
        help="move N offsets forward, or backward if negative",
    )
    parser.add_argument("--execute", action="store_true", help="apply the change")
    add_json_option(parser)


def list_groups(args: argparse.Namespace, terminal: Terminal) -> None:
    """Print all groups."""
    rows = []
    with open_log_option(args) as log:
        for name in log.groups():
            group = log.group(name)
            partitions = _group_partitions(log, group)
            topics = sorted({partition.at.topic for partition in partitions})
            lag = sum(partition.lag or 0 for partition in partitions)
            rows.append((name, len(group.members), lag, topics))
    if args.json:
        names = ("group", "members", "lag", "topics")
        for row in rows:
            terminal.write_json(dict(zip(names, row, strict=True)))
    else:
        terminal.write_table(
            ("GROUP", "MEMBERS", "LAG", "TOPICS"),
            [(name, members, lag, ", ".join(topics)) for name, members, lag, topics in rows],
        )


def describe_groups(args: argparse.Namespace, terminal: Terminal) -> None:
    """Print the offsets and members of groups by partition."""
    with open_log_option(args) as log:
        names = _check_groups(log, args.groups) if args.groups else log.groups()
        described = [(group := log.group(name), _group_partitions(log, group)) for name in names]
    for number, (group, partitions) in enumerate(described):
        if args.json:
            terminal.write_json(_group_as_json(group, partitions))
            continue
        if number:
            terminal.write_line()
        terminal.write_properties({
            "Group": group.name,
            # Kafka does not report it.
            "Generation": group.generation or None,
            "Members": len(group.members),
        })
        terminal.write_table(
            ("TOPIC", "PARTITION", "COMMITTED", "START", "END", "LAG", "MEMBER"),
            [
                (*one.at, one.committed, one.bounds.start, one.bounds.end, one.lag, one.member_id)
                for one in partitions
            ],
        )


def _group_as_json(group: GroupDescription, partitions: list[GroupPartition]) -> dict[str, object]:
    return {
        "group": group.name,
        "generation": group.generation,
        "members": [
            {"member_id": member.member_id, "client_id": member.client_id,
             "partitions": [at._asdict() for at in sorted(member.partitions)]}
            for member in group.members
        ],
        "partitions": [
            {**one.at._asdict(), "committed": one.committed, "start": one.bounds.start,
             "end": one.bounds.end, "lag": one.lag, "member_id": one.member_id,
             "metadata": one.metadata}
            for one in partitions
        ],
    }


def reset_offsets(args: argparse.Namespace, terminal: Terminal) -> None:
    """Show or change the committed offsets of a group."""
    with open_log_option(args) as log:
        group = log.group(args.group)
        if group.members:
            raise GroupNotEmpty(group.name, [member.member_id for member in group.members])
        before = {at: offset.offset for at, offset in group.offsets.items()}
        partitions = _selected_partitions(log, args, group)
        bounds = log.offsets(partitions)
        after = {at: _target_offset(log, args, at, bounds[at], before.get(at)) for at in partitions}
        if args.execute:
            _commit(log, group.name, after)
    if args.json:
        for at, offset in after.items():
            terminal.write_json({
                "group": group.name, **at._asdict(), "before": before.get(at), "after": offset,
                "executed": args.execute,
            })
        return
    terminal.write_table(
        ("TOPIC", "PARTITION", "BEFORE", "AFTER"),
        [(*at, before.get(at), offset) for at, offset in after.items()],
    )
    terminal.note("Done." if args.execute else "Nothing was changed. Use --execute to apply this.")


def _commit(log: Log, group: str, offsets: dict[TopicPartition, int]) -> None:
    """Commit the offsets. A running application would overwrite them, so take its lease."""
    if tasks_topic(group) not in {topic.name for topic in log.topics()}:
        log.commit_offsets(group, offsets)
        return
    lease = acquire_lease_if_stopped(log, group)
    try:
        with log.transaction(lease) as transaction:
            transaction.commit_offsets(group, offsets)
    finally:
        lease.release()


def _selected_partitions(
    log: Log, args: argparse.Namespace, group: GroupDescription
) -> list[TopicPartition]:
    if args.all_topics:
        if not group.offsets:
            raise CommandError(
                f"Group '{group.name}' has no committed offsets. Use --topic to select a topic."
            )
        return sorted(group.offsets)
    selected = set()
    for topic, numbers in args.topic:
        count = log.topic(topic).partitions
        for number in range(count) if numbers is None else numbers:
            if number >= count:
                raise UnknownPartition(topic, number, count)
            selected.add(TopicPartition(topic, number))
    return sorted(selected)


def _target_offset(
    log: Log, args: argparse.Namespace, at: TopicPartition, bounds: PartitionOffsets,
    before: int | None,
) -> int:
    if args.to_beginning:
        return bounds.start
    if args.to_end:
        return bounds.end
    if args.to_time is not None:
        found = log.offset_for_time(*at, args.to_time)
        return bounds.end if found is None else found.offset
    if args.to_offset is not None:
        offset: int = args.to_offset
    elif before is None:
        raise CommandError(
            f"--shift-by needs a committed offset, and '{at.topic}' [{at.partition}] has none."
        )
    else:
        offset = before + args.shift_by
    return min(max(offset, bounds.start), bounds.end)


def delete_groups(args: argparse.Namespace, terminal: Terminal) -> None:
    """Delete groups, after checking that all of them exist."""
    with open_log_option(args) as log:
        for name in _check_groups(log, args.groups):
            log.delete_group(name)
            terminal.note(f"Deleted group '{name}'.")


def _check_groups(log: Log, names: list[str]) -> list[str]:
    known = log.groups()
    for name in names:
        if name not in known:
            raise CommandError(
                f"Group '{name}' does not exist.{did_you_mean(name, known)} "
                f"Groups: {listed(known)}."
            )
    return list(dict.fromkeys(names))


def _group_partitions(log: Log, group: GroupDescription) -> list[GroupPartition]:
    """Return the partitions that the group has committed or reads."""
    members = {at: member.member_id for member in group.members for at in member.partitions}
    partitions = sorted(group.offsets.keys() | members.keys())
    bounds = log.offsets(partitions)
    described = []
    for at in partitions:
        committed = group.offsets.get(at)
        described.append(GroupPartition(
            at, None if committed is None else committed.offset, bounds[at], members.get(at),
            "" if committed is None else committed.metadata,
        ))
    return described


def _topic_and_partitions(text: str) -> tuple[str, list[int] | None]:
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    if not re.fullmatch(r"\d+(,\d+)*", numbers):
        raise argparse.ArgumentTypeError(f"'{text}' does not have the form TOPIC:0,1")
    return topic, [int(number) for number in numbers.split(",")]
