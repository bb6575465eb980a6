"""Errors of routes as problem documents, in the application of `create_app` and in any other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from penstock.errors import InvalidStateStoreException, StreamsException
from penstock.log.errors import LogError
from penstock.queries.http.problems import Problem

log = logging.getLogger(__name__)

#: The errors that `problem_of` knows.
_KNOWN = (Problem, RequestValidationError, StreamsException, LogError)


class ProblemRoute(APIRoute):
    """A route that responds to errors itself, whatever handlers the application has.

    A `HTTPException`, such as that of a dependency of the application, goes to its handlers.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that responds to a request."""
        handle = super().get_route_handler()

        async def respond(request: Request) -> Response:
            try:
                return await handle(request)
            except _KNOWN as error:
                return problem_of(error).response()

        return respond


def problem_of(error: Exception) -> Problem:
    """Return the problem that an error of `_KNOWN` stands for."""
    match error:
        case Problem():
            return error
        case RequestValidationError():
            details = "; ".join(
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5]
            )
            # FastAPI passes on a body of another type as text.
            is_text = any(each["type"] == "model_attributes_type" for each in error.errors())
            advice = " Send JSON, with the header 'Content-Type: application/json'."
            return Problem(422, f"The request is not valid. {details}.{advice * is_text}")
        case InvalidStateStoreException():
            return Problem(503, str(error), {"Retry-After": "1"})
        case LogError():
            return Problem(503, str(error), {"Retry-After": "5"})
    log.error("A query failed.", exc_info=error)
    return Problem(500, str(error))


def handle_errors(app: FastAPI) -> None:
    """Let an application respond to all errors with problem documents."""

    async def known(request: Request, error: Exception) -> Response:
        return problem_of(error).response()

    for kind in _KNOWN:
        app.add_exception_handler(kind, known)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: Any) -> Response:
        detail = str(error.detail)
        if error.status_code == 404:
            detail = "This path does not exist. See /docs for those that do."
        return Problem(error.status_code, detail, error.headers).response()

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Any) -> Response:
        return Problem(
            500, "The query failed with an unexpected error. See the log of the server."
        ).response()
