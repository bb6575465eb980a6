from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from penstock.broker import ports
from penstock.broker.errors import BrokerError, PortInUse
from penstock.broker.properties import BrokerNode, BrokerOptions


@pytest.fixture
def listening() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.fixture
def previous() -> list[BrokerNode]:
    """Three nodes of an earlier start, with free ports."""
    free = ports.free_ports(6)
    return [BrokerNode(n + 1, free[n], free[n + 3]) for n in range(3)]


def assigned(previous: list[BrokerNode], port: int | None) -> list[int]:
    nodes = ports.assign_ports(previous, BrokerOptions(port=port, brokers=3))
    assert [node.id for node in nodes] == [1, 2, 3]
    every = [node.port for node in nodes] + [node.controller_port for node in nodes]
    assert len(set(every)) == len(every)
    return [node.port for node in nodes]


def test_first_start_uses_the_default_ports() -> None:
    assert assigned([], None) == [9092, 9093, 9094]


@pytest.mark.parametrize("port", [None, 0])
def test_restart_keeps_the_ports(previous: list[BrokerNode], port: int | None) -> None:
    assert list(ports.assign_ports(previous, BrokerOptions(port=port, brokers=3))) == previous


def test_port_option_changes_the_ports(previous: list[BrokerNode]) -> None:
    assert assigned(previous, 20_000) == [20_000, 20_001, 20_002]


def test_port_0_selects_free_ports_if_a_previous_port_is_in_use(
    previous: list[BrokerNode], listening: int
) -> None:
    previous[1] = BrokerNode(2, listening, previous[1].controller_port)
    assert listening not in assigned(previous, 0)


def test_previous_port_is_kept_even_if_it_is_in_use(
    previous: list[BrokerNode], listening: int
) -> None:
    previous[1] = BrokerNode(2, listening, previous[1].controller_port)
    assert assigned(previous, None) == [node.port for node in previous]
    with pytest.raises(PortInUse, match=f"Port {listening} is in use"):
        ports.check_free(listening)


def test_controller_port_in_use_is_replaced(previous: list[BrokerNode], listening: int) -> None:
    previous[0] = BrokerNode(1, previous[0].port, listening)
    nodes = ports.assign_ports(previous, BrokerOptions(port=previous[2].controller_port, brokers=3))
    controllers = {node.controller_port for node in nodes}
    assert not controllers & {listening, *(node.port for node in nodes)}


def test_port_above_the_maximum_fails() -> None:
    assert assigned([], 65_533) == [65_533, 65_534, 65_535]
    with pytest.raises(BrokerError, match=r"Port 65536 does not exist\. Choose a port up to 65535"):
        ports.assign_ports([], BrokerOptions(port=65_534, brokers=3))
