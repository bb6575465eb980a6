"""`HeadersSerde`: a serde that reads the headers of its record, or adds headers to it.

The functions of a serde have one argument, so that code on the path of each record can call them
without more. `with_headers_of` turns a `HeadersSerde` into such a serde: its functions find the
headers in an object that the caller updates before each call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, TypeVar

from penstock.record import NO_HEADERS, Headers
from penstock.serdes.base import Serde

T = TypeVar("T")

#: The headers of a record that is being serialized. A serializer may add, replace or remove pairs.
MutableHeaders = list[tuple[str, bytes | None]]


class HasHeaders(Protocol):
    """An object whose attribute is the headers of the current record."""

    headers: Headers


class RecordHeaders:
    """The headers of one record at a time. Owned and updated by the code that calls the serdes."""

    __slots__ = ("headers",)

    def __init__(self, headers: Headers = NO_HEADERS) -> None:
        self.headers = headers


class ReadOnlyHeaders:
    """The headers of another object. Changes of serializers are discarded: a row has no headers."""

    __slots__ = ("_record",)

    def __init__(self, record: HasHeaders) -> None:
        self._record = record

    @property
    def headers(self) -> Headers:
        """The headers of the other object."""
        return self._record.headers

    @headers.setter
    def headers(self, headers: Headers) -> None:
        pass


class HeadersSerde(Serde[T], ABC):
    """A serde of values that depend on the headers of their record.

    Subclasses define `serialize_with_headers` and `deserialize_with_headers`. Key and value of a
    record are serialized in this order and share its headers.

    Example:
        >>> class Measured(HeadersSerde[str]):
        ...     name = "measured"
        ...     def serialize_with_headers(self, value, headers):
        ...         data = value.encode()
        ...         headers.append(("size", b"%d" % len(data)))
        ...         return data
        ...     def deserialize_with_headers(self, data, headers):
        ...         if headers.last("size") != b"%d" % len(data):
        ...             raise SerializationException("The size is wrong.")
        ...         return data.decode()
    """

    def __init__(self) -> None:
        """Serdes of headers have no functions to set."""

    @abstractmethod
    def serialize_with_headers(self, value: T, headers: MutableHeaders) -> bytes:
        """Return the bytes of a value. Changes of `headers` become headers of the record.

        Args:
            value: The value.
            headers: The headers: pairs of a name and bytes or None.
        """

    @abstractmethod
    def deserialize_with_headers(self, data: bytes, headers: Headers) -> T:
        """Return the value of bytes that a record with these headers holds.

        Args:
            data: The serialized form; None stays None.
            headers: The headers: pairs of a name and bytes or None.
        """

    def serialize(self, value: T) -> bytes:
        """Return the bytes of a value that belongs to no record.

        Args:
            value: The value.
        """
        return self.serialize_with_headers(value, [])

    def deserialize(self, data: bytes) -> T:
        """Return the value of bytes that belong to no record.

        Args:
            data: The serialized form; None stays None.
        """
        return self.deserialize_with_headers(data, NO_HEADERS)

    def with_headers_of(self, record: HasHeaders) -> Serde[T]:
        """Return a serde whose functions read and change the headers of `record`.

        Args:
            record: The record.
        """
        write, read = self.serialize_with_headers, self.deserialize_with_headers

        def serialize(value: T) -> bytes:
            before = record.headers
            headers = list(before)
            data = write(value, headers)
            if len(headers) != len(before) or tuple(headers) != before:
                record.headers = Headers(headers)
            return data

        def deserialize(data: bytes) -> T:
            return read(data, record.headers)

        return Serde(serialize, deserialize, self.name)


def bind_headers(
    serdes: tuple[Serde[T], Serde[T]], record: HasHeaders
) -> tuple[tuple[Serde[T], Serde[T]], bool]:
    """Return key and value serde for a record, and whether one of them depends on headers."""
    key, value = serdes
    bound = key.with_headers_of(record), value.with_headers_of(record)
    return bound, bound[0] is not key or bound[1] is not value
