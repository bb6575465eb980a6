"""The internal topics of an application: their names, their settings, and their creation.

Names and settings are those of Kafka Streams, so that its tools and Java applications recognise
them. There is one exception: retention by the wall clock does not apply to the changelog of a
window store, because it would lose the records of a stream with old timestamps. The changelog is
truncated by the stream time of its store instead, see `find_expired_changelogs`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.config import StreamsConfig
from penstock.errors import MisconfiguredInternalTopicException
from penstock.log.base import Log
from penstock.log.errors import TopicExists
from penstock.log.types import TopicDescription, TopicPartition
from penstock.record import TaskId

if TYPE_CHECKING:
    from penstock.engine.layout.execution_graph import ExecutionGraph
    from penstock.engine.plan.task_records import TaskRecord

DAY_MS = 86_400_000
#: The suffixes of internal topics, as Kafka's tools recognise them.
_INTERNAL = re.compile(
    r"-(changelog|repartition)"
    r"|-subscription-(registration|response)-topic"
    r"|-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
)
_COMMON_SETTINGS: Mapping[str, str] = {"message.timestamp.type": "CreateTime"}
#: The number of partitions and the settings of a topic.
_TopicSpec = tuple[int, Mapping[str, str]]
#: Written with every batch and read completely at each failover, so it is compacted early.
_TASKS_TOPIC: _TopicSpec = (1, {
    **_COMMON_SETTINGS, "cleanup.policy": "compact", "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.1",
})


def tasks_topic(application_id: str) -> str:
    """Return the name of the topic that holds the task records."""
    return f"{application_id}-tasks"


def instances_topic(application_id: str) -> str:
    """Return the name of the topic in which instances announce themselves."""
    return f"{application_id}-instances"


def changelog_topic(application_id: str, store: str) -> str:
    """Return the name of the changelog of a store."""
    return f"{application_id}-{store}-changelog"


def is_internal(topic: str, application_id: str) -> bool:
    """Whether a name is that of an internal topic of this application."""
    if topic in {tasks_topic(application_id), instances_topic(application_id)}:
        return True
    prefix = f"{application_id}-"
    if not topic.startswith(prefix):
        return False
    # The hyphen of the suffix may be the one after the application id.
    return any(
        found.end() == len(topic) for found in _INTERNAL.finditer(topic, len(prefix) - 1)
    )


def repartition_settings(config: StreamsConfig) -> dict[str, str]:
    """Return the settings of a repartition topic. The engine purges what is consumed."""
    return {
        **_COMMON_SETTINGS, "cleanup.policy": "delete", "retention.ms": "-1",
        "segment.bytes": "52428800", **_topic_settings(config),
    }


def changelog_settings(
    config: StreamsConfig, builder: Any, log_config: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of a changelog. `log_config` wins, then the `topic.` settings."""
    settings = {**_COMMON_SETTINGS, "cleanup.policy": "compact"}
    if getattr(builder, "is_windowed", False):
        settings |= {"cleanup.policy": "compact,delete"}
    settings |= _topic_settings(config) | {name: str(value) for name, value in log_config.items()}
    if getattr(builder, "is_windowed", False) and "retention.ms" not in log_config:
        settings["retention.ms"] = "-1"
    if getattr(builder, "is_versioned", False) and "min.compaction.lag.ms" not in log_config:
        settings["min.compaction.lag.ms"] = str(builder.history_retention_ms + DAY_MS)
    return settings


def window_retention_ms(
    config: StreamsConfig, builder: Any, log_config: Mapping[str, str]
) -> int | None:
    """Return how long changelog records are needed, in stream time; None if always."""
    if not getattr(builder, "is_windowed", False) or "retention.ms" in log_config:
        return None
    if "delete" not in changelog_settings(config, builder, log_config)["cleanup.policy"]:
        return None
    # Rows expire by segments, so some remain visible for longer.
    retention: int = builder.retention_ms + builder.supplier.segment_interval_ms
    return retention + config.windowstore_changelog_additional_retention_ms


def _topic_settings(config: StreamsConfig) -> dict[str, str]:
    return {
        name: str(value) for name, value in config.app_configs_with_prefix("topic.").items()
    }


def ensure_internal_topics(
    log: Log, graph: ExecutionGraph, replication_factor: int = -1
) -> list[str]:
    """Create the missing internal topics and return their names.

    An existing topic must have the right number of partitions, because tasks find their records by
    partition. Its settings are not changed, because an administrator may have chosen them. A
    changelog that should be compacted and is not would lose rows, and is an error.
    """
    specs = {
        tasks_topic(graph.application_id): _TASKS_TOPIC,
        **{
            topic: (graph.partitions[topic], settings)
            for topic, settings in graph.repartition_topics.items()
        },
        **graph.changelogs,
    }
    return _ensure(log, graph.application_id, specs, replication_factor)


def ensure_tasks_topic(log: Log, application_id: str, replication_factor: int = -1) -> None:
    """Create the topic of the task records if it does not exist."""
    specs = {tasks_topic(application_id): _TASKS_TOPIC}
    _ensure(log, application_id, specs, replication_factor)


def _ensure(
    log: Log, application_id: str, specs: Mapping[str, _TopicSpec], replication_factor: int
) -> list[str]:
    existing = {topic.name: topic for topic in log.topics()}
    for name, spec in specs.items():
        if name in existing:
            _check(existing[name], spec, application_id)
    created = []
    for name, spec in specs.items():
        if name in existing:
            continue
        try:
            log.create_topic(name, *spec, replication_factor=replication_factor)
        except TopicExists:
            # Another starting instance has created it.
            _check(log.topic(name), spec, application_id)
        else:
            created.append(name)
    return created


def _check(topic: TopicDescription, spec: _TopicSpec, application_id: str) -> None:
    partitions, settings = spec
    if topic.partitions != partitions:
        raise MisconfiguredInternalTopicException(
            f"Existing internal topic {topic.name} has invalid partitions: expected: "
            f"{partitions}; actual: {topic.partitions}. "
            "The number of partitions of a source topic or a repartition operator has changed "
            "since the topic was created, so its records are in the wrong partitions. Reset the "
            f"application with 'penstock reset {application_id}', or use another application id."
        )
    is_compacted = "compact" in settings["cleanup.policy"]
    if is_compacted and topic.setting("cleanup.policy") == "delete":
        raise MisconfiguredInternalTopicException(
            f"Existing internal topic {topic.name} is not compacted: its cleanup.policy is "
            "'delete', so the store would lose rows. Change it with 'penstock topics alter "
            f"{topic.name} --config cleanup.policy={settings['cleanup.policy']}', or reset the "
            f"application with 'penstock reset {application_id}'."
        )


def find_expired_changelogs(
    log: Log, graph: ExecutionGraph, records: Mapping[TaskId, TaskRecord]
) -> dict[TopicPartition, int]:
    """Return changelog partition -> the offset before which all records have expired.

    Expiry follows the stream time of the store, which may be far behind that of its task.
    """
    expired = {}
    for task_id, record in records.items():
        for store, topic in graph.subtopologies[task_id.subtopology].restore_topics.items():
            retention_ms = graph.window_retention_ms.get(topic)
            stream_time = record.state.store_clocks.get(store, {}).get("stream_time", -1)
            if retention_ms is None or stream_time <= retention_ms:
                continue
            first = log.offset_for_time(topic, task_id.partition, stream_time - retention_ms)
            if first is not None:
                expired[TopicPartition(topic, task_id.partition)] = first.offset
    return expired
