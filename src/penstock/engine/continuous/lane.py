"""`Lane`: runs topology tasks continuously: poll, process, commit.

    poll ──► queue ──► process ──► commit when the queues are empty, or at the commit interval
      ▲                                 │
      └─────────────────────────────────┘

A lane runs in any process: a Spark task, or a thread of the driver. It receives its tasks from the
driver and keeps their stores open. It ends when the driver asks for it, when a task fails, when the
log refuses a commit, and when the driver is silent. Another lane then processes the uncommitted
records again.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import Connection

from penstock.clock import wall_clock_ms
from penstock.engine.continuous.commit_pacer import CommitPacer
from penstock.engine.continuous.driver_link import DriverLink, DriverLost
from penstock.engine.continuous.lane_commit import commit_tasks
from penstock.engine.continuous.lane_task import LaneTask
from penstock.engine.continuous.loop_times import LoopTimes
from penstock.engine.continuous.messages import (
    Committed,
    Ended,
    Grant,
    Hello,
    Lag,
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
)
from penstock.engine.continuous.queue_limits import QueueLimits
from penstock.engine.continuous.restorer import RestoreDone, Restorer
from penstock.engine.failpoints import failpoint
from penstock.engine.packaging.bundle import Bundle
from penstock.engine.packaging.failure import Failure
from penstock.engine.plan.batch_plan import BatchPlan
from penstock.engine.plan.task_records import TaskRecord
from penstock.engine.worker.log_capture import LogCapture
from penstock.engine.worker.outcome import TaskOutcome, encode_outcome
from penstock.engine.worker.replica_pool import find_replicas
from penstock.engine.worker.worker import ATTEMPT_BITS, Worker
from penstock.errors import StreamsException
from penstock.log.base import TailReader, Writer
from penstock.log.errors import Fenced, OutcomeUnknown
from penstock.log.types import TopicPartition
from penstock.record import TaskId
from penstock.task.gc_pause import gc_paused
from penstock.task.runtime import thread_cache

log = logging.getLogger(__name__)

#: The longest wait for records. Messages of the driver end it.
LONGEST_POLL_S = 0.5
#: About how many records one poll returns. A lane is behind if polls return half of that, or if
#: much is queued.
POLL_RECORDS = 10_000
#: How long a round processes records, before it looks at messages, schedules and new records.
LONGEST_ROUND_S = 0.1
#: How often the stores of global tables are brought to the ends of their topics.
GLOBAL_INTERVAL_S = 0.1
#: How often the topics of sinks are looked up.
TOPICS_INTERVAL_MS = 1_000


class _TaskFailed(Exception):
    """A task of the lane has failed. The cause is its error."""

    def __init__(self, task: LaneTask) -> None:
        super().__init__(str(task.task_id))
        self.task = task


class Lane:
    """One lane. `run` returns when it has ended."""

    def __init__(
        self, worker: Worker, connection: Connection, serial: int, *, own_process: bool = True
    ) -> None:
        """`own_process`: log lines and printed lines are captured and sent to the driver."""
        self._worker = worker
        self._config = worker.bundle.config
        self._serial = serial
        self._capture = LogCapture(worker.bundle.log_level, active=own_process)
        self._tasks: dict[TaskId, LaneTask] = {}
        self._owners: dict[TopicPartition, LaneTask] = {}
        #: The granted tasks whose stores are being restored, without those released since.
        self._restoring: set[TaskId] = set()
        self._cache = thread_cache(self._config)
        self._pacer = CommitPacer(self._config.commit_interval_ms)
        self._times = LoopTimes()
        self._is_paused = self._is_stopping = False
        #: Whether the last round has processed records.
        self._has_progressed = False
        #: When the current round stops to process (monotonic).
        self._round_ends_at = 0.0
        #: The wall clock, the epoch and the positions of global tables, in the form of a plan.
        self._context = BatchPlan(0, 0, 0, {})
        self._globals_due = 0.0
        #: (topic, partition) -> the offset that was last reported.
        self._reported: dict[tuple[str, int], int] = {}
        self._writer: Writer | None = None
        self._tail: TailReader = worker.log.tail()
        self._limits = QueueLimits(self._tail)
        #: Held from the time at which lines are taken until they are sent.
        self._sending_lines = threading.Lock()
        # Also lines of user code that runs for long are sent.
        self._driver = DriverLink(connection, self._tail.wake, self._send_lines)
        self._restorer = Restorer(
            worker, self._driver.add,
            lambda task_id, stores: self._driver.send(Restoring(task_id, stores)),
        )

    # ---- life cycle --------------------------------------------------------------------------

    def run(self) -> None:
        """Run until the lane ends."""
        self._driver.start_heartbeats()
        last = Ended()
        with self._capture:
            try:
                self.say_hello()
                while not self._is_stopping:
                    self.step(LONGEST_POLL_S)
                self._commit()
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                # User code may call exit(), and native libraries may panic.
                last = self.describe_end(error)
            finally:
                self.close(last)

    def say_hello(self) -> None:
        """Introduce the lane. The driver responds with `Start`."""
        failpoint("lane-started")
        bundle = self._worker.bundle
        self._driver.send(Hello(
            self._serial, socket.gethostname(), os.getpid(),
            find_replicas(bundle.directory, bundle.graph),
        ))

    def describe_end(self, error: BaseException) -> Ended:
        """Return the last message of a lane that an error has ended."""
        if isinstance(error, Fenced | OutcomeUnknown | DriverLost):
            return Ended(reason=str(error), is_fenced=True)
        cause = error.__cause__
        if isinstance(error, _TaskFailed) and cause is not None:
            outcome = error.task.failure(cause)
            return Ended(outcome=encode_outcome(outcome), reason=str(cause))
        return Ended(outcome=self._encode_failure(error), reason=str(error))

    def _open_writer(self, start: Start) -> None:
        self._driver.add_token(start.token)
        self._writer = self._worker.log.open_writer(start.grant, self._driver.token)
        self._pacer.settle_s = self._writer.settle_s
        self._context = BatchPlan(
            0, start.grant.epoch, wall_clock_ms(), {}, incarnation=start.incarnation
        )
        self._refresh_topics(self._context.now)
        self._update_globals()
        self._driver.send(Ready())

    def close(self, last: Ended) -> None:
        """Give up all tasks, and send the last message, although a part cannot be closed."""
        global_tables = self._worker.global_tables
        releases = [
            self._restorer.close, self._close_tasks, self._tail.close, global_tables.log_drops,
            global_tables.release,
        ]
        if self._writer is not None:
            releases.append(self._writer.close)
        for release in releases:
            try:
                release()
            except Exception:
                log.exception("A part of lane %d could not be closed.", self._serial)
        self._send_lines(end_line=True)
        self._driver.send(last)
        self._driver.close()

    def _close_tasks(self) -> None:
        for task in self._tasks.values():
            self._capture.set_task(task.task_id)
            try:
                task.close()
            except Exception:
                log.exception("Task %s could not be closed.", task.task_id)
        self._capture.set_task(None)
        self._tasks.clear()

    def _encode_failure(self, error: BaseException) -> bytes:
        """Encode the failure of the lane itself."""
        name = f"lane {self._serial}"
        return encode_outcome(TaskOutcome(
            TaskId(0, 0), TaskRecord(0, 0), failure=Failure.of(name, error)
        ))

    def _send_lines(self, *, end_line: bool = False) -> None:
        """Send the captured lines. Any thread may call it."""
        # Otherwise later lines, or the last message of the lane, could overtake them.
        with self._sending_lines:
            lines = self._capture.take_lines(end_line=end_line)
            if lines:
                self._driver.send(Logged(lines))

    # ---- the loop ----------------------------------------------------------------------------

    def step(self, longest_wait_s: float) -> None:
        """Run one round: poll, handle the driver's messages, process, commit if it is due."""
        # Garbage is collected between two rounds, when few objects are alive.
        with gc_paused():
            self._step(longest_wait_s)

    def _step(self, longest_wait_s: float) -> None:
        self._poll(min(self._poll_seconds(), longest_wait_s))
        if not self._is_paused:
            self._limits.apply(self._tasks.values())
        self._driver.check()
        self._handle_messages()
        if self._writer is None:
            return
        if not self._is_paused:
            with self._times.process:
                self._process()
        is_requested = any(task.requests_commit for task in self._tasks.values())
        if is_requested or self._pacer.is_due(self._has_more(), self._needs_commit()):
            self._commit()
        elif not self._has_queued():
            self._report_positions()
        spent = self._times.take()
        if spent is not None:
            self._driver.send(spent)
            self._driver.send(Lag(tuple(
                lag for task in self._tasks.values() for lag in task.lag(self._tail)
            )))

    @property
    def is_waiting(self) -> bool:
        """Whether the lane has nothing to do until records, messages or the clock arrive."""
        at_end = all(map(self._tail.is_at_end, self._owners))
        return at_end and not (
            self._driver.has_messages or self._has_progressed or self._needs_commit()
        )

    def _poll(self, wait_s: float) -> None:
        """Read records, and pass them to the queues of their tasks."""
        with self._times.poll:
            polled = self._tail.poll(wait_s, POLL_RECORDS)
        for records in polled:
            at = TopicPartition(records.topic or "", records.partition)
            self._owners[at].add(records)
        number = sum(map(len, polled))
        self._times.add_records(number)
        self._pacer.is_behind = number >= POLL_RECORDS // 2 or bool(self._limits)

    def _poll_seconds(self) -> float:
        """How long the next poll may wait."""
        if self._driver.has_messages:
            return 0.0
        waits = [LONGEST_POLL_S]
        if self._needs_commit():
            waits.append(self._pacer.seconds_until_due())
        if self._is_paused:
            # Nothing but a commit is due.
            return max(0.0, min(waits))
        if self._has_progressed and self._has_queued():
            return 0.0
        if self._context.global_positions:
            waits.append(self._globals_due - time.monotonic())
        now = wall_clock_ms()
        waits += [(task.next_due - now) / 1000 for task in self._tasks.values()]
        return max(0.0, min(waits))

    def _process(self) -> None:
        """Process the queued records for a while."""
        self._update_globals()
        self._has_progressed = False
        if self._has_queued():
            self._pacer.begin_work()
        now = wall_clock_ms()
        self._refresh_topics(now)
        self._round_ends_at = time.monotonic() + LONGEST_ROUND_S
        for task in self._in_turn():
            self._capture.set_task(task.task_id)
            try:
                task.refresh_limits(now)
                task.punctuate(now)
                if not task.has_records:
                    task.note_idle(self._tail, now)
                elif task.process(self._tail, now, self._is_round_over):
                    self._has_progressed = True
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise _TaskFailed(task) from error
        self._capture.set_task(None)
        failpoint("processed")

    def _in_turn(self) -> list[LaneTask]:
        """Return the tasks in the order of this round. The first one may use up its time, and is
        the last one of the next round."""
        tasks = list(self._tasks.values())
        if tasks:
            self._tasks[tasks[0].task_id] = self._tasks.pop(tasks[0].task_id)
        return tasks

    def _is_round_over(self) -> bool:
        """Whether a commit, a message of the driver, or anything else is due."""
        return (
            self._pacer.is_time_up() or self._driver.has_messages
            or time.monotonic() >= self._round_ends_at
        )

    def _refresh_topics(self, now: int) -> None:
        """Look up the topics of sinks again from time to time: their limits move with the clock."""
        number = now // TOPICS_INTERVAL_MS
        self._worker.topics.begin_batch(number, number * TOPICS_INTERVAL_MS)

    def _has_queued(self) -> bool:
        return any(task.has_records for task in self._tasks.values())

    def _has_more(self) -> bool:
        """Whether records are queued, or are known to be in the log."""
        if self._is_paused:
            return False
        return self._has_queued() or not all(map(self._tail.is_at_end, self._owners))

    def _needs_commit(self) -> bool:
        return any(task.needs_commit for task in self._tasks.values())

    def _update_globals(self) -> None:
        """Bring the stores of global tables to the current ends of their topics."""
        graph = self._worker.bundle.graph
        if not graph.global_topics or time.monotonic() < self._globals_due:
            return
        self._globals_due = time.monotonic() + GLOBAL_INTERVAL_S
        ends = self._worker.log.offsets(graph.global_partitions)
        positions = {(at.topic, at.partition): bounds.end for at, bounds in ends.items()}
        if positions != self._context.global_positions:
            self._context = replace(
                self._context, number=self._context.number + 1, global_positions=positions
            )
            self._worker.global_tables.stores(self._context)

    # ---- commit ------------------------------------------------------------------------------

    def _commit(self) -> None:
        assert self._writer is not None
        tasks = [task for task in self._tasks.values() if task.needs_commit]
        processing_s = self._pacer.begin_commit()
        if not tasks:
            return
        attempt = (self._context.epoch << ATTEMPT_BITS) + self._serial
        try:
            with self._times.commit:
                commit = commit_tasks(
                    tasks, self._writer, self._tail, attempt=attempt, now=wall_clock_ms()
                )
        except (Fenced, OutcomeUnknown):
            raise
        except StreamsException as error:
            raise _TaskFailed(_failed_task(tasks, error)) from error
        commit_s = self._pacer.end_commit()
        self._send_lines(end_line=True)
        outcomes = tuple(encode_outcome(task.outcome(written)) for task, written in commit.tasks)
        self._report(outcomes, (processing_s, commit_s), commit.outputs)
        for task in tasks:
            if task.is_broken:
                log.warning("Task %s is opened again: its replica was replaced.", task.task_id)
                self._remove(task.task_id)

    def _report_positions(self) -> None:
        """Report positions that have moved behind offsets without a record."""
        self._report((), (0.0, 0.0), {})

    def _report(
        self, outcomes: tuple[bytes, ...], seconds: tuple[float, float],
        outputs: Mapping[tuple[str, int], int],
    ) -> None:
        offsets = {
            (at.topic, at.partition): offset
            for task in self._tasks.values()
            for at, offset in task.positions(self._tail).items()
        }
        moved = {at: offset for at, offset in offsets.items() if self._reported.get(at) != offset}
        if moved or outcomes:
            self._reported.update(moved)
            self._driver.send(Committed(outcomes, moved, seconds, time.time_ns(), outputs))

    # ---- messages ----------------------------------------------------------------------------

    def _handle_messages(self) -> None:
        while (message := self._driver.take()) is not None:
            if isinstance(message, Start):
                self._open_writer(message)
            elif isinstance(message, Grant):
                self._restoring.add(message.plan.task_id)
                self._restorer.add(message, self._context)
            elif isinstance(message, RestoreDone):
                self._open_task(message)
            elif isinstance(message, Release):
                self._release(message.task_id)
            elif isinstance(message, Pause):
                self._is_paused = True
                self._tail.pause(self._owners)
            elif isinstance(message, Resume):
                self._is_paused = False
                self._tail.resume(self._owners)
                self._limits.forget()
            elif isinstance(message, SetCommitPace):
                self._pacer.set_early(message.is_early)
            elif isinstance(message, Stop):
                self._is_stopping = True

    def _release(self, task_id: TaskId) -> None:
        if task_id in self._restoring:
            # Released when the restore has ended: until then it uses the replica.
            self._restoring.remove(task_id)
            return
        self._commit()
        # A task whose replica was replaced is released already.
        if task_id in self._tasks:
            self._remove(task_id)

    def _open_task(self, done: RestoreDone) -> None:
        task_id = done.grant.plan.task_id
        if task_id not in self._restoring:
            if done.restored is not None and done.restored.replica is not None:
                done.restored.replica.close()
            self._remove(task_id)
            return
        self._restoring.remove(task_id)
        if done.error is not None:
            raise done.error
        assert done.restored is not None
        context = replace(self._context, now=wall_clock_ms())
        self._capture.set_task(task_id)
        task = LaneTask(self._worker, done.grant, done.restored, context, self._cache)
        self._capture.set_task(None)
        self._tasks[task.task_id] = task
        self._owners.update(dict.fromkeys(task.offsets, task))
        self._tail.add(task.offsets)
        if self._is_paused:
            self._tail.pause(task.offsets)
        failpoint("granted")
        restored = (*self._worker.global_tables.take_restored(), *done.restored.stores)
        self._driver.send(Running(task.task_id, restored, done.restored.seconds))

    def _remove(self, task_id: TaskId) -> None:
        """Give up a task that is committed. Called once for each grant: the driver may grant the
        task again as soon as it knows."""
        task = self._tasks.pop(task_id, None)
        if task is not None:
            self._tail.remove(task.offsets)
            for at in task.offsets:
                del self._owners[at]
                self._reported.pop((at.topic, at.partition), None)
            self._capture.set_task(task_id)
            task.close()
            self._capture.set_task(None)
            failpoint("released")
        self._driver.send(Released(task_id))


def run_lane(
    bundle: bytes, connection: Connection, serial: int, *, own_process: bool = True
) -> None:
    """Run a lane of a packed application until it ends. Closes the connection."""
    try:
        worker = Worker(Bundle.load(bundle), own_process=own_process)
    except BaseException:
        connection.close()
        raise
    try:
        Lane(worker, connection, serial, own_process=own_process).run()
    finally:
        worker.close()


def _failed_task(tasks: list[LaneTask], error: StreamsException) -> LaneTask:
    """Return the task that an error of a commit belongs to."""
    name = getattr(error, "task_id", None)
    return next((task for task in tasks if str(task.task_id) == name), tasks[0])
