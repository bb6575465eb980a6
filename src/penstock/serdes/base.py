"""What a serde is: two functions that turn values into bytes and back.

They are kept as plain attributes, so that whoever calls them for every record binds them once.
Neither is ever called with None: no bytes and no value are the same thing, and the caller deals
with it.

A value of the wrong type is a `TypeError`; bytes that cannot be read, and values of the right
type that cannot be written, are a `SerializationException`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.errors import SerializationException

T = TypeVar("T")


class Serde(Generic[T]):
    """Two functions that belong together.

    Made by `Serdes`, by `Serde.of`, or by a subclass that defines both as methods. A serde that
    writes differently for each topic (one with a schema registry, say) overrides `for_topic`.
    """

    #: What it is for, in messages.
    name: str = "custom"
    #: The length of everything it writes, if Kafka's list serde knows it to be fixed.
    fixed_size: int | None = None
    #: The serde of the parts, for those that wrap another one.
    inner: Serde[Any] | None = None
    #: True if what it reads is made of dicts, lists, texts, numbers, booleans and None only, and
    #: equal in every way to what was written, if that was made of these.
    plain_json: bool = False
    #: Makes the serde again in another process: pickled in place of functions.
    recipe: tuple[Callable[..., Serde[Any]], tuple[Any, ...]] | None = None

    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]
    #: The same for what is usual, perhaps faster. Whatever one of them raises says only that the
    #: careful one is to be asked.
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
        """This serde with fast functions."""
        self.fast_serialize = serialize
        self.fast_deserialize = deserialize
        return self

    @property
    def writer(self) -> Callable[[T], bytes]:
        """The fast function that writes, if there is one."""
        return self.fast_serialize or self.serialize

    @property
    def reader(self) -> Callable[[bytes], T]:
        """The fast function that reads, if there is one."""
        return self.fast_deserialize or self.deserialize

    @staticmethod
    def of(serializer: Callable[[T], bytes], deserializer: Callable[[bytes], T]) -> Serde[T]:
        """A serde of any two functions."""
        return Serde(serializer, deserializer)

    def for_topic(self, topic: str, is_key: bool) -> Serde[T]:
        """The serde to use for the keys, or values, of one topic; asked once, not per record."""
        return self

    def __repr__(self) -> str:
        return f"<Serde {self.name}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self.recipe is not None:
            return self.recipe
        return super().__reduce__()


class WrappingSerde(Serde[T]):
    """A serde around another one, which it hands the topic to."""

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


def wrong_type(value: object, wanted: str) -> TypeError:
    """The error for a value that is not what the serde writes."""
    return TypeError(
        f"A value of type {type(value).__name__} was given to the {wanted} serde: {value!r}. "
        "Give the operator the serde that fits its keys and values."
    )


def unreadable(what: str, data: bytes) -> SerializationException:
    """The error for bytes that are not what the serde reads."""
    shown = data[:32].hex() + ("..." if len(data) > 32 else "")
    return SerializationException(f"{what}. The bytes are {shown or '(none)'}.")


def as_serde(given: Any, *, reads: bool, step: str = "") -> Serde[Any] | None:
    """A serde, or a single function of one: for reading a deserializer, else a serializer."""
    if given is None or isinstance(given, Serde) or hasattr(given, "make"):
        return given  # type: ignore[no-any-return]
    if hasattr(given, "serialize") and hasattr(given, "deserialize"):
        return given  # type: ignore[no-any-return]
    if not callable(given):
        raise TypeError(
            f"{step and f'{step}: '}a {'de' if reads else ''}serializer is a serde or a function, "
            f"not {given!r}. Serdes.string(), for example."
        )
    return Serde(_only_reads, given) if reads else Serde(given, _only_writes)


def _only_reads(value: Any) -> bytes:
    raise TypeError("Only a deserializing function was given here; give a serde.")


def _only_writes(data: bytes) -> Any:
    raise TypeError("Only a serializing function was given here; give a serde.")
