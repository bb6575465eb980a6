"""Python types as serdes see them: what an annotation stands for, and what JSON supports."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    TypeVar,
    Union,
    get_args,
    get_origin,
    is_typeddict,
)

import msgspec


def plain_type(of: Any) -> Any:
    """Return the type behind an annotation.

    `X | None` is X, because serdes never see None. `Annotated`, `NewType`, `type` aliases and
    literals of one type stand for that type.
    """
    origin = get_origin(of)
    if origin is Annotated:
        return plain_type(get_args(of)[0])
    if origin in (Union, UnionType):
        members = [each for each in get_args(of) if each is not NoneType]
        return plain_type(members[0]) if len(members) == 1 else of
    if origin is Literal:
        types = {type(each) for each in get_args(of)} - {NoneType}
        return types.pop() if len(types) == 1 else of
    if isinstance(of, NewType):
        return plain_type(of.__supertype__)
    if hasattr(of, "__value__") and hasattr(of, "__type_params__") and not isinstance(of, type):
        return plain_type(of.__value__)
    return of


def checked_class(of: Any) -> type | None:
    """Return the class whose instances a serde of this type accepts; None if it cannot be checked:
    generic aliases, and `TypedDict`, whose values are dicts."""
    is_class = isinstance(of, type) and not hasattr(of, "__args__") and not is_typeddict(of)
    return of if is_class else None


def is_model(of: Any) -> bool:
    """Return whether the type is a pydantic model."""
    return hasattr(of, "model_validate_json")


def json_supports(of: Any) -> bool:
    """Return whether JSON of this type can be read back as values of the type.

    `Any`, `object` and type variables are too wide, and other classes than dataclasses, structs and
    pydantic models are unknown to JSON. `dict[str, Any]` is plain JSON.
    """
    if of is Any or of is object or isinstance(of, str | TypeVar):
        return False
    if is_model(of):
        return True
    try:
        info = msgspec.inspect.type_info(of)
        msgspec.json.Decoder(of)
    except (TypeError, ValueError, NameError):
        return False
    return not _contains_custom(info, set())


def _contains_custom(info: Any, visited: set[int]) -> bool:
    if id(info) in visited:
        return False
    visited.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        return True
    if isinstance(info, tuple):
        return any(_contains_custom(each, visited) for each in info)
    if isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
        return any(
            _contains_custom(getattr(info, name), visited) for name in info.__struct_fields__
        )
    return False
