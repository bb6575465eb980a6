"""Plans and carries out the upgrade of an application to a changed topology.

A store whose name has changed keeps its rows: its changelog is copied to the topic of the new name.
The application must be stopped. Every step of an upgrade leaves a description in the log that is
true, so an interrupted upgrade can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph, build_graph_for_log
from penstock.engine.layout.internal_topics import changelog_topic
from penstock.engine.layout.record_migration import StateNames
from penstock.engine.layout.upgrade_check import (
    UpgradeCheck,
    check_upgrade,
    count_unread,
    migrate_task_records,
    write_records,
)
from penstock.engine.lease import DEFAULT_TIMEOUT_MS, HeldLease
from penstock.engine.plan.task_records import (
    APPLICATION_KEY,
    TaskRecords,
    encode_task,
    read_task_records,
    task_key,
)
from penstock.engine.reset import ApplicationRunning, acquire_lease_if_stopped
from penstock.errors import StreamsException, TopologyException
from penstock.log.base import Lease, Log
from penstock.log.errors import UnknownTopic
from penstock.log.types import TopicPartition
from penstock.record import RecordColumns
from penstock.topology.application_info import (
    ApplicationInfo,
    decode_application,
    encode_application,
)
from penstock.topology.compatibility import StoreDecisions
from penstock.topology.store_advice import exact_name_argument
from penstock.topology.store_matching import match_topics
from penstock.topology.topology import Topology

_HOLDER = "penstock upgrade"
#: The effect of an upgrade on the rows of a store.
Outcome = Literal[
    "kept", "moved", "restored", "lost", "refused", "unclear", "dropped", "removed", "new"
]


@dataclass(frozen=True, slots=True)
class StoreChange:
    """A store of the earlier version, and what becomes of it. A new store has no earlier name."""

    store: str | None
    becomes: tuple[str, ...]
    outcome: Outcome
    #: The records in its changelog; None if it has none.
    records: int | None = None
    #: The step of the new topology that it belongs to, and the code that keeps its name there.
    step: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class TopicChange:
    """An internal topic of the earlier version that may hold unread records."""

    topic: str
    unread: int
    #: The topic of the new topology that carries these records; None if there is none.
    becomes: str | None


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """The effects of an upgrade."""

    application_id: str
    stores: tuple[StoreChange, ...]
    topics: tuple[TopicChange, ...]
    #: Earlier store -> new name, in the order in which they can be renamed.
    moves: Mapping[str, str]
    drops: tuple[str, ...]
    #: Store after all drops and moves -> the store of the new topology that continues it.
    keep: Mapping[str, str]
    #: Why the application cannot continue, with advice.
    refused: tuple[str, ...]
    warnings: tuple[str, ...]
    #: Whether the application can start as it is, without this upgrade.
    is_compatible: bool


def plan_upgrade(
    log: Log, topology: Topology, config: StreamsConfig, *, keep: Mapping[str, str] | None = None,
    drop: Iterable[str] = (),
) -> UpgradePlan:
    """Plan the upgrade of an application. Nothing is written.

    `keep`: earlier store -> the store that continues it. `drop`: earlier stores to give up.
    """
    graph = build_graph_for_log(log, topology, config)
    decisions = StoreDecisions(dict(keep or {}), frozenset(drop), move=True)
    plain = check_upgrade(log, topology, config, graph)
    if plain.before is None:
        raise StreamsException(
            f"Application '{config.application_id}' has no state in this log that penstock has "
            "written. Any topology can start."
        )
    _check_decisions(decisions, plain.before, plain.now)
    check = check_upgrade(log, topology, config, graph, decisions)
    assert check.before is not None
    renamed = {
        name: other for name, other in check.changes.matches.renamed.items()
        if check.before.stores[name].restored_from != check.now.stores[other].restored_from
    }
    moves, swapped = _order_moves(renamed)
    unread = count_unread(log, config.application_id, check.before)
    topics = match_topics(check.before, check.now)
    return UpgradePlan(
        config.application_id,
        tuple(_store_changes(log, check, decisions, moves)),
        tuple(TopicChange(topic, count, topics.get(topic)) for topic, count in unread.items()),
        moves, tuple(sorted(decisions.drop)),
        {other if name in moves else name: other
         for name, other in check.changes.matches.continued.items()},
        (*check.refused, *swapped), check.changes.warnings, not plain.refused,
    )


def _check_decisions(
    decisions: StoreDecisions, before: ApplicationInfo, now: ApplicationInfo
) -> None:
    for name in (*decisions.keep, *decisions.drop):
        if name not in before.stores:
            raise StreamsException(_unknown_store(name, "the earlier version", before))
    for other in decisions.keep.values():
        if other not in now.stores:
            raise StreamsException(_unknown_store(other, "the new topology", now))
    both = sorted(decisions.drop & decisions.keep.keys())
    targets = list(decisions.keep.values())
    twice = sorted({other for other in targets if targets.count(other) > 1})
    if both:
        raise StreamsException(f"Store '{both[0]}' cannot be kept and dropped. Choose one.")
    if twice:
        raise StreamsException(
            f"Store '{twice[0]}' cannot continue two stores. Use --keep once for each new store."
        )


def _unknown_store(name: str, where: str, info: ApplicationInfo) -> str:
    known = ", ".join(f"'{store}'" for store in sorted(info.stores)) or "none"
    return f"Store '{name}' does not exist in {where}. Stores: {known}."


def _order_moves(renamed: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Order the moves so that each target is free; return errors for stores that swap names."""
    pending = dict(renamed)
    moves: dict[str, str] = {}
    while pending:
        free = {name: other for name, other in pending.items() if other not in pending}
        if not free:
            return moves, [
                f"Stores {', '.join(sorted(pending))} exchange their names, so their rows cannot "
                "be moved. Give the steps their old store names."
            ]
        moves |= free
        pending = {name: other for name, other in pending.items() if name not in free}
    return moves, []


def _store_changes(
    log: Log, check: UpgradeCheck, decisions: StoreDecisions, moves: Mapping[str, str]
) -> Iterable[StoreChange]:
    assert check.before is not None
    matches, now = check.changes.matches, check.now
    existing = {topic.name: topic.partitions for topic in log.topics()}
    for name, store in sorted(check.before.stores.items()):
        records = _count(log, store.restored_from, existing)
        if name in decisions.drop:
            yield StoreChange(name, (), "dropped", records)
            continue
        other = matches.continued.get(name)
        candidates = matches.unclear.get(name, () if other is None else (other,))
        step = now.stores[candidates[0]].step if candidates else ""
        code = exact_name_argument(now.stores[candidates[0]].role, name) if candidates else ""
        if other is None:
            outcome: Outcome = "unclear" if candidates else "removed"
            yield StoreChange(name, candidates, outcome, records, step, code)
            continue
        yield StoreChange(
            name, (other,), _outcome(check, name, other, moves), records, step,
            code if name != other else "",
        )
    for name in sorted(now.stores.keys() - matches.continued.values()):
        if not any(name in others for others in matches.unclear.values()):
            yield StoreChange(None, (name,), "new", step=now.stores[name].step)


def _outcome(
    check: UpgradeCheck, name: str, other: str, moves: Mapping[str, str]
) -> Outcome:
    assert check.before is not None
    if any(f"'{name}'" in error for error in check.changes.errors):
        return "refused"
    if name == other:
        return "kept"
    if check.before.stores[name].restored_from is None:
        return "lost"
    return "moved" if name in moves else "restored"


def _count(log: Log, topic: str | None, existing: Mapping[str, int]) -> int | None:
    if topic is None or topic not in existing:
        return None
    bounds = log.offsets(TopicPartition(topic, number) for number in range(existing[topic]))
    return sum(each.end - each.start for each in bounds.values())


def apply_upgrade(
    log: Log, topology: Topology, config: StreamsConfig, plan: UpgradePlan
) -> None:
    """Carry out an upgrade. Refused while an instance runs.

    1. Acquire the lease: no instance can start.
    2. Drop stores: first from the description, then their changelogs.
    3. Move stores one by one: copy the changelog, rename the store in the description and in the
       task records, delete the old changelog.
    4. Copy the unread records of internal topics that have other names.
    5. Write the description of the new topology and the records of its tasks.
    """
    if plan.refused:
        raise TopologyException(plan.refused[0])
    # 1. Lease
    lease = _acquire_lease(log, plan.application_id)
    held = HeldLease(lease, DEFAULT_TIMEOUT_MS)
    try:
        mover = _StoreMover(log, lease, plan.application_id, config, topology)
        # 2. Drops
        for name in plan.drops:
            mover.drop(name)
        # 3. Moves
        for name, other in plan.moves.items():
            mover.move(name, other)
        # 4. Unread records
        for topic in plan.topics:
            if topic.unread and topic.becomes not in (None, topic.topic):
                mover.move_unread(topic.topic, topic.becomes)
        # 5. Description
        graph = build_graph_for_log(log, topology, config)
        decisions = StoreDecisions(plan.keep, move=True)
        migrate_task_records(log, lease, topology, config, graph, decisions)
    finally:
        held.release()


def _acquire_lease(log: Log, application_id: str) -> Lease:
    try:
        return acquire_lease_if_stopped(log, application_id, holder=_HOLDER)
    except ApplicationRunning as running:
        raise ApplicationRunning(f"{running} Stop all its instances first.") from None


class _StoreMover:
    """Renames and drops stores in the state of a stopped application."""

    def __init__(
        self, log: Log, lease: Lease, application_id: str, config: StreamsConfig,
        topology: Topology,
    ) -> None:
        self._log = log
        self._lease = lease
        self._id = application_id
        self._graph: ExecutionGraph = build_graph_for_log(log, topology, config)
        self._replication = config.replication_factor

    def drop(self, name: str) -> None:
        """Remove a store from the state and delete its changelog."""
        records, info = self._state()
        topic = info.stores[name].restored_from
        self._write(records, info.without_stores([name]), StateNames(forgotten=frozenset({name})))
        if topic == changelog_topic(self._id, name):
            self._delete(topic)

    def move(self, name: str, other: str) -> None:
        """Give a store another name, with its rows and clocks."""
        records, info = self._state()
        source, target = (changelog_topic(self._id, each) for each in (name, other))
        is_logged = info.stores[name].restored_from == source
        if is_logged:
            # Nothing refers to the target: it is left over from an earlier version, or from an
            # upgrade that was interrupted.
            self._delete(target)
            self._create(target, *self._graph.changelogs[target])
            self._copy(source, target)
        restored_from = target if is_logged else info.stores[name].restored_from
        self._write(
            records, info.rename_store(name, other, restored_from), StateNames({name: other})
        )
        if is_logged:
            self._delete(source)

    def move_unread(self, source: str, target: str) -> None:
        """Append the unread records of an internal topic to another one, as consumed here."""
        if all(topic.name != target for topic in self._log.topics()):
            self._create(
                target, self._graph.partitions[target], self._graph.repartition_topics[target]
            )
        partitions = [
            TopicPartition(source, number) for number in range(self._log.topic(source).partitions)
        ]
        committed = self._log.committed(self._id, partitions)
        for at, bounds in self._log.offsets(partitions).items():
            first = max(bounds.start, committed[at].offset if at in committed else 0)
            with self._log.transaction(self._lease) as transaction:
                for batch in self._log.read(source, at.partition, first, bounds.end):
                    transaction.append(target, at.partition, _without_offsets(batch.columns()))
                transaction.commit_offsets(self._id, {at: bounds.end})

    def _create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        self._log.create_topic(
            topic, partitions, settings, replication_factor=self._replication
        )

    def _state(self) -> tuple[TaskRecords, ApplicationInfo]:
        records = read_task_records(self._log, self._id)
        assert records.application is not None
        return records, decode_application(records.application)

    def _write(self, records: TaskRecords, info: ApplicationInfo, names: StateNames) -> None:
        written: dict[bytes, bytes | None] = {
            task_key(task_id): encode_task(names.rename(record))
            for task_id, record in records.tasks.items()
        }
        written[APPLICATION_KEY] = encode_application(info)
        write_records(self._log, self._lease, self._id, written)

    def _copy(self, source: str, target: str) -> None:
        partitions = range(self._log.topic(source).partitions)
        bounds = self._log.offsets(TopicPartition(source, number) for number in partitions)
        for at, offsets in bounds.items():
            for batch in self._log.read(source, at.partition, offsets.start, offsets.end):
                with self._log.transaction(self._lease) as transaction:
                    transaction.append(target, at.partition, _without_offsets(batch.columns()))

    def _delete(self, topic: str) -> None:
        try:
            self._log.delete_topic(topic)
        except UnknownTopic:
            return


def _without_offsets(rows: RecordColumns) -> RecordColumns:
    return RecordColumns(rows.keys, rows.values, rows.timestamps, rows.headers)
