"""Default serdes, and operators and serdes that need them and are created late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from penstock.config import StreamsConfig
from penstock.errors import ConfigException
from penstock.serdes.builtin import Serde, find_serde
from penstock.serdes.exact_types import exact_serde

Which = Literal["key", "value"]


@dataclass(frozen=True)
class DefaultSerdes:
    """The default serdes of a configuration. A missing default raises `ConfigException`."""

    config: StreamsConfig

    def key(self, serde: Serde[Any] | InferredSerde | None = None) -> Serde[Any]:
        """Return the serde, or the default key serde."""
        return self._or_default(serde, "key")

    def value(self, serde: Serde[Any] | InferredSerde | None = None) -> Serde[Any]:
        """Return the serde, or the default value serde."""
        return self._or_default(serde, "value")

    def find(self, which: Which) -> Serde[Any] | None:
        """Return the default serde for keys or values; None if there is none."""
        config = self.config
        return config.default_key_serde if which == "key" else config.default_value_serde

    def internal_topic(self, name: str) -> str:
        """Return the name of an internal topic in the log."""
        return f"{self.config.application_id}-{name}"

    def _or_default(
        self, serde: Serde[Any] | InferredSerde | None, which: Which
    ) -> Serde[Any]:
        if isinstance(serde, InferredSerde):
            return serde.make(self)
        if serde is not None:
            return serde
        default = self.find(which)
        if default is None:
            raise ConfigException(
                f"There is no {which} serde and no default {which} serde. Give {which}= where the "
                f"data is read, grouped or written, or set default_{which}_serde in StreamsConfig."
            )
        return default


@dataclass(frozen=True)
class Deferred:
    """An operator or serde that is created with the task, when the configuration is known."""

    make: Callable[[DefaultSerdes], Any]

    def getter_supplier(self) -> Any:
        """Raise: a deferred operator is not a table."""
        raise TypeError("A deferred operator has no rows to read.")


@dataclass(frozen=True)
class Data:
    """The knowledge about keys or values: their serde, or their type, or why neither is known."""

    serde: Serde[Any] | None = None
    type: Any = None
    reason: str = ""


#: The knowledge about the keys or values of a step. Sources without a serde use the defaults.
Flow = Callable[[DefaultSerdes], Data]


@dataclass(frozen=True)
class InferredSerde:
    """The serde of keys or values for which the rules of Kafka Streams give none.

    It is the default of the configuration, as in Kafka Streams. Without a default it is the serde
    of the data as far as that is known, where Kafka Streams raises `ConfigException`.
    """

    which: Which
    flow: Flow
    #: The user's call up to the serde, for the error: "to('orders'".
    call: str
    #: The argument of that call; by default `key` or `value`.
    argument: str = ""
    #: Whether the application reads the bytes again: from a store or an internal topic.
    is_read_back: bool = True
    #: The serde of the last `make`. Workers get it instead of the flow: the annotations of a
    #: function cannot always be resolved in another process.
    _made: list[Serde[Any]] = field(default_factory=list, init=False, compare=False, repr=False)

    def __reduce__(self) -> str | tuple[Any, ...]:
        if not self._made:
            return super().__reduce__()
        return _made_serde, (self.which, self._made[0], self.call)

    def make(self, defaults: DefaultSerdes) -> Serde[Any]:
        """Return the serde, or raise `ConfigException`."""
        default = defaults.find(self.which)
        serde = default if default is not None else self._infer(defaults)
        self._made[:] = [serde]
        return serde

    def _infer(self, defaults: DefaultSerdes) -> Serde[Any]:
        data = self.flow(defaults)
        serde = data.serde
        if serde is None and data.type is not None:
            serde = find_serde(data.type, sort_keys=self.which == "key")
            if serde is not None and self.is_read_back:
                advice = f"Give a serde that reads both: {self._advice('...')}"
                serde = exact_serde(serde, data.type, advice)
        if serde is None:
            raise ConfigException(
                f"There is no {self.which} serde and no default {self.which} serde. "
                f"{self._reason(data)} "
                f"Give a type or a serde, for example str: {self._advice()}, or set "
                f"default_{self.which}_serde in StreamsConfig."
            )
        return serde

    def _advice(self, given: str = "str") -> str:
        separator = "" if self.call.endswith("(") else ", "
        closing = ")" * (self.call.count("(") - self.call.count(")"))
        return f"{self.call}{separator}{self.argument or self.which}={given}{closing}"

    def _reason(self, data: Data) -> str:
        if data.type is None:
            return data.reason
        return f"{data.reason} There is no serde for that type."


def _made_serde(which: Which, serde: Serde[Any], call: str) -> InferredSerde:
    data = Data(serde)
    return InferredSerde(which, lambda defaults: data, call)


@dataclass(frozen=True)
class Fallback:
    """The serdes of a store whose `Materialized` has none."""

    key: InferredSerde | None = None
    value: InferredSerde | None = None

    def resolve(
        self, key: Serde[Any] | None, value: Serde[Any] | None, config: StreamsConfig
    ) -> tuple[Serde[Any] | None, Serde[Any] | None]:
        """Return the serdes of the store; None for the default of the configuration."""
        defaults = DefaultSerdes(config)
        if key is None and self.key is not None:
            key = self.key.make(defaults)
        if value is None and self.value is not None:
            value = self.value.make(defaults)
        return key, value


def only_written(serde: Any) -> Any:
    """Return the serde for a topic of the user, whose bytes the application does not read back."""
    return replace(serde, is_read_back=False) if isinstance(serde, InferredSerde) else serde


def resolve(value: Any, defaults: DefaultSerdes) -> Any:
    """Create the operator or serde of a `Deferred`; return any other value unchanged."""
    return value.make(defaults) if isinstance(value, Deferred | InferredSerde) else value
