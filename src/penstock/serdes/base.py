"""`Serde`: a pair of functions that serialize and deserialize values.

The functions are plain attributes, so that code on the path of each record can bind them once.
They are never called with None: callers handle null keys and values.

A value of the wrong type raises `TypeError`. Malformed bytes, and values of the right type that
cannot be serialized, raise `SerializationException`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.errors import SerializationException

if TYPE_CHECKING:
    from penstock.serdes.headers import HasHeaders

T = TypeVar("T")


class Serde(Generic[T]):
    """A serializer and a deserializer.

    Get one from `Serdes`, create one with `Serde.of`, or write a subclass that defines `serialize`
    and `deserialize` as methods. A serde that depends on the topic overrides `for_topic`. A serde
    that reads or writes headers is a subclass of `HeadersSerde`.

    Args:
        serialize: Converts a value to bytes.
        deserialize: Converts bytes to a value.
        name: The name in error messages.
        fixed_size: The size of every serialized value, if Kafka's list serde treats it as fixed.

    Example:
        >>> celsius = Serde(lambda degrees: b"%d" % degrees, int, "celsius")
        >>> celsius.deserialize(celsius.serialize(21))
        21

    Kafka: Serde
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
    #: The type of the values, if it is known; None otherwise.
    python_type: Any = None
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
        """Set the fast functions and return this serde.

        Args:
            serialize: Converts a value to bytes.
            deserialize: Converts bytes to a value.

        Returns:
            This serde.
        """
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

    @property
    def has_careful_writer(self) -> bool:
        """Whether `serialize` decides after `writer` has failed.

        Functions of the user are called once for a value: their failure is final.
        """
        own = self.recipe is not None or self.fast_serialize is not None
        return own and (self.inner is None or self.inner.has_careful_writer)

    @property
    def has_careful_reader(self) -> bool:
        """Whether `deserialize` decides after `reader` has failed, as in `has_careful_writer`."""
        own = self.recipe is not None or self.fast_deserialize is not None
        return own and (self.inner is None or self.inner.has_careful_reader)

    @staticmethod
    def of(serializer: Callable[[T], bytes], deserializer: Callable[[bytes], T]) -> Serde[T]:
        """Return a serde of two functions.

        Args:
            serializer: Converts a value to bytes.
            deserializer: Converts bytes to a value.
        """
        return Serde(serializer, deserializer)

    def for_topic(self, topic: str, is_key: bool) -> Serde[T]:
        """Return the serde for the keys or values of a topic. Called once per topic.

        Args:
            topic: The name of the topic.
            is_key: Whether the serde is for keys.
        """
        return self

    def for_store(self, topic: str, is_key: bool) -> Serde[T]:
        """Return the serde for the keys or values of a store with that changelog topic.

        The default is `for_topic`. Most stores keep no headers, so a serde that keeps a part of
        its output in headers returns one whose bytes are complete.

        Args:
            topic: The name of the topic.
            is_key: Whether the serde is for keys.
        """
        return self.for_topic(topic, is_key)

    def with_headers_of(self, record: HasHeaders) -> Serde[T]:
        """Return the serde for a record with headers, which changes from call to call.

        Only a `HeadersSerde`, or a serde that wraps one, depends on it; others return themselves.

        Args:
            record: The current record of the task.
        """
        return self

    def __repr__(self) -> str:
        return f"<Serde {self.name}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self.recipe is not None:
            return self.recipe
        return super().__reduce__()


#: A serde, or a type that has one: see `Serdes.of`.
SerdeOrType = Serde[T] | type[T]


class WrappingSerde(Serde[T]):
    """A serde that wraps another one and passes topics and headers on to it."""

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
        return self._wrap(self.inner.for_topic(topic, is_key))

    def for_store(self, topic: str, is_key: bool) -> Serde[T]:
        return self._wrap(self.inner.for_store(topic, is_key))

    def with_headers_of(self, record: HasHeaders) -> Serde[T]:
        return self._wrap(self.inner.with_headers_of(record))

    def _wrap(self, inner: Serde[Any]) -> Serde[T]:
        if inner is self.inner or self.recipe is None:
            return self
        rewrap, (_, *options) = self.recipe
        return rewrap(inner, *options)


def same_serde(one: Serde[Any], other: Serde[Any]) -> bool:
    """Return whether two serdes have the same functions: one object, or created from equal parts.

    `Serdes.json(Order)` returns a new object at each call.
    """
    if one is other:
        return True
    if one.recipe is None or other.recipe is None or one.recipe[0] is not other.recipe[0]:
        return False
    parts, other_parts = one.recipe[1], other.recipe[1]
    return len(parts) == len(other_parts) and all(
        same_serde(part, other_part)
        if isinstance(part, Serde) and isinstance(other_part, Serde) else part == other_part
        for part, other_part in zip(parts, other_parts, strict=True)
    )


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
        return Serde(given.serialize, given.deserialize, type(given).__name__)
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
