"""Exports metrics and traces over OTLP (extra `penstock[otel]`).

The metrics are those of `Streams.metrics()`, sent at an interval. Every committed batch, or commit
of a lane, becomes a trace: a span for the whole, with spans for plan, restore, compute and commit.
The restore of a task by a lane is a trace of its own, and so is a failure.
Threads of the exporters send both; a collector that does not respond delays no batch.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.config import StreamsConfig
from penstock.engine.observe.metrics import OTLP_ENDPOINT
from penstock.engine.observe.prometheus import is_counter
from penstock.errors import ConfigException
from penstock.extras import explain_missing_extra
from penstock.metrics import MetricName
from penstock.record import TaskId
from penstock.task.global_state import GLOBAL_TASK

with explain_missing_extra("otel"):
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Metric,
        MetricsData,
        NumberDataPoint,
        ResourceMetrics,
        ScopeMetrics,
        Sum,
    )
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Span, StatusCode, set_span_in_context

if TYPE_CHECKING:
    from penstock.engine.batch_report import BatchReport
    from penstock.engine.continuous.lane_handle import LaneStatus
    from penstock.engine.worker.outcome import RestoredStore

log = logging.getLogger(__name__)

#: The setting of the time between two exports of metrics.
INTERVAL_MS = "penstock.otlp.interval.ms"

_DEFAULT_INTERVAL_MS = 10_000
#: How long a request may take, and how long `close` waits for the last ones.
_TIMEOUT_S = 5
#: Texts of many lines.
_LEFT_OUT = frozenset(("topology-description",))

ReadMetrics = Callable[[], Mapping[MetricName, float | int | str]]
Attributes = dict[str, str]


class OtlpExporter:
    """Sends the metrics and traces of an instance to a collector."""

    def __init__(self, config: StreamsConfig, read: ReadMetrics) -> None:
        endpoint = endpoint_of(config)
        self._read = read
        self._is_continuous = config.is_continuous
        self._batch_name = "lane commit" if config.is_continuous else "batch"
        self._interval_s = interval_s(config)
        self._started_ns = time.time_ns()
        host, process = socket.gethostname(), os.getpid()
        self._resource = Resource.create({
            "service.name": config.application_id,
            "service.instance.id": f"{config.client_id or config.application_id}-{host}-{process}",
            "host.name": host, "process.pid": process,
        })
        self._scope = InstrumentationScope("penstock")
        self._metrics = OTLPMetricExporter(f"{endpoint}/v1/metrics", timeout=_TIMEOUT_S)
        self._traces = TracerProvider(resource=self._resource, shutdown_on_exit=False)
        self._traces.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces", timeout=_TIMEOUT_S))
        )
        self._tracer = self._traces.get_tracer("penstock")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-otlp", daemon=True)

    def start(self) -> None:
        """Start to send metrics."""
        self._thread.start()

    def close(self) -> None:
        """Send the last metrics and traces, and stop."""
        self._ended.set()
        self._thread.join()
        self._traces.shutdown()
        self._metrics.shutdown(timeout_millis=_TIMEOUT_S * 1000)

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self._send_metrics()
        self._send_metrics()

    def _send_metrics(self) -> None:
        try:
            # The exporter logs what the collector refuses.
            self._metrics.export(self._metrics_data(time.time_ns()))
        except Exception:
            log.warning("Metrics could not be exported.", exc_info=True)

    # ---- metrics -----------------------------------------------------------------------------

    def _metrics_data(self, now_ns: int) -> MetricsData:
        metrics = [self._metric(name, points) for name, points in self._points(now_ns).items()]
        scope = ScopeMetrics(self._scope, metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _points(self, now_ns: int) -> dict[str, list[NumberDataPoint]]:
        """Return name -> its points. The name is the group without its ending, and Kafka's name."""
        points: dict[str, list[NumberDataPoint]] = {}
        for metric, value in self._read().items():
            attributes: Attributes = dict(metric.tags)
            if isinstance(value, str):
                attributes["value"] = value
                value = 1  # noqa: PLW2901  (the information is in the attribute)
            if metric.name in _LEFT_OUT or not math.isfinite(value):
                continue
            name = f"{metric.group.removesuffix('-metrics')}.{metric.name}"
            points.setdefault(name, []).append(
                NumberDataPoint(attributes, self._started_ns, now_ns, value)
            )
        return points

    def _metric(self, name: str, points: list[NumberDataPoint]) -> Metric:
        data: Gauge | Sum = Gauge(points)
        if is_counter(name.rpartition(".")[2]):
            data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        return Metric(name, None, None, data)

    # ---- traces ------------------------------------------------------------------------------

    def add_batch(self, report: BatchReport) -> None:
        """Send the trace of a committed batch."""
        spans = dict(self._spans(report))
        parent = self._tracer.start_span(
            self._batch_name,
            start_time=min(start for start, _ in spans.values()),
            attributes={
                "penstock.batch": report.number, "penstock.records": report.records,
                "penstock.outputs": report.outputs, "penstock.changes": report.changes,
                **_place(report.counters, report.lane, report.host),
            },
        )
        for name, (start, end) in spans.items():
            span = self._tracer.start_span(
                name, set_span_in_context(parent), start_time=start,
            )
            if name == "restore":
                _describe_restore(span, report.restored)
            span.end(end)
        parent.end(report.ended_ns)

    def add_restore(
        self, restored: Sequence[RestoredStore], seconds: float, lane: LaneStatus
    ) -> None:
        """Send the trace of a restore by a lane, which has just ended."""
        ended_ns = time.time_ns()
        tasks = {each.task_id for each in restored if each.task_id is not None}
        span = self._tracer.start_span(
            "restore", start_time=ended_ns - _ns(seconds),
            attributes=_place(tasks, lane.serial, lane.host),
        )
        _describe_restore(span, restored)
        span.end(ended_ns)

    def add_failure(self, error: Exception, began_ns: int) -> None:
        """Send the trace of a batch that failed, or of the failure of a lane.

        It has the classes of the errors and the position of the record, but no message: that may
        contain record data.
        """
        position = {
            f"penstock.{name}": value
            for name in ("task_id", "processor", "topic", "partition", "offset", "store")
            if (value := getattr(error, name, None)) not in (None, -1)
            and isinstance(value, str | int)
        }
        span = self._tracer.start_span(self._batch_name, start_time=began_ns, attributes=position)
        cause = error.__cause__ or error
        span.add_event("exception", {"exception.type": type(cause).__qualname__})
        span.set_status(StatusCode.ERROR, type(error).__qualname__)
        span.end()

    def _spans(self, report: BatchReport) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield the start and the end of each step, in nanoseconds since the epoch."""
        commit = report.ended_ns - _ns(report.commit_seconds)
        compute = commit - _ns(report.compute_seconds)
        if not self._is_continuous:
            yield "plan", (compute - _ns(report.plan_seconds), compute)
        if report.restored and report.restore_seconds:
            yield "restore", (compute, compute + _ns(report.restore_seconds))
        yield "compute", (compute, commit)
        yield "commit", (commit, report.ended_ns)


def _place(
    tasks: Iterable[TaskId], lane: int | None, host: str
) -> dict[str, str | int | list[str] | list[int]]:
    """Return the attributes that say where a span ran."""
    known = sorted(task_id for task_id in tasks if task_id != GLOBAL_TASK)
    found: dict[str, str | int | list[str] | list[int]] = {
        "penstock.tasks": [str(task_id) for task_id in known],
        "penstock.subtopologies": sorted({task_id.subtopology for task_id in known}),
    }
    if lane is not None:
        found |= {"penstock.lane": lane, "host.name": host}
    return found


def _describe_restore(span: Span, restored: Sequence[RestoredStore]) -> None:
    span.set_attributes({
        "penstock.stores": sorted({each.store for each in restored}),
        "penstock.records": sum(each.records for each in restored),
    })


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


def endpoint_of(config: StreamsConfig) -> str:
    """Return the address of the collector, without its path."""
    endpoint = str(config.extra[OTLP_ENDPOINT]).rstrip("/")
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigException(
            f"'{endpoint}' is not the URL of a collector (setting {OTLP_ENDPOINT}). Use one such "
            "as http://127.0.0.1:4318."
        )
    return endpoint


def interval_s(config: StreamsConfig) -> float:
    """Return the seconds between two exports of metrics."""
    given = str(config.extra.get(INTERVAL_MS, _DEFAULT_INTERVAL_MS))
    if not given.isdecimal() or int(given) < 1:
        raise ConfigException(f"{INTERVAL_MS} must be a number of at least 1, not {given!r}.")
    return int(given) / 1000
