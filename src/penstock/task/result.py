"""What a task hands over at a commit: everything it wants to happen outside of itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.record import Headers, TaskId
from penstock.task.punctuation import ScheduleState

#: Grows when the meaning of a field changes, so that a driver and a worker can tell.
FORMAT_VERSION = 1


class Output(NamedTuple):
    """A record for a topic, in the order in which the task wrote it.

    A result holds plain tuples of this form; `Output._make` gives them names.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class LoggedChange(NamedTuple):
    """A record for the changelog of a store; in a result, a plain tuple of this form."""

    store: str
    key: bytes
    value: bytes | None
    timestamp: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class TaskState:
    """What a task must know to go on where it was; kept with the commit."""

    stream_time: int = -1
    #: The largest timestamp taken from each (topic, partition).
    partition_times: dict[tuple[str, int], int] = field(default_factory=dict)
    #: What operators have observed, by the names of their clocks.
    clocks: dict[str, int] = field(default_factory=dict)
    #: What stores have observed, by store.
    store_clocks: dict[str, dict[str, int]] = field(default_factory=dict)
    stream_schedules: tuple[ScheduleState, ...] = ()
    wall_schedules: tuple[ScheduleState, ...] = ()
    #: How many records without a key were sent: they go to the partitions in turn.
    null_keys_sent: int = 0


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One commit of one task. Nothing of it has happened yet."""

    task_id: TaskId
    outputs: list[tuple[Any, ...]]
    changelog: list[tuple[Any, ...]]
    #: (topic, partition) -> the offset to go on from: what was really consumed.
    offsets: dict[tuple[str, int], int]
    state: TaskState
    #: When the next wall-clock punctuation is due, None if there is none.
    next_wall_punctuation: int | None
    #: (file or None for standard output, line), in order.
    printed: list[tuple[str | None, str]]
    #: Counters of the batch: name -> amount; a node's own are `node/name`.
    counters: dict[str, int]
    #: A processor asked for a commit.
    commit_requested: bool = False
    #: What ended the batch, if it failed: then nothing else counts.
    failure: Exception | None = None
    format_version: int = FORMAT_VERSION

    @classmethod
    def failed(cls, task_id: TaskId, failure: Exception, state: TaskState) -> TaskResult:
        """A batch that came to nothing, and why."""
        return cls(task_id, [], [], {}, state, None, [], {}, failure=failure)
