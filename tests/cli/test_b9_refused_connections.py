"""A cluster that refuses connections is reported within seconds; a slow one gets its time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.cli import log_option, reachability
from penstock.cli.errors import CommandError
from penstock.cli.reachability import wait_while_refused


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_command_reports_a_refused_connection_within_seconds(
    penstock: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{free_port()}"
    start = time.monotonic()
    ran = penstock("topics", "list", "--log", f"kafka://{address}")
    assert time.monotonic() - start < reachability.REFUSED_TIMEOUT_S + 5
    assert ran.code == 1
    assert ran.err == (
        f"Kafka at {address} refuses connections. Waiting up to 5 s for it ...\n"
        f"penstock: error: Kafka at {address} refuses connections.\n"
        "Check that the broker is running and that its address is correct.\n"
    )


def test_broker_that_is_starting_is_waited_for() -> None:
    port = free_port()
    notes: list[str] = []
    opened: list[socket.socket] = []

    def start(text: str) -> None:
        notes.append(text)
        opened.append(socket.create_server(("127.0.0.1", port)))

    wait_while_refused(f"kafka://127.0.0.1:{port}", 60, start)
    assert len(notes) == 1
    opened[0].close()


def test_broker_that_accepts_and_does_not_respond_is_left_to_the_client() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        wait_while_refused(f"kafka://127.0.0.1:{server.getsockname()[1]}", 0)


def test_one_broker_that_accepts_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        servers = f"127.0.0.1:{free_port()},127.0.0.1:{server.getsockname()[1]}"
        wait_while_refused(f"kafka://{servers}", 0)


@pytest.mark.parametrize("address", ["log.db", "kafka://no-such-host.invalid:9092"])
def test_other_addresses_are_left_to_the_log(address: str) -> None:
    wait_while_refused(address, 0)


@pytest.mark.parametrize("server", ["[::1]:{}", "PLAINTEXT://127.0.0.1:{}", "localhost:{}"])
def test_forms_of_servers_are_understood(server: str) -> None:
    with pytest.raises(CommandError, match="refuses connections"):
        wait_while_refused(f"kafka://{server.format(free_port())}", 0)


def test_quiet_command_writes_only_the_error(
    penstock: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_option, "wait_while_refused", lambda address, timeout, note: (
        wait_while_refused(address, 0.5, note)
    ))
    before = threading.active_count()
    ran = penstock("produce", "t", "--quiet", "--log", f"kafka://127.0.0.1:{free_port()}")
    assert ran.err.startswith("penstock: error: Kafka at ")
    assert threading.active_count() == before
