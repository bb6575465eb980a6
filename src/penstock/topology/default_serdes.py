"""Default serdes, and operators and serdes that need them and are created late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.config import StreamsConfig
from penstock.errors import ConfigException
from penstock.serdes.builtin import Serde


@dataclass(frozen=True)
class DefaultSerdes:
    """The default serdes of a configuration. A missing default raises `ConfigException`."""

    config: StreamsConfig

    def key(self, serde: Serde[Any] | None = None) -> Serde[Any]:
        """Return the serde, or the default key serde."""
        return self._or_default(serde, self.config.default_key_serde, "key")

    def value(self, serde: Serde[Any] | None = None) -> Serde[Any]:
        """Return the serde, or the default value serde."""
        return self._or_default(serde, self.config.default_value_serde, "value")

    def _or_default(
        self, serde: Serde[Any] | None, default: Serde[Any] | None, what: str
    ) -> Serde[Any]:
        if serde is not None:
            return serde
        if default is None:
            raise ConfigException(
                f"There is no {what} serde and no default {what} serde. Give {what}= where the "
                f"data is read, grouped or written, or set default_{what}_serde in StreamsConfig."
            )
        return default


@dataclass(frozen=True)
class Deferred:
    """An operator or serde that is created with the task, when the configuration is known."""

    make: Callable[[DefaultSerdes], Any]

    def getter_supplier(self) -> Any:
        """Raise: a deferred operator is not a table."""
        raise TypeError("A deferred operator has no rows to read.")


def resolve(value: Any, defaults: DefaultSerdes) -> Any:
    """Create the operator or serde of a `Deferred`; return any other value unchanged."""
    return value.make(defaults) if isinstance(value, Deferred) else value
