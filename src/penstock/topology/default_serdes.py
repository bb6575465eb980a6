"""What can be made only once the configuration is known: things that hold default serdes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.config import StreamsConfig
from penstock.errors import ConfigException
from penstock.serdes.builtin import Serde


@dataclass(frozen=True)
class DefaultSerdes:
    """The configuration's default serdes; asking for one that is not set is an error."""

    config: StreamsConfig

    def key(self, serde: Serde[Any] | None = None) -> Serde[Any]:
        """The serde, or the default one for keys."""
        return self._or_default(serde, self.config.default_key_serde, "key")

    def value(self, serde: Serde[Any] | None = None) -> Serde[Any]:
        """The serde, or the default one for values."""
        return self._or_default(serde, self.config.default_value_serde, "value")

    def _or_default(
        self, serde: Serde[Any] | None, default: Serde[Any] | None, what: str
    ) -> Serde[Any]:
        if serde is not None:
            return serde
        if default is None:
            raise ConfigException(
                f"There is no {what} serde here and no default one. Give {what}= where the data "
                f"is read, grouped or written, or set default_{what}_serde in StreamsConfig."
            )
        return default


@dataclass(frozen=True)
class Deferred:
    """An operator or a serde that is made when the task is put together."""

    make: Callable[[DefaultSerdes], Any]

    def getter_supplier(self) -> Any:
        """Deferred operators are no tables."""
        raise TypeError("A deferred operator has no rows to read.")


def resolved(thing: Any, defaults: DefaultSerdes) -> Any:
    """The thing itself, or what a `Deferred` makes."""
    return thing.make(defaults) if isinstance(thing, Deferred) else thing
