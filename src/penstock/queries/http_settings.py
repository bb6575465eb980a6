"""`HttpSettings`: address, token and limits of the HTTP servers, and the checks of both.

The module does not import the web framework: the server of metrics needs none.
"""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass, field

from penstock.errors import ConfigException


@dataclass(frozen=True, kw_only=True)
class HttpSettings:
    """The settings of `create_app` and `Server`.

    Args:
        host: The address to listen on. Any other than loopback needs a token.
        port: The port; 0 takes a free one.
        token: Requests must send it as `Authorization: Bearer TOKEN`. None: no token is needed.
        page_size: How many entries a page has if the request does not say.
        max_page_size: The largest page that a request may ask for.
        max_body_bytes: A larger body is refused with 413.
        max_url_bytes: A longer path and query string are refused with 414.
        max_header_bytes: More headers are refused with 431.
        requests_per_second: How many requests a client address may send, on average over a second;
            more are refused with 429. None: no limit.
        max_connections: More connections at the same time are refused with 503. None: no limit.
        max_event_streams: More streams of changes at the same time are refused with 503, and as
            well more browsers with the dashboard.
        receive_timeout_s: The time in which a client must send the headers of a request, and then
            its body. A connection without complete headers is closed, a late body refused with 408.
        send_timeout_s: A client of a stream of changes that takes no data for so long is
            disconnected.
        bound_timeout_s: How long a request waits until the store has reached the position that the
            request asks for. Then it is refused with 503.
        allowed_hosts: The host names under which clients may address a server without a token.
            Other names are refused with 403: a web site could let its own name refer to this
            machine, and read the responses in the browser of a visitor (DNS rebinding).
        cors_origins: The web sites whose scripts may read the responses. None by default.

    Raises:
        ConfigException: A setting is invalid, or a token is missing.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = field(default=None, repr=False)
    page_size: int = 100
    max_page_size: int = 1_000
    max_body_bytes: int = 4 << 20
    max_url_bytes: int = 16 << 10
    max_header_bytes: int = 32 << 10
    requests_per_second: float | None = 1_000
    max_connections: int | None = 1_000
    max_event_streams: int = 200
    receive_timeout_s: float = 10.0
    send_timeout_s: float = 30.0
    bound_timeout_s: float = 1.0
    allowed_hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "::1")
    cors_origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.token is not None and not (self.token.isascii() and self.token.strip()):
            raise ConfigException("A token must not be empty and must consist of ASCII characters.")
        if self.token is None and not is_loopback(self.host):
            raise ConfigException(
                f"The address '{self.host}' can be reached from other machines, and no token is "
                "given. Set a token (on the command line with --token-file), or listen on "
                "127.0.0.1."
            )
        if not 0 <= self.port <= 65_535:
            raise ConfigException(f"The port must be between 0 and 65535, not {self.port}.")
        for name in (
            "page_size", "max_page_size", "max_body_bytes", "max_url_bytes", "max_header_bytes",
            "requests_per_second", "max_connections", "max_event_streams",
            "receive_timeout_s", "send_timeout_s", "bound_timeout_s",
        ):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigException(f"{name} must be more than 0, not {value}.")
        if self.page_size > self.max_page_size:
            raise ConfigException(
                f"page_size ({self.page_size}) must not exceed max_page_size "
                f"({self.max_page_size})."
            )


    def accepts_token(self, authorization: bytes) -> bool:
        """Return whether a header `Authorization` has the token, or no token is needed.

        Args:
            authorization: The value of the header; empty if the request has none.
        """
        if self.token is None:
            return True
        # The scheme is case-insensitive; the time of the comparison does not depend on the number
        # of characters that match.
        if authorization[:7].lower() == b"bearer ":
            authorization = b"Bearer " + authorization[7:].strip()
        return hmac.compare_digest(authorization, b"Bearer " + self.token.encode("ascii"))

    def accepts_host(self, header: str) -> bool:
        """Return whether a client may address the server by the name in a header `Host`.

        Args:
            header: The value of the header; empty if the request has none.
        """
        return self.token is not None or host_name(header) in {*self.allowed_hosts, self.host}


def host_name(header: str) -> str:
    """Return the name in a `Host` header, without port and brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
