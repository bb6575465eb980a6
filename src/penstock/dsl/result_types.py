"""The type that a function returns, as far as it is certain; None if it is unknown.

Sources, in this order: the function is a class; it is a built-in with a known result; its return
annotation; its instructions, if it is a short function without branches (`expression_types`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    NoneType,
)
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from penstock.serdes.types import plain_type

#: A type or an annotation such as `list[str]`; None if it is unknown.
Type = Any

_STR_METHODS: dict[str, Type] = {
    **dict.fromkeys(
        (
            "capitalize", "casefold", "center", "expandtabs", "format", "join", "ljust", "lower",
            "lstrip", "removeprefix", "removesuffix", "replace", "rjust", "rstrip", "strip",
            "swapcase", "title", "translate", "upper", "zfill",
        ),
        str,
    ),
    **dict.fromkeys(
        (
            "endswith", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier",
            "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper", "startswith",
        ),
        bool,
    ),
    **dict.fromkeys(("count", "find", "index", "rfind", "rindex"), int),
    **dict.fromkeys(("rsplit", "split", "splitlines"), list[str]),
    **dict.fromkeys(("partition", "rpartition"), tuple[str, str, str]),
    "encode": bytes,
}
#: The results of methods of built-in types.
_METHODS: dict[type, dict[str, Type]] = {
    str: _STR_METHODS,
    bytes: {"decode": str, "hex": str},
    int: {"bit_length": int},
    float: {"is_integer": bool, "hex": str},
}
#: The results of built-in functions.
_FUNCTIONS: dict[Any, Type] = {
    len: int, ord: int, hash: int, id: int,
    chr: str, repr: str, ascii: str, format: str, hex: str, oct: str, bin: str,
    any: bool, all: bool, callable: bool, isinstance: bool, issubclass: bool, hasattr: bool,
}
#: Containers whose elements are unknown if nothing says more.
_BARE = (list, dict, tuple, set, frozenset)


def result_type(function: Any, *arguments: Type) -> Type:
    """Return the type of the function's result for arguments of these types."""
    if isinstance(function, type) or get_origin(function) is not None:
        return None if function in _BARE else function
    if isinstance(function, partial):
        return result_type(function.func)
    if isinstance(function, MethodDescriptorType):
        return _METHODS.get(function.__objclass__, {}).get(function.__name__)
    if isinstance(function, BuiltinFunctionType):
        return _built_in_result(function, arguments)
    declared = _annotation(function)
    if declared is not None:
        return known_type(declared)
    if isinstance(function, MethodType):
        function, arguments = function.__func__, (type(function.__self__), *arguments)
    if isinstance(function, FunctionType):
        from penstock.dsl.expression_types import expression_type

        return expression_type(function, arguments)
    return None


def known_type(declared: Type) -> Type:
    """Return an annotation without `None` as an alternative; None if it says nothing certain."""
    declared = plain_type(declared)
    if declared is Any or declared is object or declared in _BARE or isinstance(declared, TypeVar):
        return None
    return declared


def _annotation(function: Any) -> Type:
    """Return the return annotation; None if there is none or it cannot be resolved."""
    if not isinstance(function, FunctionType | MethodType):
        function = type(function).__call__
    try:
        return get_type_hints(function, include_extras=True).get("return")
    except (NameError, TypeError, AttributeError):
        return None


def _built_in_result(function: Any, arguments: tuple[Type, ...]) -> Type:
    first = arguments[0] if arguments else None
    if function is round and first in (int, float):
        if len(arguments) == 1:
            return int
        # round(x, None) is an int, too.
        return first if arguments[1] is int else None
    if function is abs and first in (int, float):
        return first
    if function in (min, max) and len(arguments) > 1 and len(set(map(repr, arguments))) == 1:
        return first
    owner = getattr(function, "__self__", None)
    if owner is not None and not inspect.ismodule(owner):
        return _METHODS.get(type(owner), {}).get(function.__name__)
    return _FUNCTIONS.get(function)


def method_result(owner: Type, name: str, arguments: tuple[Type, ...]) -> Type:
    """Return the type of the result of a method of `owner`."""
    owner = plain_type(owner)
    if owner in _METHODS:
        return _METHODS[owner].get(name)
    cls: Any = get_origin(owner) or owner
    if cls is dict and name == "get" and len(arguments) == 1 and len(get_args(owner)) == 2:
        return known_type(get_args(owner)[1])
    method = inspect.getattr_static(cls, name, None)
    if isinstance(method, FunctionType):
        return _substitute(owner, result_type(method, owner, *arguments))
    return None


def attribute_type(owner: Type, name: str) -> Type:
    """Return the declared type of a field or property; None if it is unknown."""
    owner = plain_type(owner)
    cls = get_origin(owner) or owner
    if not isinstance(cls, type):
        return None
    descriptor = inspect.getattr_static(cls, name, None)
    if isinstance(descriptor, property):
        return _substitute(owner, result_type(descriptor.fget, owner))
    try:
        declared = get_type_hints(cls, include_extras=True).get(name)
    except (NameError, TypeError):
        return None
    return _substitute(owner, None if declared is None else known_field(declared))


def known_field(declared: Type) -> Type:
    """Return a declared field type; a type variable stays, to be replaced by its argument."""
    return declared if isinstance(declared, TypeVar) else known_type(declared)


def _substitute(owner: Type, found: Type) -> Type:
    """Replace a type variable of a generic class by its argument: `Windowed[str].key` is str."""
    if not isinstance(found, TypeVar):
        return found
    parameters = getattr(get_origin(owner), "__parameters__", ())
    replaced = dict(zip(parameters, get_args(owner), strict=False)).get(found)
    return None if replaced is None else known_type(replaced)


def element_type(of: Type) -> Type:
    """Return the type of the elements of an iterable type."""
    of = plain_type(of)
    if of is str:
        return str
    origin, arguments = get_origin(of), get_args(of)
    if not isinstance(origin, type) or not issubclass(origin, Iterable) or not arguments:
        return None
    if origin is tuple:
        members = [each for each in arguments if each is not Ellipsis]
        same = len({repr(each) for each in members}) == 1
        return known_type(members[0]) if same else None
    if len(arguments) == 1 or issubclass(origin, dict | Iterator):
        return known_type(arguments[0])
    return None


def pair_types(of: Type) -> tuple[Type, Type]:
    """Return the types of key and value of a `tuple[K, V]`."""
    of = plain_type(of)
    arguments = get_args(of)
    origin: Any = get_origin(of)
    if origin is tuple and len(arguments) == 2 and Ellipsis not in arguments:
        return known_type(arguments[0]), known_type(arguments[1])
    return None, None


def display_name(function: Callable[..., Any]) -> str:
    """Return how errors name a function."""
    name: str = getattr(function, "__qualname__", type(function).__name__)
    return "the lambda" if name.endswith("<lambda>") else name.rsplit("<locals>.", 1)[-1]


def type_name(of: Type) -> str:
    """Return how errors name a type."""
    if of is NoneType:
        return "None"
    return of.__name__ if isinstance(of, type) and not get_args(of) else str(of)
