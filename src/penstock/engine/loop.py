"""`Engine`: runs an application batch by batch: plan, compute, commit, advance.

Holds no durable state. The log has all that is committed, and the engine is rebuilt from it when
the lease is acquired. One thread calls it; only `cancel` may be called from another.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

from penstock.clock import wall_clock_ms
from penstock.config import StreamsConfig
from penstock.engine.batch_report import BatchReport
from penstock.engine.commit import (
    CommitResult,
    InconsistentAttempts,
    check_attempts,
    commit,
    drop_staged,
    find_failure,
)
from penstock.engine.compute import BatchCancelled, ComputeFactory
from penstock.engine.dead_letters import check_dead_letter_topics, write_dead_letters
from penstock.engine.failpoints import failpoint
from penstock.engine.housekeeping import Housekeeping
from penstock.engine.layout.execution_graph import build_graph_for_log
from penstock.engine.layout.internal_topics import ensure_internal_topics
from penstock.engine.layout.unread_topics import delete_consumed, find_unread_topics
from penstock.engine.layout.upgrade_check import migrate_task_records
from penstock.engine.plan.batch_plan import BatchPlan
from penstock.engine.plan.batch_size import BatchDuration
from penstock.engine.plan.planner import Planner
from penstock.engine.worker.log_lines import replay_log_lines
from penstock.engine.worker.outcome import TaskOutcome, decode_outcomes
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
from penstock.task.drops import DropLog
from penstock.topology.topology import Topology

log = logging.getLogger(__name__)

#: How often a batch is computed before its inconsistent attempts become an error.
MAX_ATTEMPTS = 5

#: The notices of workers that were logged.
_logged_notices: set[str] = set()


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
        #: The number of the last batch that the log refused because of invalid records.
        self._refused_batch = -1
        self._drop_log = DropLog()
        self._open()

    def _open(self) -> None:
        """Build everything that depends on the execution graph and on the committed state."""
        self._lease.settle()
        check_dead_letter_topics(self._log, self._config)
        #: Repartition topics with records of continuous mode, or of Kafka Streams for Java.
        self._draining = find_unread_topics(self._log, self._topology, self._config)
        delete_consumed(self._log, self._topology, self._config)
        self.graph = build_graph_for_log(
            self._log, self._topology, self._config, self._draining
        )
        records = migrate_task_records(
            self._log, self._lease, self._topology, self._config, self.graph
        )
        ensure_internal_topics(self._log, self.graph, self._config.replication_factor)
        self.planner = Planner(
            self._log, self.graph, self._config, self._topology, now_ms=wall_clock_ms(),
            records=records, draining=self._draining,
        )
        self._housekeeping = Housekeeping(
            self._log, self.graph, self._config.repartition_purge_interval_ms
        )
        self._compute = self._start_compute(
            self._topology, self._config, self.graph, self._log
        )

    def run_batch(self) -> BatchReport | None:
        """Run one batch. Return None if there is nothing to do.

        1. Plan: choose the records that each task reads, from the committed state.
        2. Compute: run the tasks. They return outcomes; nothing is written yet.
        3. Commit: write all outcomes in one transaction of the log.
        4. Advance: move the planner to the new offsets. Replicas catch up when they are next used.
        """
        start = time.perf_counter()
        self._drop_log.log_counts()
        # 1. Plan
        plan = self.planner.next_plan(wall_clock_ms(), self._lease.epoch)
        if self.planner.graph_changed:
            self._reopen("Topics have changed")
            return self.run_batch()
        if plan is None and self._draining:
            self._reopen("The repartition topics are consumed")
            return self.run_batch()
        if plan is None:
            return None
        failpoint("planned")
        planned = time.perf_counter()
        # 2. Compute
        outcomes = self._compute_outcomes(plan)
        failpoint("before-commit")
        computed = time.perf_counter()
        # 3. Commit
        self._check_cancelled(plan)
        try:
            result = commit(
                self._log, self._lease, plan, outcomes,
                graph=self.graph, offsets=dict(self.planner.offsets.items()),
                records=self.planner.records,
            )
        except InvalidRecord as refused:
            return self._rerun_refused(plan, outcomes, refused)
        except OutcomeUnknown:
            # The transaction may be committed, and then it needs the staged records.
            raise
        except LogError:
            with contextlib.suppress(LogError):
                drop_staged(self._log, outcomes)
            raise
        failpoint("after-commit")
        committed, ended_ns = time.perf_counter(), time.time_ns()
        for outcome in outcomes:
            self._drop_log.add(outcome.task_id, outcome.drops)
        # 4. Advance
        self._advance(plan, result, outcomes, committed - start)
        return BatchReport.of(
            plan.number, outcomes,
            seconds=(planned - start, computed - planned, committed - computed),
            lags=self.planner.lag(), ended_ns=ended_ns,
        )

    def _compute_outcomes(self, plan: BatchPlan) -> list[TaskOutcome]:
        """Run the tasks and return consistent outcomes. Raise the failure of a task."""
        for _ in range(MAX_ATTEMPTS):
            self._check_cancelled(plan)
            outcomes = decode_outcomes(self._compute.compute(plan))
            replay_log_lines(line for outcome in outcomes for line in outcome.logged)
            log_notices(outcomes)
            failure = find_failure(outcomes)
            try:
                if failure is not None:
                    write_dead_letters(
                        self._log, self._lease, self._config.application_id, outcomes
                    )
                    raise failure
                check_attempts(plan, outcomes)
                return outcomes
            except InconsistentAttempts as error:
                log.warning("Batch %d is rerun: %s", plan.number, error)
                drop_staged(self._log, outcomes)
            except TaskMigratedException as error:
                drop_staged(self._log, outcomes)
                plan = self._discard_failed_replicas(plan, outcomes, error)
            except OffsetOutOfRange as error:
                drop_staged(self._log, outcomes)
                if error.offset >= error.start:
                    raise
                # The next plan applies the offset reset policy.
                raise LogBusy(
                    f"Retention removed records that batch {plan.number} was about to read. "
                    f"{error}"
                ) from error
            except BaseException:
                drop_staged(self._log, outcomes)
                raise
        raise StreamsException(
            f"Batch {plan.number} failed after {MAX_ATTEMPTS} attempts: each time Spark lost parts "
            "of it and reran only those. Find out why Spark loses executors or shuffle files."
        )

    def _check_cancelled(self, plan: BatchPlan) -> None:
        if self._cancelled.is_set():
            raise BatchCancelled(self._config.application_id, plan.number)

    def _discard_failed_replicas(
        self, plan: BatchPlan, outcomes: list[TaskOutcome], error: TaskMigratedException
    ) -> BatchPlan:
        """Return the plan with the failed tasks' replicas discarded: they are ahead of the log.

        If another driver has advanced them, the lease is lost and this raises `Fenced`. Otherwise
        the replicas are not reliable and are restored.
        """
        self._lease.renew()
        failed = {outcome.task_id for outcome in outcomes if outcome.failure is not None}
        if failed & plan.discard_replicas:
            raise error
        log.warning("Tasks %s are restored: %s", ", ".join(map(str, sorted(failed))), error)
        return replace(plan, discard_replicas=plan.discard_replicas | failed)

    def _rerun_refused(
        self, plan: BatchPlan, outcomes: list[TaskOutcome], refused: InvalidRecord
    ) -> BatchReport | None:
        """Rerun a batch after the log has refused one of its records.

        Tasks pass invalid records to the production handler, according to the topic's settings at
        the start of the batch. The settings or the clock may have changed since; then the rerun
        calls the handler. A second refusal is a failure.
        """
        drop_staged(self._log, outcomes)
        if self._refused_batch == plan.number:
            raise refused
        self._refused_batch = plan.number
        log.warning("Batch %d is rerun: %s", plan.number, refused)
        return self.run_batch()

    def _advance(
        self, plan: BatchPlan, result: CommitResult, outcomes: list[TaskOutcome], seconds: float
    ) -> None:
        duration = BatchDuration(seconds, *self._preparation(outcomes))
        from_log, from_host = (
            sum(getattr(outcome.preparation, name) for outcome in outcomes)
            for name in ("from_log", "from_host")
        )
        log.debug(
            "Batch %d: %.3f s, of which %.3f s to start workers and restore stores. %d stores "
            "caught up from the log, %d from their host.",
            plan.number, seconds, duration.preparation_s, from_log, from_host,
        )
        self.planner.advance(
            plan, result.offsets, result.records, duration=duration,
            bytes_read=_bytes_read(outcomes),
        )
        self._housekeeping.after_commit(result.offsets, self.planner.records)

    def _preparation(self, outcomes: list[TaskOutcome]) -> tuple[float, bool]:
        """Return the seconds that the slowest lane of each stage needed before the usual work, and
        whether a worker was new."""
        slowest: dict[int, float] = {}
        for outcome in outcomes:
            stage = self.graph.subtopologies[outcome.task_id.subtopology].stage
            slowest[stage] = max(slowest.get(stage, 0.0), outcome.preparation.seconds)
        return sum(slowest.values()), any(each.preparation.is_cold for each in outcomes)

    def wait(self, timeout: float) -> None:
        """Wait until the log changes or a batch is due, for at most `timeout` seconds."""
        timeout = self.seconds_until_due(timeout)
        if timeout > 0:
            self._log.wait_for_change(timeout)

    def seconds_until_due(self, at_most: float) -> float:
        """Return the seconds until a batch is due even without input, but at most so many."""
        due = self.planner.next_due
        return at_most if due is None else min(at_most, max(0.0, (due - wall_clock_ms()) / 1000))

    def wake(self) -> None:
        """End the current wait. Any thread may call it."""
        self._log.wake()

    @property
    def is_ready(self) -> bool:
        """Whether the stores are restored. The first batch does it, with or without input."""
        return True

    def set_paused(self, paused: bool) -> None:
        """Nothing to do: no batch runs while the thread is paused."""

    def set_awaited(self, awaited: bool) -> None:
        """Nothing to do: the thread does not wait for the commit interval then."""

    @property
    def has_delayed_input(self) -> bool:
        """Whether records wait for other input (`max.task.idle.ms`)."""
        return self.planner.has_delayed_input

    def end_offsets(self) -> dict[TopicPartition, int] | None:
        """Return the ends of the input when the last batch was planned.

        None if the application writes to its own input through the log: then the input grows.
        """
        return None if self.graph.repartition_topics else self.planner.end_offsets()

    def is_behind(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether input before these offsets is not processed yet."""
        offsets = self.planner.offsets
        return any(offsets.get(at, end) < end for at, end in ends.items())

    def cancel(self) -> None:
        """Cancel the running batch, unless its commit has started. No batch runs afterwards.

        `run_batch` raises, and nothing is committed. Another thread calls this.
        """
        self._cancelled.set()
        self._compute.cancel()

    def close(self) -> None:
        """Release the resources."""
        self._drop_log.log_counts(all_now=True)
        self._compute.close()
        self._housekeeping.close()

    def _reopen(self, reason: str) -> None:
        log.info(
            "%s: the execution graph of application '%s' is rebuilt.", reason,
            self._config.application_id,
        )
        self.close()
        self._open()


def log_notices(outcomes: list[TaskOutcome]) -> None:
    """Log the notices of workers, each once in the life of this process."""
    for notice in sorted({notice for outcome in outcomes for notice in outcome.notices}):
        if notice not in _logged_notices:
            _logged_notices.add(notice)
            log.warning("%s", notice)


def _bytes_read(outcomes: list[TaskOutcome]) -> dict[str, tuple[int, int]]:
    """Return topic -> (records, bytes) that all tasks read from the log."""
    read: dict[str, tuple[int, int]] = {}
    for outcome in outcomes:
        for topic, (count, size) in outcome.read.items():
            before = read.get(topic, (0, 0))
            read[topic] = (before[0] + count, before[1] + size)
    return read
