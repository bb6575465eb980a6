"""The server of metrics: Prometheus' format, token, host name, errors."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.errors import ConfigException, StreamsException
from penstock.metrics import MetricName
from penstock.queries.http_settings import HttpSettings
from penstock.queries.metrics_server import MetricsServer

METRICS: dict[MetricName, float | int | str] = {
    MetricName("stream-metrics", "state", (("client-id", 'a"b\\c\n'),)): "RUNNING",
    MetricName("stream-thread-metrics", "process-total", (("thread-id", "t"),)): 3,
    MetricName("stream-thread-metrics", "commit-latency-avg", (("thread-id", "t"),)): float("nan"),
}


def request(
    server: MetricsServer, path: str = "/metrics", method: str = "GET",
    headers: Mapping[str, str] | None = None,
) -> tuple[int, str, http.client.HTTPMessage]:
    address = server.url.removeprefix("http://").partition("/")[0]
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def test_metrics_are_in_the_format_of_prometheus() -> None:
    with MetricsServer(lambda: METRICS, HttpSettings(port=0)) as server:
        status, text, headers = request(server)
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = {each.name: each for each in text_string_to_metric_families(text)}
    (state,) = families["penstock_stream_state_info"].samples
    assert state.labels == {"client_id": 'a"b\\c\n', "value": "RUNNING"}
    (total,) = families["penstock_stream_thread_process"].samples
    assert (total.value, families["penstock_stream_thread_process"].type) == (3.0, "counter")


def test_only_metrics_are_served() -> None:
    with MetricsServer(lambda: METRICS, HttpSettings(port=0)) as server:
        assert request(server, "/")[0] == 404
        assert request(server, "/metrics/../etc/passwd")[0] == 404
        assert request(server, "/metrics?name=all")[0] == 200
        assert request(server, method="POST")[0] == 501
        # The version of Python is not shown.
        assert request(server)[2]["Server"].strip() == "penstock"


def test_token_is_required() -> None:
    with MetricsServer(lambda: METRICS, HttpSettings(port=0, token="s3cret")) as server:
        status, text, headers = request(server)
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert "RUNNING" not in text
        assert request(server, headers={"Authorization": "Bearer wrong"})[0] == 401
        assert request(server, headers={"Authorization": "bearer s3cret"})[0] == 200
        # With a token every host name is allowed.
        by_name = {"Authorization": "Bearer s3cret", "Host": "metrics.example"}
        assert request(server, headers=by_name)[0] == 200


def test_other_host_names_are_refused_without_a_token() -> None:
    with MetricsServer(lambda: METRICS, HttpSettings(port=0)) as server:
        assert request(server, headers={"Host": "evil.example"})[0] == 403
        assert request(server, headers={"Host": "localhost:9404"})[0] == 200


def test_public_address_needs_a_token() -> None:
    with pytest.raises(ConfigException, match="no token is given"):
        HttpSettings(host="0.0.0.0", port=0)


def test_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = MetricsServer(lambda: METRICS, HttpSettings(port=taken.getsockname()[1]))
        with pytest.raises(StreamsException, match="Use another port"):
            server.start()


def test_requests_beyond_the_limit_are_refused_and_later_ones_are_served() -> None:
    reached, release = threading.Semaphore(0), threading.Event()

    def read() -> dict[MetricName, float | int | str]:
        reached.release()
        release.wait(60)
        return METRICS

    found: list[int] = []
    with MetricsServer(read, HttpSettings(port=0)) as server:
        threads = [
            threading.Thread(target=lambda: found.append(request(server)[0])) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert reached.acquire(timeout=60)
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            request(server)
        release.set()
        for thread in threads:
            thread.join(60)
        assert found == [200] * 8
        assert request(server)[0] == 200


def test_server_needs_no_extra() -> None:
    code = (
        "import sys, penstock.queries.metrics_server, penstock.app; "
        "print({'fastapi', 'starlette', 'uvicorn', 'pydantic', 'opentelemetry', 'pyspark'} "
        "& set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
