"""`WatchedServer`: a uvicorn server that closes connections whose clients are too slow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import uvicorn


class ConnectionWatch:
    """Closes a connection that waits for its client for too long.

    A connection waits for the headers of a request from its start or from the end of the last
    response. Bytes of headers do not extend the time: a client could send one at a time. Bytes of
    a response that the client takes do. While the application handles a request, the time of the
    client is not measured here.

    Args:
        timeout_s: The time for the headers of a request.
        clock: Returns the time in seconds.
    """

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        #: Waiting connection -> its progress, and when that was first seen.
        self._waiting: dict[Any, tuple[object, float]] = {}

    def check(self, connections: Iterable[Any]) -> None:
        """Look at all open connections, and close those that are late."""
        now = self._clock()
        waiting: dict[Any, tuple[object, float]] = {}
        for connection in tuple(connections):
            # A WebSocket of the user's application has no cycle of request and response.
            cycle = getattr(connection, "cycle", connection)
            if cycle is not None and not getattr(cycle, "response_complete", False):
                continue
            progress = (cycle, connection.transport.get_write_buffer_size())
            known, since = self._waiting.get(connection, (None, now))
            if known != progress:
                since = now
            waiting[connection] = (progress, since)
            if now - since >= self._timeout_s:
                # `close` would wait until the client has taken the rest of a response.
                connection.transport.abort()
        self._waiting = waiting


class WatchedServer(uvicorn.Server):
    """Checks its connections ten times per second."""

    def __init__(self, config: uvicorn.Config, watch: ConnectionWatch) -> None:
        super().__init__(config)
        self._watch = watch

    async def on_tick(self, counter: int) -> bool:
        """Do the periodic work; returns whether the server stops."""
        self._watch.check(self.server_state.connections)
        return await super().on_tick(counter)
