"""What can go wrong with a broker of one's own."""

from __future__ import annotations

from penstock.errors import StreamsException


class BrokerError(StreamsException):
    """A broker could not be fetched, started or stopped. The message says what to do."""


class JavaNotFound(BrokerError):
    """Java does not exist, or is too old for Kafka."""


class JarsNotFound(BrokerError):
    """Kafka's jars are not here and could not be fetched."""


class PortInUse(BrokerError):
    """Somebody else listens on the port."""

    def __init__(self, port: int) -> None:
        super().__init__(
            f"Port {port} is in use by another program. Stop it, or choose another with --port "
            "(0: any free one)."
        )
        self.port = port
