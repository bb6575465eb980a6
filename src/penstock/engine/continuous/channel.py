"""An authenticated connection between the driver and a lane.

The connection is that of `multiprocessing`: both ends prove that they know a secret key before
anything else is sent. Messages are bytes, which are never unpickled. The driver's key reaches the
lanes through Spark, which has its own means to protect it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable
from multiprocessing.connection import Client, Connection
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.engine.continuous.messages import encode

log = logging.getLogger(__name__)

M = TypeVar("M")


class Endpoint(NamedTuple):
    """Where lanes reach the driver, and the key of its connections. Never logged."""

    #: A path, or host and port.
    address: Any
    key: bytes

    def __repr__(self) -> str:
        return f"Endpoint({self.address!r})"

    def connect(self) -> Connection:
        """Connect to the driver."""
        connection: Connection = Client(self.address, authkey=self.key)
        return connection


def limit_waits(connection: Connection, option: int, seconds: float) -> None:
    """Set how long reads (`SO_RCVTIMEO`) or writes (`SO_SNDTIMEO`) may wait; 0 for any time."""
    with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        limit = struct.pack("ll", int(seconds), round(seconds % 1 * 1e6))
        duplicate.setsockopt(socket.SOL_SOCKET, option, limit)


class Channel(Generic[M]):
    """One end of a connection. A thread reads it and passes on each message.

    Any thread may send. A message waits for at most `send_timeout_s` until the other end reads the
    earlier ones; then the connection is closed. After the connection is lost, messages are
    dropped, and `on_closed` has been called once.
    """

    def __init__(
        self, connection: Connection, decode: Callable[[bytes], M],
        on_message: Callable[[M], object], on_closed: Callable[[], object], *,
        send_timeout_s: float,
    ) -> None:
        limit_waits(connection, socket.SO_SNDTIMEO, send_timeout_s)
        self._connection = connection
        self._decode = decode
        self._on_message = on_message
        self._on_closed = on_closed
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._read, name="penstock-channel", daemon=True)
        self._thread.start()

    def send(self, message: object) -> None:
        """Send a message."""
        data = encode(message)
        with self._sending:
            try:
                self._connection.send_bytes(data)
            except (OSError, ValueError) as error:
                log.debug("A message was dropped: the connection is closed or stuck: %s", error)
                # A part of the message may have been sent.
                self._shut_down()

    def _read(self) -> None:
        try:
            while True:
                self._on_message(self._decode(self._connection.recv_bytes()))
        except (EOFError, OSError):
            pass
        except ValueError as error:
            log.error(
                "A message between the driver and a lane cannot be read: %s. The connection is "
                "closed. Check that both run the same version of penstock.", error,
            )
        finally:
            with self._sending:
                self._connection.close()
            self._on_closed()

    def close(self) -> None:
        """Close the connection. The other end notices it."""
        with self._sending:
            self._shut_down()

    def _shut_down(self) -> None:
        # A thread reads the connection, and closes it at its end.
        with (
            contextlib.suppress(OSError),
            socket.socket(fileno=os.dup(self._connection.fileno())) as duplicate,
        ):
            duplicate.shutdown(socket.SHUT_RDWR)
