"""JSON serialization: plain values, dataclasses, `msgspec.Struct` and pydantic models.

This module does not import pydantic; it recognizes a model by its methods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import msgspec

from penstock.errors import SerializationException
from penstock.serdes.base import wrong_type_error
from penstock.serdes.types import checked_class

#: Checked serializer and deserializer, and their fast versions, if any.
Functions = tuple[
    Callable[[Any], bytes], Callable[[bytes], Any],
    Callable[[Any], bytes] | None, Callable[[bytes], Any] | None,
]


def json_functions(of: Any, *, sort_keys: bool) -> Functions:
    """Return the functions that serialize and deserialize a type; None stands for plain JSON."""
    if hasattr(of, "model_validate_json"):
        return _model_functions(of, sort_keys)
    encode = msgspec.json.Encoder(order="deterministic" if sort_keys else None).encode
    try:
        decode = msgspec.json.Decoder(Any if of is None else Optional[of]).decode  # noqa: UP045
    except TypeError as error:
        raise TypeError(
            f"Serdes.json does not support {of!r}: {error} "
            "Give a dataclass, a msgspec.Struct, a pydantic model, or nothing for plain JSON."
        ) from error
    name = getattr(of, "__name__", str(of))
    checked = checked_class(of)

    def serialize(value: Any) -> bytes:
        if checked is not None and not isinstance(value, checked):
            raise wrong_type_error(value, f"json({name})")
        try:
            return encode(value)
        except (ValueError, OverflowError, RecursionError) as error:
            raise SerializationException(
                f"A value of type {type(value).__name__} cannot be serialized as JSON: {error}."
            ) from error

    def deserialize(data: bytes) -> Any:
        try:
            return decode(data)
        except (ValueError, RecursionError) as error:
            what = "JSON" if of is None else f"a JSON {name}"
            raise SerializationException(f"The bytes are not {what}: {error}.") from error

    return serialize, deserialize, encode if checked is None else None, decode


def _model_functions(of: Any, sort_keys: bool) -> Functions:
    validate = of.model_validate_json
    name = of.__name__
    encode_sorted = msgspec.json.Encoder(order="deterministic").encode

    def serialize(value: Any) -> bytes:
        if not isinstance(value, of):
            raise wrong_type_error(value, f"json({name})")
        try:
            # By alias, as validation expects it.
            if sort_keys:
                return encode_sorted(value.model_dump(mode="json", by_alias=True))
            text: str = value.model_dump_json(by_alias=True)
            return text.encode()
        except ValueError as error:
            raise SerializationException(
                f"A value of type {name} cannot be serialized as JSON: {error}."
            ) from error

    def deserialize(data: bytes) -> Any:
        try:
            return validate(data)
        except ValueError as error:
            if data.strip() == b"null":
                return None
            raise SerializationException(
                f"The bytes are not a JSON {name}: {_validation_message(error)}."
            ) from error

    return serialize, deserialize, None, None


def _validation_message(error: Any) -> str:
    """Return the errors of pydantic and their fields on one line."""
    try:
        return "; ".join(
            f"{found['msg']} - at `{'.'.join(('$', *map(str, found['loc'])))}`"
            for found in error.errors(include_url=False)
        )
    except AttributeError:
        return str(error)
