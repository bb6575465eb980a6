"""The JSON form of values: plain, or into a dataclass, a `msgspec.Struct` or a pydantic model.

pydantic is never imported: a model is known by its methods, so it costs nothing if it is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import msgspec

from penstock.errors import SerializationException
from penstock.serdes.base import wrong_type

#: Writes and reads with care, and the same without, where that is possible.
Functions = tuple[
    Callable[[Any], bytes], Callable[[bytes], Any],
    Callable[[Any], bytes] | None, Callable[[bytes], Any] | None,
]


def json_functions(of: Any, *, sort_keys: bool) -> Functions:
    """The functions that write and read JSON for a type; None: whatever the JSON says."""
    if hasattr(of, "model_validate_json"):
        return _of_model(of, sort_keys)
    encode = msgspec.json.Encoder(order="deterministic" if sort_keys else None).encode
    try:
        decode = msgspec.json.Decoder(Any if of is None else Optional[of]).decode  # noqa: UP045
    except TypeError as error:
        raise TypeError(
            f"Serdes.json cannot read into {of!r}: {error} "
            "Give a dataclass, a msgspec.Struct, a pydantic model, or nothing for plain JSON."
        ) from error
    name = getattr(of, "__name__", str(of))
    checked = of if isinstance(of, type) and not hasattr(of, "__args__") else None

    def serialize(value: Any) -> bytes:
        if checked is not None and not isinstance(value, checked):
            raise wrong_type(value, f"json({name})")
        try:
            return encode(value)
        except (ValueError, OverflowError, RecursionError) as error:
            raise SerializationException(
                f"A {type(value).__name__} cannot be written as JSON: {error}."
            ) from error

    def deserialize(data: bytes) -> Any:
        try:
            return decode(data)
        except (ValueError, RecursionError) as error:
            what = "JSON" if of is None else f"a JSON {name}"
            raise SerializationException(f"The bytes are not {what}: {error}.") from error

    return serialize, deserialize, encode if checked is None else None, decode


def _of_model(of: Any, sort_keys: bool) -> Functions:
    validate = of.model_validate_json
    name = of.__name__
    encode_sorted = msgspec.json.Encoder(order="deterministic").encode

    def serialize(value: Any) -> bytes:
        if not isinstance(value, of):
            raise wrong_type(value, f"json({name})")
        try:
            # By alias, because that is what validation reads.
            if sort_keys:
                return encode_sorted(value.model_dump(mode="json", by_alias=True))
            text: str = value.model_dump_json(by_alias=True)
            return text.encode()
        except ValueError as error:
            raise SerializationException(f"A {name} cannot be written: {error}.") from error

    def deserialize(data: bytes) -> Any:
        try:
            return validate(data)
        except ValueError as error:
            if data.strip() == b"null":
                return None
            raise SerializationException(
                f"The bytes are not a JSON {name}: {_complaint(error)}."
            ) from error

    return serialize, deserialize, None, None


def _complaint(error: Any) -> str:
    """What pydantic found wrong, and in which fields, on one line."""
    try:
        return "; ".join(
            f"{found['msg']} - at `{'.'.join(('$', *map(str, found['loc'])))}`"
            for found in error.errors(include_url=False)
        )
    except AttributeError:
        return str(error)
