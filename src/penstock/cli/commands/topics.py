"""`penstock topics`: list, create, describe, alter, delete, clean."""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields

from penstock.cli.errors import CommandFailed, UsageError
from penstock.cli.log_option import opened
from penstock.cli.parsing import (
    Commands,
    add_command,
    add_commands,
    add_json,
    positive,
    setting,
)
from penstock.cli.terminal import Terminal
from penstock.log import Log, PartitionOffsets, TopicDescription, TopicPartition
from penstock.log.errors import TopicExists, UnknownTopic
from penstock.log.types import CleanReport


def add(commands: Commands) -> None:
    """Add the commands."""
    group = add_command(
        commands, "topics", None, about="list, make, change, delete and clean topics",
        examples="""
  penstock topics list
  penstock topics create orders --partitions 4
  penstock topics create prices --config cleanup.policy=compact
  penstock topics clean
""",
    )
    inner = add_commands(group)
    _add_list(inner)
    _add_create(inner)
    _add_describe(inner)
    _add_alter(inner)
    _add_delete(inner)
    _add_clean(inner)


def _add_list(commands: Commands) -> None:
    parser = add_command(
        commands, "list", list_topics, about="list all topics",
        more="OFFSETS is how many lie between start and end: the records, those that compaction "
        "removed, and on Kafka the marks of transactions.",
        examples="""
  penstock topics list
  penstock topics list --json | jq -r .name
""",
    )
    add_json(parser)


def _add_create(commands: Commands) -> None:
    parser = add_command(
        commands, "create", create_topics, about="make topics, and the log if there is none",
        examples="""
  penstock topics create orders stores --partitions 4
  penstock topics create prices --config cleanup.policy=compact --config retention.ms=-1
  penstock topics create orders --if-not-exists
""",
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="names of new topics")
    parser.add_argument(
        "--partitions", type=positive, default=1, metavar="N", help="how many each has (default: 1)"
    )
    _add_config(parser)
    parser.add_argument(
        "--if-not-exists", action="store_true", help="leave topics as they are that exist"
    )


def _add_describe(commands: Commands) -> None:
    parser = add_command(
        commands, "describe", describe_topics, about="show settings and offsets of topics",
        examples="""
  penstock topics describe orders
  penstock topics describe orders --all-settings
  penstock topics describe --json
""",
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="which (default: all)")
    parser.add_argument(
        "--all-settings", action="store_true", help="those with their default value, too"
    )
    add_json(parser)


def _add_alter(commands: Commands) -> None:
    parser = add_command(
        commands, "alter", alter_topic, about="change the settings of a topic, or add partitions",
        more="Partitions are never taken away. With more of them, keys go to other partitions "
        "than before.",
        examples="""
  penstock topics alter orders --config retention.ms=3600000
  penstock topics alter orders --unset retention.ms
  penstock topics alter orders --partitions 8
""",
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--partitions", type=positive, metavar="N", help="how many it shall have")
    _add_config(parser)
    parser.add_argument(
        "--unset", action="append", default=[], metavar="NAME",
        help="put a setting back to its default (may be repeated)",
    )


def _add_delete(commands: Commands) -> None:
    parser = add_command(
        commands, "delete", delete_topics, about="delete topics with all their records",
        more="The offsets that groups committed for them go, too. At a terminal it asks first.",
        examples="""
  penstock topics delete orders
  penstock topics delete orders stores --yes --if-exists
""",
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--if-exists", action="store_true", help="skip topics that do not exist")


def _add_clean(commands: Commands) -> None:
    parser = add_command(
        commands, "clean", clean_topics, about="remove what retention and compaction let go",
        more="Also merges small batches. Others may read and write meanwhile. Kafka's brokers "
        "clean their topics by themselves.",
        examples="""
  penstock topics clean
  penstock topics clean prices --force
""",
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="which (default: all)")
    parser.add_argument(
        "--force", action="store_true", help="compact also what is hardly worth it"
    )
    add_json(parser)


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", action="append", default=[], type=setting, metavar="NAME=VALUE",
        help="a setting, with Kafka's name (may be repeated)",
    )


def list_topics(args: argparse.Namespace, terminal: Terminal) -> None:
    """All topics, a line each."""
    with opened(args) as log:
        topics = log.topics()
        bounds = _bounds(log, topics)
    rows = [
        (
            topic.name,
            topic.partitions,
            sum(at.end - at.start for at in bounds[topic.name]),
            topic.setting("cleanup.policy"),
        )
        for topic in topics
    ]
    if args.json:
        names = ("name", "partitions", "offsets", "cleanup_policy")
        for row in rows:
            terminal.json(dict(zip(names, row, strict=True)))
    else:
        terminal.table(("TOPIC", "PARTITIONS", "OFFSETS", "CLEANUP"), rows)


def create_topics(args: argparse.Namespace, terminal: Terminal) -> None:
    """New topics. What was made before one is refused, stays."""
    with opened(args, create=True) as log:
        for name in args.topics:
            try:
                log.create_topic(name, args.partitions, dict(args.config))
            except TopicExists:
                if not args.if_not_exists:
                    raise
                terminal.note(f"Topic '{name}' exists already.")
            else:
                terminal.note(f"Created topic '{name}'.")


def describe_topics(args: argparse.Namespace, terminal: Terminal) -> None:
    """What is to be known about topics."""
    with opened(args) as log:
        topics = [log.topic(name) for name in args.topics] if args.topics else log.topics()
        bounds = _bounds(log, topics)
    for number, topic in enumerate(topics):
        config = {**topic.defaults, **topic.config} if args.all_settings else dict(topic.config)
        if args.json:
            terminal.json(_as_json(topic, config, bounds[topic.name]))
            continue
        if number:
            terminal.line()
        terminal.properties({
            "Topic": topic.name, "Id": topic.id, "Partitions": topic.partitions,
        })
        if config:
            terminal.table(("SETTING", "VALUE"), sorted(config.items()))
        terminal.table(
            ("PARTITION", "START", "END"),
            [(at, offsets.start, offsets.end) for at, offsets in enumerate(bounds[topic.name])],
        )


def _as_json(
    topic: TopicDescription, config: dict[str, str], bounds: list[PartitionOffsets]
) -> dict[str, object]:
    return {
        "name": topic.name,
        "id": topic.id,
        "config": config,
        "partitions": [
            {"partition": number, **at._asdict()} for number, at in enumerate(bounds)
        ],
    }


def alter_topic(args: argparse.Namespace, terminal: Terminal) -> None:
    """Another configuration, or more partitions."""
    config: dict[str, object | None] = dict(args.config)
    both = sorted(config.keys() & set(args.unset))
    if both:
        raise UsageError(f"{both[0]} is given with --config and with --unset.")
    config |= dict.fromkeys(args.unset)
    if not config and args.partitions is None:
        raise UsageError("Nothing to change. Give --config, --unset or --partitions.")
    with opened(args) as log:
        # The settings first: they are checked as a whole, and more partitions are there for good.
        if config:
            log.alter_topic(args.topic, config)
        if args.partitions is not None:
            log.add_partitions(args.topic, args.partitions)
    terminal.note(f"Changed topic '{args.topic}'.")


def delete_topics(args: argparse.Namespace, terminal: Terminal) -> None:
    """Delete topics; all are looked up before the first one goes."""
    with opened(args) as log:
        known = {topic.name for topic in log.topics()}
        names = [name for name in dict.fromkeys(args.topics) if name in known]
        missing = [name for name in args.topics if name not in known]
        if missing and not args.if_exists:
            raise UnknownTopic(missing[0], known)
        for name in missing:
            terminal.note(f"No topic '{name}'.")
        listed = ", ".join(f"'{name}'" for name in names)
        if names and not args.yes and not terminal.confirmed(f"Delete {listed} for good?"):
            raise CommandFailed("Nothing was deleted.")
        for name in names:
            log.delete_topic(name)
            terminal.note(f"Deleted topic '{name}'.")


def clean_topics(args: argparse.Namespace, terminal: Terminal) -> None:
    """Keep house, topic by topic."""
    reports: dict[str, CleanReport] = {}
    with opened(args) as log:
        cleans_itself = log.capabilities.cleans_itself
        names = [log.topic(name).name for name in dict.fromkeys(args.topics)]
        names = names or [topic.name for topic in log.topics()]
        with terminal.progress("cleaning", len(names)) as bar:
            for name in names:
                reports[name] = log.clean([name], force=args.force)
                bar.advance(1)
    if args.json:
        for name, report in reports.items():
            terminal.json({"name": name, **asdict(report)})
        return
    if cleans_itself:
        terminal.note("Kafka's brokers clean their topics by themselves.")
    columns = [column.name for column in fields(CleanReport)]
    terminal.table(
        ("TOPIC", *(column.replace("_", " ").upper() for column in columns)),
        [
            (name, *(getattr(report, column) for column in columns))
            for name, report in reports.items()
        ],
    )


def _bounds(
    log: Log, topics: list[TopicDescription]
) -> dict[str, list[PartitionOffsets]]:
    """The offsets of all partitions of each topic, in order, as of one moment."""
    partitions = {
        topic.name: [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        for topic in topics
    }
    found = log.offsets([at for ats in partitions.values() for at in ats])
    return {name: [found[at] for at in ats] for name, ats in partitions.items()}
