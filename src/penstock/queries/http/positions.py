"""Positions of responses and bounds of requests: reads that do not go back in time.

Both are the header `Penstock-Position`, a JSON object: topic -> partition -> offset. A response has
the offsets in the changelogs of the data that were read, and those of the bound. So a client that
sends the header of its last response never gets older data, from whatever instance.
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import msgspec
from fastapi import Header
from starlette.concurrency import run_in_threadpool

from penstock.queries.http.context import Context
from penstock.queries.http.problems import Problem
from penstock.queries.position import Position

HEADER = "Penstock-Position"
#: The pause between two looks at the log while a request waits for its bound.
WAIT_INTERVAL_S = 0.02

_BOUND_TEXT = (
    "the position that the store must have reached: this header of an earlier response, of any "
    "instance. If the store has not reached it in time, the response is 503 with the reason "
    "NOT_UP_TO_BOUND"
)
Bound = Annotated[str | None, Header(alias=HEADER, description=_BOUND_TEXT)]
#: The same for routes that take the request as it is.
BOUND_PARAMETER: dict[str, Any] = {
    "name": HEADER, "in": "header", "schema": {"type": "string"}, "description": _BOUND_TEXT,
}
#: The `responses` of a route whose response has a position.
WITH_POSITION: dict[int | str, dict[str, Any]] = {
    200: {"headers": {HEADER: {
        "schema": {"type": "string"},
        "description": "the position of the data; the bound of a later request",
    }}}
}


class PositionedRead:
    """One read of a store: waits for the bound of the request, and returns the position.

    Args:
        context: The reader and the settings.
        store: The name of the store.
        bound: The header of the request.
        key: The key, if only its partitions are read.
    """

    def __init__(
        self, context: Context, store: str, bound: str | None, key: Any = None
    ) -> None:
        self.context = context
        self._store = store
        self._bound = None if bound is None else _parse(bound)
        self._key = key
        #: The store, after `open`.
        self._view: Any = None

    async def open(self) -> Any:
        """Return the store once it has reached the bound; 503 if it does not in time."""
        reader, bound = self.context.reader, self._bound
        # Otherwise the reader may have to compare its replicas with the log.
        view = self._view = (
            reader.store(self._store) if reader.is_known_ready
            else await run_in_threadpool(reader.store, self._store)
        )
        if bound is None or view.has_reached(bound, self._key):
            return view
        timeout_s = self.context.settings.bound_timeout_s
        deadline = time.monotonic() + timeout_s
        while not await run_in_threadpool(view.reach, bound, self._key):
            if time.monotonic() >= deadline:
                raise Problem(
                    503, f"Store '{self._store}' of this instance has not reached the position of "
                    f"the request within {timeout_s:g} s. Try again, or ask another instance. If "
                    "the application was reset, leave out the position.",
                    {"Retry-After": "1"}, reason="NOT_UP_TO_BOUND",
                    position=view.position(self._key).to_map(),
                )
            await asyncio.sleep(WAIT_INTERVAL_S)
        return view

    def headers(self) -> dict[str, str]:
        """Return the header of the response, after the data were read."""
        view = self._view
        position: Position = view.position(self._key)
        bound = self._bound
        if bound is not None:
            # Offsets of input topics are done with: the offsets in the changelogs contain them.
            position.merge(Position({
                topic: bound.partition_positions(topic)
                for topic in bound.topics & view.changelog_topics
            }))
        return {} if position.is_empty else {HEADER: _encode(position)}


def _parse(text: str) -> Position:
    try:
        return Position(msgspec.json.decode(text, type=dict[str, dict[int, int]]))
    except (msgspec.MsgspecError, ValueError) as error:
        raise Problem(
            400, f"{HEADER} is not a position: {error}. Send the header of an earlier response, or "
            'topic, partition and offset: {"orders":{"0":41}}.'
        ) from error


def _encode(position: Position) -> str:
    return msgspec.json.encode(position.to_map()).decode()
