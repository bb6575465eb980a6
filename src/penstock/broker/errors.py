"""What can go wrong with a broker of one's own."""

from __future__ import annotations

from penstock.errors import StreamsException


class BrokerError(StreamsException):
    """A broker could not be fetched, started or stopped. The message says what to do."""


class JavaNotFound(BrokerError):
    """There is no Java, or one that is too old."""

    def __init__(self, found: str = "") -> None:
        said = f" '{found}' is too old." if found else " None was found."
        super().__init__(
            f"Kafka needs Java 17 or newer.{said} Install it, and put it on the PATH or set "
            "JAVA_HOME."
        )


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
