"""Cursors: opaque strings with which a client asks for the next page.

A cursor holds the place after the last entry of a page, the query that it belongs to, and a
signature. It holds nothing that the client may not see. A cursor is valid on every instance with
the same secret, also after a restart.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Any

import msgspec

from penstock.queries.http.problems import Problem

_SIGNATURE_BYTES = 16
_QUERY_BYTES = 8


class _Content(msgspec.Struct, array_like=True, frozen=True):
    query: bytes
    place: Any


class Cursors:
    """Creates and checks cursors.

    Args:
        secret: The key of the signatures.
    """

    def __init__(self, secret: str) -> None:
        self._key = hashlib.sha256(b"penstock cursor " + secret.encode()).digest()

    def create(self, query: tuple[Any, ...], place: Any) -> str:
        """Return the cursor for the page after `place`, which consists of numbers and bytes."""
        content = msgspec.msgpack.encode(_Content(_fingerprint(query), place))
        return base64.urlsafe_b64encode(self._sign(content) + content).decode().rstrip("=")

    def read(self, text: str, query: tuple[Any, ...], kind: type) -> Any:
        """Return the place. A cursor of another query, or one that was changed, gives 400."""
        try:
            data = base64.b64decode(
                text + "=" * (-len(text) % 4), altchars=b"-_", validate=True
            )
            signature, content = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
            if not hmac.compare_digest(signature, self._sign(content)):
                raise ValueError("the signature does not match")
            found = msgspec.msgpack.decode(content, type=_Content)
            place: Any = msgspec.convert(found.place, kind)
        except (ValueError, binascii.Error, RecursionError) as error:
            raise Problem(
                400, "The cursor is not valid. Use the value of 'next' of the previous page."
            ) from error
        if found.query != _fingerprint(query):
            raise Problem(
                400, "The cursor belongs to another query. Send it with the parameters of the "
                "page that it comes from."
            )
        return place

    def _sign(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, "sha256")[:_SIGNATURE_BYTES]


def _fingerprint(query: tuple[Any, ...]) -> bytes:
    return hashlib.sha256(msgspec.json.encode(query)).digest()[:_QUERY_BYTES]
