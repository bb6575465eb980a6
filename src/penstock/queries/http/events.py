"""Server-sent events: pushes the committed changes of a store to clients.

The id of an event is the position after it, in all partitions: `0:12,1:40`. A client that connects
again sends the last id (`Last-Event-ID`), and continues there.

A stream holds one chunk of changes. It reads the next one when the client has taken the last. So a
slow client costs no memory; it gets changes later, and changes of keys that compaction has removed
in the meantime not at all. A client that takes nothing for `send_timeout_s` is disconnected.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.queries.changes import ReadChanges, StoreChange, StoreChanges
from penstock.queries.http.json_values import encode, render, time_fields, window_fields
from penstock.queries.http.problems import Problem

#: How many records are read at once.
CHUNK_RECORDS = 500
#: The interval in which the end of changelogs is read while clients wait for changes.
POLL_INTERVAL_S = 0.1
#: A comment is sent to an idle client in this interval, so that proxies keep the connection.
KEEPALIVE_S = 15.0
#: How many chunks are kept for other clients of the same store.
_KEPT_CHUNKS = 16

#: The entry of an ASGI scope: a function that returns whether the server stops.
CLOSING = "penstock.closing"
_POSITION = re.compile(r"\d{1,9}:\d{1,18}(,\d{1,9}:\d{1,18})*")

Position = dict[int, int]


def position_text(position: Mapping[int, int]) -> str:
    """Return the id of an event."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(position.items()))


def parse_position(text: str, partitions: Mapping[int, Any]) -> Position:
    """Return the position that an id stands for; 400 if it is none of this store."""
    if _POSITION.fullmatch(text):
        pairs = (pair.split(":") for pair in text.split(","))
        position = {int(partition): int(offset) for partition, offset in pairs}
        if position.keys() <= partitions.keys():
            return position
    raise Problem(
        400, "Last-Event-ID is not an id of an event of this store. Ids look like "
        f"'{position_text(dict.fromkeys(list(partitions)[:2], 0))}'.",
    )


class ChangeFeed:
    """The changes of one store for all its clients: one poll of the ends, and a few kept chunks.

    Only the event loop uses it.
    """

    def __init__(self, changes: StoreChanges) -> None:
        self.changes = changes
        self._ends: Position = {}
        self._polled_at = float("-inf")
        self._polling = asyncio.Lock()
        self._chunks: dict[tuple[int, int, int], ReadChanges] = {}

    async def ends(self, max_age_s: float = POLL_INTERVAL_S) -> Position:
        """Return the ends, at most `max_age_s` old."""
        async with self._polling:
            now = asyncio.get_running_loop().time()
            if now >= self._polled_at + max_age_s:
                self._ends = await run_in_threadpool(self.changes.ends)
                self._polled_at = asyncio.get_running_loop().time()
        return self._ends

    async def read(self, partition: int, start: int, end: int) -> ReadChanges:
        """Read a chunk, or return it from those that another client has just read."""
        wanted = (partition, start, end)
        found = self._chunks.get(wanted)
        if found is None:
            found = await run_in_threadpool(
                self.changes.read, partition, start, end, CHUNK_RECORDS
            )
            while len(self._chunks) >= _KEPT_CHUNKS:
                del self._chunks[next(iter(self._chunks))]
            self._chunks[wanted] = found
        return found


@dataclass(frozen=True)
class Subscription:
    """The request of one client."""

    feed: ChangeFeed
    position: Position
    #: Whether a change is wanted. All changes have another position, whether or not they are sent.
    wants: Callable[[StoreChange], bool] = field(default=lambda change: True)
    #: False: end the stream at the current end of the changelog.
    follow: bool = True


async def events(
    subscription: Subscription, is_closing: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Return the events of a stream, until the server stops."""
    feed, position = subscription.feed, dict(subscription.position)
    idle_since = asyncio.get_running_loop().time()
    # The client learns its position at once, so that it can resume before the first change.
    yield f"retry: 1000\nid: {position_text(position)}\n\n".encode()
    while not is_closing():
        ends = await feed.ends()
        sent = False
        for partition, end in ends.items():
            if position[partition] > end:
                # The application was reset. Its changelog starts again.
                position[partition] = 0
            while position[partition] < end and not is_closing():
                read = await feed.read(partition, position[partition], end)
                chunk = _chunk(subscription, read, position)
                position[partition] = max(read.next_offset, position[partition] + 1)
                if chunk:
                    sent = True
                    yield chunk
        if not subscription.follow:
            return
        now = asyncio.get_running_loop().time()
        if sent:
            idle_since = now
        elif now >= idle_since + KEEPALIVE_S:
            idle_since = now
            yield f": keep-alive\nid: {position_text(position)}\n\n".encode()
        await asyncio.sleep(POLL_INTERVAL_S)


def _chunk(subscription: Subscription, read: ReadChanges, position: Position) -> bytes:
    lines = []
    for change in read.changes:
        if subscription.wants(change):
            after = {**position, change.partition: change.offset + 1}
            lines.append(
                f"id: {position_text(after)}\nevent: change\ndata: "
                f"{encode(change_document(change)).decode()}\n\n"
            )
    return "".join(lines).encode()


def change_document(change: StoreChange) -> dict[str, Any]:
    """Return the data of an event."""
    return {
        "key": render(change.key),
        **({} if change.window is None else {"window": window_fields(change.window)}),
        "value": render(change.value), "deleted": change.value is None,
        **time_fields("timestamp", change.timestamp),
        "partition": change.partition, "offset": change.offset,
    }


class EventStream(Response):
    """Sends events until the client goes away, takes no data in time, or the stream ends."""

    media_type = "text/event-stream"

    def __init__(
        self, content: AsyncIterator[bytes], *, send_timeout_s: float, on_end: Callable[[], None]
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._content = content
        self._send_timeout_s = send_timeout_s
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_disconnected(receive))
        try:
            done, _ = await asyncio.wait(
                (sending, leaving), return_when=asyncio.FIRST_COMPLETED
            )
            if sending in done:
                sending.result()
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            self._on_end()

    async def _send(self, send: Send) -> None:
        start = {
            "type": "http.response.start", "status": self.status_code, "headers": self.raw_headers
        }
        try:
            await asyncio.wait_for(send(start), self._send_timeout_s)
            async for chunk in self._content:
                body = {"type": "http.response.body", "body": chunk, "more_body": True}
                await asyncio.wait_for(send(body), self._send_timeout_s)
            end = {"type": "http.response.body", "body": b"", "more_body": False}
            await asyncio.wait_for(send(end), self._send_timeout_s)
        except TimeoutError:
            # The server closes the connection of an incomplete response.
            return


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
