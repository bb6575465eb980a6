"""MessagePack serialization of plain values, dataclasses, `msgspec.Struct` and pydantic models."""

from __future__ import annotations

from typing import Any, Optional

import msgspec

from penstock.errors import SerializationException
from penstock.serdes.base import wrong_type_error
from penstock.serdes.json import Functions
from penstock.serdes.types import checked_class, is_model


def msgpack_functions(of: Any, *, sort_keys: bool) -> Functions:
    """Return the functions that serialize and deserialize a type; None stands for plain values."""
    encode = msgspec.msgpack.Encoder(order="deterministic" if sort_keys else None).encode
    name = getattr(of, "__name__", str(of))
    model = is_model(of)
    try:
        kind = Any if of is None or model else Optional[of]  # noqa: UP045
        decode = msgspec.msgpack.Decoder(kind).decode
    except TypeError as error:
        raise TypeError(
            f"Serdes.msgpack does not support {of!r}: {error} "
            "Give a dataclass, a msgspec.Struct, a pydantic model, or nothing for plain values."
        ) from error
    checked = checked_class(of)

    def serialize(value: Any) -> bytes:
        if checked is not None and not isinstance(value, checked):
            raise wrong_type_error(value, f"msgpack({name})")
        try:
            return encode(value.model_dump(by_alias=True) if model else value)
        except (ValueError, OverflowError, RecursionError) as error:
            raise SerializationException(
                f"A value of type {type(value).__name__} cannot be serialized as MessagePack: "
                f"{error}."
            ) from error

    def deserialize(data: bytes) -> Any:
        try:
            value = decode(data)
            return of.model_validate(value) if model and value is not None else value
        except (ValueError, RecursionError) as error:
            what = "MessagePack" if of is None else f"a MessagePack {name}"
            raise SerializationException(f"The bytes are not {what}: {error}.") from error

    fast = checked is None and not model
    return serialize, deserialize, encode if fast else None, None if model else decode
