"""`penstock topics`: list, create, describe, alter, delete, clean, verify."""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields

from penstock.cli.commands.verify import add_verify
from penstock.cli.errors import CommandError, UsageError
from penstock.cli.log_option import open_log_option
from penstock.cli.parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_subcommands,
    name_and_value,
    positive_int,
)
from penstock.cli.terminal import Terminal
from penstock.log import Log, PartitionOffsets, TopicDescription, TopicPartition, scheme_of
from penstock.log.errors import TopicExists, UnknownTopic
from penstock.log.types import CleanReport


def add(subparsers: Subparsers) -> None:
    """Add the command and its subcommands."""
    group = add_command(
        subparsers, "topics", None, summary="list, create, alter, delete, clean and verify topics",
        examples="""
  penstock topics list
  penstock topics create orders --partitions 4
  penstock topics create prices --config cleanup.policy=compact
  penstock topics clean
""",
    )
    commands = add_subcommands(group)
    _add_list(commands)
    _add_create(commands)
    _add_describe(commands)
    _add_alter(commands)
    _add_delete(commands)
    _add_clean(commands)
    add_verify(commands)


def _add_list(commands: Subparsers) -> None:
    parser = add_command(
        commands, "list", list_topics, summary="list all topics",
        details="OFFSETS is the number of offsets between start and end. It includes records that "
        "compaction has removed and, on Kafka, transaction markers.",
        examples="""
  penstock topics list
  penstock topics list --json | jq -r .name
""",
    )
    add_json_option(parser)


def _add_create(commands: Subparsers) -> None:
    parser = add_command(
        commands, "create", create_topics,
        summary="create topics, and the log if it does not exist",
        examples="""
  penstock topics create orders stores --partitions 4
  penstock topics create prices --config cleanup.policy=compact --config retention.ms=-1
  penstock topics create orders --if-not-exists
""",
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="names of the new topics")
    parser.add_argument(
        "--partitions", type=positive_int, default=1, metavar="N",
        help="number of partitions of each topic (default: 1)",
    )
    parser.add_argument(
        "--replication-factor", type=positive_int, default=-1, metavar="N",
        help="number of brokers that store each partition (default: the cluster's setting); no "
        "effect in a file",
    )
    _add_config_option(parser)
    parser.add_argument(
        "--if-not-exists", action="store_true", help="do not change topics that exist"
    )


def _add_describe(commands: Subparsers) -> None:
    parser = add_command(
        commands, "describe", describe_topics, summary="show settings and offsets of topics",
        examples="""
  penstock topics describe orders
  penstock topics describe orders --all-settings
  penstock topics describe --json
""",
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="topics (default: all)")
    parser.add_argument(
        "--all-settings", action="store_true", help="include settings with default values"
    )
    add_json_option(parser)


def _add_alter(commands: Subparsers) -> None:
    parser = add_command(
        commands, "alter", alter_topic, summary="change the settings of a topic or add partitions",
        details="Partitions cannot be removed. New partitions change which partition a key goes "
        "to.",
        examples="""
  penstock topics alter orders --config retention.ms=3600000
  penstock topics alter orders --unset retention.ms
  penstock topics alter orders --partitions 8
""",
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--partitions", type=positive_int, metavar="N", help="new number of partitions"
    )
    _add_config_option(parser)
    parser.add_argument(
        "--unset", action="append", default=[], metavar="NAME",
        help="reset a setting to its default (may be repeated)",
    )


def _add_delete(commands: Subparsers) -> None:
    parser = add_command(
        commands, "delete", delete_topics, summary="delete topics with all their records",
        details="Also deletes the offsets that groups have committed for them. Asks for "
        "confirmation.",
        examples="""
  penstock topics delete orders
  penstock topics delete orders stores --yes --if-exists
""",
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument(
        "--yes", action="store_true",
        help="do not ask for confirmation; required without a terminal",
    )
    parser.add_argument("--if-exists", action="store_true", help="skip topics that do not exist")


def _add_clean(commands: Subparsers) -> None:
    parser = add_command(
        commands, "clean", clean_topics, summary="apply retention and compaction to topics",
        details="Also merges small batches. Other processes can read and write at the same time. "
        "Kafka brokers clean their topics automatically.",
        examples="""
  penstock topics clean
  penstock topics clean prices --force
""",
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="topics (default: all)")
    parser.add_argument(
        "--force", action="store_true", help="compact even if it saves little space"
    )
    add_json_option(parser)


def _add_config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", action="append", default=[], type=name_and_value, metavar="NAME=VALUE",
        help="a topic setting with Kafka's name (may be repeated)",
    )


def list_topics(args: argparse.Namespace, terminal: Terminal) -> None:
    """Print all topics."""
    with open_log_option(args) as log:
        topics = log.topics()
        bounds = _read_bounds(log, topics)
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
            terminal.write_json(dict(zip(names, row, strict=True)))
    else:
        terminal.write_table(("TOPIC", "PARTITIONS", "OFFSETS", "CLEANUP"), rows)


def _warn_about_ignored(log: Log, args: argparse.Namespace, terminal: Terminal) -> None:
    """Report the settings of topics that have no effect in this log."""
    given = {f"topic.{name}": value for name, value in args.config}
    given["replication.factor"] = getattr(args, "replication_factor", -1)
    for name, reason in scheme_of(log.address).ignored_settings(given):
        terminal.note(f"The setting {name.removeprefix('topic.')} has no effect: {reason}.")


def create_topics(args: argparse.Namespace, terminal: Terminal) -> None:
    """Create topics in order; an error leaves the earlier ones."""
    with open_log_option(args, create=True) as log:
        _warn_about_ignored(log, args, terminal)
        for name in args.topics:
            try:
                log.create_topic(
                    name, args.partitions, dict(args.config),
                    replication_factor=args.replication_factor,
                )
            except TopicExists:
                if not args.if_not_exists:
                    raise
                terminal.note(f"Topic '{name}' already exists.")
            else:
                terminal.note(f"Created topic '{name}'.")


def describe_topics(args: argparse.Namespace, terminal: Terminal) -> None:
    """Print settings and offsets of topics."""
    with open_log_option(args) as log:
        topics = [log.topic(name) for name in args.topics] if args.topics else log.topics()
        bounds = _read_bounds(log, topics)
    for number, topic in enumerate(topics):
        config = {**topic.defaults, **topic.config} if args.all_settings else dict(topic.config)
        if args.json:
            terminal.write_json(_topic_as_json(topic, config, bounds[topic.name]))
            continue
        if number:
            terminal.write_line()
        terminal.write_properties({
            "Topic": topic.name, "Id": topic.id, "Partitions": topic.partitions,
        })
        if config:
            terminal.write_table(("SETTING", "VALUE"), sorted(config.items()))
        terminal.write_table(
            ("PARTITION", "START", "END"),
            [(at, offsets.start, offsets.end) for at, offsets in enumerate(bounds[topic.name])],
        )


def _topic_as_json(
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
    """Change settings, add partitions."""
    config: dict[str, object | None] = dict(args.config)
    both = sorted(config.keys() & set(args.unset))
    if both:
        raise UsageError(f"--config and --unset cannot be combined for {both[0]}.")
    config |= dict.fromkeys(args.unset)
    if not config and args.partitions is None:
        raise UsageError("There is nothing to change. Use --config, --unset or --partitions.")
    with open_log_option(args) as log:
        _warn_about_ignored(log, args, terminal)
        # Settings may be invalid. Partitions cannot be removed again, so add them last.
        if config:
            log.alter_topic(args.topic, config)
        if args.partitions is not None:
            log.add_partitions(args.topic, args.partitions)
    terminal.note(f"Changed topic '{args.topic}'.")


def delete_topics(args: argparse.Namespace, terminal: Terminal) -> None:
    """Delete topics, after checking that all of them exist."""
    with open_log_option(args) as log:
        known = {topic.name for topic in log.topics()}
        names = [name for name in dict.fromkeys(args.topics) if name in known]
        missing = [name for name in args.topics if name not in known]
        if missing and not args.if_exists:
            raise UnknownTopic(missing[0], known)
        for name in missing:
            terminal.note(f"Topic '{name}' does not exist.")
        listed = ", ".join(f"'{name}'" for name in names)
        if names and not args.yes and not terminal.confirm(f"Delete {listed} permanently?"):
            raise CommandError("Nothing was deleted.")
        for name in names:
            log.delete_topic(name)
            terminal.note(f"Deleted topic '{name}'.")


def clean_topics(args: argparse.Namespace, terminal: Terminal) -> None:
    """Clean topics one by one and print what was removed."""
    reports: dict[str, CleanReport] = {}
    with open_log_option(args) as log:
        cleans_itself = log.capabilities.cleans_itself
        names = [log.topic(name).name for name in dict.fromkeys(args.topics)]
        names = names or [topic.name for topic in log.topics()]
        with terminal.progress("cleaning", len(names)) as advance:
            for name in names:
                reports[name] = log.clean([name], force=args.force)
                advance(1)
    if args.json:
        for name, report in reports.items():
            terminal.write_json({"name": name, **asdict(report)})
        return
    if cleans_itself:
        terminal.note("Kafka brokers clean their topics automatically.")
    columns = [column.name for column in fields(CleanReport)]
    terminal.write_table(
        ("TOPIC", *(column.replace("_", " ").upper() for column in columns)),
        [
            (name, *(getattr(report, column) for column in columns))
            for name, report in reports.items()
        ],
    )


def _read_bounds(
    log: Log, topics: list[TopicDescription]
) -> dict[str, list[PartitionOffsets]]:
    """Return the offsets of all partitions of each topic, read at one moment."""
    partitions = {
        topic.name: [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        for topic in topics
    }
    found = log.offsets([at for ats in partitions.values() for at in ats])
    return {name: [found[at] for at in ats] for name, ats in partitions.items()}
