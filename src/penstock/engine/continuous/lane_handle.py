"""`LaneHandle`: the driver's view of one lane."""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from penstock.engine.continuous.awake_clock import AwakeClock
from penstock.engine.continuous.channel import Channel
from penstock.engine.continuous.messages import LaneMessage
from penstock.errors import StreamsException
from penstock.log.types import WriterGrant
from penstock.record import TaskId


class WorkerLost(StreamsException):
    """The process of a lane has ended before the lane has. Another lane may take its place."""


class LaneState(Enum):
    """The life of a lane: STARTING → CONNECTED → READY → ENDED; it may end in any state."""

    #: Its job is submitted, and waits for a slot or loads the application.
    STARTING = "starting"
    #: It has introduced itself, and initializes its writer.
    CONNECTED = "connected"
    READY = "ready"
    ENDED = "ended"


class TaskStage(Enum):
    """A task in a lane: GRANTED → RUNNING → RELEASING."""

    GRANTED = "granted"
    RUNNING = "running"
    RELEASING = "releasing"


class LaneStatus(NamedTuple):
    """A lane as users see it."""

    name: str
    serial: int
    #: Empty until the lane has started.
    host: str
    #: The state in which Kafka's `StreamThread` would be.
    state: str
    tasks: frozenset[TaskId]


class LaneHandle:
    """A lane and the tasks that it runs. Only the driver's thread uses it."""

    def __init__(self, grant: WriterGrant, clock: AwakeClock) -> None:
        """`clock` measures how long the lane is silent."""
        self.grant = grant
        self._clock = clock
        self.state = LaneState.STARTING
        self.host = ""
        self.process = 0
        #: Task -> when its replica on the host of the lane was last written.
        self.replicas: Mapping[TaskId, int] = {}
        self.started_at = time.monotonic()
        self._received_at = clock.now()
        self.tasks: dict[TaskId, TaskStage] = {}
        self.channel: Channel[LaneMessage] | None = None
        self.is_warned = False
        #: It was asked to end, and gets no more tasks.
        self.is_stopping = False

    @property
    def serial(self) -> int:
        """The serial of its grant, which names the lane."""
        return self.grant.serial

    def send(self, message: object) -> None:
        """Send a message, if the lane is connected."""
        if self.channel is not None:
            self.channel.send(message)

    def status(self) -> LaneStatus:
        """Return what users see of the lane. Any thread may call it."""
        stages = dict(self.tasks)
        if self.state is LaneState.ENDED:
            state = "DEAD"
        elif self.is_stopping:
            state = "PENDING_SHUTDOWN"
        elif self.state is not LaneState.READY:
            state = "STARTING"
        elif TaskStage.RELEASING in stages.values():
            state = "PARTITIONS_REVOKED"
        else:
            is_restoring = TaskStage.GRANTED in stages.values()
            state = "PARTITIONS_ASSIGNED" if is_restoring else "RUNNING"
        return LaneStatus(str(self), self.serial, self.host, state, frozenset(stages))

    def note_message(self) -> None:
        """Note that the lane has sent a message."""
        self._received_at = self._clock.now()

    def silent_seconds(self) -> float:
        """How long the lane has sent nothing; 0 while it is starting."""
        if self.state in (LaneState.STARTING, LaneState.ENDED):
            return 0.0
        return self._clock.now() - self._received_at

    def __str__(self) -> str:
        where = f" on {self.host} (process {self.process})" if self.host else ""
        return f"lane {self.serial}{where}"
