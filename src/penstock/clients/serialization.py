"""From values to bytes and back: the serializers and deserializers of a client.

A setting may be a `Serde`, a function, or the name of a built-in one: "string", "long", "json" and
so on, or Kafka's class name ("org.apache.kafka.common.serialization.StringSerializer").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import ConfigException
from penstock.serdes.base import Serde
from penstock.serdes.builtin import Serdes

_BUILT_IN: Mapping[str, Callable[[], Serde[Any]]] = {
    "string": Serdes.string,
    "long": Serdes.long,
    "integer": Serdes.integer,
    "short": Serdes.short,
    "float": Serdes.float,
    "double": Serdes.double,
    "boolean": Serdes.boolean,
    "uuid": Serdes.uuid,
    "bytes": Serdes.bytes,
    "bytearray": Serdes.byte_array,
    "bytebuffer": Serdes.byte_buffer,
    "void": Serdes.void,
    "json": Serdes.json,
}


def plain_bytes(value: Any) -> bytes:
    """What is written without a serializer: bytes as they are, texts as UTF-8."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(
        f"Without a serializer a key or value is bytes or a text, not {type(value).__name__}. "
        "Set 'key.serializer' and 'value.serializer', to Serdes.json() for example."
    )


class Converter:
    """Turns keys, or values, of any topic; asks a serde once for every topic."""

    def __init__(self, setting: str, given: Any, *, is_key: bool, reads: bool) -> None:
        self._serde = _named(setting, given) if isinstance(given, str) else given
        self._is_key = is_key
        self._reads = reads
        self._functions: dict[str, Callable[[Any], Any] | None] = {}
        if self._serde is not None and not callable(self._serde) and not _is_serde(self._serde):
            raise ConfigException(
                f"{setting} must be a serde, a function or the name of a serde, not {given!r}."
            )

    def function(self, topic: str) -> Callable[[Any], Any] | None:
        """What turns a value of the topic, never called with None; None: it stays as it is."""
        if topic not in self._functions:
            self._functions[topic] = self._made(topic)
        return self._functions[topic]

    def _made(self, topic: str) -> Callable[[Any], Any] | None:
        serde: Any = self._serde
        if serde is None:
            return None if self._reads else plain_bytes
        if hasattr(serde, "for_topic"):
            serde = serde.for_topic(topic, self._is_key)
        if _is_serde(serde):
            function: Callable[[Any], Any] = serde.deserialize if self._reads else serde.serialize
            return function
        return serde  # type: ignore[no-any-return]


def _is_serde(given: Any) -> bool:
    return hasattr(given, "serialize") and hasattr(given, "deserialize")


def _named(setting: str, text: str) -> Serde[Any]:
    short = re.split(r"[.$]", text.strip())[-1].lower()
    short = re.sub(r"(serializer|deserializer|serde)$", "", short)
    if short not in _BUILT_IN:
        raise ConfigException(
            f"{setting} names no serde that is known here: '{text}'. "
            f"There are: {', '.join(_BUILT_IN)}; or set it to a serde in Python."
        )
    return _BUILT_IN[short]()
