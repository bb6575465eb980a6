"""Reads and checks the configuration of a client. It uses the names of librdkafka and Kafka.

The configuration selects the log:

    "log": "orders.db"                        the embedded log in this file (or an open `Log`)
    "bootstrap.servers": "embedded:orders.db" the same, for programs that only have this setting
    "bootstrap.servers": "host:9092"          a Kafka cluster

`log` takes precedence. Options of the embedded log have the prefix `log.`: `log.synchronous`,
`log.busy.timeout.ms`, `log.create`, `log.max.file.bytes`. Options of the Kafka log are
`log.timeout.ms` and `log.blob.dir`. Connection and security settings are passed to every
connection to Kafka.

Numbers and booleans may be strings, as in a properties file. A setting that neither Kafka nor
librdkafka has is an error. A setting that does not apply to the log is ignored.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any

from penstock.clients.setting_names import (
    ALIASES,
    CALLBACKS,
    CONNECTION,
    CONNECTION_PREFIX,
    EFFECTIVE,
    WITHOUT_EFFECT,
    WITHOUT_EFFECT_PREFIX,
)
from penstock.errors import ConfigException
from penstock.log import Log, open_log
from penstock.log.registry import bootstrap_address

_EMBEDDED_PREFIX = "embedded:"
_LOG_PREFIX = "log."
_TRUE = frozenset(("true", "t", "1", "yes", "on"))
_FALSE = frozenset(("false", "f", "0", "no", "off"))
_MAX_INTEGER = 2**63 - 1
#: The default of `retries`.
UNLIMITED = 2**31 - 1


def merge_config(
    config: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Merge a client's positional configuration with its keyword arguments, which win."""
    if config is not None and not isinstance(config, Mapping):
        raise TypeError(f"The configuration of a client must be a dict, not {config!r}.")
    merged = dict(config or {})
    for name, value in keywords.items():
        merged[name if name in CALLBACKS else name.replace("_", ".")] = value
    return merged


class ConfigReader:
    """Typed access to the configuration of one client. `client` is the name in errors."""

    def __init__(self, config: Mapping[str, Any], client: str) -> None:
        self._client = client
        self._values: dict[str, Any] = {}
        #: Setting -> the alias that the user wrote, for errors.
        self._written_names: dict[str, str] = {}
        for written_name, value in config.items():
            name = ALIASES.get(written_name, written_name)
            # A setting takes precedence over its aliases.
            if name == written_name or name not in config:
                self._values[name] = value
                self._written_names[name] = written_name

    def raw(self, name: str, default: Any = None) -> Any:
        """Return a value as it was configured."""
        return self._values.get(name, default)

    def string(self, name: str, default: str = "") -> str:
        """Return a value as a string without surrounding spaces."""
        value = self.raw(name, default)
        return default if value is None else str(value).strip()

    def integer(
        self, name: str, default: int, minimum: int = 0, maximum: int = _MAX_INTEGER
    ) -> int:
        """Return an integer. Raises `ConfigException` if it is out of bounds."""
        value = self.raw(name)
        if value is None:
            return default
        try:
            number = int(float(value)) if isinstance(value, float) else int(str(value).strip())
        except ValueError:
            number = minimum - 1
        if isinstance(value, bool) or not minimum <= number <= maximum:
            bounds = (
                f"of at least {minimum}" if maximum == _MAX_INTEGER
                else f"from {minimum} to {maximum}"
            )
            raise ConfigException(
                f"{self._written_name(name)} must be a number {bounds}, not {value!r}."
            )
        return number

    def boolean(self, name: str, default: bool) -> bool:
        """Return a boolean."""
        value = self.raw(name)
        if value is None:
            return default
        text = str(value).strip().lower()
        if text not in _TRUE | _FALSE:
            raise ConfigException(
                f"{self._written_name(name)} must be true or false, not {value!r}."
            )
        return text in _TRUE

    def choice(self, name: str, default: str, choices: Mapping[str, str]) -> str:
        """Return the internal value of one of several allowed strings."""
        text = self.string(name, default).lower()
        if text not in choices:
            listed = ", ".join(f"'{choice}'" for choice in choices)
            raise ConfigException(
                f"{self._written_name(name)} must be one of {listed}, not '{text}'."
            )
        return choices[text]

    def callback(self, name: str) -> Any:
        """Return a function, or None."""
        value = self.raw(name)
        if value is not None and not callable(value):
            raise ConfigException(f"{name} must be a function, not {value!r}.")
        return value

    def check_names(self) -> None:
        """Raise `ConfigException` for a setting that no client has."""
        known = EFFECTIVE | WITHOUT_EFFECT | CALLBACKS
        for name in self._values:
            if name in known or name.startswith((_LOG_PREFIX, *WITHOUT_EFFECT_PREFIX)):
                continue
            similar = difflib.get_close_matches(name, sorted(known), 1)
            hint = f" Did you mean '{similar[0]}'?" if similar else ""
            raise ConfigException(
                f"{self._client} has no setting '{self._written_name(name)}'.{hint}"
            )

    def address(self) -> str:
        """Return the address of the log for `open_log`."""
        log = self.raw("log")
        servers = self.raw("bootstrap.servers")
        if isinstance(log, Log):
            return log.address
        if log:
            return str(os.fspath(log))
        if not servers:
            raise ConfigException(
                f"{self._client} has no log. Set 'log' to the path of a file, or set "
                "'bootstrap.servers'."
            )
        text = servers if isinstance(servers, str) else ",".join(servers)
        if text.startswith(_EMBEDDED_PREFIX):
            return text.removeprefix(_EMBEDDED_PREFIX)
        return bootstrap_address(text)

    def log_options(self) -> dict[str, Any]:
        """Return the options of the log: the settings `log.*`."""
        return {
            name.removeprefix(_LOG_PREFIX).replace(".", "_"): _parse(value)
            for name, value in self._values.items()
            if name.startswith(_LOG_PREFIX) and name not in WITHOUT_EFFECT
        }

    def connection_settings(self) -> dict[str, Any]:
        """Return the settings of connections and security."""
        return {
            name: value for name, value in self._values.items()
            if name.startswith(CONNECTION_PREFIX) or name in CONNECTION
        }

    def open_log(self) -> Log:
        """Open a log for this client. A configured `Log` object is opened a second time.

        Clients do not share a log, because only one thread at a time may wait on it.
        """
        options = self.log_options()
        try:
            return open_log(
                self.address(), connection=self.connection_settings(), **options
            )
        except TypeError as error:
            listed = ", ".join(f"'{_LOG_PREFIX}{name}'" for name in options)
            raise ConfigException(f"The log does not accept {listed}: {error}.") from error

    def _written_name(self, name: str) -> str:
        return self._written_names.get(name, name)


def _parse(value: Any) -> Any:
    """Convert a string that looks like an integer or a boolean."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lstrip("-").isdigit():
        return int(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def to_timeout(timeout: float | None) -> float | None:
    """Return the timeout of a call in seconds; None, or a negative number, waits indefinitely."""
    return None if timeout is None or timeout < 0 else timeout
