"""The token that requests must carry, as ASGI middleware."""

from __future__ import annotations

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.queries.http.problems import Problem

#: The files of the dashboard, which asks for the token itself.
DASHBOARD_FILES = {
    "/dashboard": "index.html",
    **{f"/dashboard/{name}": name for name in (
        "dashboard.css", "dashboard.js", "api.js", "charts.js", "elements.js", "views.js",
        "icon.svg",
    )},
}
#: Paths that hold no state of the application: probes, the description of the interface, and the
#: files of the dashboard.
OPEN_PATHS = frozenset(("/health", "/ready", "/docs", "/openapi.json", *DASHBOARD_FILES))


class BearerToken:
    """Refuses requests without the token. The token never appears in responses or logs."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = b"Bearer " + token.encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http" and path_of(scope) not in OPEN_PATHS:
            given = next(
                (value for name, value in scope["headers"] if name == b"authorization"), b""
            )
            # The scheme is case-insensitive; the time of the comparison does not depend on the
            # number of characters that match.
            if given[:7].lower() == b"bearer ":
                given = b"Bearer " + given[7:].strip()
            if not hmac.compare_digest(given, self._expected):
                problem = Problem(
                    401,
                    "A valid token is required. Send the header 'Authorization: Bearer TOKEN'.",
                    {"WWW-Authenticate": "Bearer"},
                )
                await problem.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)


def path_of(scope: Scope) -> str:
    """Return the path below the place where the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root):] if root and path.startswith(root) else path
