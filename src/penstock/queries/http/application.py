"""`create_app`: the state of an application as a FastAPI application."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from penstock.extras import explain_missing_extra
from penstock.queries.http_settings import HttpSettings

with explain_missing_extra("web"):
    from fastapi import APIRouter, FastAPI
    from starlette.middleware.cors import CORSMiddleware

from penstock.queries.http.authentication import BearerToken
from penstock.queries.http.change_routes import add_change_routes
from penstock.queries.http.context import Context
from penstock.queries.http.docs_page import docs_page
from penstock.queries.http.error_handling import ProblemRoute, handle_errors
from penstock.queries.http.limits import RateLimit, SizeLimits
from penstock.queries.http.models import ProblemDocument
from penstock.queries.http.positions import HEADER
from penstock.queries.http.problems import MEDIA_TYPE
from penstock.queries.http.status_routes import add_status_routes
from penstock.queries.http.store_routes import add_store_routes, lookup_route
from penstock.queries.state_reader import Instance, StateReader

_ABOUT = (
    "The committed state of a running application. Every instance serves every key. Errors "
    "are problem documents (RFC 9457)."
)


def create_router(
    application: StateReader | Instance, settings: HttpSettings | None = None
) -> APIRouter:
    """Return the routes alone, for `include_router` of an application with its own security.

    Errors of these routes are problem documents. Token and limits of sizes and rates belong to
    `create_app`.
    """
    router = APIRouter(route_class=ProblemRoute, responses=_responses())
    _add_routes(router, Context(reader_of(application), settings or HttpSettings()))
    return router


def _responses() -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of the problem documents."""
    document = {MEDIA_TYPE: {"schema": ProblemDocument.model_json_schema()}}
    return {
        code: {"content": document, "description": text}
        for code, text in (
            (400, "A parameter is not valid."), (401, "The token is missing or wrong."),
            (404, "The store or the key does not exist."), (422, "A parameter is not valid."),
            (408, "The body is late."),
            (409, "The store has no changelog."), (413, "The body is too large."),
            (414, "The URL is too long."), (429, "Too many requests."),
            (431, "The headers are too large."),
            (503, "The stores are being restored, or are before the position of the request."),
        )
    }


def _add_routes(router: APIRouter, context: Context) -> None:
    add_store_routes(router, context)
    add_status_routes(router, context)
    add_change_routes(router, context)


def create_app(
    application: StateReader | Instance, settings: HttpSettings | None = None
) -> FastAPI:
    """Return the FastAPI application. Serve it, mount it in another one, or add routes to it.

    Args:
        application: A `Streams`, a `QueryNode`, or another reader of state.
        settings: Token and limits.
    """
    settings = settings or HttpSettings()
    reader = reader_of(application)
    app = FastAPI(
        title=f"State of {reader.config.application_id}", version=metadata.version("penstock"),
        description=_ABOUT, docs_url=None, redoc_url=None, redirect_slashes=False,
        responses=_responses(),
    )
    context = Context(reader, settings)
    app.router.routes.append(lookup_route(context))
    # Without include_router, because FastAPI matches the requests of an included router twice.
    _add_routes(app.router, context)
    app.add_api_route("/docs", docs_page, include_in_schema=False)
    handle_errors(app)
    # The last one that is added sees a request first.
    app.add_middleware(SizeLimits, settings=settings)
    if settings.token is not None:
        app.add_middleware(BearerToken, settings=settings)
    if settings.requests_per_second is not None:
        app.add_middleware(RateLimit, requests_per_second=settings.requests_per_second)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID", HEADER],
            expose_headers=[HEADER],
        )
    return app


def reader_of(application: StateReader | Instance) -> StateReader:
    """Return the reader of the state of an application."""
    if isinstance(application, StateReader):
        return application
    # An instance brings pyarrow; other readers need not.
    from penstock.queries.instance_state import InstanceState  # noqa: PLC0415

    return InstanceState(application)
