"""`Server`: serves an ASGI application in a thread of its own."""

from __future__ import annotations

import logging
import socket
import threading
from types import TracebackType
from typing import Self

from penstock.errors import StreamsException
from penstock.extras import explain_missing_extra
from penstock.queries.http_settings import HttpSettings

with explain_missing_extra("web"):
    import uvicorn
    from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.queries.http.connection_watch import ConnectionWatch, WatchedServer
from penstock.queries.http.events import CLOSING
from penstock.queries.http.host_check import check_host
from penstock.queries.http.problems import Problem

log = logging.getLogger(__name__)

#: How long open requests may take when the server stops.
_SHUTDOWN_S = 2
#: The size of the queue of connections that are not accepted yet.
_BACKLOG = 2_048


class Server:
    """Listens on the address of the settings. It is also a context manager.

    Args:
        app: The ASGI application, from `create_app` or with it mounted.
        settings: Address and limits.

    Example:
        >>> from starlette.applications import Starlette
        >>> with Server(Starlette(), HttpSettings(port=0)) as server:
        ...     server.url.startswith("http://127.0.0.1:")
        True
    """

    def __init__(self, app: ASGIApp, settings: HttpSettings | None = None) -> None:
        self.settings = settings or HttpSettings()
        self._app = app
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def url(self) -> str:
        """The address of the running server."""
        if self._socket is None:
            raise StreamsException("The server is not running. Call start() first.")
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Bind the address and start to serve. Returns when requests are accepted.

        Raises:
            StreamsException: The address is not available.
        """
        settings = self.settings
        self._socket = _bind(settings)
        config = uvicorn.Config(
            self._serve, interface="asgi3", lifespan="auto", log_config=None, access_log=False,
            # The parser that limits the size of incomplete headers.
            http="h11",
            # A client must not choose the address under which its requests are counted.
            server_header=False, proxy_headers=False,
            limit_concurrency=settings.max_connections,
            timeout_graceful_shutdown=_SHUTDOWN_S,
            # The limits of URLs and headers apply first, and explain themselves.
            h11_max_incomplete_event_size=2 * (
                settings.max_url_bytes + settings.max_header_bytes
            ),
        )
        self._server = WatchedServer(config, ConnectionWatch(settings.receive_timeout_s))
        self._thread = threading.Thread(target=self._run, name="penstock-http", daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            self._thread.join(0.01)
        if not self._server.started:
            self.close()
            raise StreamsException(
                f"The HTTP server did not start: {self._failure or 'see the log'}."
            ) from self._failure
        log.info("Serving on %s.", self.url)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the host name, and let streams of changes know when the server stops."""
        scope[CLOSING] = self._is_closing
        if scope["type"] == "http" and self.settings.token is None:
            try:
                check_host(scope, {*self.settings.allowed_hosts, self.settings.host})
            except Problem as problem:
                await problem.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_closing(self) -> bool:
        return self._server is None or self._server.should_exit

    def _run(self) -> None:
        assert self._server is not None
        assert self._socket is not None
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as error:
            self._failure = error
            log.exception("The HTTP server failed.")

    def close(self) -> None:
        """Stop: finish open requests, and end streams of changes."""
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _bind(settings: HttpSettings) -> socket.socket:
    host, port = settings.host, settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only for sockets that name their protocol. Without it, every response
    # waits for a delayed acknowledgement, up to 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)
        return bound
    except OSError as error:
        bound.close()
        raise StreamsException(
            f"Cannot listen on {host}:{port}: {error.strerror or error}. Use another port."
        ) from error
