"""`Engine`: runs an application batch by batch. Plan, compute, commit, advance.

It is the truth about nothing: what is committed is in the log, and everything here was made from
that when the lease was taken. One thread calls it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.clock import wall_clock_ms
from penstock.config import StreamsConfig
from penstock.engine.commit import (
    CommitResult,
    InconsistentAttempts,
    check_attempts,
    commit,
    drop_staged,
    failure_of,
)
from penstock.engine.compute import BatchCancelled, ComputeFactory
from penstock.engine.failpoints import failpoint
from penstock.engine.housekeeping import Housekeeping
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.layout.internal_topics import ensure_internal_topics
from penstock.engine.layout.upgrade_check import migrate_task_records
from penstock.engine.plan.batch_plan import BatchPlan
from penstock.engine.plan.planner import Planner
from penstock.engine.worker.outcome import RestoredStore, TaskOutcome, decode_outcomes
from penstock.errors import StreamsException, TaskMigratedException
from penstock.log.base import Lease, Log
from penstock.log.errors import (
    InvalidRecord,
    LogBusy,
    LogError,
    OffsetOutOfRange,
    OutcomeUnknown,
)
from penstock.log.types import TopicPartition
from penstock.record import TaskId
from penstock.topology.topology import Topology

log = logging.getLogger(__name__)

#: How often a batch is run again because its tasks' attempts were mixed, before it is given up.
MAX_RERUNS = 5


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What a batch did and what it cost."""

    number: int
    #: Records taken by tasks, from the log and from each other.
    records: int
    #: Records written to topics other than changelogs, and to changelogs.
    outputs: int
    changes: int
    #: Seconds of each step.
    planning: float
    computing: float
    committing: float
    #: Offsets that were still to be read when the batch was planned, less what it took.
    lag: int = 0
    #: Task -> its counters; `process-total` is how many records it took.
    counters: Mapping[TaskId, Mapping[str, int]] = field(default_factory=dict)
    #: (file or None for standard output, line) of print steps.
    printed: tuple[tuple[str | None, str], ...] = ()
    #: Stores that were filled from their changelogs before the batch.
    restored: tuple[RestoredStore, ...] = ()

    @property
    def seconds(self) -> float:
        """The whole batch."""
        return self.planning + self.computing + self.committing


class Engine:
    """An application while this instance holds its lease."""

    def __init__(
        self, topology: Topology, config: StreamsConfig, target: Log, lease: Lease,
        start_compute: ComputeFactory,
    ) -> None:
        self._topology = topology
        self._config = config
        self._log = target
        self._lease = lease
        self._start_compute = start_compute
        self._cancelled = threading.Event()
        #: The batch whose records the log has refused last.
        self._refused = -1
        self._open()

    def _open(self) -> None:
        """Make everything that follows from the execution graph, and from what is committed."""
        self._lease.settle()
        self.graph = build_graph_for_log(self._log, self._topology, self._config)
        records = migrate_task_records(
            self._log, self._lease, self._topology, self._config, self.graph
        )
        ensure_internal_topics(self._log, self.graph)
        self.planner = Planner(
            self._log, self.graph, self._config, self._topology, now_ms=wall_clock_ms(),
            records=records,
        )
        self._housekeeping = Housekeeping(
            self._log, self.graph, self._config.repartition_purge_interval_ms
        )
        self._compute = self._start_compute(
            self._topology, self._config, self.graph, self._log
        )

    def run_batch(self) -> BatchReport | None:
        """One batch from beginning to end; None if there is nothing to do.

        1. Plan: which records each task takes, from what is committed.
        2. Compute: the tasks run, and answer all they want to happen. Nothing has happened yet.
        3. Commit: it happens, all of it, in one transaction of the log, or none of it does.
        4. Advance: the next plan begins where this one ended. Replicas follow when they are used.
        """
        began = time.perf_counter()
        # 1.
        plan = self.planner.next_plan(wall_clock_ms(), self._lease.epoch)
        if self.planner.shape_changed:
            self._reopen()
            return self.run_batch()
        if plan is None:
            return None
        failpoint("planned")
        planned = time.perf_counter()
        # 2.
        outcomes = self._computed(plan)
        failpoint("before-commit")
        computed = time.perf_counter()
        # 3.
        self._check_cancelled(plan)
        try:
            committed = commit(
                self._log, self._lease, plan, outcomes,
                graph=self.graph, offsets=dict(self.planner.offsets.items()),
            )
        except InvalidRecord as refused:
            return self._run_again(plan, outcomes, refused)
        except OutcomeUnknown:
            # What was put aside may be needed.
            raise
        except LogError:
            with contextlib.suppress(LogError):
                drop_staged(self._log, outcomes)
            raise
        failpoint("after-commit")
        ended = time.perf_counter()
        # 4.
        self._advance(plan, committed, outcomes, ended - began)
        return _report(
            plan, outcomes, (planned - began, computed - planned, ended - computed),
            self.planner.lag(),
        )

    def _computed(self, plan: BatchPlan) -> list[TaskOutcome]:
        """Outcomes that belong together; raises what a task failed with."""
        for _ in range(MAX_RERUNS):
            self._check_cancelled(plan)
            outcomes = decode_outcomes(self._compute.compute(plan))
            _show_logged(outcomes)
            failure = failure_of(outcomes)
            try:
                if failure is not None:
                    raise failure
                check_attempts(plan, outcomes)
                return outcomes
            except InconsistentAttempts as error:
                log.warning("Batch %d is run again: %s", plan.number, error)
                drop_staged(self._log, outcomes)
            except TaskMigratedException as error:
                drop_staged(self._log, outcomes)
                plan = self._restoring(plan, outcomes, error)
            except OffsetOutOfRange as error:
                drop_staged(self._log, outcomes)
                if error.offset >= error.start:
                    raise
                # The next plan knows what is to be done about it.
                raise LogBusy(f"Retention was faster than batch {plan.number}. {error}") from error
            except BaseException:
                drop_staged(self._log, outcomes)
                raise
        raise StreamsException(
            f"Batch {plan.number} was run {MAX_RERUNS} times, and each time parts of it were lost "
            "and run again on their own. Look at why Spark loses executors or shuffle files."
        )

    def _check_cancelled(self, plan: BatchPlan) -> None:
        if self._cancelled.is_set():
            raise BatchCancelled(self._config.application_id, plan.number)

    def _restoring(
        self, plan: BatchPlan, outcomes: list[TaskOutcome], error: TaskMigratedException
    ) -> BatchPlan:
        """The plan again, with the replicas restored that hold more than is committed.

        Either another driver has gone on, then the lease says so (`Fenced`), or a replica cannot
        be trusted.
        """
        self._lease.renew()
        failed = {outcome.task_id for outcome in outcomes if outcome.failure is not None}
        if failed & plan.discard_replicas:
            raise error
        log.warning("Tasks %s are restored: %s", ", ".join(map(str, sorted(failed))), error)
        return replace(plan, discard_replicas=plan.discard_replicas | failed)

    def _run_again(
        self, plan: BatchPlan, outcomes: list[TaskOutcome], refused: InvalidRecord
    ) -> BatchReport | None:
        """Once more, after the log has refused records of the batch.

        Tasks ask the production handler about what a topic does not take, as the topic was when the
        batch began. Its settings, or the clock, may have moved on since; then the handler is asked
        now. What is refused twice is a failure.
        """
        drop_staged(self._log, outcomes)
        if self._refused == plan.number:
            raise refused
        self._refused = plan.number
        log.warning("Batch %d is run again: %s", plan.number, refused)
        return self.run_batch()

    def _advance(
        self, plan: BatchPlan, committed: CommitResult, outcomes: list[TaskOutcome], seconds: float
    ) -> None:
        self.planner.advance(
            plan, committed.offsets, committed.records, seconds=seconds,
            bytes_read=_bytes_read(outcomes),
        )
        self._housekeeping.after_commit(committed.offsets, self.planner.records)

    def wait(self, timeout: float) -> None:
        """Until something was written to the log, a punctuation is due, or the seconds passed."""
        timeout = self.due_within(timeout)
        if timeout > 0:
            self._log.wait_for_change(timeout)

    def due_within(self, seconds: float) -> float:
        """The seconds until something is to be done even without input, if they are fewer."""
        due = self.planner.next_due
        return seconds if due is None else min(seconds, max(0.0, (due - wall_clock_ms()) / 1000))

    @property
    def holds_back(self) -> bool:
        """Whether there is input which waits for other input (`max.task.idle.ms`)."""
        return self.planner.holds_back

    def ends(self) -> dict[TopicPartition, int] | None:
        """Where the input ended when the last batch was planned; None if the application feeds
        itself through the log, so that more comes after that."""
        return None if self.graph.repartition_topics else self.planner.ends()

    def is_behind(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether some input before these offsets is not processed yet."""
        offsets = self.planner.offsets
        return any(offsets.get(at, end) < end for at, end in ends.items())

    def cancel(self) -> None:
        """Give up the running batch: it raises, and nothing of it happens, unless its commit has
        begun. Another thread calls it; no batch can be run afterwards."""
        self._cancelled.set()
        self._compute.cancel()

    def close(self) -> None:
        """No more batches."""
        self._compute.close()
        self._housekeeping.close()

    def _reopen(self) -> None:
        log.info("Topics have come or grown: application '%s' is laid out anew.",
                 self._config.application_id)
        self.close()
        self._open()


def _show_logged(outcomes: list[TaskOutcome]) -> None:
    """What was logged in the workers, by the loggers of the same names here."""
    for outcome in outcomes:
        for level, name, text in outcome.logged:
            logging.getLogger(name).log(level, "%s", text)


def _report(
    plan: BatchPlan, outcomes: list[TaskOutcome], seconds: tuple[float, float, float],
    lag: Mapping[TopicPartition, int],
) -> BatchReport:
    return BatchReport(
        plan.number,
        sum(outcome.records_consumed for outcome in outcomes),
        sum(outcome.written[0] for outcome in outcomes),
        sum(outcome.written[1] for outcome in outcomes),
        *seconds,
        sum(lag.values()),
        {
            outcome.task_id: {**outcome.counters, "process-total": outcome.records_consumed}
            for outcome in outcomes
        },
        tuple(line for outcome in outcomes for line in outcome.printed),
        tuple(each for outcome in outcomes for each in outcome.restored),
    )


def _bytes_read(outcomes: list[TaskOutcome]) -> dict[str, tuple[int, int]]:
    """Topic -> (records, their bytes) of what all tasks read."""
    read: dict[str, tuple[int, int]] = {}
    for outcome in outcomes:
        for topic, (count, size) in outcome.read.items():
            before = read.get(topic, (0, 0))
            read[topic] = (before[0] + count, before[1] + size)
    return read
