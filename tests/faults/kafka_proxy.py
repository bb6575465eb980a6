"""A proxy between clients and a broker that loses what it is told to lose.

    with Proxy(target=broker_port, port=proxy_port) as proxy:
        strike = proxy.order(Order("EndTxn", "answer"))
        ...
        strike.struck.wait(60)

It knows of Kafka's protocol how messages are cut: four bytes of length; then, in a request, the
number of the API, a version and a correlation id; in an answer the correlation id. The next request
of the ordered kind, on whichever connection, is the one that suffers:

    answer      the broker gets the request; its answer is dropped, and the connection with it
    request     the broker never gets it; the connection is closed, and it may get dark as well
    dark        the broker gets it; then nothing passes, in neither direction, on no connection, for
                some time; whoever was connected when it ends has to connect again

A broker advertises the proxy's port on a listener of its own, so whoever comes through the proxy
stays behind it (`kafka_brokers.py`).
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
#: Those that a transaction is made of.
APIS: tuple[Api, ...] = get_args(Api)[:-1]
#: Kafka's numbers of them.
NUMBERS: dict[Api, int] = {
    "Produce": 0, "ListOffsets": 2, "AddPartitionsToTxn": 24, "AddOffsetsToTxn": 25, "EndTxn": 26,
    "TxnOffsetCommit": 28,
}
Loss = Literal["answer", "request", "dark"]
LOSSES: tuple[Loss, ...] = get_args(Loss)
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be lost."""

    api: Api
    loss: Loss
    #: How long a darkness lasts.
    dark_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Strike:
    """An order that was given, and how far it has come."""

    order: Order
    #: It has begun: the request was met.
    struck: threading.Event = field(default_factory=threading.Event)
    #: It has ended: whatever comes from here on passes.
    over: threading.Event = field(default_factory=threading.Event)


class _Link:
    """One connection of a client, and the one to the broker that stands for it."""

    def __init__(self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self._ends = (client, broker)
        #: The correlation id whose answer is to be dropped, and for whom.
        self.unwanted: tuple[int, Strike] | None = None

    def cut(self) -> None:
        for end in self._ends:
            end.transport.abort()


class Proxy:
    """A thread with an event loop. The truth about what was lost is in the strikes it answers.

    Everything with an underscore is touched by the loop only, but for `_loop` and `_thread`.
    """

    def __init__(self, target: int, port: int) -> None:
        self._target = target
        self._port = port
        self._strike: Strike | None = None
        self._links: set[_Link] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._lit = asyncio.Event()
        self._lit.set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="kafka-proxy", daemon=True
        )

    # ---- for others --------------------------------------------------------------------------

    def order(self, order: Order) -> Strike:
        """Lose something, once; there is one order at a time."""
        strike = Strike(order)
        self._call(self._take(strike))
        return strike

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
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    # ---- the loop ----------------------------------------------------------------------------

    async def _take(self, strike: Strike) -> None:
        assert self._strike is None, "the last order was not carried out yet"
        self._strike = strike

    async def _close(self) -> None:
        self._server.close()
        self._lit.set()
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
            # While the broker is away, so is the proxy.
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
            asyncio.ensure_future(self._answers(link, from_broker, to_client)),
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
        """Pass requests on until one of the sides is gone."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(source)
                await self._lit.wait()
                api, _, correlation = struct.unpack_from(">hhi", frame, 4)
                strike = self._strike
                if strike is None or NUMBERS[strike.order.api] != api:
                    await _send(target, frame)
                    continue
                self._strike = None
                if strike.order.loss == "answer":
                    link.unwanted = correlation, strike
                    await _send(target, frame)
                    continue
                if strike.order.dark_s:
                    self._lit.clear()
                    self._loop.call_later(strike.order.dark_s, self._dawn, strike)
                if strike.order.loss == "dark":
                    await _send(target, frame)
                strike.struck.set()
                if strike.order.loss == "request":
                    if not strike.order.dark_s:
                        strike.over.set()
                    return

    async def _answers(
        self, link: _Link, source: asyncio.StreamReader, target: asyncio.StreamWriter
    ) -> None:
        """Pass answers on until one of the sides is gone."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(source)
                await self._lit.wait()
                if link.unwanted and link.unwanted[0] == struct.unpack_from(">i", frame, 4)[0]:
                    link.unwanted[1].struck.set()
                    link.unwanted[1].over.set()
                    return
                await _send(target, frame)

    def _dawn(self, strike: Strike) -> None:
        for link in self._links:
            link.cut()
        self._lit.set()
        strike.over.set()


async def _frame(source: asyncio.StreamReader) -> bytes:
    """A message with its length in front."""
    head = await source.readexactly(4)
    return head + await source.readexactly(struct.unpack(">i", head)[0])


async def _end(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once, whatever still waits in it."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _send(target: asyncio.StreamWriter, frame: bytes) -> None:
    target.write(frame)
    await target.drain()
