"""Errors of `penstock broker`."""

from __future__ import annotations

from penstock.errors import StreamsException


class BrokerError(StreamsException):
    """A broker cannot be downloaded, started or stopped."""


class JavaNotFound(BrokerError):
    """Java is missing, or older than Kafka requires."""


class JarsNotFound(BrokerError):
    """Kafka's jars are neither in the cache nor in the repository."""


class PortInUse(BrokerError):
    """Another program listens on the port."""

    def __init__(self, port: int) -> None:
        super().__init__(
            f"Port {port} is in use by another program. Stop that program, or choose another port "
            "with --port (0 selects a free one)."
        )
        self.port = port
