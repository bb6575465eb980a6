"""The topics that an application makes for itself: their names, their settings, and making them.

Names and settings are Kafka Streams', so its tools and Java applications find what they know, with
one exception: the changelog of a window store is not cut by the wall clock. There it would lose
records of a stream whose times are long past, and the changelog is where rows come from. It is cut
by the time of the store instead, see `expired_changelogs`.
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
#: The ends by which Kafka's own tools know internal topics.
_INTERNAL = re.compile(
    r"-(changelog|repartition)"
    r"|-subscription-(registration|response)-topic"
    r"|-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
)
_ALL: Mapping[str, str] = {"message.timestamp.type": "CreateTime"}
#: Partitions and settings.
_Wanted = tuple[int, Mapping[str, str]]
#: Written with every batch and read whole by whoever takes over: so it is compacted soon.
_TASKS: _Wanted = (1, {
    **_ALL, "cleanup.policy": "compact", "segment.bytes": "16777216",
    "min.cleanable.dirty.ratio": "0.1",
})


def tasks_topic(application_id: str) -> str:
    """The topic that holds what each task was left with."""
    return f"{application_id}-tasks"


def is_internal(topic: str, application_id: str) -> bool:
    """Whether a topic has the name of one that this application makes for itself."""
    if topic == tasks_topic(application_id):
        return True
    prefix = f"{application_id}-"
    if not topic.startswith(prefix):
        return False
    # The hyphen before the end may be the one behind the application id.
    return any(
        found.end() == len(topic) for found in _INTERNAL.finditer(topic, len(prefix) - 1)
    )


def repartition_settings(config: StreamsConfig) -> dict[str, str]:
    """Of a topic between two sub-topologies; what was read of it is deleted by the engine."""
    return {
        **_ALL, "cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "52428800",
        **_given(config),
    }


def changelog_settings(
    config: StreamsConfig, builder: Any, log_config: Mapping[str, str]
) -> dict[str, str]:
    """Of the changelog of a store. What the user said about it wins, then `topic.` settings."""
    settings = {**_ALL, "cleanup.policy": "compact"}
    if getattr(builder, "is_windowed", False):
        settings |= {"cleanup.policy": "compact,delete"}
    settings |= _given(config) | {name: str(value) for name, value in log_config.items()}
    if getattr(builder, "is_windowed", False) and "retention.ms" not in log_config:
        settings["retention.ms"] = "-1"
    if getattr(builder, "is_versioned", False) and "min.compaction.lag.ms" not in log_config:
        settings["min.compaction.lag.ms"] = str(builder.history_retention_ms + DAY_MS)
    return settings


def window_retention_ms(
    config: StreamsConfig, builder: Any, log_config: Mapping[str, str]
) -> int | None:
    """For how long records of a changelog are wanted by the time of its store; None: for ever."""
    if not getattr(builder, "is_windowed", False) or "retention.ms" in log_config:
        return None
    if "delete" not in changelog_settings(config, builder, log_config)["cleanup.policy"]:
        return None
    # Rows are dropped a segment at a time, so some are seen for longer.
    retention: int = builder.retention_ms + builder.supplier.segment_interval_ms
    return retention + config.windowstore_changelog_additional_retention_ms


def _given(config: StreamsConfig) -> dict[str, str]:
    return {
        name: str(value) for name, value in config.app_configs_with_prefix("topic.").items()
    }


def ensure_internal_topics(log: Log, graph: ExecutionGraph) -> list[str]:
    """Make the topics that are not there; answers their names.

    A topic that is there must have the right number of partitions: rows of one task would
    otherwise be looked for in the wrong place. Its settings are left as they are, because somebody
    may have changed them on purpose; but a changelog that lacks compaction where Kafka Streams
    gives it would lose rows, and is refused.
    """
    return _ensure(log, graph.application_id, {
        tasks_topic(graph.application_id): _TASKS,
        **{
            topic: (graph.partitions[topic], how)
            for topic, how in graph.repartition_topics.items()
        },
        **graph.changelogs,
    })


def ensure_tasks_topic(log: Log, application_id: str) -> None:
    """Make the topic of the task records, if it is not there."""
    _ensure(log, application_id, {tasks_topic(application_id): _TASKS})


def _ensure(log: Log, application_id: str, wanted: Mapping[str, _Wanted]) -> list[str]:
    there = {topic.name: topic for topic in log.topics()}
    for name, how in wanted.items():
        if name in there:
            _check(there[name], how, application_id)
    made = []
    for name, how in wanted.items():
        if name in there:
            continue
        try:
            log.create_topic(name, *how)
        except TopicExists:
            # Another instance that is starting was faster.
            _check(log.topic(name), how, application_id)
        else:
            made.append(name)
    return made


def _check(topic: TopicDescription, how: _Wanted, application_id: str) -> None:
    partitions, settings = how
    if topic.partitions != partitions:
        raise MisconfiguredInternalTopicException(
            f"Existing internal topic {topic.name} has invalid partitions: expected: "
            f"{partitions}; actual: {topic.partitions}. "
            "The number of partitions of a source topic, or of a repartition step, has changed "
            "since the topic was made, and its records are not where they would be looked for. "
            f"Start anew with 'penstock reset {application_id}' or another application id."
        )
    compacts = "compact" in settings["cleanup.policy"]
    if compacts and topic.setting("cleanup.policy") == "delete":
        raise MisconfiguredInternalTopicException(
            f"Existing internal topic {topic.name} is not compacted: its cleanup.policy is "
            "'delete', so rows of the store would get lost. Set it to "
            f"'{settings['cleanup.policy']}' ('penstock topics alter'), or start anew with "
            f"'penstock reset {application_id}'."
        )


def expired_changelogs(
    log: Log, graph: ExecutionGraph, records: Mapping[TaskId, TaskRecord]
) -> dict[TopicPartition, int]:
    """Where the changelogs of window stores may be cut: the records before are of no more use.

    What counts is the time that a store itself has observed, which may be far behind that of its
    task.
    """
    cuts = {}
    for task_id, record in records.items():
        for store, topic in graph.subtopologies[task_id.subtopology].restore_topics.items():
            retention_ms = graph.window_retention_ms.get(topic)
            observed = record.state.store_clocks.get(store, {}).get("stream_time", -1)
            if retention_ms is None or observed <= retention_ms:
                continue
            first = log.offset_for_time(topic, task_id.partition, observed - retention_ms)
            if first is not None:
                cuts[TopicPartition(topic, task_id.partition)] = first.offset
    return cuts
