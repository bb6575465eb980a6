"""The registry entry of the log on Kafka. Its addresses are `kafka://HOST:PORT,HOST:PORT`."""

from __future__ import annotations

import re

from penstock.log.scheme import LogCapabilities, LogScheme

PREFIX = "kafka://"
_DEFAULT_PORT = 9092
#: HOST:PORT,HOST:PORT without a scheme.
_SERVERS = re.compile(r"(([\w.-]+|\[[0-9a-fA-F:]+\]):\d+(,|$))+(?<!,)")
#: The scheme with a typo in its separator or its case.
_MISSPELLED = re.compile(r"kafka:/*", re.IGNORECASE)


def _advise(address: str) -> str | None:
    misspelled = _MISSPELLED.match(address)
    if misspelled is not None:
        servers = address[misspelled.end() :] or "HOST"
        meant = servers if ":" in servers else f"{servers}:{_DEFAULT_PORT}"
        return f"Did you mean {PREFIX}{meant}?"
    if _SERVERS.fullmatch(address):
        return f"Did you mean {PREFIX}{address}? For a file of this name, write './{address}'."
    return None


KAFKA = LogScheme(
    name="kafka",
    title="Kafka",
    address_form="kafka://HOST:PORT,HOST:PORT",
    opener="penstock.log.kafka.log:open_kafka",
    capabilities=LogCapabilities(
        is_remote=True,
        takes_connection_settings=True,
        expires_offsets=True,
        reports_tombstones=False,
        cleans_itself=True,
    ),
    advise=_advise,
)
