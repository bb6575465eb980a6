"""The state of an application over HTTP (extra `penstock[web]`).

`create_app` returns a FastAPI application, `Server` serves it. The only package that imports
FastAPI, Starlette, uvicorn and pydantic.
"""

from __future__ import annotations

from penstock.queries.http.application import create_app, create_router
from penstock.queries.http.server import Server
from penstock.queries.http_settings import HttpSettings

__all__ = ["create_app", "create_router", "Server", "HttpSettings"]
