"""The serializers and deserializers of the clients.

The setting is a `Serde`, a function, or the name of a built-in serde: "string", "long", "json" and
so on, or Kafka's class name ("org.apache.kafka.common.serialization.StringSerializer").
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import ConfigException
from penstock.record import NO_HEADERS, Headers, as_headers
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


def to_bytes(value: Any) -> bytes:
    """Return bytes unchanged and strings as UTF-8: the default serializer."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(
        "Without a serializer, keys and values must be bytes or strings, not "
        f"{type(value).__name__}. Set 'key.serializer' and 'value.serializer', for example to "
        "Serdes.json()."
    )


class _ThreadHeaders(threading.local):
    """The headers of the record that a thread is serializing: producers are thread-safe."""

    headers: Headers = NO_HEADERS


class TopicSerde:
    """Returns the serializer, or deserializer, of keys or values for each topic."""

    def __init__(self, setting: str, configured: Any, *, is_key: bool, reads: bool) -> None:
        self._serde = (
            _find_serde(setting, configured) if isinstance(configured, str) else configured
        )
        self._is_key = is_key
        self._reads = reads
        #: Whether the functions depend on headers, which must then be set before a call.
        self.sees_headers = False
        self._record = _ThreadHeaders()
        #: By topic, because `Serde.for_topic` may be expensive.
        self._functions: dict[str, Callable[[Any], Any] | None] = {}
        if self._serde is not None and not callable(self._serde) and not _is_serde(self._serde):
            raise ConfigException(
                f"{setting} must be a serde, a function or the name of a serde, "
                f"not {configured!r}."
            )

    def function(self, topic: str) -> Callable[[Any], Any] | None:
        """Return the function for a topic; None leaves values unchanged.

        Callers do not call it for nulls.
        """
        if topic not in self._functions:
            self._functions[topic] = self._create_function(topic)
        return self._functions[topic]

    def serialize(
        self, topic: str, value: Any, headers: tuple[tuple[str, bytes | None], ...]
    ) -> tuple[bytes, tuple[tuple[str, bytes | None], ...]]:
        """Return the bytes of a key or value, and the headers of its record."""
        function = self.function(topic)
        assert function is not None
        if not self.sees_headers:
            return function(value), headers
        self._record.headers = as_headers(headers)
        return function(value), self._record.headers

    def set_headers(self, headers: Headers) -> None:
        """Set the headers of the record that is deserialized next."""
        self._record.headers = headers

    def _create_function(self, topic: str) -> Callable[[Any], Any] | None:
        serde: Any = self._serde
        if serde is None:
            return None if self._reads else to_bytes
        if hasattr(serde, "for_topic"):
            serde = serde.for_topic(topic, self._is_key)
        if isinstance(serde, Serde):
            bound = serde.with_headers_of(self._record)
            self.sees_headers |= bound is not serde
            serde = bound
        if _is_serde(serde):
            function: Callable[[Any], Any] = serde.deserialize if self._reads else serde.serialize
            return function
        return serde  # type: ignore[no-any-return]


def _is_serde(configured: Any) -> bool:
    return hasattr(configured, "serialize") and hasattr(configured, "deserialize")


def _find_serde(setting: str, name: str) -> Serde[Any]:
    short_name = re.split(r"[.$]", name.strip())[-1].lower()
    short_name = re.sub(r"(serializer|deserializer|serde)$", "", short_name)
    if short_name not in _BUILT_IN:
        raise ConfigException(
            f"{setting}: serde '{name}' does not exist. Built-in serdes: "
            f"{', '.join(_BUILT_IN)}. Other serdes must be set as Python objects."
        )
    return _BUILT_IN[short_name]()
