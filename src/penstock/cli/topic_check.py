"""Checks that the log and the topics of an application exist, and creates missing topics."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.errors import CommandError
from penstock.cli.log_option import report_slow_connection
from penstock.cli.reachability import RUN_REFUSED_TIMEOUT_S
from penstock.cli.terminal import Terminal
from penstock.log import open_log, scheme_of
from penstock.suggestions import similar_name, user_topics_first
from penstock.topology.nodes import SinkNode, SourceNode

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.topology.topology import Topology


def check_topics(
    topology: Topology, config: StreamsConfig, terminal: Terminal, *, partitions: int | None,
    quiet: bool,
) -> None:
    """Raise if the log or a topic does not exist; with `partitions`, create them."""
    assert config.log is not None
    create = partitions is not None
    wanted = _user_topics(topology, config)
    if not create and not scheme_of(config.log).may_exist(config.log):
        raise CommandError(
            f"The log '{config.log}' does not exist. Create it with its topics:\n"
            + _create_commands(wanted, config.log)
        )
    with report_slow_connection(
        config.log, quiet=quiet, refused_timeout_s=RUN_REFUSED_TIMEOUT_S
    ):
        opened = open_log(
            config.log, create=create, connection=config.connection_settings()
        )
    with opened as log:
        existing = {topic.name for topic in log.topics()}
        missing = [name for name in wanted if name not in existing]
        similar = _similar_topics(missing, existing.difference(wanted))
        if missing and not create:
            raise CommandError(_missing_text(missing, similar, config.log))
        for topic in missing:
            log.create_topic(topic, partitions or 1)
            if not quiet:
                near = f" Topic '{similar[topic]}' exists, too." if topic in similar else ""
                terminal.note(f"Created topic '{topic}'.{near}")


def _missing_text(missing: Sequence[str], similar: dict[str, str], address: str) -> str:
    names = ", ".join(f"'{topic}'" for topic in missing)
    lines = [f"Topics {names} do not exist." if missing[1:] else f"Topic {names} does not exist."]
    if similar:
        lines += [
            f"Did you mean '{near}' instead of '{topic}'?" for topic, near in similar.items()
        ]
        lines.append("Otherwise create the missing topics with:")
    else:
        lines[0] += f" Create {'them' if missing[1:] else 'it'} with:"
    return "\n".join((*lines, _create_commands(missing, address)))


def _similar_topics(missing: Sequence[str], unused: set[str]) -> dict[str, str]:
    """Return missing topic -> a topic that it may be a misspelling of.

    A topic that the application uses under its own name is no candidate.
    """
    candidates = user_topics_first(unused)
    found = {topic: similar_name(topic, candidates) for topic in missing}
    return {topic: near for topic, near in found.items() if near is not None}


def _user_topics(topology: Topology, config: StreamsConfig) -> list[str]:
    """Return the topics that the application reads or writes by name, except internal topics."""
    names: dict[str, None] = {}
    for node in topology.nodes:
        if isinstance(node, SourceNode):
            names |= dict.fromkeys(node.topics)
        elif isinstance(node, SinkNode) and isinstance(node.topic, str):
            names[node.topic] = None
    names |= {store.topic: None for store in topology.global_stores.values()}
    names |= dict.fromkeys(config.dead_letter_topics())
    return [name for name in names if name not in topology.internal_topics]


def _create_commands(topics: Sequence[str], address: str) -> str:
    return "\n".join(
        f"  penstock topics create {shlex.quote(topic)} --log {shlex.quote(address)}"
        for topic in topics
    )
