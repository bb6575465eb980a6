"""The page that describes the interface. It loads nothing from other servers."""

from __future__ import annotations

from importlib import resources

from starlette.responses import HTMLResponse

#: The page runs its own script and nothing else.
_POLICY = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; " \
    "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def docs_page() -> HTMLResponse:
    """Return the page."""
    page = resources.files(__package__ or __name__).joinpath("docs_page.html").read_text("utf-8")
    return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY})
