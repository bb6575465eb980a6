"""`create_dashboard`: the REST interface of an application, with the page beside it.

    /dashboard                  the page, and its scripts and styles
    /dashboard/overview         state, rates, topics, stores and instances
    /dashboard/events           the same, pushed every second
    /dashboard/history          the values of the charts of the last minutes
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
from collections.abc import AsyncIterator, Callable
from importlib import resources
from typing import Annotated, Any

from penstock.extras import explain_missing_extra
from penstock.queries.http_settings import HttpSettings

with explain_missing_extra("web"):
    from fastapi import APIRouter, FastAPI, Query, Request
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import RedirectResponse, Response

from penstock.log.base import Log
from penstock.log.types import TopicPartition
from penstock.queries.http.application import create_app, reader_of
from penstock.queries.http.authentication import DASHBOARD_FILES
from penstock.queries.http.events import CLOSING, EventStream
from penstock.queries.http.problems import Problem
from penstock.queries.http.status_routes import json_response
from penstock.queries.state_reader import Instance, StateReader
from penstock.web.actions import check_allowed, replay
from penstock.web.app_topics import AppTopics
from penstock.web.messages import RecentMessages
from penstock.web.overview import IDLE_INTERVAL_S, INTERVAL_S, Overview, metric_rows
from penstock.web.records import MAX_RECORDS, Decoding, list_topics, read_records
from penstock.web.safe_headers import SafeHeaders
from penstock.web.settings import settings_of
from penstock.web.shared_log import SharedLog
from penstock.web.topic_serdes import TopicSerdes

log = logging.getLogger(__name__)

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
    settings = settings or HttpSettings()
    app = create_app(application, settings)
    reader = reader_of(application)
    shared = SharedLog(reader.config)
    topics = AppTopics(reader.topology, reader.config)
    router = APIRouter(prefix="/dashboard", include_in_schema=False)
    messages = RecentMessages()
    overview = Overview(
        reader, shared, messages, topics, application=application, allows_actions=allow_actions,
    )
    _add_files(router)
    _add_state(router, reader, overview)
    _add_events(router, overview, settings)
    _add_records(router, shared, TopicSerdes(reader.topology, reader.config, topics))
    replay_letter = functools.partial(
        replay, letter_topics=reader.config.dead_letter_topics(), reads=topics.reads
    )
    _add_actions(router, application, shared, replay_letter, allowed=allow_actions)
    app.include_router(router)
    app.add_middleware(SafeHeaders)
    app.add_api_route(
        "/", lambda: RedirectResponse("dashboard"), include_in_schema=False
    )
    logger = logging.getLogger("penstock")
    logger.addHandler(messages)
    start, stop = _collector(overview)
    app.router.on_startup.append(start)
    app.router.on_shutdown += [stop, shared.close, lambda: logger.removeHandler(messages)]
    return app


def _collector(overview: Overview) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The functions that start and stop the collection of the charts without a browser."""
    running: list[asyncio.Task[None]] = []

    async def collect() -> None:
        while True:
            try:
                await run_in_threadpool(overview.collect)
            except Exception:
                log.debug("The values of the charts cannot be collected.", exc_info=True)
            await asyncio.sleep(IDLE_INTERVAL_S)

    async def start() -> None:
        running.append(asyncio.create_task(collect()))

    async def stop() -> None:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    return start, stop


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

    @router.get("/history")
    async def history() -> Response:
        return json_response(await run_in_threadpool(overview.history))

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


def _add_events(router: APIRouter, overview: Overview, settings: HttpSettings) -> None:
    open_streams = 0

    @router.get("/events")
    async def events(request: Request) -> Response:
        nonlocal open_streams
        if open_streams >= settings.max_event_streams:
            raise Problem(
                503, f"{open_streams} browsers follow the application already. Try again later.",
                {"Retry-After": "5"},
            )
        is_closing = request.scope.get(CLOSING, lambda: False)
        open_streams += 1

        def on_end() -> None:
            nonlocal open_streams
            open_streams -= 1

        async def push() -> AsyncIterator[bytes]:
            while not is_closing():
                yield b"data: " + await run_in_threadpool(overview.document) + b"\n\n"
                await asyncio.sleep(INTERVAL_S)

        return EventStream(push(), send_timeout_s=settings.send_timeout_s, on_end=on_end)


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
    router: APIRouter, application: Any, log: SharedLog,
    replay_letter: Callable[[Log, TopicPartition, int], dict[str, Any]], *, allowed: bool,
) -> None:
    @router.post("/actions/{name}")
    async def act(
        name: str, request: Request, topic: str = "", partition: int = 0, offset: int = 0
    ) -> Response:
        check_allowed(request.headers, allowed=allowed)
        if name == "replay":
            letter = TopicPartition(topic, partition)
            return json_response(await run_in_threadpool(
                log.call, lambda opened: replay_letter(opened, letter, offset)
            ))
        if name not in {"pause", "resume"}:
            raise Problem(404, f"No action '{name[:50]}'. Actions: pause, replay, resume.")
        if not hasattr(application, name):
            raise Problem(409, "A query node does not run the application.")
        await run_in_threadpool(getattr(application, name))
        return json_response({"done": name})
