"""`Worker`: runs the tasks of a lane, in whatever process it stands. It knows nothing of Spark.

A worker lives as long as its process and keeps what is dear to make: the open log, the blueprints,
the stores of global tables, the resources of user processors. All of it could be made again from
the bundle and the log; a task that runs in a fresh worker answers the same.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from penstock.engine.failpoints import failpoint
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.packaging.failure import Failure
from penstock.engine.plan.batch_plan import BatchPlan, TaskPlan
from penstock.engine.plan.task_records import TaskRecord
from penstock.engine.worker.blocks import OUTCOME, Block
from penstock.engine.worker.global_tables import GlobalTables
from penstock.engine.worker.log_capture import LogCapture
from penstock.engine.worker.memory import ResidentMemory
from penstock.engine.worker.outcome import TaskOutcome, encode_outcome
from penstock.engine.worker.sink_topics import SinkTopics
from penstock.engine.worker.task_run import Attempt, TaskRun
from penstock.engine.worker.task_stores import Replicas
from penstock.errors import TaskCorruptedException
from penstock.log import open_log
from penstock.log.base import Log
from penstock.record import TaskId
from penstock.task.blueprint import Blueprint
from penstock.task.gc_pause import gc_paused

log = logging.getLogger(__name__)

#: An attempt is named by the epoch of the driver and, in so many bits, by a number of Spark's.
ATTEMPT_BITS = 40
#: A block and the lane of the next stage that it is for.
Addressed = tuple[int, bytes]


class Worker:
    """Runs lanes of one application."""

    def __init__(self, bundle: Bundle, *, own_process: bool = True) -> None:
        """`own_process`: what is logged is the driver's to show, and old objects stay for good."""
        self.bundle = bundle
        self.log: Log = open_log(
            bundle.log_address, connection=bundle.config.connection_settings()
        )
        is_remote = self.log.capabilities.is_remote
        #: Whether tasks publish their outputs at once: what is run again is published again.
        #: Changes of stores always wait for the commit. A worker that comes late, under a driver
        #: that has lost the lease, would put back what others have counted since.
        self.publishes = is_remote and bundle.config.processing_guarantee == "at_least_once"
        self.resources: dict[str, Any] = {}
        self.topics = SinkTopics(self.log, bundle.graph)
        self.replicas = Replicas(self.log, bundle, keep_changes=is_remote)
        self.global_tables = GlobalTables(self.log, bundle)
        self._blueprints: dict[int, Blueprint] = {}
        self._mapped = ResidentMemory()
        self._listens = own_process
        if own_process:
            # Whoever runs the process may look through all objects after each task; what is here
            # by now stays anyway.
            gc.collect()
            gc.freeze()

    def run_lane(
        self, stage: int, lane: int, plan: BatchPlan, attempt: int, blocks: Iterable[bytes]
    ) -> Iterator[Addressed]:
        """Run the tasks of one lane and pass on what is not for them.

        Answers blocks for lanes of the next stage; from the last stage come outcomes only, all for
        lane 0. A failed task ends the lane: nothing that the others did would be committed.

        `attempt` differs between any two runs of a lane under one driver; what is written names the
        driver's epoch, too, so that it differs between any two runs at all.
        """
        failpoint("computing", stage)
        attempt += plan.epoch << ATTEMPT_BITS
        self.topics.new_batch(plan.number, plan.now)
        waiting: dict[TaskId, list[Block]] = {}
        for data in blocks:
            if data[0] == OUTCOME:
                yield self._onwards(stage, lane), data
                continue
            block = Block.read(data)
            target = block.header.target
            if self.bundle.stage_of(target) == stage:
                waiting.setdefault(target, []).append(block)
            else:
                yield self._towards(stage, target), data
        try:
            for task_id in self.bundle.tasks(stage, lane):
                task_plan = plan.tasks.get(task_id) or TaskPlan(task_id)
                given = waiting.get(task_id, [])
                if not (task_plan.ranges or task_plan.punctuate or given):
                    continue
                outcome, sent = self._run_task(task_plan, plan, attempt, given)
                yield self._onwards(stage, lane), encode_outcome(outcome)
                if outcome.failure is not None:
                    return
                for target, data in sent:
                    yield self._towards(stage, target), data
        finally:
            self.global_tables.release()
            if self._mapped.are_many():
                # The pages of all count, so those that stayed would have the others closed always.
                self.replicas.close()
                self.global_tables.let_go()

    def _onwards(self, stage: int, lane: int) -> int:
        """The lane of the next stage that takes what only passes through."""
        lanes = self.bundle.lanes
        return lane % lanes[stage + 1] if stage + 1 < len(lanes) else 0

    def _towards(self, stage: int, target: TaskId) -> int:
        """The lane of the next stage that leads to a task."""
        return self.bundle.lane_of(target) % self.bundle.lanes[stage + 1]

    def _run_task(
        self, task_plan: TaskPlan, plan: BatchPlan, attempt: int, blocks: Sequence[Block]
    ) -> tuple[TaskOutcome, list[tuple[TaskId, bytes]]]:
        task_id = task_plan.task_id
        run = TaskRun(self, Attempt(plan, task_plan, attempt), blocks)
        with (
            LogCapture(self.bundle.log_level, active=self._listens) as listening,
            gc_paused(),
        ):
            try:
                try:
                    return run.run(listening.lines)
                except TaskCorruptedException as error:
                    # Nothing has happened yet, and the replica is made anew when it is asked again.
                    log.warning("Task %s is run again: %s", task_id, error)
                    return run.run(listening.lines)
            except (Exception, SystemExit) as error:
                # User code that calls exit() must not take the worker along.
                failure = Failure.of(str(task_id), error)
        record = TaskRecord(plan.number, attempt, task_plan.state)
        return TaskOutcome(
            task_id, record, logged=listening.lines(), failure=failure
        ), []

    def blueprint(self, subtopology: int) -> Blueprint:
        """What tasks of a sub-topology are made of."""
        if subtopology not in self._blueprints:
            self._blueprints[subtopology] = Blueprint.of(
                self.bundle.topology, self.bundle.config, [subtopology]
            )
        return self._blueprints[subtopology]

    def close(self) -> None:
        """Let go of everything; the worker cannot be used any more."""
        self.global_tables.close()
        self.replicas.close()
        self.log.close()
