"""The HTTP options of `penstock run --serve`, `penstock run --metrics` and `penstock serve`."""

from __future__ import annotations

import argparse
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli.errors import CommandError
from penstock.cli.parsing import positive_int

if TYPE_CHECKING:
    from penstock.queries.http_settings import HttpSettings

TOKEN_VARIABLE = "PENSTOCK_TOKEN"
#: Addresses for documentation, which belong to no machine.
_ROUTED_IPV4 = "192.0.2.1"
_ROUTED_IPV6 = "2001:db8::1"
_ADDRESS = re.compile(r"(?:(\[[^\]]+\]|[^:\[\]]+):)?(\d{1,5})")


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int


def http_address(text: str) -> Address:
    """Parse `PORT`, `HOST:PORT` or `[HOST]:PORT`."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) > 65_535:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not an address; use PORT or HOST:PORT, such as 127.0.0.1:8080"
        )
    return Address((match[1] or "127.0.0.1").strip("[]"), int(match[2]))


def add_http_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `http_settings` reads, except the address."""
    parser.add_argument(
        "--token-file", metavar="FILE",
        help="a file with the token that HTTP requests must send; needed to listen on another "
        f"address than loopback (default: the environment variable {TOKEN_VARIABLE})",
    )
    parser.add_argument(
        "--requests-per-second", metavar="N", type=positive_int,
        help="refuse more HTTP requests of one client address (default: 1000)",
    )
    parser.add_argument(
        "--cors-origin", metavar="URL", action="append", default=[],
        help="let scripts of this web site read the state (may be repeated)",
    )


def add_dashboard_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the dashboard."""
    parser.add_argument(
        "--allow-actions", action="store_true",
        help="let the dashboard pause and resume the application, and replay dead letters",
    )


def http_settings(args: argparse.Namespace, address: Address) -> HttpSettings:
    """Return the settings of the HTTP server."""
    from penstock.queries.http_settings import HttpSettings  # noqa: PLC0415

    given = args.requests_per_second
    return HttpSettings(
        host=address.host, port=address.port, token=_token(args),
        cors_origins=tuple(args.cors_origin),
        **({} if given is None else {"requests_per_second": given}),
    )


def announced_address(address: Address) -> Address:
    """Return the address at which other machines reach a server.

    A server on all addresses (`0.0.0.0`, `::`) is announced with the address from which this
    machine reaches other networks, or with its host name if it has no such address.
    """
    unspecified = {"0.0.0.0": _ROUTED_IPV4, "::": _ROUTED_IPV6}
    if address.host not in unspecified:
        return address
    target = unspecified[address.host]
    try:
        with socket.socket(
            socket.AF_INET6 if ":" in target else socket.AF_INET, socket.SOCK_DGRAM
        ) as probe:
            # No packet is sent: the system only chooses the interface.
            probe.connect((target, 9))
            return Address(probe.getsockname()[0], address.port)
    except OSError:
        return Address(socket.getfqdn(), address.port)


def _token(args: argparse.Namespace) -> str | None:
    if args.token_file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        token = Path(args.token_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            f"The token file '{args.token_file}' cannot be read: {error}."
        ) from error
    if not token:
        raise CommandError(f"The token file '{args.token_file}' is empty.")
    return token
