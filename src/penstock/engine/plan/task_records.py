"""The committed state of each task, as stored in the log. The planner starts from it.

All records are in the compacted topic `<application>-tasks`. They are written in the same
transaction as the batch that they describe. The keys are `0_1` for a task, `batch` for the last
batch, `application` for the description of the application at its last start, and `reset` for the
marker of an incomplete reset. The values are JSON; equal records have equal bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from penstock.engine.layout.internal_topics import tasks_topic
from penstock.engine.plan.batch_plan import BatchPlan
from penstock.errors import StreamsException
from penstock.log.base import Log
from penstock.log.errors import UnknownTopic
from penstock.log.types import TopicPartition
from penstock.record import TaskId
from penstock.task.punctuation import ScheduleState
from penstock.task.result import TaskState

#: Incremented when the meaning of a field changes.
FORMAT_VERSION = 1
BATCH_KEY = b"batch"
APPLICATION_KEY = b"application"
RESET_KEY = b"reset"
_TASK_KEY = re.compile(rb"(\d+)_(\d+)")


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """The state of a task after the batch that last changed it."""

    batch: int
    attempt: int
    state: TaskState = field(default_factory=TaskState)
    #: Store -> the end of its changelog after that batch. For checks and display only: the
    #: planner reads the ends from the log. A lane writes the positions that it expects, which are
    #: too small on Kafka, and reports the real ones to its driver.
    positions: Mapping[str, int] = field(default_factory=dict)
    #: Topic that the shuffle carries -> how many of its records the task has consumed.
    shuffled_offsets: Mapping[str, int] = field(default_factory=dict)
    #: Epoch milliseconds; None if nothing is scheduled.
    next_wall_punctuation: int | None = None
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """The last batch."""

    number: int
    #: Its wall clock. That of the next batch is not earlier.
    now: int
    #: (global topic, partition) -> the end offset that the batch saw.
    global_positions: Mapping[tuple[str, int], int] = field(default_factory=dict)
    #: Source topic -> its partitions. The batch has committed an offset for all of them, so one
    #: that is missing later is lost.
    sources: Mapping[str, int] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    @classmethod
    def of(cls, plan: BatchPlan, sources: Mapping[str, int]) -> BatchRecord:
        """Create the record of a batch. `sources`: `ExecutionGraph.source_topics`."""
        return cls(plan.number, plan.now, dict(plan.global_positions), dict(sources))


@dataclass(frozen=True, slots=True)
class TaskRecords:
    """All records of an application. Empty before the first batch."""

    tasks: Mapping[TaskId, TaskRecord] = field(default_factory=dict)
    batch: BatchRecord | None = None
    #: See `penstock.topology.compatibility`.
    application: bytes | None = None
    #: A reset was interrupted. A part of the state is deleted, so the application cannot start.
    is_reset_incomplete: bool = False


class _WireState(msgspec.Struct, omit_defaults=True):
    stream_time: int = -1
    partition_times: list[tuple[str, int, int]] = []
    clocks: dict[str, int] = {}
    store_clocks: dict[str, dict[str, int]] = {}
    stream_schedules: list[tuple[str, int, int, bool]] = []
    wall_schedules: list[tuple[str, int, int, bool]] = []
    null_keys_sent: int = 0


class _WireTask(msgspec.Struct):
    format_version: int
    batch: int
    attempt: int
    state: _WireState
    positions: dict[str, int]
    direct_offsets: dict[str, int]
    next_wall_punctuation: int | None


class _WireBatch(msgspec.Struct):
    format_version: int
    number: int
    now: int
    global_positions: list[tuple[str, int, int]]
    sources: dict[str, int]


class _AnyVersion(msgspec.Struct):
    format_version: int


_encode = msgspec.json.Encoder(order="sorted").encode
_decode_task = msgspec.json.Decoder(_WireTask).decode
_decode_batch = msgspec.json.Decoder(_WireBatch).decode
_decode_version = msgspec.json.Decoder(_AnyVersion).decode


def task_key(task_id: TaskId) -> bytes:
    """Return the key of a task's record."""
    return str(task_id).encode()


def encode_task(record: TaskRecord) -> bytes:
    """Encode the value of a task's record."""
    state = record.state
    return _encode(_WireTask(
        record.format_version, record.batch, record.attempt,
        _WireState(
            state.stream_time,
            sorted((topic, number, time) for (topic, number), time
                   in state.partition_times.items()),
            state.clocks, state.store_clocks, _schedules(state.stream_schedules),
            _schedules(state.wall_schedules), state.null_keys_sent,
        ),
        dict(record.positions), dict(record.shuffled_offsets), record.next_wall_punctuation,
    ))


def _schedules(states: tuple[ScheduleState, ...]) -> list[tuple[str, int, int, bool]]:
    # The order matters: schedules with the same due time fire in this order.
    return [(each.node, each.number, each.due, each.cancelled) for each in states]


def decode_task(value: bytes) -> TaskRecord:
    """Decode the value of a task's record."""
    wire = _decode_task(value)
    state = wire.state
    return TaskRecord(
        wire.batch, wire.attempt,
        TaskState(
            state.stream_time,
            {(topic, number): time for topic, number, time in state.partition_times},
            state.clocks, state.store_clocks,
            tuple(map(ScheduleState._make, state.stream_schedules)),
            tuple(map(ScheduleState._make, state.wall_schedules)), state.null_keys_sent,
        ),
        wire.positions, wire.direct_offsets, wire.next_wall_punctuation, wire.format_version,
    )


def encode_batch(record: BatchRecord) -> bytes:
    """Encode the value of the last batch's record."""
    return _encode(_WireBatch(
        record.format_version, record.number, record.now,
        sorted((*at, offset) for at, offset in record.global_positions.items()),
        dict(record.sources),
    ))


def decode_batch(value: bytes) -> BatchRecord:
    """Decode the value of the last batch's record."""
    wire = _decode_batch(value)
    return BatchRecord(
        wire.number, wire.now,
        {(topic, number): offset for topic, number, offset in wire.global_positions},
        wire.sources, wire.format_version,
    )


def read_task_records(log: Log, application_id: str) -> TaskRecords:
    """Read the newest records. They are empty if the application has never run on this log."""
    topic = tasks_topic(application_id)
    newest: dict[bytes, bytes | None] = {}
    try:
        (bounds,) = log.offsets([TopicPartition(topic, 0)]).values()
    except UnknownTopic:
        return TaskRecords()
    for batch in log.read(topic, 0, bounds.start, bounds.end):
        columns = batch.columns()
        for key, value in zip(columns.keys, columns.values, strict=True):
            if key is not None:
                newest[key] = value
    tasks = {}
    for key, value in newest.items():
        if value is None:
            continue
        if key not in {APPLICATION_KEY, RESET_KEY}:
            _check_version(value, topic, key)
        if found := _TASK_KEY.fullmatch(key):
            tasks[TaskId(int(found[1]), int(found[2]))] = decode_task(value)
    last = newest.get(BATCH_KEY)
    return TaskRecords(
        tasks, None if last is None else decode_batch(last), newest.get(APPLICATION_KEY),
        newest.get(RESET_KEY) is not None,
    )


def _check_version(value: bytes, topic: str, key: bytes) -> None:
    """Raise if this version cannot read the record."""
    name = key.decode("utf-8", "replace")
    try:
        version = _decode_version(value).format_version
    except msgspec.MsgspecError as error:
        raise StreamsException(
            f"Record '{name}' of topic '{topic}' cannot be read: {error}. Only penstock may write "
            "to this topic. Reset the application with 'penstock reset', or use another "
            "application id."
        ) from error
    if version > FORMAT_VERSION:
        raise StreamsException(
            f"Record '{name}' of topic '{topic}' was written by a newer version of penstock. "
            f"Its format is {version}; this version reads up to {FORMAT_VERSION}. Upgrade "
            "penstock."
        )
