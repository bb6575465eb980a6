"""The user's functions: how many arguments they take, told once, when the topology is built."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from penstock.errors import TopologyException

_OF_RECORD = "(value) or (key, value)"
#: What the arguments are, for messages.
_SHAPES = {
    "the predicate": _OF_RECORD,
    "the mapper": _OF_RECORD,
    "the selector": _OF_RECORD,
    "the key selector": _OF_RECORD,
    "the foreign-key function": _OF_RECORD,
    "the action": _OF_RECORD,
    "the joiner": "(left, right) or (key, left, right)",
    "the joiner of two tables": "(left, right)",
    "the reducer": "(aggregate, value)",
    "the aggregator": "(key, value, aggregate)",
    "the adder": "(key, value, aggregate), or (aggregate, value) to reduce",
    "the subtractor": "(key, value, aggregate), or (aggregate, value) to reduce",
    "the merger": "(key, aggregate, aggregate)",
    "the timestamp extractor": "(record, partition_time)",
    "the partitioner": "(topic, key, value, partitions)",
    "the function that names the topic": "(key, value, context)",
}


def takes(function: Callable[..., Any], *counts: int, step: str, what: str) -> int:
    """How many arguments to call the function with, out of `counts`.

    That is the number of arguments it requires, or else the largest number it accepts. A function
    whose signature cannot be read (some built-ins, `int`, `str`) is taken to want the smallest.
    """
    if not callable(function):
        raise TypeError(f"{step}: {what} must be a function, not {function!r}.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return min(counts)
    required = sum(
        parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in signature.parameters.values()
    )
    if required in counts:
        return required
    for count in sorted(counts, reverse=True):
        if _accepts(signature, count):
            return count
    wanted = " or ".join(str(count) for count in sorted(counts))
    shape = _SHAPES.get(what, "")
    raise TopologyException(
        f"{step}: {what} must take {wanted} argument{'s' if max(counts) != 1 else ''}"
        f"{shape and ', '}{shape}, but it is {_name(function)}{signature}."
    )


def _accepts(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def key_value_function(
    function: Callable[..., Any], *, step: str, what: str
) -> Callable[[Any, Any], Any]:
    """A function of (key, value); one that takes a single argument gets the value."""
    if takes(function, 1, 2, step=step, what=what) == 2:
        return function
    return lambda key, value: function(value)


def value_function(function: Callable[..., Any], *, step: str, what: str) -> bool:
    """True if the function wants (key, value), False if it wants the value alone."""
    return takes(function, 1, 2, step=step, what=what) == 2


def joiner_function(function: Callable[..., Any], *, step: str) -> bool:
    """True if a joiner wants (key, left, right), False if (left, right)."""
    return takes(function, 2, 3, step=step, what="the joiner") == 3


def plain_function(function: Callable[..., Any], count: int, *, step: str, what: str) -> Any:
    """A function with a fixed number of arguments, checked."""
    takes(function, count, step=step, what=what)
    return function


def _name(function: Callable[..., Any]) -> str:
    name: str = getattr(function, "__qualname__", repr(function))
    return "<lambda>" if name.endswith("<lambda>") else name
