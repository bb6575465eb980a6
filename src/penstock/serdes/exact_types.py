"""Finds objects of subclasses, whose own fields a serde of the base class cannot read back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from penstock.errors import SerializationException
from penstock.serdes.base import Serde
from penstock.serdes.types import is_model, plain_type

#: Returns the object whose class is not the declared one, and that class; None if there is none.
Finding = tuple[Any, type] | None
Finder = Callable[[Any], Finding]


def subclass_finder(of: Any) -> Finder | None:
    """Return the function that looks for objects of subclasses in a value of this type.

    None if the type has no classes with fields: dataclasses, structs and pydantic models.
    """
    return _Finders().finder(of)


class _Finders:
    """Creates the functions for a type and for the types of its fields."""

    def __init__(self) -> None:
        #: Class -> field -> function. A class may contain itself.
        self._fields: dict[type, dict[str, Finder]] = {}

    def finder(self, of: Any) -> Finder | None:
        of = plain_type(of)
        origin = get_origin(of) or of
        if origin in (Union, UnionType):
            return self._union(get_args(of))
        if has_fields(origin):
            return self._class(origin)
        if isinstance(origin, type) and issubclass(origin, dict):
            return self._elements(get_args(of)[1:], dict.values)
        if isinstance(origin, type) and issubclass(origin, list | tuple | set | frozenset):
            return self._elements(get_args(of), iter)
        return None

    def _class(self, cls: type) -> Finder:
        if cls not in self._fields:
            fields: dict[str, Finder] = {}
            self._fields[cls] = fields
            for name, of in _hints(cls).items():
                found = self.finder(of)
                if found is not None:
                    fields[name] = found
        nested = self._fields[cls]

        def find(value: Any) -> Finding:
            if value.__class__ is not cls:
                # A value of another class altogether is an error of the serde.
                return (value, cls) if isinstance(value, cls) else None
            for name, find_in in nested.items():
                held = getattr(value, name, None)
                finding = None if held is None else find_in(held)
                if finding is not None:
                    return finding
            return None

        return find

    def _union(self, members: tuple[Any, ...]) -> Finder | None:
        finders = {
            get_origin(plain_type(each)) or plain_type(each): self.finder(each) for each in members
        }
        if not any(finders.values()):
            return None

        def find(value: Any) -> Finding:
            cls = value.__class__
            if cls in finders:
                exact = finders[cls]
                return None if exact is None else exact(value)
            found = (each(value) for each in finders.values() if each is not None)
            return next((each for each in found if each is not None), None)

        return find

    def _elements(
        self, types: tuple[Any, ...], elements: Callable[[Any], Any]
    ) -> Finder | None:
        inner = next((found for found in map(self.finder, types) if found is not None), None)
        if inner is None:
            return None

        def find(value: Any) -> Finding:
            for element in elements(value):
                finding = None if element is None else inner(element)
                if finding is not None:
                    return finding
            return None

        return find


def has_fields(of: Any) -> bool:
    """Return whether the type is a class of which JSON reads only the declared fields."""
    return isinstance(of, type) and (
        dataclasses.is_dataclass(of) or issubclass(of, msgspec.Struct) or is_model(of)
    )


def _hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except (NameError, TypeError):
        # The serde cannot be created either.
        return {}


def exact_serde(serde: Serde[Any], of: Any, advice: str) -> Serde[Any]:
    """Return a serde that refuses objects of subclasses of the declared classes.

    `advice` says how to give a serde. A type without such classes has the serde unchanged.
    """
    find = subclass_finder(of)
    if find is None:
        return serde
    write = serde.serialize

    def serialize(value: Any) -> bytes:
        finding = find(value)
        if finding is not None:
            name, declared = type(finding[0]).__name__, finding[1].__name__
            raise SerializationException(
                f"A {name} was returned where the declared type is {declared}. The inferred serde "
                f"{serde.name} would lose the fields of {name} when it is read back. {advice}, or "
                f"declare {name}."
            )
        return write(value)

    exact: Serde[Any] = Serde(serialize, serde.deserialize, serde.name, serde.fixed_size)
    exact.python_type = serde.python_type
    exact.recipe = (exact_serde, (serde, of, advice))
    return exact.with_fast_path(None, serde.fast_deserialize)
