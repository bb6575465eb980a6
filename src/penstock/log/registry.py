"""The schemes of log addresses. A new kind of log adds one entry to `_SCHEMES`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigException
from penstock.log.embedded.scheme import EMBEDDED
from penstock.log.kafka.scheme import KAFKA, PREFIX
from penstock.log.scheme import SEPARATOR, LogScheme

if TYPE_CHECKING:
    from penstock.log.base import Log

_SCHEMES: dict[str, LogScheme] = {scheme.name: scheme for scheme in (EMBEDDED, KAFKA)}


def schemes() -> list[LogScheme]:
    """Return all registered schemes."""
    return list(_SCHEMES.values())


@contextmanager
def registered(scheme: LogScheme) -> Iterator[LogScheme]:
    """Register a scheme for the duration of the block, in this process only."""
    if scheme.name in _SCHEMES:
        raise ValueError(f"The scheme '{scheme.name}' is registered already.")
    _SCHEMES[scheme.name] = scheme
    try:
        yield scheme
    finally:
        del _SCHEMES[scheme.name]


def scheme_of(where: str | os.PathLike[str]) -> LogScheme:
    """Return the scheme of an address; `ConfigException` for an unknown or misspelled one.

    A misspelled address would otherwise be the path of a new file.
    """
    address = os.fspath(where)
    name, separator, _ = address.partition(SEPARATOR)
    if separator and name in _SCHEMES:
        return _SCHEMES[name]
    for scheme in _SCHEMES.values():
        advice = scheme.advise(address)
        if advice is not None:
            raise ConfigException(f"Invalid log address '{address}'. {advice}")
    if separator:
        forms = " or ".join(scheme.address_form for scheme in _SCHEMES.values())
        raise ConfigException(f"Invalid log address '{address}'. An address is {forms}.")
    return _SCHEMES[""]


def bootstrap_address(servers: str) -> str:
    """Return the address for the value of `bootstrap.servers`, which may also be an address."""
    name, separator, _ = servers.partition(SEPARATOR)
    return servers if separator and name in _SCHEMES else f"{PREFIX}{servers}"


def open_log(
    where: str | os.PathLike[str], *, connection: Mapping[str, Any] | None = None, **options: Any
) -> Log:
    """Open the log at an address: a path, or `kafka://HOST:PORT,HOST:PORT`.

    `options` are the fields of `EmbeddedOptions`; for Kafka, those of `KafkaOptions` and the
    settings of librdkafka. `connection` holds settings of connections and security. Logs that have
    no connections ignore it. The packages that a log needs are imported by the first call.
    """
    scheme = scheme_of(where)
    if connection and scheme.capabilities.takes_connection_settings:
        options = {**options, **connection}
    return scheme.open(os.fspath(where), options)
