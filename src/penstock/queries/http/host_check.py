"""The host name under which a client addresses a server without a token."""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import Scope

from penstock.queries.http.problems import Problem
from penstock.queries.http_settings import host_name


def check_host(scope: Scope, allowed: Collection[str]) -> None:
    """Raise `Problem` if the header `Host` has a name that is not allowed."""
    given = next((value for name, value in scope["headers"] if name == b"host"), b"")
    name = host_name(given.decode("latin-1"))
    if name not in allowed:
        raise Problem(
            403, f"The host name '{name}' is not allowed. Use one of: {', '.join(allowed)}; or set "
            "a token, with which every name is allowed.",
        )
