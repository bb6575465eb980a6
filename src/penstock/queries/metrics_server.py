"""`MetricsServer`: serves the metrics of an application to Prometheus.

A server of the standard library suffices: it has one path, and needs no web framework.
"""

from __future__ import annotations

import http.server
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

from penstock.engine.observe.prometheus import MEDIA_TYPE, exposition
from penstock.errors import StreamsException
from penstock.metrics import MetricName
from penstock.queries.http_settings import HttpSettings

log = logging.getLogger(__name__)

#: A client must send its request and take the response in this time.
_TIMEOUT_S = 10.0
#: More requests at the same time are refused.
_MAX_REQUESTS = 8

ReadMetrics = Callable[[], Mapping[MetricName, float | int | str]]


class MetricsServer:
    """Serves `GET /metrics` on the address of the settings. It is also a context manager."""

    def __init__(self, read: ReadMetrics, settings: HttpSettings) -> None:
        self.settings = settings
        self._read = read
        self._server: _HttpServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address of the metrics."""
        if self._server is None:
            raise StreamsException("The server is not running. Call start() first.")
        host, port = self.settings.host, self._server.server_port
        return f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"

    def start(self) -> None:
        """Bind the address and start to serve."""
        settings = self.settings
        try:
            self._server = _HttpServer(settings, self._read)
        except OSError as error:
            raise StreamsException(
                f"Cannot listen on {settings.host}:{settings.port}: {error.strerror or error}. "
                "Use another port."
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="penstock-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop to serve."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _HttpServer(http.server.ThreadingHTTPServer):
    """Runs each request in a thread, as far as the number of requests allows it."""

    daemon_threads = True

    def __init__(self, settings: HttpSettings, read: ReadMetrics) -> None:
        self.settings = settings
        self.read = read
        self._free = threading.BoundedSemaphore(_MAX_REQUESTS)
        self.address_family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        super().__init__((settings.host, settings.port), _Handler)

    def server_bind(self) -> None:
        """Bind without a lookup of the own host name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start the thread of a request."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle a request in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log that a client has closed its connection, or that metrics could not be read."""
        log.debug("A request for metrics failed.", exc_info=True)


class _Handler(http.server.BaseHTTPRequestHandler):
    """One request. The token never appears in responses or logs."""

    server: _HttpServer
    timeout = _TIMEOUT_S
    server_version = "penstock"
    sys_version = ""

    def do_GET(self) -> None:
        settings = self.server.settings
        given = self.headers.get("Authorization", "").encode("latin-1", "replace")
        if not settings.accepts_host(self.headers.get("Host", "")):
            self._respond(HTTPStatus.FORBIDDEN, "The host name is not allowed.\n")
        elif not settings.accepts_token(given):
            self._respond(
                HTTPStatus.UNAUTHORIZED,
                "A valid token is required. Send the header 'Authorization: Bearer TOKEN'.\n",
                {"WWW-Authenticate": "Bearer"},
            )
        elif self.path.partition("?")[0] != "/metrics":
            self._respond(HTTPStatus.NOT_FOUND, "Only /metrics exists.\n")
        else:
            text = exposition(self.server.read())
            self._respond(HTTPStatus.OK, text, {"Content-Type": MEDIA_TYPE})

    def _respond(
        self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None
    ) -> None:
        content = text.encode()
        self.send_response(status)
        fields = {"Content-Type": "text/plain; charset=utf-8", **(headers or {})}
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name of the base)
        """Log a request."""
        log.debug("Request for metrics: %s", format % args)
