"""The upgrade check: compares a topology with the existing state when an application starts.

Each start stores a description of the application (`topology/compatibility.py`) beside the task
records. If the topology has changed since, an incompatible change is refused, and the records are
migrated to the tasks that continue from them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.layout.internal_topics import ensure_tasks_topic, tasks_topic
from penstock.engine.plan.task_records import (
    APPLICATION_KEY,
    TaskRecord,
    TaskRecords,
    encode_task,
    read_task_records,
    task_key,
)
from penstock.errors import StreamsException, TopologyException
from penstock.log.base import Lease, Log
from penstock.log.types import TopicPartition
from penstock.record import RecordColumns, TaskId
from penstock.stores.buffers.join_grace import JoinGraceBufferBuilder
from penstock.stores.buffers.suppress import SuppressBufferBuilder
from penstock.task.blueprint import Blueprint
from penstock.task.result import TaskState
from penstock.topology.compatibility import (
    ApplicationInfo,
    CompatibilityReport,
    GroupInfo,
    StoreInfo,
    compare,
    decode_application,
    encode_application,
)
from penstock.topology.nodes import SinkNode
from penstock.topology.topology import Topology

log = logging.getLogger(__name__)

_BUFFER_KINDS = {SuppressBufferBuilder: "suppress_buffer", JoinGraceBufferBuilder: "join_buffer"}


def migrate_task_records(
    target: Log, lease: Lease | None, topology: Topology, config: StreamsConfig,
    graph: ExecutionGraph,
) -> TaskRecords:
    """Return the task records from which the application resumes, migrated to its topology.

    Raise if the topology is not compatible with the existing state. Call this before internal
    topics are created: an existing changelog of a new store holds outdated rows. All changes are
    written in one transaction, so an interrupted start has no partial effect.
    """
    ensure_tasks_topic(target, config.application_id)
    records = read_task_records(target, config.application_id)
    if records.is_reset_incomplete:
        raise StreamsException(
            f"A reset of application '{config.application_id}' was interrupted. A part of its "
            "state is deleted. Complete the reset with 'penstock reset "
            f"{config.application_id}'."
        )
    now = describe_application(topology, config, graph)
    if records.application is None or records.batch is None:
        # No batch was committed under the old description, or a Kafka Streams application has
        # left its changelogs and offsets here. They are used as they are.
        _write(target, lease, config.application_id, {APPLICATION_KEY: encode_application(now)})
        return records
    before = decode_application(records.application)
    changes = compare(before, now, lambda store: f"{config.application_id}-{store}-changelog")
    refused = [
        *changes.errors, *_outdated_changelogs(target, before, now),
        *_unread_topics(target, config, before, now),
    ]
    if refused:
        raise _incompatible(refused, config.application_id)
    for warning in changes.warnings:
        log.warning("%s", warning)
    tasks = map_task_records(records, changes, graph)
    written: dict[bytes, bytes | None] = {
        task_key(task_id): encode_task(record) for task_id, record in tasks.items()
        if records.tasks.get(task_id) != record
    }
    written |= {task_key(task_id): None for task_id in records.tasks if task_id not in tasks}
    if before != now:
        written[APPLICATION_KEY] = encode_application(now)
    if written:
        _write(target, lease, config.application_id, written)
    return replace(records, tasks=tasks, application=encode_application(now))


def describe_application(
    topology: Topology, config: StreamsConfig, graph: ExecutionGraph
) -> ApplicationInfo:
    """Describe a topology on a log."""
    groups = {}
    stores = {}
    for number, each in graph.subtopologies.items():
        blueprint = Blueprint.of(topology, config, [number])
        groups[number] = GroupInfo(
            each.tasks, tuple(sorted(topic for _, topic in each.reads)),
            tuple(sorted({
                blueprint.topic(node.topic) for node in blueprint.nodes
                if isinstance(node, SinkNode) and isinstance(node.topic, str)
            })),
            tuple(sorted(store.name for store in blueprint.stores)),
        )
        for store in blueprint.stores:
            builder = store.spec.resolve(config)
            supplier = getattr(builder, "supplier", None)
            duplicates = getattr(supplier, "retain_duplicates", False)
            stores[store.name] = StoreInfo(
                getattr(builder, "kind", _BUFFER_KINDS.get(type(builder), "custom")), each.tasks,
                each.restore_topics.get(store.name),
                # Rows of single records do not depend on the window size.
                None if duplicates else getattr(supplier, "window_size_ms", None), duplicates,
                next(node for node, used in blueprint.connected.items() if store.name in used),
            )
    return ApplicationInfo(groups, stores, tuple(sorted(graph.repartition_topics)))


def map_task_records(
    records: TaskRecords, changes: CompatibilityReport, graph: ExecutionGraph
) -> dict[TaskId, TaskRecord]:
    """Return task -> the record from which it resumes. New tasks have none."""
    found = {}
    for task_id in graph.tasks:
        before = [
            records.tasks[TaskId(group, task_id.partition)]
            for group in changes.predecessors.get(task_id.subtopology, ())
            if TaskId(group, task_id.partition) in records.tasks
        ]
        if before:
            found[task_id] = before[0] if len(before) == 1 else _merge_records(before)
    return found


def _merge_records(records: list[TaskRecord]) -> TaskRecord:
    """Merge the records of several tasks: their names are disjoint, and the latest clock wins."""
    states = [record.state for record in records]
    last = max(records, key=lambda record: record.batch)
    times: dict[tuple[str, int], int] = {}
    for state in states:
        for at, time in state.partition_times.items():
            times[at] = max(time, times.get(at, time))
    due = [each.next_wall_punctuation for each in records if each.next_wall_punctuation is not None]
    return TaskRecord(
        last.batch, last.attempt,
        TaskState(
            max(state.stream_time for state in states), times,
            {name: time for state in states for name, time in state.clocks.items()},
            {name: clocks for state in states for name, clocks in state.store_clocks.items()},
            tuple(each for state in states for each in state.stream_schedules),
            tuple(each for state in states for each in state.wall_schedules),
            max(state.null_keys_sent for state in states),
        ),
        {name: at for record in records for name, at in record.positions.items()},
        {name: at for record in records for name, at in record.shuffled_offsets.items()},
        min(due, default=None),
    )


def _outdated_changelogs(
    target: Log, before: ApplicationInfo, now: ApplicationInfo
) -> Iterable[str]:
    """Report the stores that are new to the application but whose changelogs hold rows."""
    existing = {topic.name: topic.partitions for topic in target.topics()}
    for name in sorted(now.stores.keys() - before.stores.keys()):
        topic = now.stores[name].restored_from
        if topic is None or topic not in existing or not topic.endswith(f"-{name}-changelog"):
            continue
        bounds = target.offsets(TopicPartition(topic, n) for n in range(existing[topic]))
        if any(each.start < each.end for each in bounds.values()):
            yield (
                f"Store '{name}' is new, but its changelog '{topic}' holds rows of an earlier "
                "version, without anything that was processed since. Delete the changelog to "
                f"start with an empty store: 'penstock topics delete {topic}'."
            )


def _unread_topics(
    target: Log, config: StreamsConfig, before: ApplicationInfo, now: ApplicationInfo
) -> Iterable[str]:
    """Report repartition topics with unread records that no sub-topology would read any more."""
    existing = {topic.name: topic.partitions for topic in target.topics()}
    for topic in before.through_log:
        if topic in now.through_log or topic not in existing:
            continue
        partitions = [TopicPartition(topic, number) for number in range(existing[topic])]
        committed = target.committed(config.application_id, partitions)
        bounds = target.offsets(partitions)
        unread = sum(
            bounds[at].end - max(bounds[at].start, committed[at].offset if at in committed else 0)
            for at in partitions
        )
        if unread:
            yield (
                f"Topic '{topic}' holds {unread} unread records, and no processor reads it any "
                "more. Run the previous version until it has caught up (penstock run --once)."
            )


def _incompatible(refused: list[str], application_id: str) -> TopologyException:
    listed = "\n".join(f"- {each}" for each in refused)
    return TopologyException(
        f"The topology does not fit the existing state of application '{application_id}':\n"
        f"{listed}\n"
        f"Alternatively, delete the state with 'penstock reset {application_id}', or keep it and "
        "use another application id."
    )


def _write(
    target: Log, lease: Lease | None, application_id: str, records: dict[bytes, bytes | None]
) -> None:
    with target.transaction(lease) as transaction:
        transaction.append(
            tasks_topic(application_id), 0, RecordColumns(list(records), list(records.values()))
        )
