"""Which ports nodes get, and whether they are free."""

from __future__ import annotations

import socket
from collections.abc import Collection, Sequence

from penstock.broker.errors import BrokerError, PortInUse
from penstock.broker.properties import HOST, BrokerNode, BrokerOptions

#: Kafka's own, for the first node of a cluster that was never started.
USUAL_PORT = 9092
LAST_PORT = 65535


def assign_ports(before: Sequence[BrokerNode], options: BrokerOptions) -> tuple[BrokerNode, ...]:
    """The nodes of a cluster of which none runs; `before` are those of the last time, if any.

    Addresses that people have noted stay valid: without another wish, or with that for any port,
    a node gets the one it had. The ports of controllers are known to nobody else.
    """
    count = options.brokers
    if options.port:
        _check_range(options.port + count - 1)
        ports = [options.port + n for n in range(count)]
    elif before and (options.port is None or all(is_free(node.port) for node in before)):
        ports = [node.port for node in before]
    elif options.port is None:
        ports = [USUAL_PORT + n for n in range(count)]
    else:
        ports = free_ports(count)
    controllers = [node.controller_port for node in before]
    if not before or set(controllers) & set(ports) or not all(map(is_free, controllers)):
        controllers = free_ports(count, besides=ports)
    return tuple(
        BrokerNode(n + 1, port, controller)
        for n, (port, controller) in enumerate(zip(ports, controllers, strict=True))
    )


def _check_range(last: int) -> None:
    if last > LAST_PORT:
        raise BrokerError(f"There is no port {last}. Choose one up to {LAST_PORT} with --port.")


def check_free(port: int) -> None:
    """Raise `PortInUse` if somebody listens there."""
    if not is_free(port):
        raise PortInUse(port)


def is_free(port: int) -> bool:
    """Whether a node could listen there right now."""
    with socket.socket() as probe:
        # As Java does it: a connection of a node that has ended does not block its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(count: int, besides: Collection[int] = ()) -> list[int]:
    """So many different ports that nobody listens on right now, none of them `besides`."""
    probes = [socket.socket() for _ in range(count + len(besides))]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        found = [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
    return [port for port in found if port not in besides][:count]
