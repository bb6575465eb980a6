"""`Worker`: runs the tasks of lanes, in any process. Independent of Spark.

A worker lives as long as its process and keeps what is expensive to create: the connection to the
log, blueprints, the stores of global tables, and the resources of user processors. It holds no
state of its own: a task in a new worker has the same outcome.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.engine.failpoints import failpoint
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.packaging.failure import Failure
from penstock.engine.plan.batch_plan import BatchPlan, TaskPlan
from penstock.engine.plan.task_records import TaskRecord
from penstock.engine.worker.blocks import OUTCOME, Block
from penstock.engine.worker.global_tables import GlobalTables
from penstock.engine.worker.log_capture import LogCapture
from penstock.engine.worker.notices import native_notices
from penstock.engine.worker.outcome import Preparation, TaskOutcome, encode_outcome
from penstock.engine.worker.replica_pool import MappedMemory, ReplicaPool
from penstock.engine.worker.sink_topics import SinkTopics
from penstock.engine.worker.task_run import AddressedBlock, TaskAttempt, TaskRun
from penstock.errors import TaskCorruptedException
from penstock.log import open_log
from penstock.log.base import Log
from penstock.record import TaskId
from penstock.task.blueprint import Blueprint
from penstock.task.gc_pause import freeze_heap, gc_paused

log = logging.getLogger(__name__)

#: The number of an attempt is the driver's epoch, shifted by this, plus Spark's attempt number.
ATTEMPT_BITS = 40
#: A lane of the next stage, and an encoded block or outcome for it.
LaneBlock = tuple[int, bytes]


class Worker:
    """Runs lanes of one application."""

    def __init__(
        self, bundle: Bundle, *, own_process: bool = True, started_at: float | None = None
    ) -> None:
        """`own_process`: this is not the driver's process, so log lines are captured for it and
        existing objects are exempted from garbage collection. `started_at`: when the process
        started to load the application, by `time.perf_counter`."""
        self._started_at = time.perf_counter() if started_at is None else started_at
        self._is_cold = True
        #: The seconds that the current lane has spent on the start and on extra catch-ups.
        self._preparation_s = 0.0
        self.notices = native_notices(bundle) if own_process else ()
        self.bundle = bundle
        self.log: Log = open_log(
            bundle.log_address, connection=bundle.config.connection_settings()
        )
        is_remote = self.log.capabilities.is_remote
        #: Whether tasks publish their outputs at once. A retry publishes them again. Changelog
        #: records always wait for the commit: a late worker of a driver that has lost the lease
        #: would overwrite the state of its successor.
        self.publishes = is_remote and bundle.config.processing_guarantee == "at_least_once"
        self.resources: dict[str, Any] = {}
        self.topics = SinkTopics(self.log, bundle.graph)
        self.replicas = ReplicaPool(self.log, bundle, cache_changelogs=is_remote)
        self.global_tables = GlobalTables(self.log, bundle)
        self._blueprints: dict[int, Blueprint] = {}
        self._mapped_memory = MappedMemory()
        self._captures_log = own_process
        if own_process:
            # Spark's worker loop may run a full collection after each task. The objects that exist
            # by now stay anyway.
            freeze_heap()

    def run_lane(
        self, stage: int, lane: int, plan: BatchPlan, attempt: int, blocks: Iterable[bytes]
    ) -> Iterator[LaneBlock]:
        """Run the tasks of one lane and forward the blocks for other tasks.

        Yields blocks for lanes of the next stage. The last stage yields only outcomes, for lane 0.
        A failed task ends the lane, because the batch will not be committed.

        `attempt` is unique among the runs of a lane under one driver. Together with the epoch of
        the driver it is unique among all runs.
        """
        failpoint("computing", stage)
        self._preparation_s = time.perf_counter() - self._started_at if self._is_cold else 0.0
        attempt += plan.epoch << ATTEMPT_BITS
        self.topics.begin_batch(plan.number, plan.now)
        received: dict[TaskId, list[Block]] = {}
        for data in blocks:
            if data[0] == OUTCOME:
                yield self._forwarding_lane(stage, lane), data
                continue
            block = Block.read(data)
            target = block.header.target
            if self.bundle.stage_of(target) == stage:
                received.setdefault(target, []).append(block)
            else:
                yield self._lane_towards(stage, target), data
        try:
            due = self._due_tasks(stage, lane, plan, received)
            self._fetch_changelogs(due, plan)
            for task_plan in due:
                task_blocks = received.get(task_plan.task_id, [])
                outcome, sent = self._run_task(task_plan, plan, attempt, task_blocks)
                yield self._forwarding_lane(stage, lane), encode_outcome(outcome)
                if outcome.failure is not None:
                    return
                for target, data in sent:
                    yield self._lane_towards(stage, target), data
        finally:
            self._is_cold = False
            self.global_tables.release()
            if self._mapped_memory.exceeds_limit():
                # All are closed: otherwise the pages of those that stay open would close the
                # others after every batch.
                self.replicas.close()
                self.global_tables.close_files()

    def _due_tasks(
        self, stage: int, lane: int, plan: BatchPlan, received: Mapping[TaskId, object]
    ) -> list[TaskPlan]:
        """Return the plans of the tasks of a lane that have something to do."""
        plans = (
            plan.tasks.get(task_id) or TaskPlan(task_id)
            for task_id in self.bundle.tasks(stage, lane)
        )
        return [
            each for each in plans if each.ranges or each.punctuate or each.task_id in received
        ]

    def _fetch_changelogs(self, due: Iterable[TaskPlan], plan: BatchPlan) -> None:
        started = time.perf_counter()
        tasks = ((each, self.blueprint(each.task_id.subtopology)) for each in due)
        if self.replicas.fetch(tasks, plan):
            self.count_preparation(time.perf_counter() - started)

    def count_preparation(self, seconds: float) -> None:
        """Add time that the current lane needs besides the usual work of a batch."""
        self._preparation_s += seconds

    def preparation(self, from_log: int, from_host: int) -> Preparation:
        """Return the preparation of the current lane, up to a task with so many catch-ups."""
        return Preparation(self._preparation_s, self._is_cold, from_log, from_host)

    def _forwarding_lane(self, stage: int, lane: int) -> int:
        """The lane of the next stage that forwards outcomes."""
        lanes = self.bundle.lanes
        return lane % lanes[stage + 1] if stage + 1 < len(lanes) else 0

    def _lane_towards(self, stage: int, target: TaskId) -> int:
        """The lane of the next stage on the way to a task."""
        return self.bundle.lane_of(target) % self.bundle.lanes[stage + 1]

    def _run_task(
        self, task_plan: TaskPlan, plan: BatchPlan, attempt: int, blocks: Sequence[Block]
    ) -> tuple[TaskOutcome, list[AddressedBlock]]:
        task_id = task_plan.task_id
        run = TaskRun(self, TaskAttempt(plan, task_plan, attempt), blocks)
        with (
            LogCapture(self.bundle.log_level, active=self._captures_log) as capture,
            gc_paused(),
        ):
            capture.set_task(task_id)
            try:
                try:
                    return run.run(capture.lines)
                except TaskCorruptedException as error:
                    # Nothing has happened yet, and the retry rebuilds the replica.
                    log.warning("Retrying task %s: %s", task_id, error)
                    return run.run(capture.lines)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                # User code may call exit(), and native libraries may panic.
                failure = Failure.of(str(task_id), error)
        record = TaskRecord(plan.number, attempt, task_plan.state)
        return TaskOutcome(task_id, record, logged=capture.lines(), failure=failure), []

    def blueprint(self, subtopology: int) -> Blueprint:
        """Return the blueprint of a sub-topology, built on first use."""
        if subtopology not in self._blueprints:
            self._blueprints[subtopology] = Blueprint.of(
                self.bundle.topology, self.bundle.config, [subtopology]
            )
        return self._blueprints[subtopology]

    def processor_directory(self, task_id: TaskId) -> str:
        """Create the directory in which the processors of a task may keep files."""
        path = self.bundle.directory / str(task_id) / "files"
        path.mkdir(parents=True, exist_ok=True)
        return str(path)

    def close(self) -> None:
        """Close the log and all stores."""
        self.global_tables.close()
        self.replicas.close()
        self.log.close()
