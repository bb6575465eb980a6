"""Assigns ports to the brokers of a cluster and checks that they are free."""

from __future__ import annotations

import socket
from collections.abc import Collection, Sequence

from penstock.broker.errors import BrokerError, PortInUse
from penstock.broker.properties import HOST, BrokerNode, BrokerOptions

#: Kafka's default port, for the first broker of a new cluster.
DEFAULT_PORT = 9092
MAX_PORT = 65535


def assign_ports(previous: Sequence[BrokerNode], options: BrokerOptions) -> tuple[BrokerNode, ...]:
    """Return the nodes of a stopped cluster; `previous` holds those of its last start.

    Clients may have stored the addresses, so a node keeps its port unless the options name
    another one. Controller ports are internal and may change.
    """
    count = options.brokers
    if options.port:
        _check_range(options.port + count - 1)
        ports = [options.port + n for n in range(count)]
    elif previous and (options.port is None or all(is_free(node.port) for node in previous)):
        ports = [node.port for node in previous]
    elif options.port is None:
        ports = [DEFAULT_PORT + n for n in range(count)]
    else:
        ports = free_ports(count)
    controllers = [node.controller_port for node in previous]
    if not previous or set(controllers) & set(ports) or not all(map(is_free, controllers)):
        controllers = free_ports(count, exclude=ports)
    return tuple(
        BrokerNode(n + 1, port, controller)
        for n, (port, controller) in enumerate(zip(ports, controllers, strict=True))
    )


def _check_range(last: int) -> None:
    if last > MAX_PORT:
        raise BrokerError(
            f"Port {last} does not exist. Choose a port up to {MAX_PORT} with --port."
        )


def check_free(port: int) -> None:
    """Raise `PortInUse` if another program listens on the port."""
    if not is_free(port):
        raise PortInUse(port)


def is_free(port: int) -> bool:
    """Return whether a broker can listen on the port now."""
    with socket.socket() as probe:
        # Java sets this option, too: closed connections of an earlier broker do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(count: int, exclude: Collection[int] = ()) -> list[int]:
    """Return `count` different ports that are free now."""
    probes = [socket.socket() for _ in range(count + len(exclude))]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        ports = [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
    return [port for port in ports if port not in exclude][:count]
