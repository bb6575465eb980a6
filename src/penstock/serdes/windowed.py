"""Serdes of windowed keys, in Kafka's formats.

Time windows: the key, then the start in 8 bytes; the size determines the end. Sessions: the key,
then the end, then the start. In a changelog, the key of a time window ends with a sequence number
of 4 bytes.
"""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Any, TypeVar

from penstock.native import core
from penstock.serdes.base import Serde, WrappingSerde, malformed_bytes_error, wrong_type_error
from penstock.windows import MAX_TIME_MS, SessionWindow, Window, Windowed, to_ms

T = TypeVar("T")

_INT64 = struct.Struct(">q")
_TWO_INT64 = struct.Struct(">qq")
_TIME_AND_SEQUENCE = struct.Struct(">qi")


class WindowedSerde(WrappingSerde[Windowed[T]]):
    """A serde of windowed keys. The bytes of `inner` alone determine the partition."""

    #: The number of bytes after the key: those of the window.
    suffix_size: int

    def __init__(
        self, functions: tuple[Any, Any], suffix_size: int, name: str, inner: Serde[Any],
        rewrap: Any, *options: Any,
    ) -> None:
        super().__init__(functions, name, inner, rewrap, *options)
        self.suffix_size = suffix_size
        if inner.python_type is not None:
            self.python_type = Windowed[inner.python_type]  # type: ignore[name-defined]


def _time_windowed(inner: Serde[T], size_ms: int, changelog: bool) -> Serde[Windowed[T]]:
    write = inner.serialize
    read = inner.deserialize
    pack = _INT64.pack
    pack_changelog = _TIME_AND_SEQUENCE.pack
    unpack_from = _INT64.unpack_from
    suffix = 12 if changelog else 8

    def serialize(value: Windowed[T]) -> bytes:
        if value.__class__ is not Windowed and not isinstance(value, Windowed):
            raise wrong_type_error(value, "time windowed")
        key, (start, _) = value
        if changelog:
            return write(key) + pack_changelog(start, 0)
        return write(key) + pack(start)

    def deserialize(data: bytes) -> Any:
        if not data:
            return None
        at = len(data) - suffix
        if at < 0:
            raise malformed_bytes_error(f"A time windowed key has at least {suffix} bytes", data)
        (start,) = unpack_from(data, at)
        end = start + size_ms
        if end > MAX_TIME_MS:
            end = MAX_TIME_MS
        if start < 0 or end <= start:
            raise malformed_bytes_error(f"The window from {start} to {end} is invalid", data)
        return Windowed(read(data[:at]), Window(start, end))

    serde: Serde[Windowed[T]] = WindowedSerde(
        (serialize, deserialize), suffix, "time windows", inner, _time_windowed, size_ms, changelog
    )
    if core is not None:
        serde.with_fast_path(core.windowed_writer(inner.writer, Windowed, changelog), None)
    return serde


def _session_windowed(inner: Serde[T]) -> Serde[Windowed[T]]:
    write = inner.serialize
    read = inner.deserialize
    pack = _TWO_INT64.pack
    unpack_from = _TWO_INT64.unpack_from

    def serialize(value: Windowed[T]) -> bytes:
        if not isinstance(value, Windowed):
            raise wrong_type_error(value, "session windowed")
        start, end = value.window
        return write(value.key) + pack(end, start)

    def deserialize(data: bytes) -> Any:
        if not data:
            return None
        at = len(data) - 16
        if at < 0:
            raise malformed_bytes_error("A session windowed key has at least 16 bytes", data)
        end, start = unpack_from(data, at)
        if start < 0 or end < start:
            raise malformed_bytes_error(f"The session from {start} to {end} is invalid", data)
        return Windowed(read(data[:at]), SessionWindow(start, end))

    return WindowedSerde(
        (serialize, deserialize), 16, "session windows", inner, _session_windowed
    )


class WindowedSerdes:
    """The serdes of windowed keys, the keys of windowed aggregations.

    Example:
        >>> from penstock import Serdes, Window
        >>> serde = WindowedSerdes.time_windowed(Serdes.string(), 60_000)
        >>> serde.deserialize(serde.serialize(Windowed("ann", Window(0, 60_000))))
        Windowed(key='ann', window=Window(start=0, end=60000))
    """

    @staticmethod
    def time_windowed(
        inner: Serde[T], size: timedelta | int, *, changelog: bool = False
    ) -> Serde[Windowed[T]]:
        """Return a serde of keys in time windows of this size.

        The size is not serialized. `changelog=True` reads and writes the keys of a changelog topic.

        Args:
            inner: The serde of the keys without windows.
            size: The size of the windows.
            changelog: Whether the keys have the form of a changelog.

        Kafka: TimeWindowedDeserializer#deserialize, TimeWindowedDeserializer#setIsChangelogTopic
        """
        return _time_windowed(inner, to_ms(size, "size"), changelog)

    @staticmethod
    def session_windowed(inner: Serde[T]) -> Serde[Windowed[T]]:
        """Return a serde of keys in sessions; the keys of a changelog topic are the same.

        Args:
            inner: The serde of the keys without windows.

        Kafka: SessionWindowedDeserializer#deserialize, SessionWindowedSerializer#serialize
        """
        return _session_windowed(inner)
