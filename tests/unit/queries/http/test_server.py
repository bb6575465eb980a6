"""A real server on loopback, with real connections."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from engine.instances import until
from penstock.errors import StreamsException
from penstock.log import open_log
from penstock.queries.http import HttpSettings, Server, create_app
from unit.queries.http.fakes import FakeReader


@pytest.fixture
def server(reader: FakeReader, tmp_path: Path) -> Iterator[Server]:
    settings = HttpSettings(port=0, requests_per_second=None, send_timeout_s=0.3)
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("counts", 3)
        reader.log = log
        with Server(create_app(reader, settings), settings) as server:
            yield server


def connect(server: Server) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)


def get(server: Server, path: str, **headers: str) -> tuple[int, Any]:
    connection = connect(server)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize(("host", "status"), [
    ("localhost", 200), ("LOCALHOST:80", 200), ("127.0.0.1:9999", 200), ("[::1]:80", 200),
    ("attacker.example", 403), ("127.0.0.1.attacker.example:80", 403), ("", 403),
])
def test_server_without_a_token_refuses_other_host_names(
    server: Server, host: str, status: int
) -> None:
    found, document = get(server, "/stores", Host=host)
    assert found == status
    assert status == 200 or "is not allowed" in document["detail"]


def test_server_with_a_token_accepts_every_host_name(reader: FakeReader) -> None:
    settings = HttpSettings(port=0, token="secret")
    with Server(create_app(reader, settings), settings) as server:
        headers = {"Host": "state.example", "Authorization": "Bearer secret"}
        assert get(server, "/stores", **headers)[0] == 200


@pytest.mark.parametrize("key", ["a/b", "", "ünï/ ☃", "a%2Fb", ".."])
def test_odd_keys_in_a_path(server: Server, key: str) -> None:
    status, document = get(server, f"/stores/counts/keys/{quote(key, safe='')}")
    assert (status, document["key"]) == (200, key)


def test_plain_slashes_in_a_path(server: Server) -> None:
    assert get(server, "/stores/counts/keys/a/b")[1]["key"] == "a/b"


@pytest.mark.parametrize("bytes_", [20_000, 60_000, 1_000_000])
def test_long_urls_are_client_errors(server: Server, bytes_: int) -> None:
    connection = connect(server)
    try:
        connection.request("GET", f"/stores/counts/keys/{'k' * bytes_}")
        status = connection.getresponse().status
    except (BrokenPipeError, ConnectionResetError):
        # The server has responded and closed the connection before the whole URL was sent.
        status = 400
    finally:
        connection.close()
    assert status in {400, 414, 431}


def test_port_in_use_is_named(server: Server, reader: FakeReader) -> None:
    port = urlsplit(server.url).port
    assert port is not None
    with pytest.raises(StreamsException, match=f"Cannot listen on 127.0.0.1:{port}"):
        Server(create_app(reader), HttpSettings(port=port)).start()


def test_responses_are_sent_without_delay(reader: FakeReader) -> None:
    """The event loop sets TCP_NODELAY if the socket names its protocol."""
    server = Server(create_app(reader), HttpSettings(port=0))
    with server:
        assert server._socket is not None
        assert server._socket.proto == socket.IPPROTO_TCP


def test_five_hundred_connections_at_once(server: Server) -> None:
    address = urlsplit(server.url)

    async def ask(everyone: asyncio.Barrier) -> int:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        # All connections are open before the first request is sent.
        await everyone.wait()
        writer.write(
            b"GET /stores/counts/keys/key-1 HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: close\r\n\r\n"
        )
        answer = await reader.read()
        writer.close()
        return int(answer.split()[1])

    async def ask_all() -> list[int]:
        everyone = asyncio.Barrier(500)
        return await asyncio.gather(*(ask(everyone) for _ in range(500)))

    assert asyncio.run(ask_all()) == [200] * 500


def test_connections_beyond_the_limit_are_refused(reader: FakeReader) -> None:
    settings = HttpSettings(port=0, max_connections=1)
    with Server(create_app(reader, settings), settings) as server:
        connection = connect(server)
        connection.connect()
        until(lambda: get_status(server) == 503)
        connection.close()


@pytest.mark.parametrize("sent", [
    b"", b"GET /stores HTTP/1.1\r\nHost: local",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET",
])
def test_connections_without_complete_headers_are_closed(reader: FakeReader, sent: bytes) -> None:
    settings = HttpSettings(port=0, token="secret", max_connections=3, receive_timeout_s=0.3)
    with Server(create_app(reader, settings), settings) as server, ExitStack() as stack:
        address = urlsplit(server.url)
        slow = [
            stack.enter_context(socket.create_connection((address.hostname, address.port), 60))
            for _ in range(3)
        ]
        for connection in slow:
            connection.sendall(sent)
        for connection in slow:
            read_to_end(connection)
        assert get_status(server) == 200


def test_bytes_of_headers_do_not_extend_their_time(reader: FakeReader) -> None:
    settings = HttpSettings(port=0, receive_timeout_s=0.3)
    with Server(create_app(reader, settings), settings) as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port), 60) as slow:
            slow.sendall(b"GET /stores HTTP/1.1\r\nX-Slow: ")
            slow.settimeout(0.02)

            def is_closed() -> bool:
                try:
                    slow.sendall(b"x")
                    return slow.recv(1) == b""
                except TimeoutError:
                    return False
                except ConnectionError:
                    return True

            until(is_closed)


def test_late_body_is_refused(reader: FakeReader) -> None:
    settings = HttpSettings(port=0, receive_timeout_s=0.3)
    with Server(create_app(reader, settings), settings) as server:
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port), 60) as slow:
            slow.sendall(
                b"POST /stores/counts/lookup HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{"
            )
            answer = read_to_end(slow)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"The body did not arrive within 0.3 s." in answer


@pytest.mark.usefixtures("server")
def test_stream_of_changes_outlives_the_time_for_headers(reader: FakeReader) -> None:
    """The watch sees other connections that wait as long as this one, and closes only them."""
    settings = HttpSettings(port=0, receive_timeout_s=0.3)
    with Server(create_app(reader, settings), settings) as server:
        client = EventClient(server, "/stores/counts/changes")
        until(lambda: client.lines)
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port), 60) as idle:
            read_to_end(idle)
        reader.append("counts", 0, ("a", 1, 10))
        until(lambda: client.values == [1])
        client.close()


def read_to_end(connection: socket.socket) -> bytes:
    """Return what the server sends until it closes the connection."""
    found = b""
    with suppress(ConnectionError):
        while chunk := connection.recv(65_536):
            found += chunk
    return found


def get_status(server: Server, path: str = "/health") -> int:
    connection = connect(server)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


class EventClient:
    """Reads events in a thread."""

    def __init__(self, server: Server, path: str, **headers: str) -> None:
        connection = connect(server)
        connection.request("GET", path, headers=headers)
        self._socket = connection.sock
        self.answer = connection.getresponse()
        assert self.answer.status == 200
        self.lines: list[str] = []
        self.ended = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self.answer:
                self.lines.append(line.decode().rstrip())
        except (OSError, http.client.HTTPException, ValueError):
            pass
        finally:
            self.ended.set()

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        assert self.ended.wait(60)
        self._socket.close()
        self.answer.close()

    @property
    def values(self) -> list[Any]:
        return [
            json.loads(line.removeprefix("data: "))["value"]
            for line in list(self.lines) if line.startswith("data: ")
        ]

    @property
    def last_id(self) -> str:
        return [line for line in self.lines if line.startswith("id: ")][-1].removeprefix("id: ")


def test_changes_are_pushed_and_resumed(server: Server, reader: FakeReader) -> None:
    client = EventClient(server, "/stores/counts/changes")
    until(lambda: client.lines)
    reader.append("counts", 0, ("a", 1, 10))
    until(lambda: client.values == [1])
    reader.append("counts", 1, ("b", 2, 20))
    until(lambda: client.values == [1, 2])
    client.close()
    reader.append("counts", 0, ("a", 3, 30))
    again = EventClient(server, "/stores/counts/changes", **{"Last-Event-ID": client.last_id})
    until(lambda: again.values == [3])
    again.close()


def test_streams_end_when_the_server_stops(server: Server) -> None:
    client = EventClient(server, "/stores/counts/changes")
    until(lambda: client.lines)
    server.close()
    assert client.ended.wait(60)
    client.close()


@pytest.mark.usefixtures("server")
def test_slow_client_is_disconnected_and_costs_little_memory(reader: FakeReader) -> None:
    """The client reads nothing. The stream stops after a few chunks, then the server ends it."""
    for _ in range(20):
        reader.append("counts", 0, *(("k" * 1_000, number, 0) for number in range(1_000)))
    reads = count_reads(reader)
    settings = HttpSettings(
        port=0, requests_per_second=None, max_event_streams=1, send_timeout_s=0.3
    )
    with Server(create_app(reader, settings), settings) as server, socket.socket() as slow:
        address = urlsplit(server.url)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.connect((address.hostname, address.port))
        slow.sendall(
            b"GET /stores/counts/changes?start=beginning HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        until(lambda: reads)
        # Another client gets the place of the slow one.
        until(lambda: get_status(server, "/stores/counts/changes?follow=false") == 200)
    # 20 MB of changes would be 40 reads.
    assert len(reads) < 20


def count_reads(reader: FakeReader) -> list[int]:
    """Return a list that gets an element for every chunk that is read."""
    reads: list[int] = []
    inner = reader.changes

    def counting(store: str) -> Any:
        changes = inner(store)
        read = changes.read

        def count(*arguments: Any) -> Any:
            reads.append(1)
            return read(*arguments)

        changes.read = count  # type: ignore[method-assign]
        return changes

    reader.changes = counting  # type: ignore[method-assign]
    return reads
