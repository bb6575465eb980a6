"""What an application counts and measures, under Kafka Streams' names.

`Metrics` is fed with the report of every batch and asked by anybody. A value is a number, or a text
where Kafka has one (state, version, topology). Rates, averages and maxima are over the last
`metrics.num.samples` times `metrics.sample.window.ms`; totals are since the instance was started.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.config import StreamsConfig

if TYPE_CHECKING:
    from penstock.engine.loop import BatchReport

CLIENT = "stream-metrics"
THREAD = "stream-thread-metrics"
TASK = "stream-task-metrics"
NODE = "stream-processor-node-metrics"
#: penstock's own: what a join did with the records it got (Kafka counts nothing of it).
JOIN = "stream-join-metrics"

#: A counter of a node that belongs to a join, and what it counts.
JOIN_COUNTERS = {
    "matched": "pairs that were joined",
    "unmatched-left": "records of the left side that found no partner",
    "unmatched-right": "records of the right side that found no partner",
    "late": "records that came when their window, or the grace, was over already",
    "expired": "records too old to be kept for partners that come later",
}
#: What Kafka calls a counter of a node, where it is not the counter's name and `-total`.
_KAFKAS_NAMES = {
    "emitted": "suppression-emit-total",
    "emitted-records": "emitted-records-total",
}

Value: TypeAlias = float | int | str


class MetricName(NamedTuple):
    """The name of a metric, as Kafka has it."""

    group: str
    name: str
    #: In the order of Kafka's documentation: thread-id, task-id, processor-node-id.
    tags: tuple[tuple[str, str], ...] = ()

    def tag(self, name: str) -> str | None:
        """One of the tags, None if it is not there."""
        return dict(self.tags).get(name)

    def __str__(self) -> str:
        tags = ",".join(f"{name}={value}" for name, value in self.tags)
        return f"{self.group}:{self.name}" + (f"{{{tags}}}" if tags else "")


class Window:
    """Amounts of the last while, with the time of each."""

    def __init__(self, seconds: float, now: float) -> None:
        self.total = 0.0
        self._seconds = seconds
        self._began = now
        self._samples: deque[tuple[float, float]] = deque()
        self._sum = 0.0

    def add(self, amount: float, now: float) -> None:
        """One more."""
        self.total += amount
        self._sum += amount
        self._samples.append((now, amount))
        self._forget(now)

    def rate(self, now: float) -> float:
        """Amount for a second."""
        self._forget(now)
        return self._sum / max(min(self._seconds, now - self._began), 1e-3)

    def per_second_of_samples(self, now: float) -> float:
        """How many amounts there were in a second."""
        self._forget(now)
        return len(self._samples) / max(min(self._seconds, now - self._began), 1e-3)

    def average(self, now: float) -> float:
        """Of the amounts; not a number if there were none."""
        self._forget(now)
        return self._sum / len(self._samples) if self._samples else float("nan")

    def largest(self, now: float) -> float:
        """Of the amounts; not a number if there were none."""
        self._forget(now)
        return max((amount for _, amount in self._samples), default=float("nan"))

    def _forget(self, now: float) -> None:
        samples = self._samples
        while samples and samples[0][0] <= now - self._seconds:
            self._sum -= samples.popleft()[1]
        if not samples:
            self._sum = 0.0


class Metrics:
    """Written by the thread that runs batches, read by any."""

    def __init__(
        self, config: StreamsConfig, thread: str, *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._thread = (("thread-id", thread),)
        self._clock = clock
        self._lock = threading.Lock()
        extra = config.extra
        self._seconds = (
            float(extra.get("metrics.num.samples", 2))
            * float(extra.get("metrics.sample.window.ms", 30_000)) / 1000
        )
        now = clock()
        self._records, self._outputs, self._computing, self._committing, self._planning = (
            Window(self._seconds, now) for _ in range(5)
        )
        self._batches = 0
        #: (task, counter) -> the amount so far; a node's counters are `node/name`.
        self._counters: dict[tuple[str, str], int] = {}
        self._task_records: dict[str, Window] = {}

    def record(self, report: BatchReport) -> None:
        """A batch was committed."""
        now = self._clock()
        with self._lock:
            self._batches += 1
            self._records.add(report.records, now)
            self._outputs.add(report.outputs, now)
            self._planning.add(report.planning * 1000, now)
            self._computing.add(report.computing * 1000, now)
            self._committing.add(report.committing * 1000, now)
            for task, counters in report.counters.items():
                for name, amount in counters.items():
                    key = (str(task), name)
                    self._counters[key] = self._counters.get(key, 0) + amount
                window = self._task_records.setdefault(str(task), Window(self._seconds, now))
                window.add(counters.get("process-total", 0), now)

    @property
    def records(self) -> int:
        """Taken by tasks so far."""
        return int(self._records.total)

    @property
    def batches(self) -> int:
        """Committed so far."""
        return self._batches

    def records_per_second(self) -> float:
        """Of late."""
        with self._lock:
            return self._records.rate(self._clock())

    def snapshot(self, client: Mapping[str, Value]) -> dict[MetricName, Value]:
        """All metrics as of now; `client` are those of the instance itself."""
        now = self._clock()
        with self._lock:
            found: dict[MetricName, Value] = {
                MetricName(CLIENT, name, (("client-id", self._client_id),)): value
                for name, value in (self._of_client() | dict(client)).items()
            }
            found |= {
                MetricName(THREAD, name, self._thread): value
                for name, value in self._of_thread(now)
            }
            found |= dict(self._of_tasks(now))
            found |= dict(self._of_nodes())
        return found

    @property
    def _client_id(self) -> str:
        return self._config.client_id or self._config.application_id

    def _of_client(self) -> dict[str, Value]:
        return {
            "application-id": self._config.application_id,
            "version": metadata.version("penstock"),
        }

    def _of_thread(self, now: float) -> Iterator[tuple[str, Value]]:
        yield "process-total", int(self._records.total)
        yield "process-rate", self._records.rate(now)
        yield "process-records-avg", self._records.average(now)
        yield "process-records-max", self._records.largest(now)
        yield "send-total", int(self._outputs.total)
        yield "send-rate", self._outputs.rate(now)
        for step, window in (
            ("poll", self._planning), ("process", self._computing), ("commit", self._committing)
        ):
            if step != "process":
                yield f"{step}-total", self._batches
                yield f"{step}-rate", window.per_second_of_samples(now)
            yield f"{step}-latency-avg", window.average(now)
            yield f"{step}-latency-max", window.largest(now)

    def _of_tasks(self, now: float) -> Iterator[tuple[MetricName, Value]]:
        for task, window in self._task_records.items():
            tags = (*self._thread, ("task-id", task))
            yield MetricName(TASK, "process-total", tags), int(window.total)
            yield MetricName(TASK, "process-rate", tags), window.rate(now)
            dropped = self._counters.get((task, "dropped-records-total"), 0)
            yield MetricName(TASK, "dropped-records-total", tags), dropped

    def _of_nodes(self) -> Iterator[tuple[MetricName, Value]]:
        for (task, counter), amount in self._counters.items():
            node, slash, name = counter.rpartition("/")
            if not slash:
                continue
            tags = (*self._thread, ("task-id", task), ("processor-node-id", node))
            if name in JOIN_COUNTERS:
                yield MetricName(JOIN, f"{name}-total", tags), amount
            else:
                yield MetricName(NODE, _KAFKAS_NAMES.get(name, f"{name}-total"), tags), amount


def joins(metrics: Mapping[MetricName, Value]) -> dict[str, dict[str, int]]:
    """What every join did, over all tasks: node -> counter -> amount."""
    found: dict[str, dict[str, int]] = {}
    for name, value in metrics.items():
        if name.group == JOIN and isinstance(value, int):
            counters = found.setdefault(name.tag("processor-node-id") or "", {})
            counter = name.name.removesuffix("-total")
            counters[counter] = counters.get(counter, 0) + value
    return found
