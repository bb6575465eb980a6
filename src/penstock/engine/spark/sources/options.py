"""The options of the data source `penstock`. Names of Spark's Kafka source keep their meaning."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.errors import ConfigException
from penstock.log import open_log, scheme_of
from penstock.log.base import Log
from penstock.suggestions import did_you_mean

EARLIEST, LATEST = -2, -1
#: Options with this prefix are settings of the connection to a Kafka cluster.
_KAFKA_PREFIX = "kafka."
_READ = (
    "log", "topic", "application", "store", "changelog", "startingOffsets", "endingOffsets",
    "startingTimestamp", "endingTimestamp", "key.format", "value.format", "mode", "samplingRows",
    "maxOffsetsPerTrigger", "failOnDataLoss", "store.kind", "window.size", "window.retention",
    "versions",
)
_WRITE = ("log", "topic", "key.format", "value.format", "checkpointLocation")


@dataclass(frozen=True, slots=True)
class LogAddress:
    """Where a log is, and the settings of connections to it. It can be sent to executors."""

    address: str
    connection: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def open(self, *, read_only: bool = False) -> Log:
        """Open the log. An embedded log must exist."""
        options: dict[str, Any] = {}
        if not scheme_of(self.address).capabilities.is_remote:
            options = {"create": False, "read_only": read_only}
        return open_log(self.address, connection=dict(self.connection), **options)


class Options:
    """The options of a read or a write. Their names are not case-sensitive."""

    def __init__(self, given: Mapping[str, str], *, writes: bool = False) -> None:
        self._values = {name.lower(): value for name, value in given.items()}
        known = _WRITE if writes else _READ
        names = {each.lower() for each in known}
        for name in self._values:
            if name not in names and not name.startswith(_KAFKA_PREFIX):
                raise ConfigException(
                    f"The data source 'penstock' has no option '{name}' for "
                    f"{'writes' if writes else 'reads'}.{did_you_mean(name, known)} "
                    f"Options: {', '.join(known)}, and kafka.* for settings of the connection."
                )

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return an option or its default."""
        return self._values.get(name.lower(), default)

    def require(self, name: str, example: str) -> str:
        """Return an option that must be given."""
        value = self.get(name)
        if not value:
            raise ConfigException(
                f"The option '{name}' is missing. Set it: .option(\"{name}\", \"{example}\")."
            )
        return value

    def integer(self, name: str, default: int | None = None) -> int | None:
        """Return a positive integer."""
        value = self.get(name)
        if value is None:
            return default
        if not value.isdigit() or not int(value):
            raise ConfigException(f"The option '{name}' is a positive integer, not '{value}'.")
        return int(value)

    def choice(self, name: str, *choices: str) -> str:
        """Return one of several words. The first one is the default."""
        value = (self.get(name) or choices[0]).lower()
        for each in choices:
            if value == each.lower():
                return each
        raise ConfigException(
            f"The option '{name}' is one of {', '.join(choices)}, not '{self.get(name)}'."
        )

    def log(self) -> LogAddress:
        """Return the log."""
        address = self.require("log", "orders.db")
        if not scheme_of(address).capabilities.is_remote:
            # Executors have working directories of their own.
            address = os.path.abspath(address)
        return LogAddress(address, tuple(
            (name.removeprefix(_KAFKA_PREFIX), value) for name, value in self._values.items()
            if name.startswith(_KAFKA_PREFIX)
        ))

    def offsets(self, name: str, default: str, topic: str) -> Mapping[int, int] | int:
        """Return `EARLIEST` or `LATEST`, or partition -> offset."""
        value = self.get(name, default) or default
        if value.lower() in {"earliest", "latest"}:
            return EARLIEST if value.lower() == "earliest" else LATEST
        try:
            found = msgspec.json.decode(value, type=dict[str, Any])
            found = found.get(topic, found)
            return {int(number): int(offset) for number, offset in found.items()}
        except (msgspec.MsgspecError, ValueError, TypeError, AttributeError):
            raise ConfigException(
                f"The option '{name}' is 'earliest', 'latest' or JSON with an offset for each "
                f'partition, such as {{"0": 23, "1": -2}}, not \'{value}\'. -2 is the earliest '
                "offset, -1 the latest."
            ) from None

    def timestamp(self, name: str) -> int | None:
        """Return a time in epoch milliseconds, given as such or as an ISO 8601 time."""
        value = self.get(name)
        if value is None:
            return None
        if value.isdigit():
            return int(value)
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            raise ConfigException(
                f"The option '{name}' is a time in epoch milliseconds or an ISO 8601 time such as "
                f"2026-11-17T12:00:00Z, not '{value}'."
            ) from None
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        return int(time.timestamp() * 1000)
