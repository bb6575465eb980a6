"""The token that requests must carry, as ASGI middleware."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.queries.http.problems import Problem
from penstock.queries.http_settings import HttpSettings

#: The files of the dashboard, which asks for the token itself.
DASHBOARD_FILES = {
    "/dashboard": "index.html",
    **{f"/dashboard/{name}": name for name in (
        "dashboard.css", "dashboard.js", "api.js", "charts.js", "elements.js", "patch.js",
        "views.js", "topology.js", "topics.js", "stores.js", "windows.js", "letters.js",
        "instances.js", "icon.svg",
    )},
}
#: Paths that hold no state of the application: probes, the description of the interface, and the
#: files of the dashboard.
OPEN_PATHS = frozenset(("/health", "/ready", "/docs", "/openapi.json", *DASHBOARD_FILES))


class BearerToken:
    """Refuses requests without the token. The token never appears in responses or logs."""

    def __init__(self, app: ASGIApp, settings: HttpSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http" and path_of(scope) not in OPEN_PATHS:
            given = next(
                (value for name, value in scope["headers"] if name == b"authorization"), b""
            )
            if not self._settings.accepts_token(given):
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
