"""The messages between the driver and its lanes: plain data, encoded as MessagePack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from penstock.engine.plan.batch_plan import TaskPlan
from penstock.engine.worker.log_lines import LogLine
from penstock.engine.worker.outcome import RestoredStore, RestoringStore
from penstock.log.types import WriterGrant
from penstock.record import NO_HEADERS, Headers, TaskId


class Message(msgspec.Struct, frozen=True, tag=True):
    """One message."""


# ---- from a lane to the driver ---------------------------------------------------------------


class Hello(Message, frozen=True):
    """The first message of a lane."""

    serial: int
    host: str
    process: int
    #: Task -> when its replica on this host was last written, in milliseconds since the epoch.
    replicas: Mapping[TaskId, int] = {}


class Ready(Message, frozen=True):
    """The writer of the lane is initialized: it can be granted tasks."""


class Restoring(Message, frozen=True):
    """The stores of a granted task are being restored. Sent about once a second."""

    task_id: TaskId
    stores: tuple[RestoringStore, ...]


class Running(Message, frozen=True):
    """The stores of a granted task are restored, and the lane processes its records."""

    task_id: TaskId
    #: The stores that were restored completely, and how long that took.
    restored: tuple[RestoredStore, ...] = ()
    seconds: float = 0.0


class Committed(Message, frozen=True):
    """The lane has committed a transaction, or its positions have changed without one."""

    #: Encoded `TaskOutcome`s, without records.
    outcomes: tuple[bytes, ...]
    #: (topic, partition) -> the committed offset, behind offsets without a record.
    offsets: Mapping[tuple[str, int], int]
    #: The duration of processing since the last commit, and of this commit.
    seconds: tuple[float, float]
    #: The end of the commit, in nanoseconds since the epoch.
    ended_ns: int = 0
    #: (topic, partition) -> the end of the outputs that the commit has written to it.
    outputs: Mapping[tuple[str, int], int] = {}


class Durations(NamedTuple):
    """The durations of a step of a lane's loop, summarized."""

    number: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0


class TimeSpent(Message, frozen=True):
    """How the lane has spent its time since the last such message. Sent about once a second."""

    elapsed_s: float
    poll: Durations
    process: Durations
    commit: Durations
    #: The records of all polls, and those of the largest one.
    records: int
    most_records: int


class PartitionLag(NamedTuple):
    """The records of a source partition that its task has not processed."""

    task_id: TaskId
    topic: str
    partition: int
    records: int


class Lag(Message, frozen=True):
    """The lag of all source partitions of a lane. Sent about once a second."""

    partitions: tuple[PartitionLag, ...]


class Logged(Message, frozen=True):
    """Lines that user code has logged or printed in the lane. Sent about once a second."""

    lines: tuple[LogLine, ...]


class Released(Message, frozen=True):
    """The lane has committed a task for the last time and closed its stores."""

    task_id: TaskId


class TokenRequest(Message, frozen=True):
    """The lane needs the current token of the lease."""


class Alive(Message, frozen=True):
    """A sign of life, in both directions."""


class Ended(Message, frozen=True):
    """The last message of a lane. The reason is empty if it was asked to stop."""

    #: The encoded outcome of the task that failed, with its dead letters; empty if none did.
    outcome: bytes = b""
    reason: str = ""
    #: Whether the lane has lost its grant or the lease. The driver knows why.
    is_fenced: bool = False


# ---- from the driver to a lane ---------------------------------------------------------------


class Start(Message, frozen=True):
    """The response to `Hello`: the identity with which the lane writes."""

    grant: WriterGrant
    token: bytes
    #: Identifies the time between two resets of the application, see `BatchPlan.incarnation`.
    incarnation: str


class Grant(Message, frozen=True):
    """Run a task from its committed state on."""

    #: The state and the positions of the stores. Has no ranges.
    plan: TaskPlan
    #: (topic, partition) -> the next offset to read.
    offsets: Mapping[tuple[str, int], int]
    #: The replica cannot be trusted, and is restored.
    discard_replica: bool = False


class Release(Message, frozen=True):
    """Commit a task and give it up."""

    task_id: TaskId


class Token(Message, frozen=True):
    """The current token of the lease; empty after the lease is lost."""

    token: bytes


class Pause(Message, frozen=True):
    """Process no records until `Resume`."""


class Resume(Message, frozen=True):
    """Process records again."""


class SetCommitPace(Message, frozen=True):
    """Commit as soon as possible, or at the commit interval of the application again."""

    is_early: bool


class Stop(Message, frozen=True):
    """Commit, give up all tasks, and end."""


LaneMessage = (
    Hello | Ready | Restoring | Running | Committed | TimeSpent | Lag | Logged | Released
    | TokenRequest | Alive | Ended
)
DriverMessage = Start | Grant | Release | Token | Pause | Resume | SetCommitPace | Stop | Alive

encode = msgspec.msgpack.Encoder().encode


def _decode_headers(kind: type, pairs: list[list[object]]) -> Headers:
    """Decode `Headers`, the only type in a plan that msgspec does not know."""
    assert kind is Headers
    return Headers(tuple(pair) for pair in pairs) if pairs else NO_HEADERS  # type: ignore[misc]


decode_from_lane = msgspec.msgpack.Decoder(LaneMessage).decode
decode_from_driver = msgspec.msgpack.Decoder(DriverMessage, dec_hook=_decode_headers).decode
