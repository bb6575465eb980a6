"""Metrics and traces over OTLP, received by a collector in this process."""

from __future__ import annotations

import http.server
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from engine.instances import until
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig, Topology
from penstock.engine.observe.otlp import endpoint_of, interval_s
from penstock.errors import ConfigException
from penstock.log import open_log
from penstock.record import RecordColumns

TEXT = Serdes.string()


class Collector:
    """An HTTP server that decodes what it receives."""

    def __init__(self) -> None:
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.spans: list[Any] = []
        #: The status of responses.
        self.status = 200
        self.requests = 0
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.receive(self.path, body)
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def receive(self, path: str, body: bytes) -> None:
        self.requests += 1
        if path == "/v1/metrics":
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        else:
            assert path == "/v1/traces"
            request = ExportTraceServiceRequest.FromString(body)
            self.spans += [
                span for resource in request.resource_spans for scope in resource.scope_spans
                for span in scope.spans
            ]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


def topology() -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream("in", key=TEXT, value=TEXT).group_by_key().count(store="counts")
    counts.to_stream().to("out", key=TEXT, value=Serdes.long())
    return builder.build()


def configuration(tmp_path: Path, endpoint: str, execution: str = "batch") -> StreamsConfig:
    return StreamsConfig(
        application_id="shop", log=str(tmp_path / "log.db"), state_dir=str(tmp_path / "state"),
        execution=execution, extra={"penstock.otlp.endpoint": endpoint},
    )


def run(config: StreamsConfig, records: int = 3) -> None:
    assert config.log is not None
    with open_log(config.log) as log:
        if not any(topic.name == "in" for topic in log.topics()):
            log.create_topic("in", 1)
            log.create_topic("out", 1)
        log.append("in", 0, RecordColumns([b"k"] * records, [b"v"] * records, [1] * records))
    streams = Streams(topology(), config, master="inline")
    streams.start()
    while not streams.is_caught_up(0.1):
        assert streams.failure is None
    streams.close()


def attributes(pairs: Any) -> dict[str, Any]:
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs
    }


def points(request: ExportMetricsServiceRequest) -> dict[str, Any]:
    """Return the metrics of a request by name."""
    (resource,) = request.resource_metrics
    found = attributes(resource.resource.attributes)
    assert found["service.name"] == "shop"
    assert found["service.instance.id"] == f"shop-{socket.gethostname()}-{os.getpid()}"
    return {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}


@pytest.mark.parametrize("execution", ["batch", "continuous"])
def test_last_metrics_are_those_of_the_application(
    collector: Collector, tmp_path: Path, execution: str
) -> None:
    run(configuration(tmp_path, collector.url, execution))
    metrics = points(collector.metrics[-1])
    consumed = metrics["stream-topic.records-consumed-total"].sum
    assert consumed.is_monotonic
    (point,) = consumed.data_points
    assert (point.as_int, attributes(point.attributes)["topic"]) == (3, "in")
    (committed,) = metrics["stream-thread.commit-latency-max"].gauge.data_points
    assert committed.as_double > 0
    (state,) = metrics["stream.application-id"].gauge.data_points
    assert attributes(state.attributes) == {"client-id": "shop", "value": "shop"}
    assert "stream.topology-description" not in metrics


def steps(collector: Collector, name: str) -> Iterator[dict[str, Any]]:
    """Yield the spans of each trace by name. Checks that each is inside of its parent."""
    for parent in [span for span in collector.spans if span.name == name]:
        children = [span for span in collector.spans if span.parent_span_id == parent.span_id]
        for span in children:
            assert span.trace_id == parent.trace_id
            assert (
                parent.start_time_unix_nano <= span.start_time_unix_nano
                <= span.end_time_unix_nano <= parent.end_time_unix_nano
            )
        yield {name: parent} | {span.name: span for span in children}


def test_batch_is_a_trace_of_its_steps(collector: Collector, tmp_path: Path) -> None:
    run(configuration(tmp_path, collector.url))
    traces = list(steps(collector, "batch"))
    assert sum(attributes(each["batch"].attributes)["penstock.records"] for each in traces) == 3
    for trace in traces:
        assert {"plan", "compute", "commit"} <= set(trace)
        assert trace["plan"].end_time_unix_nano == trace["compute"].start_time_unix_nano
        assert trace["compute"].end_time_unix_nano == trace["commit"].start_time_unix_nano


@pytest.mark.parametrize("execution", ["batch", "continuous"])
def test_restore_of_lost_stores_is_a_span(
    collector: Collector, tmp_path: Path, execution: str
) -> None:
    config = configuration(tmp_path, collector.url, execution)
    run(config)
    collector.spans.clear()
    run(config.with_(state_dir=str(tmp_path / "other")))
    restores = [span for span in collector.spans if span.name == "restore"]
    in_batches = [trace["restore"] for trace in steps(collector, "batch") if "restore" in trace]
    # A lane restores a task before its first commit.
    assert in_batches == (restores if execution == "batch" else [])
    (found,) = (attributes(span.attributes) for span in restores)
    assert [each.string_value for each in found["penstock.stores"].values] == ["counts"]
    assert found["penstock.records"] >= 1


def test_commit_of_a_lane_is_a_trace(collector: Collector, tmp_path: Path) -> None:
    run(configuration(tmp_path, collector.url, "continuous"))
    traces = list(steps(collector, "lane commit"))
    assert traces
    for trace in traces:
        assert {"compute", "commit"} <= set(trace)
        assert "plan" not in trace
        found = attributes(trace["lane commit"].attributes)
        assert (found["penstock.lane"], found["host.name"]) == (1, socket.gethostname())
        assert [each.string_value for each in found["penstock.tasks"].values] == ["0_0"]
        assert [each.int_value for each in found["penstock.subtopologies"].values] == [0]


@pytest.mark.parametrize(("execution", "name"), [("batch", "batch"), ("continuous", "lane commit")])
def test_failure_is_a_span_with_an_error(
    collector: Collector, tmp_path: Path, execution: str, name: str
) -> None:
    def fail(value: str) -> str:
        raise ValueError("too bad")

    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map_values(fail, name="failing")
    config = configuration(tmp_path, collector.url, execution)
    with open_log(str(config.log)) as log:
        log.create_topic("in", 1)
        log.append("in", 0, RecordColumns([b"k"], [b"v"], [1]))
    streams = Streams(builder.build(), config, master="inline")
    streams.start()
    until(lambda: streams.state.has_ended)
    streams.close()
    (span,) = (span for span in collector.spans if span.status.code == 2)
    assert span.name == name
    assert span.status.message == "ProcessingFailedException"
    found = attributes(span.attributes)
    assert (found["penstock.task_id"], found["penstock.processor"]) == ("0_0", "failing")
    assert (found["penstock.topic"], found["penstock.offset"]) == ("in", 0)
    assert attributes(span.events[0].attributes) == {"exception.type": "ValueError"}
    assert "too bad" not in str(span)


def test_application_runs_if_the_collector_refuses_everything(
    collector: Collector, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 400
    run(configuration(tmp_path, collector.url))
    assert collector.requests
    assert any("opentelemetry" in record.name for record in caplog.records)


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "ftp://host", "http://", ""])
def test_wrong_endpoint_is_refused(tmp_path: Path, endpoint: str) -> None:
    with pytest.raises(ConfigException, match="is not the URL of a collector"):
        endpoint_of(configuration(tmp_path, endpoint))


def test_interval_of_metrics(tmp_path: Path) -> None:
    config = configuration(tmp_path, "http://127.0.0.1:4318")
    assert interval_s(config) == 10
    settings = {**config.extra, "penstock.otlp.interval.ms": "250"}
    assert interval_s(config.with_(extra=settings)) == 0.25
    with pytest.raises(ConfigException, match="must be a number"):
        interval_s(config.with_(extra={**settings, "penstock.otlp.interval.ms": "often"}))
