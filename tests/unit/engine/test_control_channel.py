"""The connection between driver and lanes."""

from __future__ import annotations

import os
import queue
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection

import pytest

from penstock.engine.continuous.channel import Channel, ControlServer, Endpoint
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
            lambda: received.put("closed"),
        )
        heard: queue.Queue[object] = queue.Queue()
        driver = Channel(
            accepted.get(timeout=30), decode_from_lane, heard.put, lambda: heard.put("closed")
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


def test_connection_with_a_wrong_key_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    accepted: queue.Queue[Connection] = queue.Queue()
    server = ControlServer(None, accepted.put)
    try:
        with pytest.raises((AuthenticationError, EOFError)):
            Endpoint(server.endpoint.address, b"guessed").connect()
        server.endpoint.connect().close()
        accepted.get(timeout=30).close()
        assert accepted.empty()
    finally:
        server.close()
    assert "wrong key" in caplog.text


def test_key_is_not_shown() -> None:
    assert "secret" not in repr(Endpoint(("host", 1), b"secret"))


def test_grant_keeps_the_state_of_a_task() -> None:
    state = TaskState(5, {("in", 0): 4}, {"clock": 3}, {"store": {"time": 2}})
    grant = Grant(TaskPlan(TaskId(0, 1), (), state, {"store": 9}, {}, 3, 4), {("in", 1): 10})
    assert decode_from_driver(encode(grant)) == grant
