"""Limits of sizes, of the time for a body, and of the request rate, as ASGI middleware."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.queries.http.problems import Problem
from penstock.queries.http_settings import HttpSettings

#: The number of client addresses whose rate is known. The least recent one is forgotten first.
MAX_CLIENTS = 10_000


class SizeLimits:
    """Refuses long URLs (414), large headers (431), large bodies (413) and late ones (408)."""

    def __init__(self, app: ASGIApp, settings: HttpSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        problem = self._check(scope)
        if problem is not None:
            await problem.response()(scope, receive, send)
            return
        if scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        await self._app(scope, _LimitedBody(receive, self._settings), send)

    def _check(self, scope: Scope) -> Problem | None:
        settings = self._settings
        url_bytes = len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"])
        if url_bytes > settings.max_url_bytes:
            return Problem(
                414, f"The URL has {url_bytes:,} bytes; the limit is {settings.max_url_bytes:,}. "
                "Send long keys in the body: POST /stores/STORE/lookup.",
            )
        header_bytes = 0
        for name, value in scope["headers"]:
            header_bytes += len(name) + len(value)
            if name == b"content-length" and (
                not value.isdigit() or int(value) > settings.max_body_bytes
            ):
                return _too_large(settings)
        if header_bytes > settings.max_header_bytes:
            return Problem(
                431, f"The headers have {header_bytes:,} bytes; the limit is "
                f"{settings.max_header_bytes:,}.",
            )
        return None


def _too_large(settings: HttpSettings) -> Problem:
    return Problem(
        413, f"The body is larger than the limit of {settings.max_body_bytes:,} bytes.",
        {"Connection": "close"},
    )


class _LimitedBody:
    """Counts the bytes of a body while the application reads it, and ends a read that is late."""

    def __init__(self, receive: Receive, settings: HttpSettings) -> None:
        self._receive = receive
        self._settings = settings
        self._left = settings.max_body_bytes
        self._deadline = asyncio.get_running_loop().time() + settings.receive_timeout_s
        self._is_complete = False

    async def __call__(self) -> Message:
        if self._is_complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise _refusal(Problem(
                408, f"The body did not arrive within {self._settings.receive_timeout_s:g} s.",
                {"Connection": "close"},
            )) from None
        self._is_complete = not message.get("more_body", False)
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise _refusal(_too_large(self._settings))
        return message


def _refusal(problem: Problem) -> HTTPException:
    """Return the only exception of a read that FastAPI passes on."""
    return HTTPException(problem.status, problem.detail, problem.headers)


class RateLimit:
    """Refuses requests of a client address beyond a rate (429), with a token bucket for each."""

    def __init__(
        self, app: ASGIApp, requests_per_second: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._rate = requests_per_second
        self._burst = max(1.0, requests_per_second)
        self._clock = clock
        #: Client -> requests that it may still send, and when that was computed.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            client = scope.get("client")
            wait_s = self.take(client[0] if client else "")
            if wait_s > 0:
                problem = Problem(
                    429, f"More than {self._rate:g} requests per second. Try again later.",
                    {"Retry-After": str(math.ceil(wait_s))},
                )
                await problem.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def take(self, client: str) -> float:
        """Count a request. Return 0, or the seconds after which the client may send one."""
        now = self._clock()
        left, at = self._buckets.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        refused = left < 1
        self._buckets[client] = (left if refused else left - 1, now)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return (1 - left) / self._rate if refused else 0.0
