"""The result of a task at a commit: everything that is to be written outside of the task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.metric_catalogue import Reading
from penstock.metrics import SensorReading
from penstock.record import Headers, TaskId
from penstock.task.drops import DropNote
from penstock.task.origins import OutputOrigins
from penstock.task.punctuation import ScheduleState

#: Incremented when the meaning of a field changes, so that driver and worker can detect it.
FORMAT_VERSION = 1


class Output(NamedTuple):
    """A record for a topic.

    Results contain plain tuples with these fields, in the order in which the task wrote them.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class LoggedChange(NamedTuple):
    """A record for the changelog of a store. Results contain plain tuples with these fields."""

    store: str
    key: bytes
    value: bytes | None
    timestamp: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class TaskState:
    """The state from which a task resumes; stored with the commit."""

    stream_time: int = -1
    #: (topic, partition) -> the largest timestamp processed.
    partition_times: dict[tuple[str, int], int] = field(default_factory=dict)
    #: Clock name -> the time that operators have observed.
    clocks: dict[str, int] = field(default_factory=dict)
    #: Store -> the times that it has observed.
    store_clocks: dict[str, dict[str, int]] = field(default_factory=dict)
    stream_schedules: tuple[ScheduleState, ...] = ()
    wall_schedules: tuple[ScheduleState, ...] = ()
    #: The number of records without a key so far; they go to the partitions in turn.
    null_keys_sent: int = 0


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One commit of one task. Nothing of it has been written yet."""

    task_id: TaskId
    outputs: list[tuple[Any, ...]]
    changelog: list[tuple[Any, ...]]
    #: (topic, partition) -> the offset of the next record to consume.
    offsets: dict[tuple[str, int], int]
    state: TaskState
    #: The time of the next wall-clock punctuation, or None.
    next_wall_punctuation: int | None
    #: (file or None for standard output, line), in order.
    printed: list[tuple[str | None, str]]
    #: Counter name -> amount in this batch; the counters of a node are named `node/name`.
    counters: dict[str, int]
    #: Whether a processor requested a commit.
    commit_requested: bool = False
    #: The values that the sensors of processors recorded in this batch.
    sensors: tuple[SensorReading, ...] = ()
    #: The measurements of the task in this batch, for its metrics.
    readings: tuple[Reading, ...] = ()
    #: The source records of the outputs; None if no other task receives outputs.
    origins: OutputOrigins | None = None
    #: The records that were dropped.
    drops: tuple[DropNote, ...] = ()
    #: The error of a failed batch. Then only the outputs and dead letters are meaningful.
    failure: BaseException | None = None
    #: The dead letters of the record that failed the batch.
    dead_letters: list[tuple[Any, ...]] = field(default_factory=list)
    format_version: int = FORMAT_VERSION

    @classmethod
    def failed(
        cls, task_id: TaskId, failure: BaseException, state: TaskState,
        outputs: list[tuple[Any, ...]], dead_letters: list[tuple[Any, ...]],
    ) -> TaskResult:
        """The result of a failed batch: the outputs so far, and the dead letters among them."""
        return cls(
            task_id, outputs, [], {}, state, None, [], {}, failure=failure,
            dead_letters=dead_letters,
        )
