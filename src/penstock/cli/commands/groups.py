"""`penstock groups`: list, describe, reset-offsets, delete."""

from __future__ import annotations

import argparse
import re
from typing import NamedTuple

from penstock.cli.errors import CommandFailed
from penstock.cli.log_option import opened
from penstock.cli.parsing import (
    Commands,
    add_command,
    add_commands,
    add_json,
    instant,
    signed,
    whole,
)
from penstock.cli.terminal import Terminal
from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.reset import acquire_lease_if_stopped
from penstock.log import Log, PartitionOffsets, TopicPartition
from penstock.log.errors import GroupNotEmpty, UnknownPartition
from penstock.log.types import GroupDescription


class Place(NamedTuple):
    """Where a group stands in one partition. None: nothing committed, or nobody reads."""

    at: TopicPartition
    committed: int | None
    bounds: PartitionOffsets
    member: str | None
    metadata: str

    @property
    def lag(self) -> int | None:
        """Offsets that are still to be read, of those that are there."""
        if self.committed is None:
            return None
        return max(0, self.bounds.end - max(self.committed, self.bounds.start))


def add(commands: Commands) -> None:
    """Add the commands."""
    group = add_command(
        commands, "groups", None, about="list, show, reset and delete consumer groups",
        examples="""
  penstock groups list
  penstock groups describe audit
  penstock groups reset-offsets audit --topic orders --to-beginning --execute
""",
    )
    inner = add_commands(group)
    add_json(add_command(
        inner, "list", list_groups, about="list all groups",
        examples="""
  penstock groups list
  penstock groups list --json | jq -r .group
""",
    ))
    parser = add_command(
        inner, "describe", describe_groups, about="show where groups stand",
        more="LAG is how many offsets are still to be read, MEMBER who reads the partition now.",
        examples="""
  penstock groups describe audit
  penstock groups describe --json
""",
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="which (default: all)")
    add_json(parser)
    _add_reset(inner)
    parser = add_command(
        inner, "delete", delete_groups, about="forget groups and their offsets",
        more="A group that has members is not deleted.",
        examples="""
  penstock groups delete audit
""",
    )
    parser.add_argument("groups", nargs="+", metavar="GROUP")


def _add_reset(commands: Commands) -> None:
    parser = add_command(
        commands, "reset-offsets", reset_offsets, about="set where a group goes on",
        more="""
Shows what would be done; --execute does it. The group must have no members. An offset outside of a
partition becomes its start or its end.""",
        examples="""
  penstock groups reset-offsets audit --topic orders --to-beginning
  penstock groups reset-offsets audit --topic orders:0,2 --to-offset 1200 --execute
  penstock groups reset-offsets audit --all-topics --to-time 2026-01-31T12:00:00Z --execute
  penstock groups reset-offsets audit --all-topics --to-time 1h --execute
  penstock groups reset-offsets audit --topic orders --shift-by -100 --execute
""",
    )
    parser.add_argument("group", metavar="GROUP")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--topic", action="append", type=_topic, metavar="TOPIC[:N,N]",
        help="a topic, or some of its partitions (may be repeated)",
    )
    where.add_argument(
        "--all-topics", action="store_true", help="all partitions with a committed offset"
    )
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--to-offset", type=whole, metavar="N", help="to this offset")
    to.add_argument(
        "--to-time", type=instant, metavar="TIME",
        help="to the first record not older: ISO 8601, epoch milliseconds, or 15m (ago)",
    )
    to.add_argument("--to-beginning", action="store_true", help="to the oldest record")
    to.add_argument("--to-end", action="store_true", help="behind the newest record")
    to.add_argument(
        "--shift-by", type=signed, metavar="N", help="by so many, backwards if it is negative"
    )
    parser.add_argument("--execute", action="store_true", help="do it")
    add_json(parser)


def list_groups(args: argparse.Namespace, terminal: Terminal) -> None:
    """All groups, a line each."""
    rows = []
    with opened(args) as log:
        for name in log.groups():
            group = log.group(name)
            places = _places(log, group)
            topics = sorted({place.at.topic for place in places})
            lag = sum(place.lag or 0 for place in places)
            rows.append((name, len(group.members), lag, topics))
    if args.json:
        names = ("group", "members", "lag", "topics")
        for row in rows:
            terminal.json(dict(zip(names, row, strict=True)))
    else:
        terminal.table(
            ("GROUP", "MEMBERS", "LAG", "TOPICS"),
            [(name, members, lag, ", ".join(topics)) for name, members, lag, topics in rows],
        )


def describe_groups(args: argparse.Namespace, terminal: Terminal) -> None:
    """Where groups stand, partition by partition."""
    with opened(args) as log:
        names = _known(log, args.groups) if args.groups else log.groups()
        described = [(group := log.group(name), _places(log, group)) for name in names]
    for number, (group, places) in enumerate(described):
        if args.json:
            terminal.json(_as_json(group, places))
            continue
        if number:
            terminal.line()
        terminal.properties({
            "Group": group.name,
            # Kafka does not tell it.
            "Generation": group.generation or None,
            "Members": len(group.members),
        })
        terminal.table(
            ("TOPIC", "PARTITION", "COMMITTED", "START", "END", "LAG", "MEMBER"),
            [
                (*place.at, place.committed, place.bounds.start, place.bounds.end, place.lag,
                 place.member)
                for place in places
            ],
        )


def _as_json(group: GroupDescription, places: list[Place]) -> dict[str, object]:
    return {
        "group": group.name,
        "generation": group.generation,
        "members": [
            {"member_id": member.member_id, "client_id": member.client_id,
             "partitions": [at._asdict() for at in sorted(member.partitions)]}
            for member in group.members
        ],
        "partitions": [
            {**place.at._asdict(), "committed": place.committed, "start": place.bounds.start,
             "end": place.bounds.end, "lag": place.lag, "member_id": place.member,
             "metadata": place.metadata}
            for place in places
        ],
    }


def reset_offsets(args: argparse.Namespace, terminal: Terminal) -> None:
    """Show, or set, where the group goes on."""
    with opened(args) as log:
        group = log.group(args.group)
        if group.members:
            raise GroupNotEmpty(group.name, [member.member_id for member in group.members])
        before = {at: offset.offset for at, offset in group.offsets.items()}
        partitions = _chosen(log, args, group)
        bounds = log.offsets(partitions)
        after = {at: _target(log, args, at, bounds[at], before.get(at)) for at in partitions}
        if args.execute:
            _commit(log, group.name, after)
    if args.json:
        for at, offset in after.items():
            terminal.json({
                "group": group.name, **at._asdict(), "before": before.get(at), "after": offset,
                "executed": args.execute,
            })
        return
    terminal.table(
        ("TOPIC", "PARTITION", "BEFORE", "AFTER"),
        [(*at, before.get(at), offset) for at, offset in after.items()],
    )
    terminal.note("Done." if args.execute else "Nothing was changed: --execute does it.")


def _commit(log: Log, group: str, offsets: dict[TopicPartition, int]) -> None:
    """Set the offsets; those of an application only while it does not run, or its next batch would
    undo it."""
    if tasks_topic(group) not in {topic.name for topic in log.topics()}:
        log.commit_offsets(group, offsets)
        return
    lease = acquire_lease_if_stopped(log, group)
    try:
        with log.transaction(lease) as transaction:
            transaction.commit_offsets(group, offsets)
    finally:
        lease.release()


def _chosen(log: Log, args: argparse.Namespace, group: GroupDescription) -> list[TopicPartition]:
    if args.all_topics:
        if not group.offsets:
            raise CommandFailed(f"Group '{group.name}' has committed no offsets. Name a topic.")
        return sorted(group.offsets)
    chosen = set()
    for topic, numbers in args.topic:
        many = log.topic(topic).partitions
        for number in range(many) if numbers is None else numbers:
            if number >= many:
                raise UnknownPartition(topic, number, many)
            chosen.add(TopicPartition(topic, number))
    return sorted(chosen)


def _target(
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
        wanted: int = args.to_offset
    elif before is None:
        raise CommandFailed(
            f"'{at.topic}' [{at.partition}] cannot be shifted: nothing is committed for it."
        )
    else:
        wanted = before + args.shift_by
    return min(max(wanted, bounds.start), bounds.end)


def delete_groups(args: argparse.Namespace, terminal: Terminal) -> None:
    """Forget groups; all are looked up before the first one goes."""
    with opened(args) as log:
        for name in _known(log, args.groups):
            log.delete_group(name)
            terminal.note(f"Deleted group '{name}'.")


def _known(log: Log, names: list[str]) -> list[str]:
    known = log.groups()
    for name in names:
        if name not in known:
            listed = ", ".join(f"'{one}'" for one in known) or "none"
            raise CommandFailed(f"No group '{name}'. Groups: {listed}.")
    return list(dict.fromkeys(names))


def _places(log: Log, group: GroupDescription) -> list[Place]:
    """The partitions that the group has committed or is reading."""
    readers = {at: member.member_id for member in group.members for at in member.partitions}
    partitions = sorted(group.offsets.keys() | readers.keys())
    bounds = log.offsets(partitions)
    places = []
    for at in partitions:
        committed = group.offsets.get(at)
        places.append(Place(
            at, None if committed is None else committed.offset, bounds[at], readers.get(at),
            "" if committed is None else committed.metadata,
        ))
    return places


def _topic(text: str) -> tuple[str, list[int] | None]:
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    if not re.fullmatch(r"\d+(,\d+)*", numbers):
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form TOPIC:0,1")
    return topic, [int(number) for number in numbers.split(",")]
