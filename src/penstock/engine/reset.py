"""Lets an application begin anew: offsets of its input, and nothing of what it has kept.

The counterpart of Kafka's `StreamsResetter`. It works on any log. A reset that is cut short is not
mistaken for a whole one: a mark in the topic of task records, which is deleted last, keeps the
application from starting in between; running the reset again finishes it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from penstock.engine.layout.internal_topics import ensure_tasks_topic, is_internal, tasks_topic
from penstock.engine.lease import DEFAULT_TIMEOUT_MS, lease_name
from penstock.engine.plan.task_records import RESET_KEY, read_task_records
from penstock.errors import StreamsException
from penstock.log.base import Lease, Log
from penstock.log.errors import GroupNotEmpty, UnknownTopic
from penstock.log.types import PartitionOffsets, TopicPartition
from penstock.record import RecordColumns
from penstock.topology.compatibility import decode_application

#: How long to look whether the holder of the lease lives.
PATIENCE_MS = DEFAULT_TIMEOUT_MS + 1_000
_HOLDER = "penstock reset"


class ApplicationRunning(StreamsException):
    """The application would go on as if nothing had happened."""


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Where the input is to be read from. Offsets outside of a partition become its start or end.

    `number`: an offset, a difference, or epoch milliseconds. `offsets`: "file" only.
    """

    kind: Literal["earliest", "latest", "offset", "time", "shift", "file"] = "earliest"
    number: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    def of(
        self, log: Log, at: TopicPartition, bounds: PartitionOffsets, before: int | None
    ) -> int:
        """The offset for one partition."""
        if self.kind == "earliest":
            return bounds.start
        if self.kind == "latest":
            return bounds.end
        if self.kind == "time":
            found = log.offset_for_time(*at, self.number)
            return bounds.end if found is None else found.offset
        if self.kind == "shift":
            wanted = (bounds.start if before is None else before) + self.number
        elif self.kind == "file":
            wanted = self.offsets[at]
        else:
            wanted = self.number
        return min(max(wanted, bounds.start), bounds.end)


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """All that a reset does."""

    application_id: str
    #: (before, after); None: nothing was committed.
    offsets: Mapping[TopicPartition, tuple[int | None, int]]
    #: The topic of task records is the last one.
    deleted_topics: tuple[str, ...]
    #: The local state of this host, if it is to go and is there.
    state: Path | None = None


def plan_reset(
    log: Log, application_id: str, target: ResetTarget, *, input_topics: Collection[str] = (),
    state_dir: Path | None = None,
) -> ResetPlan:
    """What a reset would do. Without `input_topics`: all that the application has read."""
    known = {topic.name: topic.partitions for topic in log.topics()}
    for topic in (*input_topics, *(at.topic for at in target.offsets)):
        if topic not in known:
            raise UnknownTopic(topic, known)
    committed = {
        at: offset.offset for at, offset in log.committed(application_id).items()
        if at.topic in known
    }
    internal = find_internal_topics(known, application_id)
    described = _described_inputs(log, application_id)
    if not (committed or internal or input_topics or target.offsets):
        raise _unknown(known, application_id)
    topics = set(input_topics) or {*(at.topic for at in committed), *described}
    if target.kind == "file":
        partitions = sorted(target.offsets)
    else:
        partitions = sorted(
            TopicPartition(topic, number) for topic in topics
            if topic in known and (topic in input_topics or topic not in internal)
            for number in range(known[topic])
        )
    bounds = log.offsets(partitions)
    state = None if state_dir is None else state_dir / application_id
    return ResetPlan(
        application_id,
        {
            at: (committed.get(at), target.of(log, at, bounds[at], committed.get(at)))
            for at in partitions
        },
        tuple(internal), state if state is not None and state.exists() else None,
    )


def apply_reset(log: Log, plan: ResetPlan, *, force: bool = False) -> None:
    """Do it; refused while an instance runs, unless it is to be thrown out.

    1. Take the lease: nobody else runs, or is refused from then on.
    2. Mark the reset as begun.
    3. Delete changelogs and repartition topics, and the local state.
    4. Set the offsets.
    5. Delete the topic of task records, and the mark with it.
    """
    application_id = plan.application_id
    members = log.group(application_id).members
    if members and not force:
        raise GroupNotEmpty(application_id, [member.member_id for member in members])
    # 1.
    lease = _take_lease(log, application_id, force)
    try:
        # 2.
        tasks = tasks_topic(application_id)
        ensure_tasks_topic(log, application_id)
        with log.transaction(lease) as transaction:
            transaction.append(tasks, 0, RecordColumns([RESET_KEY], [b"{}"]))
        # 3.
        for topic in plan.deleted_topics:
            if topic != tasks:
                _delete(log, topic)
        if plan.state is not None:
            from penstock.stores.replica.generations import clean_up  # noqa: PLC0415  (loads LMDB)

            clean_up(plan.state.parent, plan.state.name)
        # 4.
        if plan.offsets:
            with log.transaction(lease) as transaction:
                transaction.commit_offsets(
                    application_id, {at: after for at, (_, after) in plan.offsets.items()}
                )
        # 5.
        _delete(log, tasks)
    finally:
        lease.release()


def _delete(log: Log, topic: str) -> None:
    try:
        log.delete_topic(topic)
    except UnknownTopic:
        # Deleted by somebody else meanwhile, or by a reset that was cut short.
        return


def _take_lease(log: Log, application_id: str, force: bool) -> Lease:
    if force:
        return log.take_lease(lease_name(application_id), holder=_HOLDER)
    try:
        return acquire_lease_if_stopped(log, application_id)
    except ApplicationRunning as running:
        raise ApplicationRunning(
            f"{running} Stop it first, or give --force to throw it out."
        ) from None


def acquire_lease_if_stopped(log: Log, application_id: str) -> Lease:
    """The lease of an application that does not run, so that it does not start meanwhile."""
    name = lease_name(application_id)
    candidate = log.candidate(name, holder=_HOLDER, timeout_ms=DEFAULT_TIMEOUT_MS)
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while (lease := candidate.try_acquire()) is None:
        if time.monotonic() >= deadline:
            raise ApplicationRunning(
                f"Application '{application_id}' is running: an instance holds its lease."
            )
        time.sleep(0.1)
    return lease


def find_internal_topics(topics: Iterable[str], application_id: str) -> list[str]:
    """Those of the topics that the application has made for itself; task records last.

    Topics of another application whose id begins with this one are not among them.
    """
    topics = list(topics)
    own = tasks_topic(application_id)
    others = [
        name.removesuffix("-tasks") for name in topics
        if name != own and name.startswith(f"{application_id}-") and name.endswith("-tasks")
    ]
    found = [
        name for name in topics
        if is_internal(name, application_id)
        and (name == own or not any(is_internal(name, other) for other in others))
    ]
    return sorted(found, key=lambda name: (name == own, name))


def _described_inputs(log: Log, application_id: str) -> set[str]:
    """The topics that the application has read, as far as it has said so."""
    try:
        data = read_task_records(log, application_id).application
        if data is None:
            return set()
        groups = decode_application(data).groups.values()
    except StreamsException:
        # Records that cannot be read are a reason for a reset, not against it.
        return set()
    return {topic for group in groups for topic in group.reads}


def _unknown(topics: Iterable[str], application_id: str) -> StreamsException:
    known = sorted(name.removesuffix("-tasks") for name in topics if name.endswith("-tasks"))
    listed = ", ".join(f"'{name}'" for name in known) or "none"
    return StreamsException(
        f"Nothing is known of an application '{application_id}': it has no offsets and no internal "
        f"topics in this log. Applications: {listed}."
    )
