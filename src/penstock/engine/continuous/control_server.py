"""`ControlServer`: where the driver accepts the connections of lanes.

Each connection proves in a thread of its own that it knows the key, and is closed if that takes too
long. So a client that connects and is silent holds up no lane.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from secrets import token_bytes
from typing import Any

from penstock.engine.continuous.channel import Endpoint, limit_waits
from penstock.errors import ConfigException

log = logging.getLogger(__name__)

#: The setting for the port of the server on a cluster; any free port by default.
DRIVER_PORT = "penstock.driver.port"
#: How long the server waits for each message of a connection that has not proved its key.
HANDSHAKE_S = 10
#: The pause after a connection that could not be accepted.
ERROR_PAUSE_S = 0.1
#: Connections that may wait to be accepted: the lanes of a cluster start at the same time.
_BACKLOG = 128


class ControlServer:
    """Accepts connections, and passes on those that know the key."""

    def __init__(
        self, hosts: tuple[str, str] | None, on_connection: Callable[[Connection], object],
        port: int = 0,
    ) -> None:
        """`hosts`: the address to listen on, and the one that lanes connect to. None listens on a
        Unix socket of this host. Any thread may call `on_connection`."""
        self._listener = _listen(hosts, port)
        address: Any = self._listener.address
        if hosts is not None:
            address = (hosts[1], address[1])
        self.endpoint = Endpoint(address, token_bytes(32))
        self._on_connection = on_connection
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="penstock-control", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except OSError as error:
                log.debug("A connection could not be accepted: %s", error)
                # The process may have too many open files for a while.
                time.sleep(ERROR_PAUSE_S)
                continue
            threading.Thread(
                target=self._authenticate, args=(connection,), name="penstock-handshake",
                daemon=True,
            ).start()

    def _authenticate(self, connection: Connection) -> None:
        """Pass on a connection whose other end knows the key, and close any other."""
        try:
            limit_waits(connection, socket.SO_RCVTIMEO, HANDSHAKE_S)
            deliver_challenge(connection, self.endpoint.key)
            answer_challenge(connection, self.endpoint.key)
            limit_waits(connection, socket.SO_RCVTIMEO, 0)
        except AuthenticationError:
            log.warning("A connection with a wrong key was refused.")
        except (EOFError, OSError) as error:
            if not self._closed:
                log.debug("A connection has ended before it proved its key: %s", error)
        else:
            if not self._closed:
                self._on_connection(connection)
                return
        connection.close()

    def close(self) -> None:
        """Accept no more connections."""
        self._closed = True
        # A thread that waits in accept() notices a closed listener only at the next connection.
        # That thread may have ended, so this one does not wait for a response.
        family = socket.AF_UNIX if isinstance(self.endpoint.address, str) else socket.AF_INET
        with socket.socket(family) as waking, contextlib.suppress(OSError):
            waking.settimeout(HANDSHAKE_S)
            waking.connect(self.endpoint.address)
        self._thread.join(HANDSHAKE_S)
        self._listener.close()


def _listen(hosts: tuple[str, str] | None, port: int) -> Listener:
    if hosts is None:
        return Listener(family="AF_UNIX", backlog=_BACKLOG)
    try:
        return Listener((hosts[0], port), family="AF_INET", backlog=_BACKLOG)
    except OSError as error:
        raise ConfigException(
            f"The driver cannot listen for its lanes on {hosts[0]}, port {port}: "
            f"{error.strerror}. Set {DRIVER_PORT} to a free port, one for each application of "
            "this host, or to 0 for any free port. spark.driver.bindAddress is the address."
        ) from error
