"""Serdes as arguments: a serde, or a type that has one."""

from __future__ import annotations

from typing import Any, get_origin

from penstock.serdes.base import Serde
from penstock.serdes.builtin import find_serde


def given_serde(given: Any, option: str, *, where: str) -> Serde[Any] | None:
    """Return the serde for an argument named `option`; None if it was not given.

    `where` begins the error: the step or the object that the argument belongs to.
    """
    if given is None or isinstance(given, Serde):
        return given
    if is_type(given):
        found = find_serde(given, sort_keys=option == "key")
        if found is not None:
            return found
    hint = "str, Order, Serdes.string() or Serdes.json(Order), for example."
    if isinstance(given, type) and issubclass(given, Serde):
        hint = f"Call it: {given.__name__}()."
    elif callable(given) and getattr(given, "__module__", "") == "penstock.serdes.builtin":
        hint = f"Call it: Serdes.{given.__name__}()."
    raise TypeError(
        f"{where}: {option}= takes a serde or a type that has one, not {_describe(given)}. {hint}"
    )


def is_type(given: Any) -> bool:
    """Return whether an argument is a type that may have a serde: `str`, `list[int]`."""
    if isinstance(given, type):
        return not issubclass(given, Serde)
    return get_origin(given) is not None


def _describe(argument: Any) -> str:
    if callable(argument):
        return f"{getattr(argument, '__name__', type(argument).__name__)!r}"
    return f"{type(argument).__name__}: {argument!r}"
