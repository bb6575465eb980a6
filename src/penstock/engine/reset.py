"""Resets an application so that it reprocesses its input: new offsets, and no other state.

The counterpart of Kafka's `StreamsResetter`, for any log. An interrupted reset leaves a marker in
the topic of the task records, which is deleted last. The marker prevents the application from
starting. Running the reset again completes it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from penstock.engine.layout.internal_topics import ensure_tasks_topic, is_internal, tasks_topic
from penstock.engine.lease import DEFAULT_TIMEOUT_MS, HeldLease, lease_name
from penstock.engine.plan.task_records import RESET_KEY, read_task_records
from penstock.errors import StreamsException
from penstock.log.base import Lease, Log
from penstock.log.errors import GroupNotEmpty, UnknownTopic
from penstock.log.types import PartitionOffsets, TopicPartition
from penstock.record import RecordColumns
from penstock.suggestions import did_you_mean, listed
from penstock.topology.application_info import decode_application

#: How long a reset waits for the lease of a holder that may have crashed.
ACQUIRE_TIMEOUT_MS = DEFAULT_TIMEOUT_MS + 1_000
_HOLDER = "penstock reset"


class ApplicationRunning(StreamsException):
    """An instance of the application is running."""


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """The new position of the input. Offsets outside of a partition become its start or end.

    `number` is an offset, a difference, or epoch milliseconds. `offsets` is for "file" only.
    """

    kind: Literal["earliest", "latest", "offset", "time", "shift", "file"] = "earliest"
    number: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    def resolve(
        self, log: Log, at: TopicPartition, bounds: PartitionOffsets, before: int | None
    ) -> int:
        """Return the new offset of a partition. `before`: the committed one."""
        if self.kind == "earliest":
            return bounds.start
        if self.kind == "latest":
            return bounds.end
        if self.kind == "time":
            found = log.offset_for_time(*at, self.number)
            return bounds.end if found is None else found.offset
        if self.kind == "shift":
            offset = (bounds.start if before is None else before) + self.number
        elif self.kind == "file":
            offset = self.offsets[at]
        else:
            offset = self.number
        return min(max(offset, bounds.start), bounds.end)


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The effects of a reset."""

    application_id: str
    #: Partition -> (offset before, offset after). None: no offset was committed.
    offsets: Mapping[TopicPartition, tuple[int | None, int]]
    #: The topic of the task records is the last one.
    deleted_topics: tuple[str, ...]
    #: The local state of this host, if it exists and is to be deleted.
    state: Path | None = None


def plan_reset(
    log: Log, application_id: str, target: ResetTarget, *, input_topics: Collection[str] = (),
    state_dir: Path | None = None,
) -> ResetPlan:
    """Plan a reset. Without `input_topics`, it covers all topics that the application has read."""
    known = {topic.name: topic.partitions for topic in log.topics()}
    for topic in (*input_topics, *(at.topic for at in target.offsets)):
        if topic not in known:
            raise UnknownTopic(topic, known)
    committed = {
        at: offset.offset for at, offset in log.committed(application_id).items()
        if at.topic in known
    }
    internal = find_internal_topics(known, application_id)
    recorded = _recorded_inputs(log, application_id)
    if not (committed or internal or input_topics or target.offsets):
        raise _unknown_application(known, application_id)
    topics = set(input_topics) or {*(at.topic for at in committed), *recorded}
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
            at: (committed.get(at), target.resolve(log, at, bounds[at], committed.get(at)))
            for at in partitions
        },
        tuple(internal), state if state is not None and state.exists() else None,
    )


@contextmanager
def stopped_application(log: Log, application_id: str) -> Iterator[Lease]:
    """Hold the lease of an application during the block. Raise if an instance is running."""
    members = log.group(application_id).members
    if members:
        raise GroupNotEmpty(application_id, [member.member_id for member in members])
    try:
        lease = acquire_lease_if_stopped(log, application_id)
    except ApplicationRunning as running:
        raise ApplicationRunning(
            f"{running} Stop it first, or use --force to fence it."
        ) from None
    held = HeldLease(lease, DEFAULT_TIMEOUT_MS)
    try:
        yield lease
    finally:
        held.release()


@contextmanager
def fenced_application(log: Log, application_id: str) -> Iterator[Lease]:
    """Hold the lease of an application during the block. A running instance is fenced."""
    lease = log.take_lease(lease_name(application_id), holder=_HOLDER)
    try:
        yield lease
    finally:
        lease.release()


def apply_reset(log: Log, plan: ResetPlan, lease: Lease) -> None:
    """Carry out a reset.

    1. The caller holds the lease: no instance runs, or it is fenced.
    2. Write the marker.
    3. Delete changelogs and repartition topics, and the local state.
    4. Set the offsets.
    5. Delete the topic of the task records, and the marker with it.
    """
    application_id = plan.application_id
    # 2. Marker
    tasks = tasks_topic(application_id)
    ensure_tasks_topic(log, application_id)
    with log.transaction(lease) as transaction:
        transaction.append(tasks, 0, RecordColumns([RESET_KEY], [b"{}"]))
    # 3. Internal topics and local state
    for topic in plan.deleted_topics:
        if topic != tasks:
            _delete(log, topic)
    if plan.state is not None:
        from penstock.stores.replica.generations import clean_up  # noqa: PLC0415  (loads LMDB)

        clean_up(plan.state.parent, plan.state.name)
    # 4. Offsets
    if plan.offsets:
        with log.transaction(lease) as transaction:
            transaction.commit_offsets(
                application_id, {at: after for at, (_, after) in plan.offsets.items()}
            )
    # 5. Task records
    _delete(log, tasks)


def _delete(log: Log, topic: str) -> None:
    try:
        log.delete_topic(topic)
    except UnknownTopic:
        # Another process or an interrupted reset has deleted it.
        return


def acquire_lease_if_stopped(
    log: Log, application_id: str, *, holder: str = _HOLDER
) -> Lease:
    """Acquire the lease, so that the application cannot start. Raise if it is running."""
    name = lease_name(application_id)
    candidate = log.candidate(name, holder=holder, timeout_ms=DEFAULT_TIMEOUT_MS)
    deadline = time.monotonic() + ACQUIRE_TIMEOUT_MS / 1000
    while (lease := candidate.try_acquire()) is None:
        if candidate.holder_is_alive or time.monotonic() >= deadline:
            raise ApplicationRunning(
                f"Application '{application_id}' is running: "
                f"{candidate.holder or 'an instance'} holds its lease."
            )
        time.sleep(0.1)
    return lease


def find_internal_topics(topics: Iterable[str], application_id: str) -> list[str]:
    """Return the internal topics of an application, the topic of the task records last.

    Topics of other applications whose id starts with this one are not included.
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


def _recorded_inputs(log: Log, application_id: str) -> set[str]:
    """Return the topics that the application has read, according to its own record."""
    try:
        data = read_task_records(log, application_id).application
        if data is None:
            return set()
        groups = decode_application(data).groups.values()
    except StreamsException:
        # Unreadable records are a reason for a reset, not against it.
        return set()
    return {topic for group in groups for topic in group.reads}


def _unknown_application(topics: Iterable[str], application_id: str) -> StreamsException:
    known = sorted(name.removesuffix("-tasks") for name in topics if name.endswith("-tasks"))
    return StreamsException(
        f"Application '{application_id}' does not exist: it has no offsets and no internal topics "
        f"in this log.{did_you_mean(application_id, known)} Applications: {listed(known)}."
    )
