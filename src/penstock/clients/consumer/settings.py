"""The settings of a consumer and their defaults. Names of Kafka and librdkafka are accepted.

    group.id                 none: use `assign`; offsets cannot be committed
    group.instance.id        none: if set, a restarted consumer keeps its partitions
    auto.offset.reset        latest; or earliest, or error
    enable.auto.commit       true: `poll` commits the records that earlier polls returned. Revoked
                             partitions and `close` commit too (not a `with` block that fails)
    auto.commit.interval.ms  5000
    enable.auto.offset.store true; false: commit only the offsets passed to `store_offsets`
    key.deserializer, value.deserializer   none: bytes
    max.poll.records         none: maximum number of records that `consume` returns
    fetch.min.bytes          1: wait for this many bytes, for at most
    fetch.wait.max.ms        500
    fetch.max.bytes          52428800: limit of prefetched bytes
    max.partition.fetch.bytes   1048576: limit per partition; at least one record is fetched
    session.timeout.ms       45000: the group removes a member without heartbeats after this time
    heartbeat.interval.ms    3000, or a third of the session timeout
    max.poll.interval.ms     300000: a consumer that does not poll for this long leaves its group
    partition.assignment.strategy   range; or roundrobin, or cooperative-sticky
    isolation.level          read_committed: the embedded log never returns uncommitted records
    enable.partition.eof     false; true: `poll` returns an event at the end of a partition
    on_commit                none: called with (error, partitions) after asynchronous commits
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.clients.consumer.commits import CommitSettings
from penstock.clients.consumer.fetcher import FetchSettings
from penstock.clients.consumer.membership import MembershipSettings
from penstock.clients.serialization import TopicSerde
from penstock.clients.settings import ConfigReader
from penstock.errors import ConfigException

_RESETS = {
    "earliest": "earliest", "smallest": "earliest", "beginning": "earliest",
    "latest": "latest", "largest": "latest", "end": "latest",
    "error": "error", "none": "error",
}
#: librdkafka's names, and the class names of Java, which end in "Assignor".
_STRATEGIES = {
    "range": "range", "roundrobin": "roundrobin", "cooperative-sticky": "sticky",
    "sticky": "sticky", "rangeassignor": "range", "roundrobinassignor": "roundrobin",
    "stickyassignor": "sticky", "cooperativestickyassignor": "sticky",
}


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The typed settings of a consumer."""

    membership: MembershipSettings
    fetch: FetchSettings
    commit: CommitSettings
    key_serde: TopicSerde
    value_serde: TopicSerde
    #: 0: no limit.
    max_poll_records: int
    create_topics: bool

    @classmethod
    def read(cls, reader: ConfigReader) -> ConsumerSettings:
        """Read and check the configuration."""
        reader.choice("isolation.level", "read_committed", {
            "read_committed": "committed", "read_uncommitted": "uncommitted",
        })
        settings = cls(
            membership=_read_membership(reader),
            fetch=_read_fetch(reader),
            commit=_read_commit(reader),
            key_serde=TopicSerde(
                "key.deserializer", reader.raw("key.deserializer"), is_key=True, reads=True
            ),
            value_serde=TopicSerde(
                "value.deserializer", reader.raw("value.deserializer"), is_key=False, reads=True
            ),
            max_poll_records=reader.integer("max.poll.records", 0),
            create_topics=reader.boolean("allow.auto.create.topics", False),
        )
        reader.check_names()
        return settings


def _read_membership(reader: ConfigReader) -> MembershipSettings:
    session_ms = reader.integer("session.timeout.ms", 45_000, 1)
    heartbeat_ms = reader.integer("heartbeat.interval.ms", min(3_000, max(1, session_ms // 3)), 1)
    if heartbeat_ms >= session_ms:
        raise ConfigException(
            f"heartbeat.interval.ms ({heartbeat_ms}) must be less than session.timeout.ms "
            f"({session_ms}). Use about a third of it."
        )
    return MembershipSettings(
        group_id=reader.string("group.id"),
        client_id=reader.string("client.id"),
        instance_id=reader.string("group.instance.id"),
        strategy=_read_strategy(reader),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        max_poll_interval_ms=reader.integer("max.poll.interval.ms", 300_000, 1),
    )


def _read_strategy(reader: ConfigReader) -> str:
    """Return the first strategy of the list; the others are ignored."""
    configured = reader.raw("partition.assignment.strategy", "range")
    first = (configured.split(",") if isinstance(configured, str) else list(configured))[0]
    name = str(first).strip().rsplit(".", 1)[-1].lower()
    if name not in _STRATEGIES:
        raise ConfigException(
            "partition.assignment.strategy must be 'range', 'roundrobin' or 'cooperative-sticky', "
            f"not '{first}'."
        )
    return _STRATEGIES[name]


def _read_fetch(reader: ConfigReader) -> FetchSettings:
    return FetchSettings(
        min_bytes=reader.integer("fetch.min.bytes", 1),
        max_wait_ms=reader.integer("fetch.wait.max.ms", 500),
        max_bytes=reader.integer("fetch.max.bytes", 52_428_800, 1),
        partition_max_bytes=reader.integer("fetch.message.max.bytes", 1_048_576, 1),
        offset_reset=reader.choice("auto.offset.reset", "latest", _RESETS),
        partition_eof=reader.boolean("enable.partition.eof", False),
    )


def _read_commit(reader: ConfigReader) -> CommitSettings:
    auto_commit = reader.boolean("enable.auto.commit", True)
    interval_ms = reader.integer("auto.commit.interval.ms", 5_000)
    return CommitSettings(
        group_id=reader.string("group.id"),
        auto_interval_ms=interval_ms if auto_commit else None,
        auto_offset_store=reader.boolean("enable.auto.offset.store", True),
        on_commit=reader.callback("on_commit"),
    )
