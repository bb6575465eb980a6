"""Finds out early that no broker of a cluster accepts connections.

The client of a cluster retries for half a minute, whatever the reason. A refused connection has
one reason: no process listens at the address, or not yet.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable

from penstock.cli.errors import CommandError
from penstock.log import scheme_of
from penstock.log.scheme import SEPARATOR

#: How long commands wait for a broker that is starting.
REFUSED_TIMEOUT_S = 5.0
#: The same for `penstock run`, which may be started together with the broker.
RUN_REFUSED_TIMEOUT_S = 30.0
_PAUSE_S = 0.25
_CONNECT_TIMEOUT_S = 1.0
_SERVER = re.compile(r"(?:\w+://)?\[?(?P<host>[^\[\]]+?)\]?(?::(?P<port>\d+))?")
_DEFAULT_PORT = 9092


def wait_while_refused(
    address: str, timeout_s: float, note: Callable[[str], object] = lambda text: None
) -> None:
    """Wait while all servers of a remote log refuse connections. Raise after the timeout.

    Any other result, also none, ends the wait: then the client of the log decides.
    """
    scheme = scheme_of(address)
    if not scheme.capabilities.is_remote:
        return
    # A missing package is reported before a missing broker.
    scheme.load()
    servers = address.partition(SEPARATOR)[2].strip("/ ")
    deadline = time.monotonic() + timeout_s
    is_noted = False
    while _all_refuse(servers):
        if time.monotonic() >= deadline:
            raise CommandError(
                f"{scheme.title} at {servers} refuses connections.\n"
                "Check that the broker is running and that its address is correct."
            )
        if not is_noted:
            note(
                f"{scheme.title} at {servers} refuses connections. "
                f"Waiting up to {timeout_s:g} s for it ..."
            )
            is_noted = True
        time.sleep(_PAUSE_S)


def _all_refuse(servers: str) -> bool:
    found = [_SERVER.fullmatch(server.strip()) for server in servers.split(",")]
    return bool(found) and all(
        match is not None and _refuses(match["host"], int(match["port"] or _DEFAULT_PORT))
        for match in found
    )


def _refuses(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), _CONNECT_TIMEOUT_S):
            return False
    except ConnectionRefusedError:
        return True
    except (OSError, OverflowError):
        return False
