"""The proxy loses the message of its rule once, and nothing else."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator

import pytest

from faults.kafka_proxy import HOST, NUMBERS, Api, Loss, Proxy, Rule
from penstock.broker.ports import free_ports

PATIENCE_S = 120.0


class _Broker(socketserver.ThreadingTCPServer):
    """Responds to every request with its correlation id, and records the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Connection)
        self.asked: list[tuple[int, int]] = []


class _Connection(socketserver.StreamRequestHandler):
    server: _Broker

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while head := self.rfile.read(4):
                body = self.rfile.read(*struct.unpack(">i", head))
                api, _, correlation = struct.unpack_from(">hhi", body)
                self.server.asked.append((api, correlation))
                self.wfile.write(struct.pack(">ii", 4, correlation))


class Client:
    """A connection through the proxy."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=PATIENCE_S)

    def ask(self, api: Api, correlation: int) -> int | None:
        """The correlation id of the response, or None if the connection was closed."""
        request = struct.pack(">hhi", NUMBERS[api], 1, correlation)
        try:
            self._socket.sendall(struct.pack(">i", len(request)) + request)
            response = self._socket.recv(8, socket.MSG_WAITALL)
        except ConnectionError:
            response = b""
        if not response:
            return None
        found: int = struct.unpack(">ii", response)[1]
        return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def broker() -> Iterator[_Broker]:
    with _Broker() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def port() -> int:
    [free] = free_ports(1)
    return free


@pytest.fixture
def proxy(broker: _Broker, port: int) -> Iterator[Proxy]:
    with Proxy(broker.server_address[1], port) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy, port: int) -> Iterator[Client]:
    with contextlib.closing(Client(port)) as client:
        yield client


def test_without_a_rule_everything_passes(client: Client, broker: _Broker) -> None:
    assert [client.ask("EndTxn", 7), client.ask("Produce", 8)] == [7, 8]
    assert broker.asked == [(26, 7), (0, 8)]


@pytest.mark.parametrize(("loss", "arrives"), [("response", True), ("request", False)])
def test_one_message_is_lost_and_its_connection_closed(
    client: Client, broker: _Broker, proxy: Proxy, port: int, loss: Loss, arrives: bool
) -> None:
    injection = proxy.inject(Rule("EndTxn", loss))
    assert client.ask("Produce", 1) == 1
    assert not injection.started.is_set()
    assert client.ask("EndTxn", 2) is None
    assert injection.started.wait(PATIENCE_S)
    assert ((26, 2) in broker.asked) is arrives
    with contextlib.closing(Client(port)) as again:
        assert again.ask("EndTxn", 3) == 3


@pytest.mark.parametrize(("loss", "arrives"), [("outage", True), ("request", False)])
def test_outage_closes_all_connections(
    client: Client, broker: _Broker, proxy: Proxy, port: int, loss: Loss, arrives: bool
) -> None:
    with contextlib.closing(Client(port)) as other:
        assert other.ask("Produce", 1) == 1
        injection = proxy.inject(Rule("EndTxn", loss, outage_s=0.2))
        assert client.ask("EndTxn", 2) is None
        assert injection.finished.wait(PATIENCE_S)
        assert ((26, 2) in broker.asked) is arrives
        # The connection existed before the outage.
        assert other.ask("Produce", 3) is None
    assert (0, 3) not in broker.asked
    with contextlib.closing(Client(port)) as again:
        assert again.ask("EndTxn", 4) == 4


def test_without_a_broker_connections_are_closed(port: int) -> None:
    [unused] = free_ports(1)
    with Proxy(unused, port), contextlib.closing(Client(port)) as client:
        assert client.ask("Produce", 1) is None
