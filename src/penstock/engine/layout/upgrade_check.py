"""The upgrade check: compares a topology with the existing state when an application starts.

Each start stores a description of the application (`topology/application_info.py`) beside the task
records. If the topology has changed since, an incompatible change is refused, and the records are
migrated to the tasks that continue from them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from penstock.config import StreamsConfig
from penstock.engine.layout.application_description import describe_application
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.layout.internal_topics import (
    changelog_topic,
    ensure_tasks_topic,
    tasks_topic,
)
from penstock.engine.layout.record_migration import StateNames, map_task_records
from penstock.engine.plan.task_records import (
    APPLICATION_KEY,
    TaskRecords,
    encode_task,
    read_task_records,
    task_key,
)
from penstock.errors import StreamsException, TopologyException
from penstock.log.base import Lease, Log
from penstock.log.types import TopicPartition
from penstock.record import RecordColumns
from penstock.topology.application_info import (
    ApplicationInfo,
    decode_application,
    encode_application,
)
from penstock.topology.compatibility import CompatibilityReport, StoreDecisions, compare
from penstock.topology.store_matching import match_topics
from penstock.topology.topology import Topology

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class UpgradeCheck:
    """A topology compared with the existing state of its application."""

    records: TaskRecords
    now: ApplicationInfo
    #: The version that the state belongs to; None if there is no state that penstock has written.
    before: ApplicationInfo | None = None
    changes: CompatibilityReport = field(default_factory=CompatibilityReport)
    #: The reasons why the application cannot continue, each with advice.
    refused: tuple[str, ...] = ()


def check_upgrade(
    target: Log, topology: Topology, config: StreamsConfig, graph: ExecutionGraph,
    decisions: StoreDecisions | None = None,
) -> UpgradeCheck:
    """Compare a topology with the existing state. Nothing is written."""
    application_id = config.application_id
    records = read_task_records(target, application_id)
    if records.is_reset_incomplete:
        raise StreamsException(
            f"A reset of application '{application_id}' was interrupted. A part of its "
            "state is deleted. Complete the reset with 'penstock reset "
            f"{application_id}'."
        )
    now = describe_application(topology, config, graph)
    if records.application is None or records.batch is None:
        # No batch was committed under the old description, or a Kafka Streams application has
        # left its changelogs and offsets here. They are used as they are.
        return UpgradeCheck(records, now)
    before = decode_application(records.application).completed()
    changes = compare(
        before, now, lambda store: changelog_topic(application_id, store), decisions
    )
    refused = (
        *changes.errors, *_outdated_changelogs(target, before, now, changes, decisions),
        *_unread_topics(target, config, before, now, decisions),
    )
    return UpgradeCheck(records, now, before, changes, refused)


def migrate_task_records(
    target: Log, lease: Lease | None, topology: Topology, config: StreamsConfig,
    graph: ExecutionGraph, decisions: StoreDecisions | None = None,
) -> TaskRecords:
    """Return the task records from which the application resumes, migrated to its topology.

    Raise if the topology is not compatible with the existing state. Call this before internal
    topics are created: an existing changelog of a new store holds outdated rows. All changes are
    written in one transaction, so an interrupted start has no partial effect.
    """
    application_id = config.application_id
    ensure_tasks_topic(target, application_id, config.replication_factor)
    check = check_upgrade(target, topology, config, graph, decisions)
    records, before, now = check.records, check.before, check.now
    if before is None:
        write_records(target, lease, application_id, {APPLICATION_KEY: encode_application(now)})
        return records
    if check.refused:
        raise _incompatible(check.refused, application_id)
    for warning in check.changes.warnings:
        log.warning("%s", warning)
    names = StateNames.of(before, now, check.changes, application_id)
    tasks = map_task_records(records, check.changes, graph, names)
    written: dict[bytes, bytes | None] = {
        task_key(task_id): encode_task(record) for task_id, record in tasks.items()
        if records.tasks.get(task_id) != record
    }
    written |= {task_key(task_id): None for task_id in records.tasks if task_id not in tasks}
    if before != now:
        written[APPLICATION_KEY] = encode_application(now)
    if written:
        write_records(target, lease, application_id, written)
    return replace(records, tasks=tasks, application=encode_application(now))


def _outdated_changelogs(
    target: Log, before: ApplicationInfo, now: ApplicationInfo, changes: CompatibilityReport,
    decisions: StoreDecisions | None,
) -> Iterable[str]:
    """Report the stores that are new to the application but whose changelogs hold rows."""
    existing = {topic.name: topic.partitions for topic in target.topics()}
    new = now.stores.keys() - before.stores.keys()
    if decisions is not None and decisions.move:
        # An upgrade replaces these changelogs.
        new -= set(changes.matches.continued.values())
    for name in sorted(new):
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
    target: Log, config: StreamsConfig, before: ApplicationInfo, now: ApplicationInfo,
    decisions: StoreDecisions | None,
) -> Iterable[str]:
    """Report repartition topics with unread records that no sub-topology would read any more."""
    read: Collection[str] = now.through_log
    if decisions is not None and decisions.move:
        # An upgrade moves their records to the topics that are read.
        read = match_topics(before, now)
    for topic, unread in count_unread(target, config.application_id, before).items():
        if unread and topic not in read:
            yield (
                f"Topic '{topic}' holds {unread} unread records, and no processor reads it any "
                "more. Run the previous version until it has caught up (penstock run --once)."
            )


def count_unread(target: Log, application_id: str, info: ApplicationInfo) -> dict[str, int]:
    """Return internal topic in the log -> the number of its records that are not consumed yet."""
    existing = {topic.name: topic.partitions for topic in target.topics()}
    unread = {}
    for topic in info.through_log:
        if topic not in existing:
            continue
        partitions = [TopicPartition(topic, number) for number in range(existing[topic])]
        committed = target.committed(application_id, partitions)
        bounds = target.offsets(partitions)
        unread[topic] = sum(
            bounds[at].end - max(bounds[at].start, committed[at].offset if at in committed else 0)
            for at in partitions
        )
    return unread


def _incompatible(refused: Iterable[str], application_id: str) -> TopologyException:
    listed = "\n".join(f"- {each}" for each in refused)
    return TopologyException(
        f"The topology does not fit the existing state of application '{application_id}':\n"
        f"{listed}\n"
        f"'penstock upgrade FILE --application-id {application_id} --plan' lists all stores. "
        "Without --plan it moves rows to new store names, and takes --keep and --drop.\n"
        f"Alternatively, delete the state with 'penstock reset {application_id}', or keep it and "
        "use another application id."
    )


def write_records(
    target: Log, lease: Lease | None, application_id: str, records: dict[bytes, bytes | None]
) -> None:
    """Write records to the topic of the task records, in one transaction."""
    with target.transaction(lease) as transaction:
        transaction.append(
            tasks_topic(application_id), 0, RecordColumns(list(records), list(records.values()))
        )
