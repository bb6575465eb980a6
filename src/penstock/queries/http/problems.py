"""Errors as problem documents (RFC 9457): `application/problem+json`."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """A request that is refused: the status, and a sentence with what to do."""

    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers
        self.members = members

    def response(self) -> Response:
        """Return the problem document."""
        document = {
            "type": "about:blank", "title": HTTPStatus(self.status).phrase, "status": self.status,
            "detail": self.detail, **self.members,
        }
        return Response(
            msgspec.json.encode(document) + b"\n", self.status, dict(self.headers or {}), MEDIA_TYPE
        )
