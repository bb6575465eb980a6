from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from penstock.broker import ports
from penstock.broker.errors import BrokerError, PortInUse
from penstock.broker.properties import BrokerNode, BrokerOptions


@pytest.fixture
def listening() -> Iterator[int]:
    """A port that somebody else has."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@pytest.fixture
def before() -> list[BrokerNode]:
    """Three nodes of the last time; their ports are free."""
    free = ports.free_ports(6)
    return [BrokerNode(n + 1, free[n], free[n + 3]) for n in range(3)]


def taken(before: list[BrokerNode], port: int | None) -> list[int]:
    nodes = ports.assign_ports(before, BrokerOptions(port=port, brokers=3))
    assert [node.id for node in nodes] == [1, 2, 3]
    every = [node.port for node in nodes] + [node.controller_port for node in nodes]
    assert len(set(every)) == len(every)
    return [node.port for node in nodes]


def test_the_first_start_takes_the_usual_ports() -> None:
    assert taken([], None) == [9092, 9093, 9094]


@pytest.mark.parametrize("port", [None, 0])
def test_addresses_stay_as_they_were(before: list[BrokerNode], port: int | None) -> None:
    assert list(ports.assign_ports(before, BrokerOptions(port=port, brokers=3))) == before


def test_another_port_is_taken_if_it_is_asked_for(before: list[BrokerNode]) -> None:
    assert taken(before, 20_000) == [20_000, 20_001, 20_002]


def test_any_port_will_do_if_the_old_one_is_in_use(
    before: list[BrokerNode], listening: int
) -> None:
    before[1] = BrokerNode(2, listening, before[1].controller_port)
    assert listening not in taken(before, 0)


def test_an_address_that_was_not_given_up_is_kept_even_if_it_is_in_use(
    before: list[BrokerNode], listening: int
) -> None:
    before[1] = BrokerNode(2, listening, before[1].controller_port)
    assert taken(before, None) == [node.port for node in before]
    with pytest.raises(PortInUse, match=f"Port {listening} is in use"):
        ports.check_free(listening)


def test_a_controller_gives_way(before: list[BrokerNode], listening: int) -> None:
    before[0] = BrokerNode(1, before[0].port, listening)
    nodes = ports.assign_ports(before, BrokerOptions(port=before[2].controller_port, brokers=3))
    controllers = {node.controller_port for node in nodes}
    assert not controllers & {listening, *(node.port for node in nodes)}


def test_there_is_no_port_behind_the_last() -> None:
    assert taken([], 65_533) == [65_533, 65_534, 65_535]
    with pytest.raises(BrokerError, match=r"There is no port 65536\. Choose one up to 65535"):
        ports.assign_ports([], BrokerOptions(port=65_534, brokers=3))
