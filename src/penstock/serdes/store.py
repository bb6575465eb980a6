"""The serdes of a store or an operator: their errors name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from penstock.errors import StoreSerdeException, StreamsException, WrongSerdeException
from penstock.serdes.base import Serde

A = TypeVar("A")
B = TypeVar("B")


def store_serde(
    serde: Serde[Any], store: str, part: str,
    wrong_type: type[StreamsException] = StoreSerdeException,
) -> Serde[Any]:
    """Return a serde whose errors name the store. `part` is key or value.

    Functions of the user are called once for a key or value. The fast functions remain as they are:
    after a failure of one, the complete function raises the error. `wrong_type` is the error for a
    key or value of another type: Kafka's suppress buffers and foreign-key joins blame the parent.
    """

    def not_serialized(value: Any, error: Exception) -> NoReturn:
        # A TypeError has nothing to add.
        is_wrong_type = isinstance(error, TypeError)
        cause = "." if is_wrong_type else f": {_sentence(error)}"
        raise (wrong_type if is_wrong_type else StoreSerdeException)(
            f"Store '{store}': a {part} of type {type(value).__name__} cannot be serialized with "
            f"{serde!r}{cause} Use a {part} of the serde's type. If the store should hold this "
            f"type, give its step or its Materialized another {part} serde."
        ) from error

    def not_deserialized(data: Any, error: Exception) -> NoReturn:
        raise StoreSerdeException(
            f"Store '{store}': a {part} of {len(data)} bytes cannot be deserialized with "
            f"{serde!r}: {_sentence(error)} Another serde or schema has written it. Give the store "
            "that serde, or reset the application."
        ) from error

    fast_write = serde.writer if serde.has_careful_writer else None
    fast_read = serde.reader if serde.has_careful_reader else None
    named: Serde[Any] = Serde(
        _naming(fast_write, serde.serialize, not_serialized),
        _naming(fast_read, serde.deserialize, not_deserialized),
        serde.name, serde.fixed_size,
    )
    named.plain_json = serde.plain_json
    return named.with_fast_path(fast_write, fast_read)


def operator_serializer(serde: Serde[Any], step: str) -> Callable[[Any], bytes]:
    """Return the function with which an operator serializes keys or values to compare them.

    Its error for a value of another type names the step and belongs to the parent node.
    """
    to_bytes = serde.serialize

    def serialize(value: Any) -> bytes:
        try:
            return to_bytes(value)
        except TypeError as error:
            raise WrongSerdeException(f"{step}: {_sentence(error)}") from error

    return serialize


def _naming(
    fast: Callable[[A], B] | None, function: Callable[[A], B],
    failed: Callable[[A, Exception], NoReturn],
) -> Callable[[A], B]:
    """Calls the fast function, then the complete one; passes the error of that one to `failed`."""

    def complete(data: A) -> B:
        try:
            return function(data)
        except Exception as error:
            failed(data, error)

    if fast is None:
        return complete

    def named(data: A) -> B:
        try:
            return fast(data)
        except Exception:
            return complete(data)

    return named


def _sentence(error: Exception) -> str:
    message = str(error) or type(error).__name__
    return message if message.endswith(".") else f"{message}."
