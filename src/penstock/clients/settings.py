"""The configuration of a client: the names of librdkafka and Kafka, checked and typed once.

Which log a client works on stands in its configuration:

    "log": "orders.db"                        the embedded log in this file (or an open `Log`)
    "bootstrap.servers": "embedded:orders.db" the same, where a program has only this one setting
    "bootstrap.servers": "host:9092"          Kafka

`log` counts if both are given. Options of the embedded log have the prefix `log.`:
`log.synchronous`, `log.busy.timeout.ms`, `log.create`, `log.max.file.bytes`. On Kafka there are
`log.timeout.ms` and `log.blob.dir`, and what concerns connections and security goes to every
connection as it is.

Texts are taken for numbers and booleans, as in a properties file. A name that neither Kafka nor
librdkafka has is an error; one that has no meaning on this log is taken without effect.
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

_EMBEDDED = "embedded:"
_LOG_OPTION = "log."
_TRUE = frozenset(("true", "t", "1", "yes", "on"))
_FALSE = frozenset(("false", "f", "0", "no", "off"))
#: No limit.
UNLIMITED = 2**31 - 1


def merged(config: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """A client's two kinds of arguments as one configuration; keyword arguments win."""
    if config is not None and not isinstance(config, Mapping):
        raise TypeError(f"A client's configuration is a dict, not {config!r}.")
    settings = dict(config or {})
    for name, value in given.items():
        settings[name if name in CALLBACKS else name.replace("_", ".")] = value
    return settings


class Settings:
    """One configuration, read name by name."""

    def __init__(self, config: Mapping[str, Any], client: str) -> None:
        self._client = client
        self._values: dict[str, Any] = {}
        self._given: dict[str, str] = {}
        for name, value in config.items():
            # A name and its alias: the name counts.
            known = ALIASES.get(name, name)
            if known == name or known not in config:
                self._values[known] = value
                self._given[known] = name

    def raw(self, name: str, default: Any = None) -> Any:
        """A value as it was given."""
        return self._values.get(name, default)

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        value = self.raw(name, default)
        return default if value is None else str(value).strip()

    def number(
        self, name: str, default: int, least: int = 0, most: int = 2**63 - 1
    ) -> int:
        """A whole number within bounds."""
        value = self.raw(name)
        if value is None:
            return default
        try:
            number = int(float(value)) if isinstance(value, float) else int(str(value).strip())
        except ValueError:
            number = least - 1
        if isinstance(value, bool) or not least <= number <= most:
            bounds = f"of {least} or more" if most == 2**63 - 1 else f"from {least} to {most}"
            raise ConfigException(f"{self._name(name)} must be a number {bounds}, not {value!r}.")
        return number

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.raw(name)
        if value is None:
            return default
        text = str(value).strip().lower()
        if text not in _TRUE | _FALSE:
            raise ConfigException(f"{self._name(name)} must be true or false, not {value!r}.")
        return text in _TRUE

    def choice(self, name: str, default: str, choices: Mapping[str, str]) -> str:
        """One of some texts, each with what it means here."""
        text = self.text(name, default).lower()
        if text not in choices:
            listed = ", ".join(f"'{choice}'" for choice in choices)
            raise ConfigException(f"{self._name(name)} must be one of {listed}, not '{text}'.")
        return choices[text]

    def callback(self, name: str) -> Any:
        """A function, or None."""
        value = self.raw(name)
        if value is not None and not callable(value):
            raise ConfigException(f"{name} must be a function, not {value!r}.")
        return value

    def check_names(self) -> None:
        """Raise `ConfigException` for a name that no client has."""
        known = EFFECTIVE | WITHOUT_EFFECT | CALLBACKS
        for name in self._values:
            if name in known or name.startswith((_LOG_OPTION, *WITHOUT_EFFECT_PREFIX)):
                continue
            near = difflib.get_close_matches(name, sorted(known), 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise ConfigException(f"{self._client} has no setting '{self._name(name)}'.{hint}")

    def address(self) -> str:
        """The log's address, as `open_log` takes it."""
        given = self.raw("log")
        servers = self.raw("bootstrap.servers")
        if isinstance(given, Log):
            return given.address
        if given:
            return str(os.fspath(given))
        if not servers:
            raise ConfigException(
                f"{self._client}: which log? Set 'log' to the path of a file, or "
                "'bootstrap.servers'."
            )
        text = servers if isinstance(servers, str) else ",".join(servers)
        if text.startswith(_EMBEDDED):
            return text.removeprefix(_EMBEDDED)
        return bootstrap_address(text)

    def log_options(self) -> dict[str, Any]:
        """Return the options of the log: the settings `log.*`."""
        return {
            name.removeprefix(_LOG_OPTION).replace(".", "_"): _parsed(value)
            for name, value in self._values.items()
            if name.startswith(_LOG_OPTION) and name not in WITHOUT_EFFECT
        }

    def connection_settings(self) -> dict[str, Any]:
        """Return the settings of connections and security."""
        return {
            name: value for name, value in self._values.items()
            if name.startswith(CONNECTION_PREFIX) or name in CONNECTION
        }

    def open_log(self) -> Log:
        """The client's own log. A `Log` that was given is opened once more.

        One thread may wait on a log at a time, so clients do not share one.
        """
        options = self.log_options()
        try:
            return open_log(
                self.address(), connection=self.connection_settings(), **options
            )
        except TypeError as error:
            listed = ", ".join(f"'{_LOG_OPTION}{name}'" for name in options)
            raise ConfigException(f"The log does not take {listed}: {error}.") from error

    def _name(self, name: str) -> str:
        return self._given.get(name, name)


def _parsed(value: Any) -> Any:
    """A text as the number or the boolean that it looks like."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lstrip("-").isdigit():
        return int(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def seconds(timeout: float | None) -> float | None:
    """A timeout of a call: None for ever, which is what None and negative numbers mean."""
    return None if timeout is None or timeout < 0 else timeout
