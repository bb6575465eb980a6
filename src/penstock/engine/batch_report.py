"""`BatchReport`: the result of a committed batch, passed to metrics, listeners and `on_batch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.engine.worker.outcome import RestoredStore, TaskOutcome
from penstock.log.types import TopicPartition
from penstock.metric_catalogue import Reading
from penstock.metrics import SensorReading
from penstock.record import TaskId
from penstock.task.global_state import GLOBAL_TASK


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The results and durations of a batch."""

    number: int
    #: Records that tasks consumed, from the log and from each other.
    records: int
    #: Records that tasks consumed from the log.
    input_records: int
    #: Records written to topics other than changelogs, and to changelogs.
    outputs: int
    changes: int
    #: The duration of each step.
    plan_seconds: float
    compute_seconds: float
    commit_seconds: float
    #: Unread records when the batch was planned, less those that it consumed.
    lag: int = 0
    #: The same of each source partition. None in continuous mode, where lanes report it.
    lags: Mapping[TopicPartition, int] | None = field(default=None, kw_only=True)
    #: Task -> its counters. `process-total` is the number of records it consumed. `GLOBAL_TASK`
    #: has the counters of global stores.
    counters: Mapping[TaskId, Mapping[str, int]] = field(default_factory=dict)
    #: The lines of print operators: (file, or None for standard output, line).
    printed: tuple[tuple[str | None, str], ...] = ()
    #: The stores that were restored from their changelogs before the batch.
    restored: tuple[RestoredStore, ...] = ()
    #: The values that the sensors of processors recorded.
    sensors: tuple[SensorReading, ...] = ()
    #: The measurements of the tasks, for their metrics.
    readings: tuple[tuple[TaskId, Reading], ...] = ()
    #: How long the slowest lane has started its worker and restored stores.
    restore_seconds: float = 0.0
    #: The end of the commit, in nanoseconds since the epoch.
    ended_ns: int = 0

    #: Where it was computed, in continuous mode: the number of the lane, and its host.
    lane: int | None = field(default=None, kw_only=True)
    host: str = field(default="", kw_only=True)

    @property
    def seconds(self) -> float:
        """The duration of the whole batch."""
        return self.plan_seconds + self.compute_seconds + self.commit_seconds

    @classmethod
    def of(
        cls, number: int, outcomes: Sequence[TaskOutcome], *,
        seconds: tuple[float, float, float], lags: Mapping[TopicPartition, int] | None,
        ended_ns: int,
    ) -> BatchReport:
        """Summarize the outcomes. `seconds`: the durations of plan, compute and commit."""
        return cls(
            number,
            sum(outcome.records_consumed for outcome in outcomes),
            sum(outcome.input_records for outcome in outcomes),
            sum(outcome.written[0] for outcome in outcomes),
            sum(outcome.written[1] for outcome in outcomes),
            *seconds,
            sum((lags or {}).values()),
            _counters(outcomes),
            tuple(line for outcome in outcomes for line in outcome.printed),
            tuple(each for outcome in outcomes for each in outcome.restored),
            tuple(reading for outcome in outcomes for reading in outcome.sensors),
            tuple(
                (outcome.task_id, reading) for outcome in outcomes for reading in outcome.readings
            ),
            max((outcome.preparation.seconds for outcome in outcomes), default=0.0),
            ended_ns,
            lags=lags,
        )


def _counters(outcomes: Sequence[TaskOutcome]) -> dict[TaskId, dict[str, int]]:
    found = {
        outcome.task_id: {**outcome.counters, "process-total": outcome.records_consumed}
        for outcome in outcomes
    }
    dropped = sum(outcome.global_dropped for outcome in outcomes)
    if dropped:
        found[GLOBAL_TASK] = {"dropped-records-total": dropped}
    return found
