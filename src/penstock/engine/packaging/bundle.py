"""What every worker must have to run any task of an application; made once by the driver."""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.packaging.pickling import dumps
from penstock.record import TaskId
from penstock.topology.topology import Topology


@dataclass(frozen=True)
class Bundle:
    """The application, and how its tasks are spread over lanes.

    A lane is a part of a stage that runs in one place, its tasks one after the other. Task number
    n of a stage runs in lane n modulo the stage's lanes.
    """

    topology: Topology
    config: StreamsConfig
    graph: ExecutionGraph
    #: What `open_log` takes in a worker.
    log_address: str
    #: How many lanes a stage may have.
    parallelism: int
    #: Appends of a task that are larger than this are put aside in the log by the worker; None:
    #: never, because the driver could not reach what a worker of another host puts aside.
    staging_threshold_bytes: int | None = 256 * 1024
    #: A task ends its batch early when what it wants to write is about this large.
    max_result_bytes: int = 64 * 1024 * 1024
    #: What user code logs below this level stays unheard; by default the driver's own level.
    log_level: int = field(default_factory=lambda: logging.getLogger().getEffectiveLevel())
    #: Where the application keeps its replicas, on every host; a relative `state_dir` means the
    #: driver's working directory, which a worker need not share.
    directory: Path = field(init=False)

    def __post_init__(self) -> None:
        if self.parallelism < 1:
            raise ValueError(f"A stage must have at least one lane, not {self.parallelism}.")
        directory = Path(self.config.state_dir).absolute() / self.config.application_id
        object.__setattr__(self, "directory", directory)

    @functools.cached_property
    def stages(self) -> tuple[tuple[TaskId, ...], ...]:
        """The tasks of each stage, in order."""
        return self.graph.stages

    @functools.cached_property
    def lanes(self) -> tuple[int, ...]:
        """How many lanes each stage has; one without tasks has one, for what passes through."""
        return tuple(max(1, min(len(tasks), self.parallelism)) for tasks in self.stages)

    def tasks(self, stage: int, lane: int) -> tuple[TaskId, ...]:
        """The tasks of a lane, in the order in which they run."""
        return self.stages[stage][lane::self.lanes[stage]]

    def stage_of(self, task_id: TaskId) -> int:
        """The stage of a task."""
        return self.graph.subtopologies[task_id.subtopology].stage

    def lane_of(self, task_id: TaskId) -> int:
        """The lane of a task within its stage."""
        return self._lane_of[task_id]

    @functools.cached_property
    def _lane_of(self) -> dict[TaskId, int]:
        return {
            task_id: number % lanes
            for tasks, lanes in zip(self.stages, self.lanes, strict=True)
            for number, task_id in enumerate(tasks)
        }

    def dump(self) -> bytes:
        """The bundle as bytes, functions of the user included."""
        return dumps(self)

    @staticmethod
    def load(data: bytes) -> Bundle:
        """The bundle that `dump` was called on."""
        bundle: Bundle = cloudpickle.loads(data)
        return bundle
