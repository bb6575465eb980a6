"""Everything a worker needs to run any task of an application. Built once by the driver."""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from penstock import native
from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.packaging.pickling import dumps
from penstock.engine.packaging.state_directory import resolve_on_host
from penstock.record import TaskId
from penstock.topology.topology import Topology


@dataclass(frozen=True)
class Bundle:
    """The application, and the distribution of its tasks over lanes.

    A lane is a slot of a stage, one Spark task, which runs its tasks one after the other. Task
    number n of a stage belongs to lane n modulo the number of lanes.
    """

    topology: Topology
    config: StreamsConfig
    graph: ExecutionGraph
    #: The address for `open_log` in a worker.
    log_address: str
    #: The maximum number of lanes of a stage.
    parallelism: int
    #: A worker stages appends of a task that are larger than this in the log. None: never, because
    #: the driver cannot reach what a worker on another host has staged.
    staging_threshold_bytes: int | None = 256 * 1024
    #: A task ends its batch early when its result has about this size.
    max_result_bytes: int = 64 * 1024 * 1024
    #: The level from which log lines of user code are captured. The default is the driver's level.
    log_level: int = field(default_factory=lambda: logging.getLogger().getEffectiveLevel())
    #: Whether the tasks run on this host, with the directories of the driver.
    is_local: bool = True
    #: Whether the driver has the native core.
    is_native: bool = field(default_factory=lambda: native.core is not None)
    #: On this host a relative `state_dir` refers to the working directory of the driver.
    _local_directory: Path = field(init=False)

    def __post_init__(self) -> None:
        if self.parallelism < 1:
            raise ValueError(f"A stage must have at least one lane, not {self.parallelism}.")
        object.__setattr__(self, "_local_directory", Path(self.config.state_dir).absolute())

    def __getstate__(self) -> dict[str, Any]:
        # Every host has its own directory.
        return {name: each for name, each in self.__dict__.items() if name != "directory"}

    @functools.cached_property
    def directory(self) -> Path:
        """The directory of the replicas, on the host of the caller."""
        if self.is_local or Path(self.config.state_dir).is_absolute():
            return self._local_directory / self.config.application_id
        return resolve_on_host(self.config.state_dir) / self.config.application_id

    @functools.cached_property
    def stages(self) -> tuple[tuple[TaskId, ...], ...]:
        """The tasks of each stage, in order."""
        return self.graph.stages

    @functools.cached_property
    def lanes(self) -> tuple[int, ...]:
        """The number of lanes of each stage. A stage without tasks has one, to forward blocks."""
        return tuple(max(1, min(len(tasks), self.parallelism)) for tasks in self.stages)

    def tasks(self, stage: int, lane: int) -> tuple[TaskId, ...]:
        """Return the tasks of a lane, in the order in which they run."""
        return self.stages[stage][lane::self.lanes[stage]]

    def stage_of(self, task_id: TaskId) -> int:
        """Return the stage of a task."""
        return self.graph.subtopologies[task_id.subtopology].stage

    def lane_of(self, task_id: TaskId) -> int:
        """Return the lane of a task within its stage."""
        return self._lanes_by_task[task_id]

    @functools.cached_property
    def _lanes_by_task(self) -> dict[TaskId, int]:
        return {
            task_id: number % lanes
            for tasks, lanes in zip(self.stages, self.lanes, strict=True)
            for number, task_id in enumerate(tasks)
        }

    def dump(self) -> bytes:
        """Pickle the bundle, user functions included."""
        return dumps(self)

    @staticmethod
    def load(data: bytes) -> Bundle:
        """Load a bundle that `dump` has pickled."""
        bundle: Bundle = cloudpickle.loads(data)
        return bundle
