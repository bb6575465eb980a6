"""Checks of the user's functions: how many arguments each takes, decided when a step is added."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from penstock.errors import TopologyException
from penstock.processors.user import check_not_async

_VALUE_OR_BOTH = "(value) or (key, value)"
#: The parameters of each kind of function, for error messages.
_SIGNATURES = {
    "the predicate": _VALUE_OR_BOTH,
    "the mapper": _VALUE_OR_BOTH,
    "the selector": _VALUE_OR_BOTH,
    "the key selector": _VALUE_OR_BOTH,
    "the foreign-key function": _VALUE_OR_BOTH,
    "the action": _VALUE_OR_BOTH,
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


def argument_count(function: Callable[..., Any], *counts: int, step: str, what: str) -> int:
    """Return how many arguments to pass to the function: one of `counts`.

    1. The number of positional parameters without a default. Parameters with a default keep it.
    2. The only number that the function accepts.
    3. The largest number, if all that is left is `*args`.

    A function whose parameters with defaults could receive either number is refused. A function
    without a readable signature (some built-ins) gets the smallest number.
    """
    if not callable(function):
        raise TypeError(f"{step}: {what} must be a function, not {function!r}.")
    check_not_async(function, f"{step}: {what}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return min(counts)
    accepted = [count for count in sorted(counts) if _accepts(signature, count)]
    required, optional = _count_positional(signature)
    if required in accepted:
        return required
    if not accepted:
        raise _wrong_count_error(function, signature, counts, step=step, what=what)
    if len(accepted) > 1 and optional:
        raise TopologyException(
            f"{step}: {what} can take {_either(accepted)} arguments, because its parameters have "
            f"defaults: {_display_name(function)}{signature}. Pass a function whose parameters for "
            f"the arguments have no defaults: {_SIGNATURES.get(what, '')}."
        )
    return accepted[-1]


def _count_positional(signature: inspect.Signature) -> tuple[int, int]:
    """Return the numbers of positional parameters without and with a default."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    has_default = [
        parameter.default is not parameter.empty
        for parameter in signature.parameters.values() if parameter.kind in kinds
    ]
    return has_default.count(False), has_default.count(True)


def _wrong_count_error(
    function: Callable[..., Any], signature: inspect.Signature, counts: tuple[int, ...], *,
    step: str, what: str,
) -> TopologyException:
    parameters = _SIGNATURES.get(what, "")
    return TopologyException(
        f"{step}: {what} must take {_either(counts)} argument{'s' if max(counts) != 1 else ''}"
        f"{parameters and ', '}{parameters}, but it is {_display_name(function)}{signature}."
    )


def _either(counts: Iterable[int]) -> str:
    return " or ".join(str(count) for count in sorted(counts))


def _accepts(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def key_value_function(
    function: Callable[..., Any], *, step: str, what: str
) -> Callable[[Any, Any], Any]:
    """Return a function of (key, value); a function of one argument receives the value."""
    if argument_count(function, 1, 2, step=step, what=what) == 2:
        return function
    return lambda key, value: function(value)


def takes_key(function: Callable[..., Any], *, step: str, what: str) -> bool:
    """Return whether the function takes (key, value) rather than the value alone."""
    return argument_count(function, 1, 2, step=step, what=what) == 2


def joiner_takes_key(function: Callable[..., Any], *, step: str) -> bool:
    """Return whether a joiner takes (key, left, right) rather than (left, right)."""
    return argument_count(function, 2, 3, step=step, what="the joiner") == 3


def check_function(function: Callable[..., Any], count: int, *, step: str, what: str) -> None:
    """Raise if the function does not take `count` arguments."""
    argument_count(function, count, step=step, what=what)


def _display_name(function: Callable[..., Any]) -> str:
    name: str = getattr(function, "__qualname__", repr(function))
    return "<lambda>" if name.endswith("<lambda>") else name
