"""`create_dashboard`: the REST interface of an application, with the page beside it.

    /dashboard                  the page, and its scripts and styles
    /dashboard/overview         state, rates, topics, stores and instances
    /dashboard/events           the same, pushed every second
    /dashboard/metrics          all metrics
    /dashboard/topology.svg     the picture of the topology
    /dashboard/settings         the configuration without secrets
    /dashboard/topics           all topics of the log
    /dashboard/records          records of a partition
    /dashboard/actions/...      pause, resume, replay
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator
from importlib import resources
from typing import Annotated, Any

from penstock.extras import explain_missing_extra
from penstock.queries.http_settings import HttpSettings

with explain_missing_extra("web"):
    from fastapi import APIRouter, FastAPI, Query, Request
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import RedirectResponse, Response, StreamingResponse

from penstock.log.types import TopicPartition
from penstock.queries.http.application import create_app, reader_of
from penstock.queries.http.authentication import DASHBOARD_FILES
from penstock.queries.http.events import CLOSING
from penstock.queries.http.problems import Problem
from penstock.queries.http.status_routes import json_response
from penstock.queries.state_reader import Instance, StateReader
from penstock.web.actions import check_allowed, replay
from penstock.web.messages import RecentMessages
from penstock.web.overview import INTERVAL_S, Overview, metric_rows, settings_of
from penstock.web.records import MAX_RECORDS, Decoding, list_topics, read_records
from penstock.web.shared_log import SharedLog
from penstock.web.topic_serdes import TopicSerdes

#: The page loads its own files and nothing else. Scripts in the page itself do not run.
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " \
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS = {
    "Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
}
_MEDIA_TYPES = {
    "html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml",
}


def create_dashboard(
    application: StateReader | Instance, settings: HttpSettings | None = None, *,
    allow_actions: bool = False,
) -> FastAPI:
    """Return the REST interface of an application with the page at `/dashboard`.

    Args:
        application: A `Streams`, a `QueryNode`, or another reader of state.
        settings: Token and limits.
        allow_actions: Whether the page may pause and resume the application, and replay dead
            letters.
    """
    app = create_app(application, settings)
    reader = reader_of(application)
    log = SharedLog(reader.config)
    router = APIRouter(prefix="/dashboard", include_in_schema=False)
    messages = RecentMessages()
    overview = Overview(
        reader, log, messages, application=application, allows_actions=allow_actions,
    )
    _add_files(router)
    _add_state(router, reader, overview)
    _add_records(router, log, TopicSerdes(reader.topology, reader.config))
    _add_actions(router, application, log, allowed=allow_actions)
    app.include_router(router)
    app.add_api_route(
        "/", lambda: RedirectResponse("dashboard"), include_in_schema=False
    )
    logger = logging.getLogger("penstock")
    logger.addHandler(messages)
    app.router.on_shutdown += [log.close, lambda: logger.removeHandler(messages)]
    return app


def _add_files(router: APIRouter) -> None:
    files = {path: _file(name) for path, name in DASHBOARD_FILES.items()}

    def add(path: str, content: bytes, kind: str) -> None:
        async def file() -> Response:
            return Response(content, media_type=kind, headers=_HEADERS)

        router.add_api_route(path.removeprefix("/dashboard"), file)

    for path, (content, kind) in files.items():
        add(path, content, kind)


def _file(name: str) -> tuple[bytes, str]:
    found = resources.files("penstock.web").joinpath("static", name)
    return found.read_bytes(), _MEDIA_TYPES[name.rpartition(".")[2]]


def _add_state(router: APIRouter, reader: StateReader, overview: Overview) -> None:
    @router.get("/overview")
    async def document() -> Response:
        return Response(
            await run_in_threadpool(overview.document), media_type="application/json"
        )

    @router.get("/metrics")
    async def metrics() -> Response:
        return json_response({"metrics": await run_in_threadpool(
            lambda: metric_rows(reader.metrics())
        )})

    @router.get("/events")
    async def events(request: Request) -> Response:
        is_closing = request.scope.get(CLOSING, lambda: False)

        async def push() -> AsyncIterator[bytes]:
            while not is_closing() and not await request.is_disconnected():
                yield b"data: " + await run_in_threadpool(overview.document) + b"\n\n"
                await asyncio.sleep(INTERVAL_S)

        return StreamingResponse(
            push(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    @functools.cache
    def draw() -> str:
        # The page has the styles: it allows none in the picture.
        return reader.topology.describe().to_svg(styled=False)

    @router.get("/topology.svg")
    async def picture() -> Response:
        source = await run_in_threadpool(draw)
        return Response(source, media_type="image/svg+xml")

    @router.get("/settings")
    async def settings() -> Response:
        return json_response(settings_of(reader.config))


def _add_records(router: APIRouter, log: SharedLog, serdes: TopicSerdes) -> None:
    @router.get("/topics")
    async def topics() -> Response:
        return json_response({"topics": await run_in_threadpool(log.call, list_topics)})

    @router.get("/records")
    async def records(
        topic: str, partition: int = 0, offset: int | None = None,
        limit: Annotated[int, Query(ge=1, le=MAX_RECORDS)] = 50,
        key_as: Decoding = "auto", value_as: Decoding = "auto",
    ) -> Response:
        where = TopicPartition(topic, partition)
        return json_response(await run_in_threadpool(
            log.call,
            lambda opened: read_records(
                opened, where, offset, limit, (key_as, value_as), serdes
            ),
        ))


def _add_actions(
    router: APIRouter, application: Any, log: SharedLog, *, allowed: bool
) -> None:
    @router.post("/actions/{name}")
    async def act(
        name: str, request: Request, topic: str = "", partition: int = 0, offset: int = 0
    ) -> Response:
        check_allowed(request.headers, allowed=allowed)
        if name == "replay":
            letter = TopicPartition(topic, partition)
            return json_response(await run_in_threadpool(
                log.call, lambda opened: replay(opened, letter, offset)
            ))
        if name not in {"pause", "resume"}:
            raise Problem(404, f"No action '{name[:50]}'. Actions: pause, replay, resume.")
        if not hasattr(application, name):
            raise Problem(409, "A query node does not run the application.")
        await run_in_threadpool(getattr(application, name))
        return json_response({"done": name})
