"""What a consumer's configuration says, read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.clients.consumer.fetcher import FetchRules
from penstock.clients.consumer.membership import GroupRules
from penstock.clients.serialization import Converter
from penstock.clients.settings import Settings
from penstock.errors import ConfigException

_RESETS = {
    "earliest": "earliest", "smallest": "earliest", "beginning": "earliest",
    "latest": "latest", "largest": "latest", "end": "latest",
    "error": "error", "none": "error",
}
#: librdkafka's names; Java's end in "Assignor".
_STRATEGIES = {
    "range": "range", "roundrobin": "roundrobin", "cooperative-sticky": "sticky",
    "sticky": "sticky", "rangeassignor": "range", "roundrobinassignor": "roundrobin",
    "stickyassignor": "sticky", "cooperativestickyassignor": "sticky",
}


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """A consumer's settings, typed."""

    group: GroupRules
    fetch: FetchRules
    converters: tuple[Converter, Converter]
    #: None: records are committed by the program only.
    auto_commit_interval_ms: int | None
    #: False: only what `store_offsets` was told is committed.
    auto_offset_store: bool
    #: 0: as many as a call asks for.
    max_poll_records: int
    create_topics: bool
    on_commit: Any

    @classmethod
    def of(cls, read: Settings) -> ConsumerSettings:
        """Read them all."""
        read.choice("isolation.level", "read_committed", {
            "read_committed": "committed", "read_uncommitted": "uncommitted",
        })
        auto_commit = read.flag("enable.auto.commit", True)
        interval = read.number("auto.commit.interval.ms", 5_000)
        settings = cls(
            group=_group_rules(read),
            fetch=_fetch_rules(read),
            converters=(
                Converter("key.deserializer", read.raw("key.deserializer"), is_key=True,
                          reads=True),
                Converter("value.deserializer", read.raw("value.deserializer"), is_key=False,
                          reads=True),
            ),
            auto_commit_interval_ms=interval if auto_commit else None,
            auto_offset_store=read.flag("enable.auto.offset.store", True),
            max_poll_records=read.number("max.poll.records", 0),
            create_topics=read.flag("allow.auto.create.topics", False),
            on_commit=read.callback("on_commit"),
        )
        read.check_names()
        return settings


def _group_rules(read: Settings) -> GroupRules:
    session_ms = read.number("session.timeout.ms", 45_000, 1)
    heartbeat_ms = read.number("heartbeat.interval.ms", min(3_000, max(1, session_ms // 3)), 1)
    if heartbeat_ms >= session_ms:
        raise ConfigException(
            f"heartbeat.interval.ms, {heartbeat_ms}, must be less than session.timeout.ms, "
            f"{session_ms}. A third of it is usual."
        )
    return GroupRules(
        group_id=read.text("group.id"),
        client_id=read.text("client.id"),
        instance_id=read.text("group.instance.id"),
        strategy=_strategy(read),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        max_poll_interval_ms=read.number("max.poll.interval.ms", 300_000, 1),
    )


def _strategy(read: Settings) -> str:
    """The first strategy of the list counts."""
    given = read.raw("partition.assignment.strategy", "range")
    first = (given.split(",") if isinstance(given, str) else list(given))[0]
    name = str(first).strip().rsplit(".", 1)[-1].lower()
    if name not in _STRATEGIES:
        raise ConfigException(
            "partition.assignment.strategy must be 'range', 'roundrobin' or 'cooperative-sticky', "
            f"not '{first}'."
        )
    return _STRATEGIES[name]


def _fetch_rules(read: Settings) -> FetchRules:
    return FetchRules(
        min_bytes=read.number("fetch.min.bytes", 1),
        max_wait_ms=read.number("fetch.wait.max.ms", 500),
        max_bytes=read.number("fetch.max.bytes", 52_428_800, 1),
        partition_max_bytes=read.number("fetch.message.max.bytes", 1_048_576, 1),
        reset=read.choice("auto.offset.reset", "latest", _RESETS),
        partition_eof=read.flag("enable.partition.eof", False),
    )
