"""`ContinuousEngine`: starts lanes, grants tasks to them, and supervises them.

Lanes process and commit on their own. The driver decides which lane runs which task:

- A lane gets a grant of its own before it starts, with which the log recognizes its transactions.
- A task is granted from what the log holds. It moves only after its lane has released it, or after
  the lane is fenced.
- A lane that ends or is silent is fenced and replaced. The other lanes keep running. Only a changed
  execution graph restarts all lanes.

Holds no durable state. One thread calls it; only `cancel` and `wake` may be called from another.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.clock import wall_clock_ms
from penstock.config import StreamsConfig
from penstock.engine.batch_report import BatchReport
from penstock.engine.commit import find_failure
from penstock.engine.continuous.assignment import assign
from penstock.engine.continuous.lane_handle import (
    LaneHandle,
    LaneState,
    LaneStatus,
    TaskStage,
    WorkerLost,
)
from penstock.engine.continuous.lane_observer import LaneObserver
from penstock.engine.continuous.lane_pool import LanePool
from penstock.engine.continuous.messages import (
    Committed,
    Ended,
    Grant,
    Lag,
    LaneMessage,
    Logged,
    Pause,
    Ready,
    Release,
    Released,
    Restoring,
    Resume,
    Running,
    SetCommitPace,
    Start,
    Stop,
    TimeSpent,
    Token,
    TokenRequest,
)
from penstock.engine.continuous.progress import ContinuousProgress
from penstock.engine.continuous.setbacks import Setbacks
from penstock.engine.dead_letters import check_dead_letter_topics, write_dead_letters
from penstock.engine.housekeeping import Housekeeping
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.layout.internal_topics import ensure_internal_topics
from penstock.engine.layout.upgrade_check import migrate_task_records
from penstock.engine.loop import log_notices
from penstock.engine.plan.planner import TopicMonitor
from penstock.engine.worker.log_lines import replay_log_lines
from penstock.engine.worker.outcome import decode_outcome
from penstock.errors import RetryRequestedException
from penstock.log.base import Lease, Log
from penstock.log.errors import LogBusy, LogError, OffsetOutOfRange
from penstock.log.types import TopicPartition
from penstock.record import TaskId
from penstock.task.drops import DropLog
from penstock.topology.topology import Topology

if TYPE_CHECKING:
    from penstock.engine.continuous.lane_starter import LaneStarter, OnConnection, OnEnded
    from penstock.engine.layout.execution_graph import ExecutionGraph

log = logging.getLogger(__name__)

#: After the first lane is ready, how long the first assignment waits for the other lanes.
ASSEMBLY_S = 5.0
#: How long `close` waits for the last commits.
CLOSE_S = 30.0

#: Starts the lanes of an application: a `LaneStarter` with its callbacks.
StartLanes = Callable[
    [Topology, StreamsConfig, "ExecutionGraph", Log, "OnConnection", "OnEnded"], "LaneStarter"
]


class ContinuousEngine:
    """An application in continuous mode, while this instance holds its lease."""

    def __init__(
        self, topology: Topology, config: StreamsConfig, target: Log, lease: Lease,
        start_lanes: StartLanes, observer: LaneObserver | None = None,
    ) -> None:
        """`observer` receives the reports of lanes that are not commits."""
        self._topology = topology
        self._config = config
        self._log = target
        self._lease = lease
        self._start_lanes = start_lanes
        self._observer = observer or LaneObserver()
        self._cancelled = threading.Event()
        self._is_paused = self._is_awaited = False
        self._drop_log = DropLog()
        self._commits = 0
        self._open()

    def _open(self) -> None:
        """Build everything that depends on the execution graph, and start the lanes."""
        config = self._config
        self._lease.settle()
        check_dead_letter_topics(self._log, config)
        self.graph = build_graph_for_log(self._log, self._topology, config)
        records = migrate_task_records(
            self._log, self._lease, self._topology, config, self.graph
        )
        ensure_internal_topics(self._log, self.graph, config.replication_factor)
        now = wall_clock_ms()
        self.planner = ContinuousProgress(
            self._log, self.graph, config, self._topology, now_ms=now, records=records
        )
        self.planner.record_start(self._lease, now)
        self._topics = TopicMonitor(self._log, self._topology, config, self.graph, now)
        self._housekeeping = Housekeeping(
            self._log, self.graph, config.repartition_purge_interval_ms
        )
        #: Task -> the host that ran it last, which has its state.
        self._last_hosts: dict[TaskId, str] = {}
        #: Task -> when its newest replica was written, and the host that has it.
        self._replicas: dict[TaskId, tuple[int, str]] = {}
        #: When the first lane was ready (monotonic), and whether tasks were assigned since.
        self._first_ready_at: float | None = None
        self._has_assigned = False
        self._setbacks = Setbacks(config.application_id, config.task_timeout_ms)
        self._failure: Exception | None = None
        self._reports: deque[BatchReport] = deque()
        self._pool = LanePool(
            self._lease,
            lambda on_connection, on_ended: self._start_lanes(
                self._topology, config, self.graph, self._log, on_connection, on_ended
            ),
            self._greet,
        )

    # ---- rounds ------------------------------------------------------------------------------

    def run_batch(self) -> BatchReport | None:
        """Run one round of supervision. Returns the report of a commit, or None."""
        if self._reports:
            return self._reports.popleft()
        self._drop_log.log_counts()
        self._topics.check(wall_clock_ms())
        if self._topics.graph_changed:
            self._reopen()
        self._supervise()
        self._raise_failure()
        tasks = sum(1 for _ in self.graph.tasks)
        self._pool.start_missing(tasks)
        for lane in self._pool.leaving_lanes():
            self._stop(lane, "its executor is being decommissioned")
        for lane in self._pool.excess_lanes(tasks):
            self._stop(lane, "there are fewer slots for this application")
        self._assign_tasks()
        self._housekeeping.between_commits(self.planner.committed)
        return self._reports.popleft() if self._reports else None

    def wait(self, timeout: float) -> None:
        """Wait until a lane has sent a message, for at most `timeout` seconds."""
        if not self._reports:
            self._pool.wait(timeout)

    def wake(self) -> None:
        """End the current wait. Any thread may call it."""
        self._pool.wake()

    def seconds_until_due(self, at_most: float) -> float:
        """Return 0: lanes keep the commit interval themselves."""
        return 0.0

    @property
    def is_ready(self) -> bool:
        """Whether all tasks run: their stores are restored."""
        running = {
            task_id for lane in self._pool.lanes.values() for task_id, stage in lane.tasks.items()
            if stage is TaskStage.RUNNING
        }
        return running.issuperset(self.graph.tasks)

    def lanes(self) -> list[LaneStatus]:
        """Return the lanes that start or run."""
        found = [lane.status() for lane in list(self._pool.lanes.values())]
        return [lane for lane in found if lane.state != "DEAD"]

    def set_paused(self, paused: bool) -> None:
        """Pause or resume all lanes."""
        if paused != self._is_paused:
            self._is_paused = paused
            for lane in self._pool.lanes.values():
                lane.send(Pause() if paused else Resume())

    def set_awaited(self, awaited: bool) -> None:
        """Let lanes commit early while a caller waits until the input is processed."""
        if awaited != self._is_awaited and self._config.commit_interval_ms is not None:
            self._is_awaited = awaited
            for lane in self._pool.lanes.values():
                lane.send(SetCommitPace(awaited))

    # ---- progress ----------------------------------------------------------------------------

    @property
    def has_delayed_input(self) -> bool:
        """Whether any input, also of repartition topics, is not processed yet."""
        return not (self.is_ready and self.planner.is_caught_up())

    def end_offsets(self) -> dict[TopicPartition, int] | None:
        """Return the current ends of the input; None if the application writes to its input."""
        return None if self.graph.repartition_topics else self.planner.end_offsets()

    def is_behind(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether input before these offsets is not processed yet, or its output not readable."""
        offsets = self.planner.offsets
        is_processed = all(offsets.get(at, end) >= end for at, end in ends.items())
        return not (is_processed and self.planner.are_outputs_readable())

    # ---- lanes -------------------------------------------------------------------------------

    def _supervise(self) -> None:
        """Handle the messages of lanes, and take back the tasks of those that ended."""
        self._handle_lanes()
        ended = self._pool.fence_ended()
        if not ended:
            return
        # All of them are fenced by now: an open transaction of one would hold back this read.
        self.planner.reload(self._lease, [task_id for lane in ended for task_id in lane.tasks])
        for lane in ended:
            self._pool.forget(lane)
            if not lane.is_stopping:
                self._failure = self._failure or self._setbacks.lane_lost(lane.tasks)

    def _handle_lanes(self) -> None:
        """Handle the messages of lanes, and end those that are silent."""
        for lane, message in self._pool.take_messages():
            if message is not None:
                self._handle(lane, message)
                continue
            log.warning("%s has closed its connection.", str(lane).capitalize())
            self._lose(lane)
        for lane, error in self._pool.take_failed_starts():
            # A lane whose process was lost can be replaced. One that cannot start fails again.
            if not isinstance(error, WorkerLost):
                self._failure = self._failure or error
            self._lose(lane, has_ended=True)
        for lane in self._pool.silent_lanes():
            log.warning(
                "%s has been silent for %.0f seconds and is replaced. Its tasks: %s.",
                str(lane).capitalize(), lane.silent_seconds(), _names(lane.tasks),
            )
            self._lose(lane)

    def _lose(self, lane: LaneHandle, *, has_ended: bool = False) -> None:
        """End a lane that may have ended unexpectedly."""
        if not lane.is_stopping and not self._cancelled.is_set():
            self._observer.lane_lost()
        self._drop(lane, has_ended=has_ended)

    def _drop(self, lane: LaneHandle, *, has_ended: bool = False) -> None:
        """End a lane. `has_ended`: it has stopped by itself.

        It keeps its tasks until it is fenced, and their state is read from the log.
        """
        for task_id in lane.tasks:
            self._last_hosts[task_id] = lane.host
            self._observer.task_stopped(task_id)
        self._pool.end(lane, has_ended=has_ended)

    def _stop(self, lane: LaneHandle, reason: str) -> None:
        """Let a lane commit and end. The other lanes take over its tasks."""
        log.info("%s ends: %s.", str(lane).capitalize(), reason)
        lane.is_stopping = True
        if lane.state is LaneState.STARTING:
            self._drop(lane)
        else:
            lane.send(Stop())

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # ---- assignment --------------------------------------------------------------------------

    def _assign_tasks(self) -> None:
        """Grant and release tasks until each lane has its share."""
        ready = {
            lane.serial: lane.host for lane in self._pool.lanes.values()
            if lane.state is LaneState.READY and not lane.is_stopping
        }
        if not ready or not self._is_assembled(len(ready)):
            return
        current = {
            task_id: lane.serial for lane in self._pool.lanes.values() for task_id in lane.tasks
        }
        hosts = {task_id: host for task_id, (_, host) in self._replicas.items()} | self._last_hosts
        held = {serial: self._pool.lanes[serial].replicas for serial in ready}
        wanted = assign(self.graph.tasks, ready, current, hosts, held)
        free = [
            task_id for task_id in wanted
            if task_id not in current and self._setbacks.may_run(task_id)
        ]
        if free:
            self._grant(free, wanted)
        for task_id, serial in current.items():
            lane = self._pool.lanes[serial]
            if lane.is_stopping or wanted[task_id] == serial:
                continue
            if lane.tasks[task_id] is not TaskStage.RELEASING:
                log.info(
                    "Task %s moves from %s to %s.", task_id, lane, self._pool.lanes[wanted[task_id]]
                )
                lane.tasks[task_id] = TaskStage.RELEASING
                self._observer.task_released(task_id)
                lane.send(Release(task_id))

    def _is_assembled(self, ready: int) -> bool:
        """Whether to assign tasks: at first only when all lanes are ready, or after a while."""
        if self._first_ready_at is None:
            self._first_ready_at = time.monotonic()
        if not self._has_assigned:
            self._has_assigned = (
                ready == len(self._pool.lanes)
                or time.monotonic() - self._first_ready_at > ASSEMBLY_S
            )
        return self._has_assigned

    def _grant(self, tasks: list[TaskId], wanted: Mapping[TaskId, int]) -> None:
        try:
            grants = self.planner.grants(tasks, wall_clock_ms())
        except LogBusy as error:
            # The last commit of a former owner is not readable yet. The next round tries again.
            log.debug("Tasks cannot be granted yet: %s", error)
            self._pool.wake()
            return
        for task_id, (plan, offsets) in grants.items():
            lane = self._pool.lanes[wanted[task_id]]
            lane.tasks[task_id] = TaskStage.GRANTED
            self._observer.task_granted(task_id)
            lane.send(Grant(plan, offsets))
        for serial in sorted({wanted[task_id] for task_id in grants}):
            granted = [task_id for task_id in grants if wanted[task_id] == serial]
            log.info("Granted to %s: tasks %s.", self._pool.lanes[serial], _names(granted))

    # ---- messages ----------------------------------------------------------------------------

    def _greet(self, lane: LaneHandle) -> None:
        """Respond to a lane that has introduced itself."""
        for task_id, changed_ms in lane.replicas.items():
            replica = changed_ms, lane.host
            self._replicas[task_id] = max(replica, self._replicas.get(task_id, replica))
        lane.send(Start(lane.grant, self._lease.member_token(), self.planner.incarnation))
        if self._is_paused:
            lane.send(Pause())
        if self._is_awaited:
            lane.send(SetCommitPace(is_early=True))

    def _handle(self, lane: LaneHandle, message: LaneMessage) -> None:
        if isinstance(message, Committed):
            self._add_commit(lane, message)
        elif isinstance(message, Ready):
            lane.state = LaneState.READY
            log.info("%s is ready.", str(lane).capitalize())
        elif isinstance(message, Running):
            self._start_task(lane, message)
        elif isinstance(message, Restoring):
            self._observer.task_restoring(message.task_id, message.stores)
        elif isinstance(message, Logged):
            replay_log_lines(message.lines, lane.serial)
        elif isinstance(message, TimeSpent):
            self._observer.time_spent(message)
        elif isinstance(message, Lag):
            self._observer.lag_measured(message.partitions)
        elif isinstance(message, Released):
            self._observer.task_stopped(message.task_id)
            if lane.tasks.pop(message.task_id, None) is not None:
                self._last_hosts[message.task_id] = lane.host
        elif isinstance(message, TokenRequest):
            lane.send(Token(self._lease.member_token()))
        elif isinstance(message, Ended):
            self._end(lane, message)

    def _start_task(self, lane: LaneHandle, message: Running) -> None:
        """A lane runs a task, whose stores are restored."""
        if lane.tasks.get(message.task_id) is TaskStage.GRANTED:
            lane.tasks[message.task_id] = TaskStage.RUNNING
            self._setbacks.task_started(message.task_id)
        self._observer.task_restored(
            message.task_id, message.restored, message.seconds, lane=lane.status(),
            is_last=self.is_ready,
        )

    def _add_commit(self, lane: LaneHandle, message: Committed) -> None:
        outcomes = [decode_outcome(data) for data in message.outcomes]
        log_notices(outcomes)
        for outcome in outcomes:
            self._drop_log.add(outcome.task_id, outcome.drops)
            self.planner.commit(outcome.task_id, outcome.record, outcome.offsets)
        self.planner.advance(message.offsets)
        self.planner.add_outputs(message.outputs)
        if outcomes:
            self._commits += 1
            self._setbacks.committed(outcomes)
            report = BatchReport.of(
                self._commits, outcomes, seconds=(0.0, *message.seconds), lags=None,
                ended_ns=message.ended_ns,
            )
            self._reports.append(replace(report, lane=lane.serial, host=lane.host))
            self._housekeeping.after_commit(self.planner.committed, self.planner.records)

    def _end(self, lane: LaneHandle, ended: Ended) -> None:
        """Handle the last message of a lane."""
        if ended.is_fenced:
            log.warning("%s has ended: %s", str(lane).capitalize(), ended.reason)
            self._lose(lane, has_ended=True)
        else:
            self._drop(lane, has_ended=True)
        if not ended.outcome:
            return
        outcome = decode_outcome(ended.outcome)
        # An open transaction of the lane would hold back what is written now.
        self._pool.fence_ended()
        write_dead_letters(self._log, self._lease, self._config.application_id, [outcome])
        failure = find_failure([outcome])
        if isinstance(failure, OffsetOutOfRange) and failure.offset < failure.start:
            log.warning("Retention has removed records before they were read: %s", failure)
            return
        if isinstance(failure, RetryRequestedException) and self._setbacks.retry(
            outcome.task_id, failure
        ):
            lane.is_stopping = True
            return
        self._failure = self._failure or failure

    # ---- the end -----------------------------------------------------------------------------

    def cancel(self) -> None:
        """End all lanes without a last commit. Another thread calls this."""
        self._cancelled.set()
        self._pool.disconnect()

    def close(self) -> None:
        """Let all lanes commit and end, and release the resources."""
        lanes = self._pool.lanes
        self._pool.refuse_lanes()
        for lane in lanes.values():
            lane.is_stopping = True
            lane.send(Stop())
        deadline = time.monotonic() + CLOSE_S
        while time.monotonic() < deadline and not self._cancelled.is_set():
            if all(lane.state is LaneState.STARTING for lane in lanes.values()):
                break
            self._pool.wait(0.1)
            try:
                self._handle_lanes()
                for lane in self._pool.fence_ended():
                    self._pool.forget(lane)
            except LogError as error:
                # The lease is lost, or the log is unavailable. The next holder fences the lanes.
                log.debug("Lanes are closed without their last messages: %s", error)
                break
        for lane in lanes.values():
            self._drop(lane)
        with contextlib.suppress(LogError):
            self._pool.fence_ended()
        if self._failure is not None:
            log.error(
                "A last commit has failed. Its records are processed again: %s", self._failure
            )
        self._drop_log.log_counts(all_now=True)
        self._pool.close()
        self._housekeeping.close()

    def _reopen(self) -> None:
        log.info(
            "Topics have changed: the execution graph of application '%s' is rebuilt.",
            self._config.application_id,
        )
        self.close()
        self._open()


def _names(tasks: Iterable[TaskId]) -> str:
    return ", ".join(map(str, sorted(tasks))) or "none"
