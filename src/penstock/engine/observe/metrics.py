"""The metrics of an instance, under Kafka Streams' names.

`Metrics` is updated with the report of every batch. A value is a number, or a string where Kafka
has one (state, version, topology). Rates, averages and maxima cover the last `metrics.num.samples`
times `metrics.sample.window.ms`. Totals count from the start of the instance.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from penstock.config import StreamsConfig
from penstock.engine.observe.lag_metrics import LagMetrics
from penstock.engine.observe.lane_metrics import LaneMetrics
from penstock.engine.observe.restore_metrics import RestoreMetrics
from penstock.engine.observe.sample_windows import CountWindow, SampleWindow
from penstock.engine.observe.standby_metrics import StandbyMetrics
from penstock.metric_catalogue import (
    CLIENT,
    JOIN,
    LEVELS,
    NODE,
    PRODUCER,
    TASK,
    THREAD,
    Reading,
    ReadingHistory,
)
from penstock.metrics import MetricName, SensorHistory, sample_window_seconds

if TYPE_CHECKING:
    from penstock.engine.batch_report import BatchReport
    from penstock.engine.continuous.messages import PartitionLag, TimeSpent

#: The counters of a join -> what they count.
JOIN_COUNTERS = {
    "matched": "joined pairs",
    "unmatched-left": "records of the left side without a match",
    "unmatched-right": "records of the right side without a match",
    "late": "records that arrived after their window and its grace period",
    "expired": "records too old to be stored for later matches",
}
#: Kafka's name of a node's counter, where it is another one.
_KAFKA_NAMES = {
    "emitted": "suppression-emit",
    "emitted-records": "window-aggregate-final-emit",
}

#: The group of the threads that restore and update stores.
STATE_UPDATER = "stream-state-updater-metrics"

#: The setting with the URL of a collector of OpenTelemetry, see `otlp.py`.
OTLP_ENDPOINT = "penstock.otlp.endpoint"

Value: TypeAlias = float | int | str


@functools.cache
def _version() -> str:
    """Return the version of penstock. Finding it means reading a file."""
    return metadata.version("penstock")


class Metrics:
    """Counts what batches do. The stream thread writes, any thread reads."""

    def __init__(
        self, config: StreamsConfig, thread: str, *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._thread_tags = (("thread-id", thread),)
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds = sample_window_seconds(config.extra)
        now = clock()
        self._started = now
        self._records, self._inputs, self._outputs = (
            SampleWindow(self._seconds, now) for _ in range(3)
        )
        self._computing, self._committing, self._planning, self._punctuating = (
            SampleWindow(self._seconds, now) for _ in range(4)
        )
        self._batches = 0
        #: (task, counter) -> its amounts. The counters of a node are named `node/name`.
        self._counters: dict[tuple[str, str], CountWindow] = {}
        self._nothing = CountWindow(self._seconds, now)
        self._task_records: dict[str, CountWindow] = {}
        self._sensors = SensorHistory(self._seconds)
        self._readings = ReadingHistory(self._seconds, config.metrics_recording_level, now)
        #: The tasks that lanes have started, and those that they have ended.
        self._created, self._closed = (CountWindow(self._seconds, now) for _ in range(2))
        self._running_tasks: set[str] = set()
        self._lanes = LaneMetrics(self._seconds, now)
        self._lag = LagMetrics(self._seconds, now)
        #: The records from which stores were restored.
        self._restored = CountWindow(self._seconds, now)
        #: The progress of restores.
        self.restores = RestoreMetrics()
        #: The updates of a standby.
        self.standby = StandbyMetrics(self._seconds, clock)

    def record(self, report: BatchReport) -> None:
        """Add the report of a committed batch."""
        now = self._clock()
        with self._lock:
            self._batches += 1
            self._records.add(report.records, now)
            self._inputs.add(report.input_records, now)
            self._outputs.add(report.outputs, now)
            self._planning.add(report.plan_seconds * 1000, now)
            self._computing.add(report.compute_seconds * 1000, now)
            self._committing.add(report.commit_seconds * 1000, now)
            for task, counters in report.counters.items():
                for name, amount in counters.items():
                    self._count(str(task), name, amount, now)
                window = self._task_records.setdefault(
                    str(task), CountWindow(self._seconds, self._started)
                )
                window.add(counters.get("process-total", 0), now)
            if report.lags is not None:
                self._lag.replace(report.lags, now)
            for reading in report.sensors:
                self._sensors.add(reading, now)
            for task, measured in report.readings:
                self._readings.add(str(task), measured, now)
                if measured.sensor == "thread-punctuate":
                    self._punctuating.add(measured.sum, now)

    def task_granted(self, task: str) -> None:
        """A lane is asked to run a task."""
        with self._lock:
            self._lanes.task_granted(task, self._clock())

    def task_released(self, task: str) -> None:
        """A lane is asked to give up a task."""
        with self._lock:
            self._lanes.task_released(task, self._clock())

    def task_started(self, task: str) -> None:
        """A lane has started a task. Its metrics exist from now on."""
        with self._lock:
            self._lanes.task_started(task, self._clock())
            self._task_records.setdefault(task, CountWindow(self._seconds, self._started))
            self._running_tasks.add(task)
            self._created.add(1, self._clock())

    def task_stopped(self, task: str) -> None:
        """No lane runs a task. It may have been reported before, or never have run."""
        with self._lock:
            self._lanes.task_stopped(task, self._clock())
            self._lag.remove(task)
            if task in self._running_tasks:
                self._running_tasks.remove(task)
                self._closed.add(1, self._clock())

    def lane_spent(self, spent: TimeSpent) -> None:
        """Add the report of a lane about its time."""
        with self._lock:
            self._lanes.add(spent, self._clock())

    def lag_measured(self, lag: Sequence[PartitionLag]) -> None:
        """Add the report of a lane about its lag."""
        with self._lock:
            self._lag.update(lag, self._clock())

    def lane_lost(self) -> None:
        """A lane has ended unexpectedly."""
        with self._lock:
            self._lanes.lost += 1

    @property
    def lost_lanes(self) -> int:
        """How many lanes have ended unexpectedly."""
        return self._lanes.lost

    def stop_reading(self) -> None:
        """This instance does not run the application."""
        with self._lock:
            self._lag.clear()

    def add_restore(self, task: str, records: int) -> None:
        """Add the complete restore of a store."""
        now = self._clock()
        with self._lock:
            self._restored.add(records, now)
            self._readings.add(task, Reading("restore", (), 1, records, records, records), now)

    def _count(self, task: str, name: str, amount: int, now: float) -> None:
        window = self._counters.get((task, name))
        if window is None:
            window = self._counters[task, name] = CountWindow(self._seconds, self._started)
        if amount:
            window.add(amount, now)

    def snapshot(
        self, client: Mapping[str, Value], thread: Mapping[str, Value] = MappingProxyType({})
    ) -> dict[MetricName, Value]:
        """Return all metrics. `client` and `thread` add those that only the instance knows."""
        now = self._clock()
        with self._lock:
            found: dict[MetricName, Value] = {
                MetricName(CLIENT, name, (("client-id", self._client_id),)): value
                for name, value in (self._client_metrics() | dict(client)).items()
            }
            found |= {
                MetricName(THREAD, name, self._thread_tags): value
                for name, value in (*self._thread_metrics(now), *thread.items())
            }
            producer = (("client-id", f"{self._thread_tags[0][1]}-producer"),)
            found[MetricName(PRODUCER, "record-send-total", producer)] = int(self._outputs.total)
            found[MetricName(PRODUCER, "record-send-rate", producer)] = self._outputs.rate(now)
            found |= dict(self._lag.values(f"{self._thread_tags[0][1]}-consumer", now))
            found |= dict(self._updater_metrics(now))
            found |= dict(self._task_metrics(now))
            found |= dict(self._restore_metrics())
            found |= dict(self._node_metrics(now))
            found |= dict(self._sensors.values(now, self._thread_tags))
            found |= dict(self._readings.values(now, self._thread_tags))
        return found

    @property
    def _client_id(self) -> str:
        return self._config.client_id or self._config.application_id

    def _client_metrics(self) -> dict[str, Value]:
        return {
            "application-id": self._config.application_id,
            "version": _version(),
            # Kafka reports the number of the level.
            "recording-level": list[str](LEVELS).index(self._config.metrics_recording_level),
        }

    def _thread_metrics(self, now: float) -> Iterator[tuple[str, Value]]:
        yield "process-total", int(self._records.total)
        yield "process-rate", self._records.rate(now)
        yield "process-records-avg", self._records.average(now)
        yield "process-records-max", self._records.maximum(now)
        yield "commit-total", self._batches
        yield "commit-rate", self._committing.samples_per_second(now)
        yield "commit-latency-avg", self._committing.average(now)
        yield "commit-latency-max", self._committing.maximum(now)
        if self._config.is_continuous:
            yield from self._lanes.values(now, self._punctuating.rate(now) / 1000)
            for name, tasks in (("created", self._created), ("closed", self._closed)):
                yield f"task-{name}-total", int(tasks.total)
                yield f"task-{name}-rate", tasks.rate(now)
        else:
            yield from self._batch_metrics(now)

    def _batch_metrics(self, now: float) -> Iterator[tuple[str, Value]]:
        """Yield the metrics that only batches have. A batch is planned instead of polled."""
        yield "poll-total", self._batches
        blocked_ms = self._planning.total + self._committing.total
        yield "blocked-time-ns-total", round(blocked_ms * 1e6)
        yield "poll-rate", self._planning.samples_per_second(now)
        yield "poll-records-avg", self._inputs.average(now)
        yield "poll-records-max", self._inputs.maximum(now)
        for step, window in (("poll", self._planning), ("process", self._computing)):
            yield f"{step}-latency-avg", window.average(now)
            yield f"{step}-latency-max", window.maximum(now)
        for step, window in (
            ("poll", self._planning), ("process", self._computing), ("commit", self._committing),
            ("punctuate", self._punctuating),
        ):
            yield f"{step}-ratio", window.rate(now) / 1000

    def _task_metrics(self, now: float) -> Iterator[tuple[MetricName, Value]]:
        for task, window in self._task_records.items():
            tags = (*self._thread_tags, ("task-id", task))
            yield MetricName(TASK, "process-total", tags), int(window.total)
            yield MetricName(TASK, "process-rate", tags), window.rate(now)
            dropped = self._counters.get((task, "dropped-records-total"), self._nothing)
            yield MetricName(TASK, "dropped-records-total", tags), int(dropped.total)
            yield MetricName(TASK, "dropped-records-rate", tags), dropped.rate(now)

    def _updater_metrics(self, now: float) -> Iterator[tuple[MetricName, Value]]:
        """Yield the metrics of restores and standby updates of all tasks."""
        restoring = sum(1 for _, remaining, _ in self.restores.values() if remaining)
        for name, value in (
            ("active-restoring-tasks", restoring), ("standby-updating-tasks", self.standby.tasks),
            ("restore-records-rate", self._restored.rate(now)),
        ):
            yield MetricName(STATE_UPDATER, name, self._thread_tags), value
        for task, name, value in self.standby.values():
            yield MetricName(TASK, name, (*self._thread_tags, ("task-id", task))), value

    def _restore_metrics(self) -> Iterator[tuple[MetricName, Value]]:
        for task, remaining, progress in self.restores.values():
            tags = (*self._thread_tags, ("task-id", task))
            yield MetricName(TASK, "restore-remaining-records-total", tags), remaining
            yield MetricName(TASK, "restore-progress", tags), progress

    def _node_metrics(self, now: float) -> Iterator[tuple[MetricName, Value]]:
        for (task, counter), window in self._counters.items():
            node, slash, name = counter.rpartition("/")
            if not slash:
                continue
            tags = (*self._thread_tags, ("task-id", task), ("processor-node-id", node))
            group = JOIN if name in JOIN_COUNTERS else NODE
            kafka_name = _KAFKA_NAMES.get(name, name)
            yield MetricName(group, f"{kafka_name}-total", tags), int(window.total)
            yield MetricName(group, f"{kafka_name}-rate", tags), window.rate(now)
