"""Errors for unknown keyword arguments, and for options without their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from penstock.suggestions import did_you_mean

C = TypeVar("C", bound=type)


def lists_options(cls: C) -> C:
    """Decorate a class: its public methods name their options if they are given an unknown one, or
    one without its name."""
    for name, member in list(vars(cls).items()):
        if not name.startswith("_") and inspect.isfunction(member):
            setattr(cls, name, _checked(member))
    return cls


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(method).parameters.values()
    options = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    named = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    positional = [each.name for each in parameters if each.kind <= each.POSITIONAL_OR_KEYWORD]
    takes_any = any(each.kind is each.VAR_POSITIONAL for each in parameters)

    @wraps(method)
    def checked(*args: Any, **given: Any) -> Any:
        for option in given:
            if option not in named and option not in options:
                raise TypeError(
                    f"{method.__name__}() has no option '{option}'."
                    f"{did_you_mean(option, options)} "
                    + (f"Options: {', '.join(options)}." if options else "It has no options.")
                )
        if len(args) > len(positional) and options and not takes_any:
            arguments = ", ".join(positional[1:])
            raise TypeError(
                f"{method.__name__}({arguments}) takes its options by name, but got "
                f"{args[len(positional)]!r} without one. Options: {', '.join(options)}."
            )
        return method(*args, **given)

    return checked
