"""`Serde`: a pair of functions that serialize and deserialize values.

The functions are plain attributes, so that code on the path of each record can bind them once.
They are never called with None: callers handle null keys and values.

A value of the wrong type raises `TypeError`. Malformed bytes, and values of the right type that
cannot be serialized, raise `SerializationException`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.errors import SerializationException

T = TypeVar("T")


class Serde(Generic[T]):
    """A serializer and a deserializer.

    Get one from `Serdes`, create one with `Serde.of`, or write a subclass that defines `serialize`
    and `deserialize` as methods. A serde that depends on the topic (with a schema registry, for
    example) overrides `for_topic`.
    """

    #: The name in error messages.
    name: str = "custom"
    #: The size of every serialized value, if Kafka's list serde treats it as fixed.
    fixed_size: int | None = None
    #: The serde that this one wraps.
    inner: Serde[Any] | None = None
    #: True if deserialized values consist of dicts, lists, strings, numbers, booleans and None, and
    #: a round trip of such a value returns an equal one.
    plain_json: bool = False
    #: A function and its arguments that create the serde; pickled instead of the functions.
    recipe: tuple[Callable[..., Serde[Any]], tuple[Any, ...]] | None = None

    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]
    #: Faster versions for common values. If one raises, the caller uses the checked version, which
    #: raises the proper error.
    fast_serialize: Callable[[T], bytes] | None = None
    fast_deserialize: Callable[[bytes], T] | None = None

    def __init__(
        self,
        serialize: Callable[[T], bytes],
        deserialize: Callable[[bytes], T],
        name: str = "custom",
        fixed_size: int | None = None,
    ) -> None:
        self.serialize = serialize
        self.deserialize = deserialize
        self.name = name
        self.fixed_size = fixed_size

    def with_fast_path(
        self, serialize: Callable[[T], bytes] | None, deserialize: Callable[[bytes], T] | None
    ) -> Serde[T]:
        """Set the fast functions and return this serde."""
        self.fast_serialize = serialize
        self.fast_deserialize = deserialize
        return self

    @property
    def writer(self) -> Callable[[T], bytes]:
        """The fastest function that serializes."""
        return self.fast_serialize or self.serialize

    @property
    def reader(self) -> Callable[[bytes], T]:
        """The fastest function that deserializes."""
        return self.fast_deserialize or self.deserialize

    @staticmethod
    def of(serializer: Callable[[T], bytes], deserializer: Callable[[bytes], T]) -> Serde[T]:
        """Return a serde of two functions."""
        return Serde(serializer, deserializer)

    def for_topic(self, topic: str, is_key: bool) -> Serde[T]:
        """Return the serde for the keys or values of a topic. Called once per topic."""
        return self

    def __repr__(self) -> str:
        return f"<Serde {self.name}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self.recipe is not None:
            return self.recipe
        return super().__reduce__()


class WrappingSerde(Serde[T]):
    """A serde that wraps another one and passes `for_topic` on to it."""

    inner: Serde[Any]

    def __init__(
        self,
        functions: tuple[Callable[[T], bytes], Callable[[bytes], T]],
        name: str,
        inner: Serde[Any],
        rewrap: Callable[..., Serde[T]],
        *options: Any,
    ) -> None:
        super().__init__(*functions, f"{name} of {inner.name}")
        self.inner = inner
        self.recipe = (rewrap, (inner, *options))

    def for_topic(self, topic: str, is_key: bool) -> Serde[T]:
        inner = self.inner.for_topic(topic, is_key)
        if inner is self.inner or self.recipe is None:
            return self
        rewrap, (_, *options) = self.recipe
        return rewrap(inner, *options)


def wrong_type_error(value: object, serde: str) -> TypeError:
    """Return the error for a value of a type that the serde does not serialize."""
    return TypeError(
        f"The {serde} serde cannot serialize a value of type {type(value).__name__}: {value!r}. "
        "Give the operator a serde for its keys and values."
    )


def malformed_bytes_error(what: str, data: bytes) -> SerializationException:
    """Return the error for bytes that the serde cannot deserialize."""
    shown = data[:32].hex() + ("..." if len(data) > 32 else "")
    return SerializationException(f"{what}. The bytes are {shown or '(none)'}.")


def as_serde(given: Any, *, reads: bool, step: str = "") -> Serde[Any] | None:
    """Return a serde for a serde or a function: a deserializer if `reads`, else a serializer."""
    if given is None or isinstance(given, Serde) or hasattr(given, "make"):
        return given  # type: ignore[no-any-return]
    if hasattr(given, "serialize") and hasattr(given, "deserialize"):
        return given  # type: ignore[no-any-return]
    if not callable(given):
        raise TypeError(
            f"{step and f'{step}: '}a {'de' if reads else ''}serializer is a serde or a function, "
            f"not {given!r}. Use Serdes.string(), for example."
        )
    return Serde(_cannot_serialize, given) if reads else Serde(given, _cannot_deserialize)


def _cannot_serialize(value: Any) -> bytes:
    raise TypeError("Only a deserializer was given, but a serializer is needed. Give a serde.")


def _cannot_deserialize(data: bytes) -> Any:
    raise TypeError("Only a serializer was given, but a deserializer is needed. Give a serde.")
