"""The connection between driver and lanes."""

from __future__ import annotations

import errno
import os
import queue
import socket
import threading
import time
from itertools import pairwise
from multiprocessing import AuthenticationError, Pipe
from multiprocessing.connection import Connection

import pytest

from penstock.engine.continuous import control_server
from penstock.engine.continuous.channel import Channel, Endpoint
from penstock.engine.continuous.control_server import ControlServer
from penstock.engine.continuous.messages import (
    Alive,
    Grant,
    Hello,
    Released,
    decode_from_driver,
    decode_from_lane,
    encode,
)
from penstock.engine.plan.batch_plan import TaskPlan
from penstock.errors import ConfigException
from penstock.record import TaskId
from penstock.task.result import TaskState


@pytest.mark.parametrize("hosts", [None, ("127.0.0.2", "127.0.0.2")])
def test_messages_arrive_in_order_and_a_closed_end_is_noticed(
    hosts: tuple[str, str] | None
) -> None:
    accepted: queue.Queue[Connection] = queue.Queue()
    server = ControlServer(hosts, accepted.put)
    received: queue.Queue[object] = queue.Queue()
    try:
        lane = Channel(
            server.endpoint.connect(), decode_from_driver, received.put,
            lambda: received.put("closed"), send_timeout_s=30,
        )
        heard: queue.Queue[object] = queue.Queue()
        driver = Channel(
            accepted.get(timeout=30), decode_from_lane, heard.put, lambda: heard.put("closed"),
            send_timeout_s=30,
        )
        lane.send(Hello(7, "host", os.getpid()))
        lane.send(Released(TaskId(1, 2)))
        assert heard.get(timeout=30) == Hello(7, "host", os.getpid())
        assert heard.get(timeout=30) == Released(TaskId(1, 2))
        driver.send(Alive())
        assert received.get(timeout=30) == Alive()
        driver.close()
        assert received.get(timeout=30) == "closed"
        assert heard.get(timeout=30) == "closed"
        lane.send(Alive())  # dropped without an error
    finally:
        server.close()


def test_message_that_cannot_be_read_is_logged_and_closes_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours, theirs = Pipe()
    closed = threading.Event()
    Channel(ours, decode_from_lane, print, closed.set, send_timeout_s=30)
    theirs.send_bytes(b"no message of a lane")
    assert closed.wait(30)
    assert "A message between the driver and a lane cannot be read: " in caplog.text
    assert "same version of penstock" in caplog.text


@pytest.mark.parametrize("hosts", [None, ("127.0.0.1", "127.0.0.1")])
def test_send_to_a_process_that_reads_nothing_ends(hosts: tuple[str, str] | None) -> None:
    """The other end is stopped, or its host is lost. The driver must not wait for it: it would
    neither notice that the lane is silent, nor talk to the other lanes."""
    accepted: queue.Queue[Connection] = queue.Queue()
    server = ControlServer(hosts, accepted.put)
    closed = threading.Event()

    def send_until_closed(channel: Channel[object]) -> None:
        while not closed.is_set():
            channel.send(Grant(TaskPlan(TaskId(0, 0), positions={"s" * 10_000: 1}), {}))

    try:
        with server.endpoint.connect():
            driver: Channel[object] = Channel(
                accepted.get(timeout=30), decode_from_lane, lambda message: None, closed.set,
                send_timeout_s=0.2,
            )
            sender = threading.Thread(target=send_until_closed, args=(driver,), daemon=True)
            sender.start()
            assert closed.wait(30), "the connection is closed"
            sender.join(30)
            assert not sender.is_alive()
    finally:
        server.close()


def test_connection_with_a_wrong_key_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    accepted: queue.Queue[Connection] = queue.Queue()
    server = ControlServer(None, accepted.put)
    try:
        with pytest.raises((AuthenticationError, EOFError)):
            Endpoint(server.endpoint.address, b"guessed").connect()
        server.endpoint.connect().close()
        accepted.get(timeout=30).close()
        assert accepted.empty()
        # A thread of the server logs it after the client has the response.
        deadline = time.monotonic() + 30
        while "wrong key" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        server.close()


def test_silent_connection_holds_up_no_lane() -> None:
    accepted: queue.Queue[Connection] = queue.Queue()
    server = ControlServer(("127.0.0.1", "127.0.0.1"), accepted.put)
    try:
        with socket.create_connection(server.endpoint.address):
            server.endpoint.connect().close()
            accepted.get(timeout=30).close()
    finally:
        server.close()


def test_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "HANDSHAKE_S", 1)
    server = ControlServer(("127.0.0.1", "127.0.0.1"), lambda connection: None)
    try:
        with socket.create_connection(server.endpoint.address, timeout=30) as silent:
            while silent.recv(1_000):
                pass
    finally:
        server.close()


def test_lane_may_be_silent_after_the_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "HANDSHAKE_S", 1)
    accepted: queue.Queue[Connection] = queue.Queue()
    server = ControlServer(("127.0.0.1", "127.0.0.1"), accepted.put)
    try:
        lane, driver = server.endpoint.connect(), accepted.get(timeout=30)
        limit = socket.socket(fileno=os.dup(driver.fileno()))
        with limit, lane, driver:
            assert not any(limit.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16))
    finally:
        server.close()


def test_server_without_free_file_descriptors_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ControlServer(None, lambda connection: None)
    attempts: list[float] = []

    def fail() -> Connection:
        attempts.append(time.monotonic())
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(server._listener, "accept", fail)
    server.endpoint.connect().close()
    while len(attempts) < 5:
        assert server._thread.is_alive()
        time.sleep(0.01)
    server.close()
    pauses = [after - before for before, after in pairwise(attempts)]
    assert min(pauses) >= 0.9 * control_server.ERROR_PAUSE_S


@pytest.mark.parametrize("hosts", [None, ("127.0.0.1", "127.0.0.1")])
def test_server_closes_if_its_thread_has_just_ended(hosts: tuple[str, str] | None) -> None:
    server = ControlServer(hosts, lambda connection: None)
    # The thread accepts a last connection while the server begins to close.
    server._closed = True
    server.endpoint.connect().close()
    server._thread.join(30)
    closing = threading.Thread(target=server.close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()


def test_port_can_be_chosen_and_used_again() -> None:
    hosts = ("127.0.0.1", "127.0.0.1")
    first = ControlServer(hosts, lambda connection: None)
    port = first.endpoint.address[1]
    try:
        with pytest.raises(ConfigException, match=f"port {port}: .*penstock.driver.port"):
            ControlServer(hosts, lambda connection: None, port)
    finally:
        first.close()
    second = ControlServer(hosts, lambda connection: None, port)
    second.close()
    assert second.endpoint.address == ("127.0.0.1", port)


def test_key_is_not_shown() -> None:
    assert "secret" not in repr(Endpoint(("host", 1), b"secret"))


def test_grant_keeps_the_state_of_a_task() -> None:
    state = TaskState(5, {("in", 0): 4}, {"clock": 3}, {"store": {"time": 2}})
    grant = Grant(TaskPlan(TaskId(0, 1), (), state, {"store": 9}, {}, 3, 4), {("in", 1): 10})
    assert decode_from_driver(encode(grant)) == grant
