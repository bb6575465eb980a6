"""A proxy between clients and a broker that loses messages.

    with Proxy(target=broker_port, port=proxy_port) as proxy:
        injection = proxy.inject(Rule("EndTxn", "response"))
        ...
        injection.started.wait(180)

The proxy parses the frames of Kafka's protocol: four bytes of length; then, in a request, the API
key, a version and a correlation id, in a response the correlation id. A rule applies to the next
request of its API on any connection:

    response    the broker receives the request; the response is dropped and the connection closed
    request     the broker does not receive the request; the connection is closed, and an outage may
                follow
    outage      the broker receives the request; then no connection passes anything for some time,
                and all connections are closed at the end

A broker advertises the port of the proxy on a separate listener, so clients that connect to the
proxy keep using it (`kafka_brokers.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, get_args

HOST = "127.0.0.1"
Api = Literal[
    "Produce", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "ListOffsets"
]
#: The requests of a transaction.
APIS: tuple[Api, ...] = get_args(Api)[:-1]
#: The API keys of Kafka.
NUMBERS: dict[Api, int] = {
    "Produce": 0, "ListOffsets": 2, "AddPartitionsToTxn": 24, "AddOffsetsToTxn": 25, "EndTxn": 26,
    "TxnOffsetCommit": 28,
}
Loss = Literal["response", "request", "outage"]
LOSSES: tuple[Loss, ...] = get_args(Loss)
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Rule:
    """The message to lose."""

    api: Api
    loss: Loss
    #: The duration of an outage.
    outage_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Injection:
    """A rule that was given to the proxy, and its progress."""

    rule: Rule
    #: The proxy has met the request.
    started: threading.Event = field(default_factory=threading.Event)
    #: The proxy passes all messages again.
    finished: threading.Event = field(default_factory=threading.Event)


class _Link:
    """A connection of a client and the corresponding connection to the broker."""

    def __init__(self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self._ends = (client, broker)
        #: The correlation id of the response to drop, and its injection.
        self.dropped: tuple[int, Injection] | None = None

    def cut(self) -> None:
        for end in self._ends:
            end.transport.abort()


class Proxy:
    """A thread with an event loop.

    Only the loop uses the private attributes, except `_loop` and `_thread`.
    """

    def __init__(self, target: int, port: int) -> None:
        self._target = target
        self._port = port
        self._injection: Injection | None = None
        self._links: set[_Link] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="kafka-proxy", daemon=True
        )

    # ---- interface --------------------------------------------------------------------------

    def inject(self, rule: Rule) -> Injection:
        """Lose one message. There is one injection at a time."""
        injection = Injection(rule)
        self._call(self._take(injection))
        return injection

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, HOST, self._port))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_S)

    # ---- event loop ----------------------------------------------------------------------------

    async def _take(self, injection: Injection) -> None:
        assert self._injection is None, "the previous injection has not started yet"
        self._injection = injection

    async def _close(self) -> None:
        self._server.close()
        self._passing.set()
        while self._serving:
            for link in self._links:
                link.cut()
            await asyncio.wait(self._serving, timeout=0.05)

    async def _serve(
        self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            # While the broker is down, the proxy closes connections.
            with contextlib.suppress(OSError):
                await self._join(from_client, to_client)
        finally:
            await _end(to_client)
            self._serving.discard(task)

    async def _join(
        self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        from_broker, to_broker = await asyncio.open_connection(HOST, self._target)
        link = _Link(to_client, to_broker)
        self._links.add(link)
        pumps = [
            asyncio.ensure_future(self._requests(link, from_client, to_broker)),
            asyncio.ensure_future(self._responses(link, from_broker, to_client)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._links.discard(link)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            await _end(to_broker)

    async def _requests(
        self, link: _Link, source: asyncio.StreamReader, target: asyncio.StreamWriter
    ) -> None:
        """Forward requests until one of the sides disconnects."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(source)
                await self._passing.wait()
                api, _, correlation = struct.unpack_from(">hhi", frame, 4)
                injection = self._injection
                if injection is None or NUMBERS[injection.rule.api] != api:
                    await _send(target, frame)
                    continue
                self._injection = None
                if injection.rule.loss == "response":
                    link.dropped = correlation, injection
                    await _send(target, frame)
                    continue
                if injection.rule.outage_s:
                    self._passing.clear()
                    self._loop.call_later(injection.rule.outage_s, self._end_outage, injection)
                if injection.rule.loss == "outage":
                    await _send(target, frame)
                injection.started.set()
                if injection.rule.loss == "request":
                    if not injection.rule.outage_s:
                        injection.finished.set()
                    return

    async def _responses(
        self, link: _Link, source: asyncio.StreamReader, target: asyncio.StreamWriter
    ) -> None:
        """Forward responses until one of the sides disconnects."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(source)
                await self._passing.wait()
                if link.dropped and link.dropped[0] == struct.unpack_from(">i", frame, 4)[0]:
                    link.dropped[1].started.set()
                    link.dropped[1].finished.set()
                    return
                await _send(target, frame)

    def _end_outage(self, injection: Injection) -> None:
        for link in self._links:
            link.cut()
        self._passing.set()
        injection.finished.set()


async def _frame(source: asyncio.StreamReader) -> bytes:
    """Read a message with its length prefix."""
    head = await source.readexactly(4)
    return head + await source.readexactly(struct.unpack(">i", head)[0])


async def _end(writer: asyncio.StreamWriter) -> None:
    """Close a connection without flushing it."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _send(target: asyncio.StreamWriter, frame: bytes) -> None:
    target.write(frame)
    await target.drain()
